"""Fed3R against scikit-learn on the pooled rows, against leaving rows out for real, and against those who mean harm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from federations import START, codecs_of, federation, one_round, run_rounds
from method_toys import client_of, spec_of
from polyfed.data import ClientData
from polyfed.methods import Fed3R
from polyfed.methods.messages import with_prefix
from polyfed.methods.neural.ridge import PENALTIES, held_out, moments, ridge
from polyfed.methods.supervised import supervision_of, target_of, with_one
from polyfed.seeds import Stream

ALL = ("regression", "robust", "binary", "multiclass", "count", "proportion")


def pooled_rows(data, task):
    """Features with a one, and targets, of all clients in one place."""
    x, t = [], []
    for mine in data.values():
        if task in mine.labels:
            at, y = mine.labels[task]
            codec = mine.codecs[task]
            x.append(mine.x[at])
            t.append(target_of(torch.from_numpy(y), codec).numpy())
    x = np.concatenate(x)
    return np.column_stack([x, np.ones(len(x))]), np.concatenate(t)


def plain_ridge(x, t, penalty):
    return Ridge(alpha=penalty, fit_intercept=False, solver="cholesky").fit(x, t).coef_.reshape(t.shape[1], -1).T


# ---- the pooled model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [0.01, 1.0, 100.0])
def test_one_round_is_the_ridge_regression_of_all_rows(penalty):
    spec, data = federation(4, kinds=ALL)
    server, _, _ = run_rounds(Fed3R(penalty=penalty), spec, data, rounds=1)
    for i, task in enumerate(ALL):
        np.testing.assert_allclose(server[f"head/{i}"], plain_ridge(*pooled_rows(data, task), penalty), atol=1e-9)


def test_who_has_the_rows_and_who_comes_when_does_not_matter():
    spec, data = federation(4)
    made = Fed3R(penalty=0.5)
    together, states, _ = run_rounds(made, spec, data, rounds=1)
    one_by_one = made.init(spec, START)
    for r, name in enumerate([*reversed(data), *data], 1):  # each twice: what was added is not added again
        one_by_one, _ = one_round(made, one_by_one, states, data, who=[name], round=r)
    mine = data["client 3"]
    halves = [
        ClientData(mine.x, {t: (at[k::2], y[k::2]) for t, (at, y) in mine.labels.items()}, mine.codecs) for k in (0, 1)
    ]
    split = {n: d for n, d in data.items() if n != "client 3"} | {"left": halves[0], "right": halves[1]}
    apart, _, _ = run_rounds(made, replace(spec, clients=tuple(split)), split, rounds=1)
    for i in range(3):
        for other in (one_by_one, apart):
            torch.testing.assert_close(other[f"head/{i}"], together[f"head/{i}"], rtol=0, atol=1e-12)


def test_a_client_that_sends_its_sums_again_counts_once():
    spec, data = federation(2)
    made = Fed3R(penalty=0.5)
    server, states, updates = run_rounds(made, spec, data, rounds=1)
    again = made.aggregate(server, updates)
    assert all(torch.equal(v, server[n]) for n, v in again.items() if n.startswith(("moments/", "head/", "counted")))
    _, honest = one_round(made, server, states, data, round=2)
    assert not any(v.any() for n, v in honest["client 0"].arrays.items() if n.startswith("moments/"))


def test_numbers_by_hand():
    """Rows (x, 1) = (1, 1), (−1, 1) with labels 3 and 1, λ = 1: A = 2 I, b = (3 − 1, 3 + 1): V = (2/3, 4/3)."""
    data = {"ann": client_of([1, -1], [3, 1])}
    server, states, _ = run_rounds(Fed3R(penalty=1.0), spec_of(data), data, rounds=1)
    np.testing.assert_allclose(server["head/0"][:, 0], [2 / 3, 4 / 3], atol=1e-15)
    read = Fed3R(penalty=1.0).predictor(server, states["ann"], data["ann"])(np.array([[0.5]]))["y"]
    assert read.mean[0] == pytest.approx(5 / 3, abs=1e-14)


def test_a_clients_own_ridge_around_the_shared_one():
    """W − V is the ridge regression of what V leaves over; nearly nothing with a large penalty, and local with a small one."""
    spec, data = federation(3, kinds=("regression",))
    mine = data["client 1"]
    x, t = pooled_rows({"it": mine}, "regression")
    for own in (0.3, 1e9, 1e-9):
        made = Fed3R(penalty=2.0, own_penalty=own)
        server, states, _ = run_rounds(made, spec, data, rounds=1)
        V = server["head/0"].numpy()
        W = V + plain_ridge(x, t - x @ V, own)
        read = made.predictor(server, states["client 1"], mine)(mine.x)["regression"].mean
        everywhere = np.column_stack([mine.x, np.ones(len(mine.x))])
        np.testing.assert_allclose(read, (everywhere @ W)[:, 0], atol=1e-9)
        shared = made.predictor(server, None, mine)(mine.x)["regression"].mean
        np.testing.assert_allclose(shared, (everywhere @ V)[:, 0], atol=1e-12)
        if own == 1e9:
            np.testing.assert_allclose(read, shared, atol=1e-6)
        if own == 1e-9:
            np.testing.assert_allclose(W, np.linalg.lstsq(x, t, rcond=None)[0], atol=1e-6)


# ---- λ, held-out predictions, slopes -----------------------------------------------------------------------------------


def rows(seed, n=30, d=4, k=2):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.standard_normal((n, d)), np.ones(n)])
    return x, x @ rng.standard_normal((d + 1, k)) + rng.standard_normal((n, k))


@pytest.mark.parametrize(("seed", "n"), [(0, 30), (1, 8), (2, 5)])
def test_the_penalty_is_that_of_generalised_cross_validation(seed, n):
    """Its definition on the rows: n ‖(I − H) t‖² / tr(I − H)² with the hat matrix H."""
    x, t = rows(seed, n)

    def score(penalty):
        H = x @ np.linalg.solve(x.T @ x + penalty * np.eye(5), x.T)
        away = np.eye(n) - H
        return n * ((away @ t) ** 2).sum() / np.trace(away) ** 2

    found = ridge(moments(torch.from_numpy(x), torch.from_numpy(t)), 5, None)
    assert found.penalty == min(PENALTIES, key=score)


def test_held_out_predictions_are_those_of_fits_without_the_row():
    x, t = rows(3, 12)
    fit = ridge(moments(torch.from_numpy(x), torch.from_numpy(t)), 5, 0.7)
    found = held_out(torch.from_numpy(x), torch.from_numpy(t), fit)
    for i in range(12):
        rest = np.arange(12) != i
        np.testing.assert_allclose(found[i], x[i] @ plain_ridge(x[rest], t[rest], 0.7), atol=1e-12)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_the_slope_of_the_second_round_has_the_least_held_out_loss(kind):
    """Found again by leaving each row of the federation out for real; after one round it is the number of classes."""
    data, rng = {}, np.random.default_rng(5)
    for i in range(3):
        x = rng.standard_normal((12 + i, 2))
        f = x[:, 0] + 0.7 * rng.standard_normal(len(x))
        y = np.where(f > 0, 1.0, -1.0) if kind == "binary" else np.digitize(f, [-0.5, 0.5]).astype(float)
        data[f"client {i}"] = ClientData(x, {kind: (np.arange(len(x)), y)}, codecs_of((kind,)))
    spec, made = spec_of(data), Fed3R(penalty=0.3)
    first, _, _ = run_rounds(made, spec, data, rounds=1)
    assert float(first["slope/0"]) == {"binary": 2, "multiclass": 3}[kind]
    second, _, updates = run_rounds(made, spec, data, rounds=2)
    x, t = pooled_rows(data, kind)
    scores = np.stack([x[i] @ plain_ridge(np.delete(x, i, 0), np.delete(t, i, 0), 0.3) for i in range(len(x))])
    y = torch.from_numpy(np.concatenate([mine.labels[kind][1] for mine in data.values()]))
    codec, slopes = spec.codecs[kind], first["slopes/0"]
    losses = [
        len(y) * float(supervision_of(codec).loss(torch.from_numpy(s * scores), y, codec)) for s in slopes.numpy()
    ]
    sent = sum(update.arrays["losses/0"] for update in updates.values())
    np.testing.assert_allclose(sent, losses, rtol=1e-10)
    assert float(second["slope/0"]) == float(slopes[int(np.argmin(losses))])
    assert 0 < int(np.argmin(losses)) < len(slopes) - 1  # the range is wide enough for what it was made for
    torch.testing.assert_close(run_rounds(made, spec, data, rounds=4)[0]["slope/0"], second["slope/0"])


def test_the_noise_is_that_of_held_out_residuals():
    spec, data = federation(3, kinds=("regression",))
    server, _, _ = run_rounds(Fed3R(penalty=0.3), spec, data, rounds=2)
    x, t = pooled_rows(data, "regression")
    away = [t[i] - x[i] @ plain_ridge(np.delete(x, i, 0), np.delete(t, i, 0), 0.3) for i in range(len(x))]
    assert float(server["noise/regression"]) == pytest.approx(np.mean(np.square(away)), abs=1e-12)
    never, late = federation(4, kinds=("regression",))[1]["client 3"], Fed3R(penalty=0.3)
    read = late.predictor(server, late.join(server, never, Stream(0, "join")), never)(never.x)["regression"]
    np.testing.assert_allclose(read.std, np.sqrt(np.mean(np.square(away))), atol=1e-12)


# ---- features ------------------------------------------------------------------------------------------------------------


def test_random_features_make_an_rbf_kernel():
    """φ(x)·φ(x') → exp(−‖x − x'‖² / 2σ²) with σ² = bandwidth² · inputs; 1/√D of chance is left."""
    _, data = federation(2)
    made = Fed3R(random_features=20_000, bandwidth=0.8)
    x = torch.from_numpy(data["client 0"].x)
    phi = made.features(with_prefix("fourier", made.fourier(2, seed=0)), x, data["client 0"])[:, :-1]
    wanted = torch.exp(-torch.cdist(x, x).square() / (2 * 0.8**2 * 2))
    torch.testing.assert_close(phi @ phi.T, wanted, rtol=0, atol=0.04)


def test_random_features_learn_what_a_line_cannot():
    x = np.linspace(-2, 2, 60)
    data = {"ann": client_of(x[::2], np.cos(3 * x[::2])), "bob": client_of(x[1::2], np.cos(3 * x[1::2]))}
    error = {}
    for n in (0, 200):
        made = Fed3R(random_features=n, bandwidth=0.5)
        server, states, _ = run_rounds(made, spec_of(data), data, rounds=1)
        read = made.predictor(server, states["ann"], data["ann"])(x[:, None])["y"].mean
        error[n] = np.mean((read - np.cos(3 * x)) ** 2)
    assert error[0] > 0.3
    assert error[200] < 1e-3


@pytest.mark.parametrize("kind", ALL)
def test_every_kind_of_task_is_predicted_better_than_by_chance_rows(kind):
    """Against the same model of labels that were dealt out anew."""
    spec, data = federation(4, seed=3, kinds=(kind,), whole=True)
    rng = np.random.default_rng(0)
    shuffled = {
        n: ClientData(d.x, {t: (at, y[rng.permutation(len(y))]) for t, (at, y) in d.labels.items()}, d.codecs)
        for n, d in data.items()
    }
    fit = {}
    for name, learned in (("right", data), ("shuffled", shuffled)):
        made = Fed3R(random_features=50, bandwidth=0.5, penalty=0.1)
        server, states, _ = run_rounds(made, spec, learned, rounds=2)
        reads = [
            made.predictor(server, states[n], learned[n])(d.x)[kind].take(d.labels[kind][0]) for n, d in data.items()
        ]
        truth = [d.codecs[kind].decode(d.labels[kind][1]) for d in data.values()]
        fit[name] = np.mean(np.concatenate([r.log_density(y) for r, y in zip(reads, truth, strict=True)]))
    assert np.isfinite(fit["right"])
    if kind not in ("multiclass", "proportion"):  # whose labels say little or nothing about the inputs
        assert fit["right"] > fit["shuffled"]


@pytest.mark.parametrize("mean", [2.0, 6.0])
def test_the_log_of_a_count_and_a_half_is_nearly_unbiased(mean):
    """Sums over the Poisson distribution, against the log of its mean, in units of two; with y + 1 it would be off by more."""
    y = torch.arange(0, 60, dtype=torch.float64)
    weight = torch.exp(y * np.log(mean) - mean - torch.lgamma(y + 1))
    target = target_of(y, codecs_of(("count",))["count"])[:, 0]
    bias = abs(float((weight * target).sum()) - np.log(mean / 2))
    assert bias < 0.05
    assert bias < abs(float((weight * torch.log(y + 1)).sum()) - np.log(mean))


# ---- what a server rejects, and what stays at home ------------------------------------------------------------------------


def honest(made=None):
    spec, data = federation(3)
    made = made or Fed3R()
    server = made.init(spec, START)
    mine = data["client 0"]
    _, update = made.local({}, made.broadcast(server, "client 0"), mine, Stream(0, "local", 1, "client 0"))
    return made, server, update


def corrupted(update, name, change):
    return replace(update, arrays={**update.arrays, name: change(update.arrays[name].clone())})


def test_what_is_honest_is_not_objected_to():
    for made in (Fed3R(), Fed3R(random_features=7)):
        made, server, update = honest(made)
        assert made.objection(server, update) is None
        empty = replace(update, arrays={n: torch.zeros_like(v) for n, v in update.arrays.items()})
        assert made.objection(server, empty) is None
        assert all(made.is_evidence(name) for name in update.arrays)


def entry(i, j, value):
    def change(M):
        M[i, j] = M[j, i] = value
        return M

    return change


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("moments/0", lambda M: M + torch.triu(torch.ones_like(M)), "array 'moments/0' is not symmetric"),
        ("moments/0", lambda M: 3 * M, "array 'moments/0' says 15 labels where 5 were declared"),
        ("moments/0", entry(0, 0, 1e6), "array 'moments/0' has a mean square of 200000 at 0, above 10000"),
        ("moments/1", entry(3, 3, 50.0), "array 'moments/1' has a mean square of 10 at 3, above 1"),  # labels are ±1
        ("moments/0", entry(0, 0, -1.0), "array 'moments/0' is not positive semi-definite"),
        ("moments/2", entry(0, 3, 1e3), "array 'moments/2' is not positive semi-definite"),
        ("losses/1", lambda losses: losses - 1, "array 'losses/1' has a loss below zero"),
    ],
)
def test_sums_that_no_rows_can_have_are_rejected(name, change, text):
    made, server, update = honest()
    assert update.counts["regression"] == update.counts["binary"] == 5
    assert made.objection(server, corrupted(update, name, change)) == text


def test_random_features_are_bounded():
    made, server, update = honest(Fed3R(random_features=8))
    text = made.objection(server, corrupted(update, "moments/0", entry(0, 0, 6.0)))
    assert text == "array 'moments/0' has a mean square of 1.2 at 0, above 0.25"


def test_one_label_is_not_sent():
    """Its moments are the row itself. Asked to, a client sends them all the same."""
    data = {"ann": client_of([2.5], [0.7]), "bob": client_of([1, 2, 3], [1, 0, 1])}
    for least, found in ((2, False), (1, True)):
        made = Fed3R(min_labels=least)
        _, _, updates = run_rounds(made, spec_of(data), data, rounds=1)
        assert bool(updates["ann"].arrays["moments/0"].any()) is found


def test_features_have_their_one_last():
    assert with_one(torch.zeros(2, 3)).tolist() == [[0, 0, 0, 1], [0, 0, 0, 1]]
