"""Numbers of which a few lie far above the rest.

>>> is_skewed(np.exp(2 * np.random.default_rng(0).standard_normal(1000)))
True
>>> is_skewed(np.random.default_rng(0).standard_normal(1000))
False
"""

from __future__ import annotations

import numpy as np

LEAST_ROWS = 50  # to say anything
FEW = 30  # different values: fewer are rather a count or a code
LEAST_FAR = 1e-3  # the share of a target's numbers far from the rest that a normal distribution does not have


def far_from_the_rest(numbers: np.ndarray) -> int:
    """How many lie more than five standard deviations from the median, as the middle half of the numbers measures them.

    Of a normal distribution that is one in two million, of Student's with four degrees of freedom one in two hundred.

    >>> far_from_the_rest(np.array([*range(100), 500.0]))
    1
    """
    from_median = np.abs(numbers - np.median(numbers))
    spread = 1.4826 * np.median(from_median)  # that of a normal distribution with this middle half
    return int((from_median > 5.0 * spread).sum()) if spread > 0 else 0


def is_skewed(numbers: np.ndarray) -> bool:
    """Whether an input is never negative with a few values far above the rest, and its logarithms are not."""
    numbers = numbers[~np.isnan(numbers)]
    if len(numbers) < LEAST_ROWS or numbers.min() < 0 or len(np.unique(numbers)) <= FEW:
        return False
    far, log_far = far_from_the_rest(numbers), far_from_the_rest(np.log1p(numbers))
    return far >= 0.01 * len(numbers) and 2 * log_far < far


def has_far_ones(numbers: np.ndarray) -> bool:
    """Whether more of a target's numbers are far from the rest than those of a normal distribution are."""
    far = far_from_the_rest(numbers)
    return far >= LEAST_FAR * len(numbers) and far > 1


def is_skewed_target(numbers: np.ndarray) -> bool:
    """Whether a target is positive with a few values far above the rest, and its logarithms are not."""
    return bool((numbers > 0).all()) and has_far_ones(numbers) and far_from_the_rest(np.log(numbers)) <= 1
