"""Pages of the reference that the code writes itself, before the site is built: nothing in them can be out of date."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from generated_api import PARTS
from generated_documents import documents_page, errors_page
from generated_tables import code, described, sentence, table
from papers import PAPERS

FOLDER = "reference/generated"


# ---- the command line -----------------------------------------------------------------------------------------------


def commands() -> dict[str, Any]:
    """Name → command as click has it, those of `deploy` as "deploy init"."""
    from polyfed.cli.app import command

    found: dict[str, Any] = {}
    for name, made in command().commands.items():
        parts = getattr(made, "commands", None)
        found |= {f"{name} {part}": inner for part, inner in parts.items()} if parts else {name: made}
    return found


def cli_page() -> str:
    """Every command, argument and option."""
    text = [
        "# Command line",
        "This page is made from the commands themselves. [The command line, by what you want to do](../../cli.md) shows them "
        "at work; `polyfed COMMAND --help` says the same in a terminal.",
        table(
            ["command", "what it does"],
            [[f"[`{n}`](#polyfed-{_slug(n)})", sentence(c.help)] for n, c in commands().items()],
        ),
    ]
    for name, made in commands().items():
        arguments = [p for p in made.params if p.param_type_name == "argument"]
        options = [p for p in made.params if p.param_type_name == "option"]
        usage = " ".join(["polyfed", name, *(_metavar(p) for p in arguments), "[OPTIONS]" if options else ""]).strip()
        text += [f"## polyfed {name}", " ".join((made.help or "").split()), f"```text\n{usage}\n```"]
        if arguments:
            text.append(
                table(
                    ["argument", "what it is"], [[code(_metavar(p)), getattr(p, "help", "") or ""] for p in arguments]
                )
            )
        if options:
            rows = [[_flags(p), _default(p), p.help or ""] for p in options]
            text.append(table(["option", "default", "what it is"], rows))
    return "\n\n".join(text)


def _slug(name: str) -> str:
    return name.replace(" ", "-")


def _metavar(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _flags(option: Any) -> str:
    return ", ".join(code(flag) for flag in [*option.opts, *option.secondary_opts])


def _default(option: Any) -> str:
    default = option.default
    if default is None or default is False or callable(default) or type(default).__name__ == "Sentinel":
        return ""
    return "" if default == [] or default == () else code("yes" if default is True else default)


# ---- configs --------------------------------------------------------------------------------------------------------


def config_page() -> str:
    """All sections of a config file."""
    from polyfed.engine.settings import Settings
    from polyfed.experiments.config import CompareConfig, DataConfig, ImagesConfig, MethodConfig, RunConfig, TaskConfig

    sections = {
        "[data]": (DataConfig, {}),
        "[[data.tasks]]": (TaskConfig, _TASK),
        "[data.images]": (ImagesConfig, {}),
        "[method]": (MethodConfig, {"name": "which method; all further keys are its [options](methods.md)"}),
        "[run]": (RunConfig, {**described(Settings), "folder": "where the run is kept, if `--out` does not say"}),
        "[compare]": (CompareConfig, {}),
    }
    text = [
        "# Config files",
        "A config is a TOML file with these sections; an unknown key, a wrong type or a value out of range is an error that "
        "names the key. `polyfed init TABLE --out study.toml` writes one with comments, `--set SECTION.KEY=VALUE` replaces "
        "a value on the command line. This page is made from the models that check the file.",
    ]
    for name, (model, more) in sections.items():
        said = {**more, **described(model)}
        rows = [
            [code(key), code(_type(field.annotation)), _field_default(field), said.get(key, "")]
            for key, field in model.model_fields.items()
        ]
        text += [f"## {name}", sentence(model.__doc__), table(["key", "type", "default", "what it is"], rows)]
    return "\n\n".join(text)


_TASK = {
    "name": "the column",
    "kind": "one of the [kinds](kinds.md)",
    "classes": "binary: negative, positive; multiclass: all in order; learned from the labels if not given",
    "likelihood": "multiclass only: `one-vs-each` or `logistic-softmax`",
    "temperature": "of the logistic-softmax",
    "dof": "robust only: degrees of freedom of the Student-t noise",
    "power": "the likelihood is raised to this power",
    "class_weights": "classes only: `balanced`, or how much each class weighs in training",
}


def _type(annotation: Any) -> str:
    text = (
        annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else str(annotation)
    )
    text = re.sub(r"typing\.|polyfed\.[\w.]*\.", "", text)
    return re.sub(r"Annotated\[(.*?), FieldInfo.*?\)\]\)?\]?", r"\1", text).replace(" | None", "")


def _field_default(field: Any) -> str:
    if field.default_factory is not None:
        made = field.default_factory()
        return code(made) if made else ""
    return "required" if field.is_required() else code(field.default)


# ---- methods and kinds ----------------------------------------------------------------------------------------------


def methods_page() -> str:
    """The methods that polyfed brings, their papers and their options."""
    from polyfed.methods import METHODS

    text = [
        "# Methods and their options",
        "Made from the methods themselves; [Methods](../../methods.md) tells how they differ and how to add one, "
        "[Choose a method](../../start/choose-a-method.md) which one to take.",
        table(
            ["method", "what it is", "paper", "class"],
            [
                [code(name), made.summary, _cited(name), f"[`{made.__name__}`](../api/methods.md)"]
                for name, made in METHODS.items()
            ],
        ),
        "Options are keys of `[method]` in a config, `--set method.NAME=VALUE` on the command line, or keywords of "
        "`simulate`. Methods with the same options and defaults are listed once.",
    ]
    alike: dict[str, list[str]] = {}
    for name, made in METHODS.items():
        rows = [[code(o.name), code(_option_default(o)), described(made).get(o.name, "")] for o in _options(made)]
        alike.setdefault(table(["option", "default", "what it is"], rows), []).append(name)
    for options, names in alike.items():
        text += [f"## {', '.join(names)}", options]
    return "\n\n".join(text)


def _cited(name: str) -> str:
    return " ".join(f"{{cite:p}}`{key}`" for key in PAPERS[name])


def _options(made: type) -> list[Any]:
    return list(fields(made)) if is_dataclass(made) else []


def _option_default(option: Any) -> Any:
    default = option.default_factory() if option.default_factory is not MISSING else option.default
    return None if default is MISSING or default is None else list(default) if isinstance(default, tuple) else default


def kinds_page() -> str:
    """The kinds of tasks: likelihood, what a prediction has, what is measured."""
    from polyfed.kinds import KINDS

    rows = [
        [
            f"`{name}`",
            f"`{_likelihood(kind)}`",
            f"[`{kind.part('prediction').__name__}`](../api/predictions.md)",
            f"`{kind.headline}`, `{kind.loss}`",
            ", ".join(f"`{metric}`" for metric in kind.metrics),
        ]
        for name, kind in KINDS.items()
    ]
    return "\n\n".join(
        [
            "# Kinds of tasks",
            "Made from the code; [Choose a kind](../../start/choose-a-kind.md) says which one a column is. The first of the "
            "two scores is shown first, by the second one models are chosen on validation rows.",
            table(["kind", "likelihood", "prediction", "headline, loss", "all scores"], rows),
        ]
    )


def _likelihood(kind: Any) -> str:
    """The name of the class, of several the default's."""
    given = kind.likelihood if isinstance(kind.likelihood, str) else next(iter(kind.likelihood.values()))
    return given.partition(":")[2]


PAGES: dict[str, Callable[[], str]] = {
    "cli": cli_page,
    "config": config_page,
    "methods": methods_page,
    "kinds": kinds_page,
    "documents": documents_page,
    "errors": errors_page,
    **PARTS,
}


def _write(app: Any, config: Any) -> None:
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path, text = folder / f"{name}.md", page() + "\n"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    app.connect("config-inited", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
