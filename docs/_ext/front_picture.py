"""The picture of the front page: what a federation knows that a site alone does not. Light and dark, wide and narrow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import rc_params_from_file

import polyfed as pf

plt.rcParams.update(rc_params_from_file(Path(__file__).with_name("matplotlibrc"), use_default_template=False))

# ---- data: a function that eight sites share, and a small part of each site's own -------------------------------------

SITES = ["Aarau", "Basel", "Bern", "Chur", "Genf", "Thun", "Uster", "Zug"]
GRID = np.linspace(0, 10, 90)


def truth(site: int, x: np.ndarray) -> np.ndarray:
    return 2.0 * np.sin(x) + 0.25 * x + 0.5 * np.sin(0.7 * x + 2.0 * site)


def labels(site: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = rng.uniform(0, 10, 6)
    return x[:, None], truth(site, x) + 0.15 * rng.standard_normal(6)


def runs(seed: int = 0) -> tuple[dict[str, Any], dict[str, pf.Run]]:
    """Labels of every site, and what each knows alone and together."""
    rng = np.random.default_rng(seed)
    clients = {name: {"y": labels(i, rng)} for i, name in enumerate(SITES)}
    federation = pf.Federation.from_clients(clients, {"y": "regression"}, split=pf.Split(test=0.0))
    made = {
        "alone": pf.simulate("local", federation, rounds=40, seed=0, evaluate_every=0),
        "in the federation": pf.simulate("pfed-hier", federation, rounds=40, seed=0, evaluate_every=0),
    }
    return clients, made


# ---- picture ---------------------------------------------------------------------------------------------------------


def draw(clients: dict[str, Any], made: dict[str, pf.Run], path: Path, ink: str, shown: int = 4) -> None:
    colours = {"alone": "C1", "in the federation": "C0"}
    plt.rcParams.update({"text.color": ink, "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink})
    plt.rcParams.update({"axes.edgecolor": ink, "font.size": 11, "svg.fonttype": "path"})
    figure, rows = plt.subplots(2, shown, figsize=(2.75 * shown, 4.2), sharex=True, sharey=True)
    for row, (how, run) in zip(rows, made.items(), strict=True):
        for i, (ax, name) in enumerate(zip(row, SITES[:shown], strict=True)):
            p = run.client(name).predict(GRID[:, None])["y"]
            ax.plot(GRID, truth(i, GRID), "--", color=ink, linewidth=1, alpha=0.7)
            ax.plot(GRID, p.mean, color=colours[how])
            ax.fill_between(GRID, *p.interval(0.95), color=colours[how], alpha=0.27, linewidth=0)
            x, y = clients[name]["y"]
            ax.plot(x[:, 0], y, "o", color=ink, markersize=4)
            ax.set(ylim=(-4.2, 6.7), xticks=[], yticks=[])
            ax.patch.set_alpha(0)
            if how == "alone":
                ax.set_title(name)
        row[0].set_ylabel(how)
    figure.savefig(path, transparent=True, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=130)
    plt.close(figure)


def coverage(run: pf.Run) -> float:
    """The share of new labels inside the 95 % intervals, over all sites."""
    rng, inside = np.random.default_rng(1), []
    for i, name in enumerate(SITES):
        lower, upper = run.client(name).predict(GRID[:, None])["y"].interval(0.95)
        y = truth(i, GRID) + 0.15 * rng.standard_normal(len(GRID))
        inside.append(np.mean((lower < y) & (y < upper)))
    return float(np.mean(inside))


def main(folder: Path) -> None:
    clients, made = runs()
    print({how: round(coverage(run), 2) for how, run in made.items()})  # noqa: T201
    for name, ink in {"light": "#222222", "dark": "#dddddd"}.items():
        draw(clients, made, folder / f"front-{name}.svg", ink)
        draw(clients, made, folder / f"front-{name}-narrow.svg", ink, shown=2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
