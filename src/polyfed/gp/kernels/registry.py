"""Kernels by name and by expression: `rbf`, `rbf + periodic(period=2.0)`, `matern52 * (linear + periodic)`.

A text is read, never run: it is made of known names, `+`, `*`, parentheses and numbers. Known are the kernels of polyfed, those
that `register` was given, and those that other packages registered under the entry point `polyfed.kernels`.

>>> str(kernel_of("matern52*(linear+periodic(period=2))"))
'matern52 * (linear + periodic(period=2.0))'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from reprlib import repr as shorten

from polyfed.errors import ConfigError, nearest
from polyfed.gp.kernels.base import Kernel
from polyfed.gp.kernels.metric import affine, cauchy, laplace, linear, matern32, matern52, rbf
from polyfed.gp.kernels.periodic import periodic
from polyfed.plugins import registered

KernelLike = str | Kernel
LONGEST = 200  # characters of an expression; far more than anyone has data to learn
DEEPEST = 20  # parentheses within each other
_TOKEN = re.compile(r"\s*([A-Za-z_][\w-]*|\d+\.?\d*(?:[eE][+-]?\d+)?|[-+*(),=])")

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel for kernel in (rbf, laplace, cauchy, matern32, matern52, linear, affine, periodic)
}


def register(kernel: Kernel) -> Kernel:
    """Make a kernel known by its name, here and in all that this process reads."""
    name = getattr(kernel, "name", None)
    if not isinstance(kernel, Kernel) or not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][\w-]*", name):
        raise ConfigError(
            f"{shorten(kernel)} with name {name!r} is no kernel", remedy="give a Kernel whose name is a word"
        )
    if KERNELS.get(name, kernel) != kernel:
        raise ConfigError(f"there is another kernel {name!r}", remedy="choose another name")
    KERNELS[name] = kernel
    return kernel


def known_kernels() -> dict[str, Kernel]:
    """All of them; a package that cannot be imported is left out with a warning."""
    return registered("kernels", "kernel", Kernel) | KERNELS


def kernel_of(given: object) -> Kernel:
    """The kernel that a name or an expression means; a kernel itself is what it is."""
    if isinstance(given, Kernel):
        return given
    if isinstance(given, str) and given in KERNELS:
        return KERNELS[given]
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(f"kernel {shorten(given)} is unknown", remedy=nearest(given, known_kernels()))
    if len(given) > LONGEST:
        raise ConfigError(f"a kernel of {len(given)} characters", remedy=f"give at most {LONGEST}")
    return _Reader(given).read()


def text_of(given: KernelLike) -> str:
    """The text that means this kernel; an error if there is none."""
    kernel = kernel_of(given)
    text = str(kernel)
    try:
        same = kernel_of(text) == kernel
    except ConfigError:
        same = False
    if not same:
        raise ConfigError(
            f"kernel {shorten(text)} is not known by its name, and could not be stored",
            remedy="give each of its parts to polyfed.gp.kernels.register",
        )
    return text


def texts_of(given: KernelLike | Sequence[KernelLike]) -> str | tuple[str, ...]:
    """The same for one kernel, or one for each latent."""
    if isinstance(given, (str, Kernel)) or not isinstance(given, Sequence):
        return text_of(given)
    return tuple(text_of(one) for one in given)


class _Reader:
    """sum = product {"+" product};  product = part {"*" part};  part = "(" sum ")" | name ["(" option "=" number ... ")"]"""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, at = text, [], 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._wrong(f"has {text[at:].strip()[:1]!r} in it")
            self.tokens.append(found[1])
            at = found.end()
        self.at, self.depth = 0, 0

    def read(self) -> Kernel:
        kernel = self._sum()
        if self._next() is not None:
            raise self._wrong(f"goes on with {self._next()!r}")
        return kernel

    def _sum(self) -> Kernel:
        kernel = self._product()
        while self._take("+"):
            kernel = kernel + self._product()
        return kernel

    def _product(self) -> Kernel:
        kernel = self._part()
        while self._take("*"):
            kernel = kernel * self._part()
        return kernel

    def _part(self) -> Kernel:
        if self._take("("):
            self.depth += 1
            if self.depth > DEEPEST:
                raise self._wrong(f"has more than {DEEPEST} parentheses within each other")
            kernel = self._sum()
            self._expect(")")
            self.depth -= 1
            return kernel
        name = self._word("a kernel")
        known = KERNELS if name in KERNELS else known_kernels()
        if name not in known:
            raise ConfigError(f"kernel {name!r} is unknown", remedy=nearest(name, known))
        return self._with_options(known[name]) if self._take("(") else known[name]

    def _with_options(self, kernel: Kernel) -> Kernel:
        given: dict[str, float] = {}
        while True:
            option = self._word("an option")
            if option not in kernel.options:
                has = nearest(option, kernel.options) if kernel.options else "write its name alone"
                raise ConfigError(f"kernel {kernel.name!r} has no option {option!r}", remedy=has)
            self._expect("=")
            token = self._next() or ""
            if not token[:1].isdigit():
                raise self._wrong(f"has no number for {option!r}")
            given[option] = float(token)
            self.at += 1
            if not self._take(","):
                self._expect(")")
                return replace(kernel, **given)  # pyright: ignore[reportArgumentType]  # a dataclass, if it has options

    def _next(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _take(self, token: str) -> bool:
        there = self._next() == token
        self.at += there
        return there

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise self._wrong(f"lacks {token!r}")

    def _word(self, what: str) -> str:
        token = self._next()
        if token is None or not (token[0].isalpha() or token[0] == "_"):
            raise self._wrong(f"lacks {what} " + ("at its end" if token is None else f"before {token!r}"))
        self.at += 1
        return token

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(
            f"kernel {self.text!r} {what}", remedy="write names with + and * between them, as in 'rbf + periodic'"
        )
