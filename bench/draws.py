"""The demo over several draws of the labelled birds: one draw says little.

python -m bench.draws [N]          a table of means over N draws (8)
"""

from __future__ import annotations

import sys
import warnings

import pandas as pd

import polyfed as pf
from polyfed.cli.compare import LABELLED, METHODS, ROUNDS
from polyfed.data.datasets.penguins import SILENT, UNSEXED, penguins


def scores(method: str, draw: int) -> dict[str, float]:
    """What the table of the demo shows, for one method and one draw."""
    found = pf.simulate(method, penguins(LABELLED, draw), ROUNDS, seed=0).summary("all")
    usual = found.drop(index=[SILENT, UNSEXED]).mean()
    return {
        "error, g": usual["body_mass_g", "rmse"],
        "within 95 %": usual["body_mass_g", "coverage"],
        "sex": usual["sex", "accuracy"],
        "species": usual["species", "accuracy"],
        "no bird sexed: sex": found.loc[UNSEXED, ("sex", "accuracy")],
        "no label: error, g": found.loc[SILENT, ("body_mass_g", "rmse")],
        "no label: sex": found.loc[SILENT, ("sex", "accuracy")],
    }


def table(n: int) -> pd.DataFrame:
    return pd.DataFrame({name: pd.DataFrame([scores(name, draw) for draw in range(n)]).mean() for name in METHODS})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout.write(table(int(sys.argv[1]) if len(sys.argv) > 1 else 8).round(3).to_string() + "\n")
