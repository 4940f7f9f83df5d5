"""The paper's synthetic study.

It has one regression and one binary task, mixed from two latent functions for each client.

x is uniform on [0, 100]; g_b ~ GP(0, φ0_b exp(-φ1_b/2 (x - x')²)); f = W g; the regression task sees f_1 with noise,
the classification task labels +1 with probability sigmoid(f_2), at other inputs. The truth is kept.

>>> fed = synthetic(n_clients=2)
>>> sorted(fed.truth["client 1"]), fed.truth["client 1"]["x"].shape
(['classification', 'regression', 'x'], (201, 1))
"""

from __future__ import annotations

import math

import numpy as np

from polyfed.data.datasets.phone_health import TASKS
from polyfed.data.features.matrix import reject_unless_between, reject_unless_whole
from polyfed.data.federation import Federation
from polyfed.seeds import Stream

PHI0 = (1.0, 2.0)
PHI1 = (0.02, 0.01)
W = np.array([[0.6, 0.4], [0.4, 0.6]])
GRID = np.linspace(0.0, 100.0, 201)


def synthetic(
    n_clients: int = 5,
    seed: int = 0,
    n_regression: int = 50,
    n_binary: int = 100,
    noise: float = 0.1,
    test_regression: int = 50,
    test_binary: int = 100,
) -> Federation:
    """Clients with these numbers of labels for training and for testing; `noise` is a variance.

    The paper's hyper-parameters are in the units of these inputs: to start from them, use scaling "none". A client is the same
    whatever their number.
    """
    reject_unless_whole("synthetic", 1, n_clients=n_clients, n_regression=n_regression, n_binary=n_binary)
    reject_unless_whole("synthetic", 0, seed=seed, test_regression=test_regression, test_binary=test_binary)
    reject_unless_between("synthetic", 0.0, math.inf, noise=noise)
    names = [f"client {i + 1:0{len(str(n_clients))}d}" for i in range(n_clients)]
    clients, tests, truth = {}, {}, {}
    for i, name in enumerate(names):
        rng = Stream(seed, "synthetic", round=i).numpy()
        x = rng.uniform(0.0, 100.0, n_regression + n_binary + test_regression + test_binary)
        f = draw_functions(np.concatenate([GRID, x]), rng) @ W.T
        truth[name] = {"x": GRID[:, None], "regression": f[: len(GRID), 0], "classification": f[: len(GRID), 1]}
        f = f[len(GRID) :]
        y = f[:, 0] + rng.normal(0.0, math.sqrt(noise), len(x))
        label = np.where(rng.random(len(x)) < 1 / (1 + np.exp(-f[:, 1])), 1, -1)
        ends = np.cumsum([n_regression, n_binary, test_regression])
        a, b, a_test, b_test = (np.s_[start:end] for start, end in zip([0, *ends], [*ends, len(x)], strict=True))
        x = x[:, None]
        clients[name] = {"regression": (x[a], y[a]), "classification": (x[b], label[b])}
        if test_regression + test_binary:
            tests[name] = {"regression": (x[a_test], y[a_test]), "classification": (x[b_test], label[b_test])}
    return Federation.from_clients(clients, TASKS, test=tests, truth=truth)


def draw_functions(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One draw of both latent functions at x, as columns."""
    squared = (x[:, None] - x[None, :]) ** 2
    g = []
    for phi0, phi1 in zip(PHI0, PHI1, strict=True):
        covariance = phi0 * np.exp(-0.5 * phi1 * squared)
        # Functions this smooth make the matrix singular to machine precision; so little of phi0 is not seen in a draw.
        covariance[np.diag_indices_from(covariance)] += 1e-8 * phi0
        g.append(np.linalg.cholesky(covariance) @ rng.standard_normal(len(x)))
    return np.stack(g, axis=1)
