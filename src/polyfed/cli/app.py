"""The commands, put together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from polyfed.cli import begin, compare, deploy, export, listing, pages, predict, reproduce, run
from polyfed.errors import Interrupted, PolyfedError
from polyfed.files import reject_unnameable

Function = Callable[..., None]

# Panel of the help → its commands.
PANELS: dict[str, dict[str, Function]] = {
    "Begin here": {"demo": compare.demo, "examples": begin.examples, "init": begin.init},
    "Runs": {"run": run.command, "compare": compare.compare, "reproduce": reproduce.command},
    "What a run knows": {
        "predict": predict.predict,
        "join": predict.join,
        "report": pages.report,
        "watch": pages.watch,
        "export": export.export,
    },
    "What there is": {
        "methods": listing.methods,
        "names": listing.names,
        "datasets": listing.datasets,
        "doctor": listing.doctor,
        "schema": listing.schema,
    },
}

app = typer.Typer(
    name="polyfed",
    help="Personalised Bayesian federated learning for several correlated tasks of different kinds.",
    epilog="Exit codes: 0 fine, 1 failed, 2 usage, 3 settings, 4 data, 5 numbers, 6 a part is not installed, 130 Ctrl-C.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from polyfed import __version__

        typer.echo(f"polyfed {__version__}")
        raise typer.Exit


@app.callback()
def _polyfed(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    context.ensure_object(dict)["debug"] = debug


class Stopped(PolyfedError):
    """Ctrl-C, as an error that typer lets through: a KeyboardInterrupt it would end without a word."""

    exit_code = Interrupted.exit_code


def _stoppable(function: Function) -> Function:
    @functools.wraps(function)
    def run(*arguments: object, **options: object) -> None:
        try:
            for name, value in options.items():
                if isinstance(value, Path) or (name == "data" and isinstance(value, str)):
                    reject_unnameable(value)
            return function(*arguments, **options)
        except Interrupted as error:
            raise Stopped(error.what, where=error.where, remedy=error.remedy) from error
        except KeyboardInterrupt as error:
            raise Stopped("interrupted") from error

    return run


for _panel, _commands in PANELS.items():
    for _command, _function in _commands.items():
        app.command(_command, rich_help_panel=_panel)(_stoppable(_function))

_deploy = typer.Typer(help="The same studies on many machines, with Flower between them.")
for _command, _function in deploy.COMMANDS.items():
    _deploy.command(_command)(_stoppable(_function))
app.add_typer(_deploy, name="deploy", rich_help_panel="Many machines")


@functools.cache
def command() -> Any:
    group: Any = typer.main.get_command(app)
    for commands in PANELS.values():
        _restore_help(group, commands)
    _restore_help(group.commands["deploy"], deploy.COMMANDS)
    return group


def _restore_help(group: Any, functions: Mapping[str, Function]) -> None:
    """Newer versions of click take the help of an argument for their own and forget it, so it is set again."""
    for name, function in functions.items():
        hints = get_type_hints(function, include_extras=True)
        for parameter in group.commands[name].params:
            if parameter.param_type_name == "argument" and not getattr(parameter, "help", None):
                extras = getattr(hints[parameter.name], "__metadata__", ())
                parameter.help = next((extra.help for extra in extras if hasattr(extra, "help")), None)
