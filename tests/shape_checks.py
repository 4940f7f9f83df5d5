"""The shapes that `gp` writes into its types, checked at run time while tests run: `Float[Tensor, "*batch N N"]`.

`gp` imports these types for type checkers alone, so that nobody needs jaxtyping to use it; here they are names that any module
knows when its functions are made. Other types are the business of pyright.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import jaxtyping
from beartype import beartype

GP = Path(__file__).resolve().parents[1] / "src/polyfed/gp"


def checker(function: Callable) -> Callable:
    """`beartype` of those hints alone that have a shape."""
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if has_shape(hint)}
    return beartype(function)


def has_shape(hint: object) -> bool:
    is_shape = isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)
    return is_shape or any(has_shape(inner) for inner in get_args(hint))


def install() -> None:
    """From the next import of `polyfed.gp` on; not for what is compiled, whose functions are not Python's."""
    setattr(builtins, "Float", jaxtyping.Float)  # noqa: B010 (a name that builtins do not have)
    names = [path.stem for path in GP.iterdir() if path.stem not in ("__init__", "__pycache__", "compiled")]
    jaxtyping.install_import_hook([f"polyfed.gp.{name}" for name in names], "shape_checks.checker")
