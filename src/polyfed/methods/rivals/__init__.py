"""Rivals: what a user would pick instead of a federation, on the same contract, rows and splits, as yardsticks.

None of them federates. A pooled one has all rows in one place and so no privacy; a local one has the rows of its client alone.
"""

from polyfed.methods.rivals.base import Rival
from polyfed.methods.rivals.boosted import CatBoostPooled, HistGradientBoostingPooled
from polyfed.methods.rivals.linear import LinearPooled
from polyfed.methods.rivals.local import GaussianProcessLocal, RandomForestLocal
from polyfed.methods.rivals.mixed_effects import MixedEffects

RIVALS: tuple[type[Rival], ...] = (
    HistGradientBoostingPooled,
    LinearPooled,
    CatBoostPooled,
    MixedEffects,
    RandomForestLocal,
    GaussianProcessLocal,
)

__all__ = ["RIVALS", "Rival"]
