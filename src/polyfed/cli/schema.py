"""`polyfed schema`: what --json prints, described for programs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from polyfed.cli.output import say
from polyfed.errors import ConfigError, nearest


def command(
    name: Annotated[
        str | None, typer.Argument(help="A command; all of them if not given.", metavar="[COMMAND]")
    ] = None,
) -> None:
    """Print the JSON schema of what a command prints with --json."""
    from polyfed.cli.deploy_documents import DEPLOY_DOCUMENTS
    from polyfed.cli.documents import DOCUMENTS

    known = {**DOCUMENTS, **DEPLOY_DOCUMENTS}
    if name is not None and name not in known:
        raise ConfigError(f"command {name!r} prints no document", remedy=nearest(name, known))
    schemas = {command: model.model_json_schema() for command, model in known.items() if name in (None, command)}
    say(json.dumps(schemas if name is None else schemas[name], indent=2))
