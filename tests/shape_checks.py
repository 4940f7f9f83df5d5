"""The shapes that `gp` writes into its types, checked at run time while tests run: `Float[Tensor, "*batch N N"]`.

`gp` imports these types for type checkers alone, so that nobody needs jaxtyping to use it; here they are names that any module
knows when its functions are made. Other types are the business of pyright. What was right for arguments and results of some
shapes is right for all others of these shapes: a function is checked once for each of them.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Hashable
from dataclasses import is_dataclass
from functools import cache, partial, wraps
from pathlib import Path
from types import FunctionType
from typing import Any, get_args

import jaxtyping
import torch
from beartype import beartype

GP = Path(__file__).resolve().parents[1] / "src/polyfed/gp"
every_time = jaxtyping.jaxtyped


def checker(function: Callable) -> Callable:
    """`beartype` of those hints alone that have a shape."""
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if has_shape(hint)}
    return beartype(function)


def has_shape(hint: object) -> bool:
    is_shape = isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)
    return is_shape or any(has_shape(inner) for inner in get_args(hint))


def once_for_each_shape(made: Any = None, *, typechecker: Callable) -> Any:
    """`jaxtyping.jaxtyped`, of functions that say shapes and of what they have not met yet."""
    if made is None:
        return partial(once_for_each_shape, typechecker=typechecker)
    if isinstance(made, type):
        if is_dataclass(made) and "__init__" in vars(made):
            setattr(made, "__init__", once_for_each_shape(made.__init__, typechecker=typechecker))  # noqa: B010
        return made
    if not any("Float[" in str(hint) for hint in made.__annotations__.values()):
        return made
    results: list[Any] = []

    def known(*_: Any, **__: Any) -> Any:
        return results.pop()

    # where the names of the hints are known
    stand_in = wraps(made)(FunctionType(known.__code__, made.__globals__, closure=known.__closure__))
    met: set[Hashable] = set()

    @cache  # making them takes longer than most calls
    def checks() -> tuple[Callable, ...]:
        return tuple(every_time(one, typechecker=typechecker) for one in (made, stand_in))

    @wraps(made)
    def function(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        given = form(args), form(kwargs)
        if given not in met:
            result = checks()[0](*args, **kwargs)
        else:
            result = made(*args, **kwargs)
            if (given, form(result)) not in met:
                results.append(result)
                checks()[1](*args, **kwargs)
        met.update((given, (given, form(result))))
        return result

    return function


def form(value: Any) -> Hashable:
    """All that a check looks at: shapes, kinds of numbers, and numbers that a shape may name."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    if isinstance(value, tuple | list):
        return tuple(form(each) for each in value)
    if isinstance(value, dict):
        return tuple((name, form(each)) for name, each in value.items())
    return value if isinstance(value, int) else type(value)


def install() -> None:
    """From the next import of `polyfed.gp` on; not for what is compiled, whose functions are not Python's."""
    setattr(builtins, "Float", jaxtyping.Float)  # noqa: B010 (a name that builtins do not have)
    setattr(jaxtyping, "jaxtyped", once_for_each_shape)  # noqa: B010 (which the hook asks for by this name)
    names = [path.stem for path in GP.iterdir() if path.stem not in ("__init__", "__pycache__", "compiled")]
    jaxtyping.install_import_hook([f"polyfed.gp.{name}" for name in names], "shape_checks.checker")
