"""Three targets of three kinds, few labels: weigh, sex and name penguins from their measurements.

Of 333 penguins, 60 were measured in the field, and only some of these were weighed, sexed or identified. One model
learns all three targets together, and says how sure it is of each penguin it has never seen.
"""

from __future__ import annotations

import numpy as np
from palmerpenguins import load_penguins
from rich.console import Console
from rich.table import Table

import polyfed as pf

FEATURES = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm"]
TASKS = {"body_mass_g": "regression", "sex": "binary", "species": "multiclass"}
LABELLED = {"body_mass_g": 40, "sex": 40, "species": 30}  # of the 60 that were measured


def main(seed: int = 0) -> None:
    birds = load_penguins().dropna(subset=[*FEATURES, *TASKS]).sample(frac=1.0, random_state=seed)
    field, unseen = birds[:60], birds[60:]
    rng = np.random.default_rng(seed)
    labels = field[list(TASKS)].astype(object)
    for target, n in LABELLED.items():
        labels.loc[rng.permutation(labels.index)[n:], target] = None  # never weighed, sexed or identified

    gp = pf.MultiTaskGP(TASKS, n_latents=3).fit(field[FEATURES], labels)
    p = gp.predict(unseen[FEATURES])

    console = Console(width=104)
    lower, upper = p["body_mass_g"].interval(0.95)
    table = Table(title=f"8 of {len(unseen)} penguins that the model has never seen", title_justify="left")
    for heading in ("mass, g", "95 % interval", "true", "p(male)", "true", "species", "probability", "true"):
        table.add_column(heading, justify="right")
    for i in range(8):
        true = unseen.iloc[i]
        table.add_row(
            f"{p['body_mass_g'].mean[i]:.0f}",
            f"{lower[i]:.0f} to {upper[i]:.0f}",
            f"{true.body_mass_g:.0f}",
            f"{p['sex'].proba[i]:.2f}",
            str(true.sex),
            str(p["species"].label[i]),
            f"{p['species'].proba[i].max():.2f}",
            str(true.species),
        )
    console.print(table)

    mass = unseen["body_mass_g"].to_numpy()
    inside = np.mean((mass >= lower) & (mass <= upper))
    rmse = np.sqrt(np.mean((p["body_mass_g"].mean - mass) ** 2))
    console.print(f"Learned from {' and '.join(f'{n} labels of {target}' for target, n in LABELLED.items())}.")
    console.print(
        f"On all {len(unseen)}: mass RMSE {rmse:.0f} g with {inside:.0%} inside the interval, "
        f"sex {np.mean(p['sex'].label == unseen['sex']):.0%} right, "
        f"species {np.mean(p['species'].label == unseen['species']):.0%} right."
    )


if __name__ == "__main__":
    main()
