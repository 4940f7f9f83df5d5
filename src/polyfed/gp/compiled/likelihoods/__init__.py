"""Compiled forms of likelihoods: site and local bound over the data of one task, to be called by their addresses."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Form:
    """What a likelihood gives to compiled inference.

    `site` and `bound` are addresses of functions of the types pointers.SITE and pointers.BOUND. They see a datum as the numbers
    that `codes` holds of it, and are given the options of the likelihood; power and prior mean are not their business.

    Attributes:
        codes: (data, numbers of each datum), float64.
        options: numbers that are the same for all data.
    """

    site: int
    bound: int
    codes: Tensor
    options: tuple[float, ...] = ()
