"""What a likelihood gives to compiled inference.

`site` has the type pointers.SITE and `bound` the type pointers.BOUND. They see a datum as the numbers that `codes` holds of it,
and are given the options of the likelihood; power and prior mean are not their business.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Form:
    """Site and local bound by address.

    Attributes:
        codes: (data, numbers of each datum), float64.
        options: numbers that are the same for all data.
    """

    site: int
    bound: int
    codes: Tensor
    options: tuple[float, ...] = ()
