"""Learning Θ of one mixed client, beside scikit-learn's Gaussian process on as many rows of regression alone."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import polyfed as pf

from .harness import Line, Target, take_turns


def fit(*, n_rows: int = 150, dims: int = 3, repeats: int) -> list[Line]:
    """Half numbers, half yes or no for polyfed; numbers only for scikit-learn, with its optimiser and no restarts."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, dims))
    f = np.sin(X.sum(1)) + 0.3 * rng.standard_normal(n_rows)
    half = n_rows // 2
    data = {"level": (X[:half], f[:half]), "event": (X[half:], f[half:] > 0)}

    def ours() -> None:
        pf.MultiTaskGP({"level": "regression", "event": "binary"}, n_latents=2).fit(data)

    def theirs() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            GaussianProcessRegressor(ConstantKernel() * RBF() + WhiteKernel()).fit(X, f)

    turns = take_turns(ours, theirs, repeats=repeats, warm_ups=1)
    note = f"{turns.seconds.median:.2f} s; 9 parameters, two tasks, against 3 and one"
    return [Line(f"MultiTaskGP.fit over scikit-learn, N={n_rows}", turns.ratio, target=Target("≤", 5.0), note=note)]
