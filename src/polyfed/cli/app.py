"""The commands, put together."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_type_hints

import typer

from polyfed.cli import (
    compare,
    datasets,
    demo,
    deploy,
    doctor,
    examples,
    export,
    init,
    join,
    methods,
    names,
    predict,
    report,
    reproduce,
    run,
    schema,
    watch,
)
from polyfed.errors import Interrupted, PolyfedError
from polyfed.files import reject_unnameable

COMMANDS = (
    (demo, "Begin here"),
    (examples, "Begin here"),
    (init, "Begin here"),
    (run, "Runs"),
    (compare, "Runs"),
    (reproduce, "Runs"),
    (predict, "What a run knows"),
    (join, "What a run knows"),
    (report, "What a run knows"),
    (watch, "What a run knows"),
    (export, "What a run knows"),
    (methods, "What there is"),
    (names, "What there is"),
    (datasets, "What there is"),
    (doctor, "What there is"),
    (schema, "What there is"),
)

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


def _name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


class Stopped(PolyfedError):
    """Ctrl-C, as an error that typer lets through: a KeyboardInterrupt it would end without a word."""

    exit_code = Interrupted.exit_code


def _stoppable(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
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


for _module, _panel in COMMANDS:
    app.command(_name(_module), rich_help_panel=_panel)(_stoppable(_module.command))

_deploy = typer.Typer(help="The same studies on many machines, with Flower between them.")
for _part, _function in deploy.COMMANDS.items():
    _deploy.command(_part)(_stoppable(_function))
app.add_typer(_deploy, name="deploy", rich_help_panel="Many machines")


@functools.cache
def command() -> Any:
    """All commands, as click has them."""
    group: Any = typer.main.get_command(app)
    for module, _ in COMMANDS:
        _restore_help(group.commands[_name(module)], module.command)
    for name, function in deploy.COMMANDS.items():
        _restore_help(group.commands["deploy"].commands[name], function)
    return group


def _restore_help(made: Any, function: Callable[..., Any]) -> None:
    """Newer versions of click take the help of an argument for their own and forget it, so it is set again."""
    hints = get_type_hints(function, include_extras=True)
    for parameter in made.params:
        if parameter.param_type_name == "argument" and not getattr(parameter, "help", None):
            reported = [
                extra.help for extra in getattr(hints[parameter.name], "__metadata__", ()) if hasattr(extra, "help")
            ]
            parameter.help = reported[0] if reported else None
