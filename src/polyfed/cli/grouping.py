"""Options that several commands share: a dataclass whose fields are options, as one parameter of a command.

@dataclass
class DataOptions:
    client: Annotated[str | None, typer.Option(help="...")] = None

@grouped
def run(data: DataOptions) -> None: ...       # polyfed run --client ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints


def grouped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the fields of its dataclass parameters as parameters of its own."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if is_dataclass(hint) and isinstance(hint, type):
            groups[name] = hint
            own = get_type_hints(hint, include_extras=True)
            parameters += [
                inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=_default(f), annotation=own[f.name])
                for f in fields(hint)
            ]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint))

    @functools.wraps(function)
    def command(**given: Any) -> Any:
        made = {name: group(**{f.name: given.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        return function(**given, **made)

    del command.__wrapped__  # or its own signature would be taken
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _default(field: Field[Any]) -> Any:
    return field.default if field.default is not MISSING else inspect.Parameter.empty
