"""pFedFDA against numbers by hand, scikit-learn's discriminant analysis and Bayes' rule by scipy's densities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from federations import START, client, federation, my_networks, one_round, run_rounds
from method_toys import client_of, one_weight, spec_of
from polyfed.data import ClientData, LabelCodec, Task
from polyfed.errors import ConfigError
from polyfed.methods.checks import CHECKS, check_method
from polyfed.methods.neural.pfedfda import Gaussians, PFedFDA, estimated, priors_of
from polyfed.methods.supervised import groups_of

CLASSES = {"y": LabelCodec(Task("y", "multiclass", classes=("a", "b", "c")), ("a", "b", "c"), 0.0, 1.0)}
TWO = {"y": LabelCodec(Task("y", "binary"), (False, True), 0.0, 1.0)}
NOTHING = Gaussians(
    torch.zeros(3, 1, dtype=torch.float64), torch.eye(1, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
)


NOTHING_OF_TWO = Gaussians(
    torch.zeros(1, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def onehot(*classes):
    return torch.eye(3, dtype=torch.float64)[list(classes)]


# ---- Gaussians ---------------------------------------------------------------------------------------------------------


def test_estimates_by_hand():
    """Class a: 0 and 2, mean 1. Class b: 4 and 6, mean 5. Each row is 1 away: Σ = 1, and 1½ with a ridge of ½. Nobody is c.

    Scores have weights μ/Σ and biases −μ²/2Σ + log π.
    """
    h, groups = numbers(0, 2, 4, 6)[:, None], onehot(0, 0, 1, 1)
    found = estimated(h, groups, NOTHING, ridge=0.0)
    assert found.means[:, 0].tolist() == [1, 5, 0]
    assert found.covariance.item() == 1.0
    assert found.known.tolist() == [1, 1, 0]
    assert estimated(h, groups, NOTHING, ridge=0.5).covariance.item() == 1.5
    weights, bias = found.scores(numbers(0.5, 0.25, 0.25), 0.3)  # with one feature there is nothing to shrink
    np.testing.assert_allclose(weights[:, 0], [1, 5, 0], atol=1e-14)
    np.testing.assert_allclose(bias, [np.log(0.5) - 0.5, np.log(0.25) - 12.5, np.log(0.25)], atol=1e-14)


def test_mixing_by_hand():
    """β = ¼ between means 1, 5 with Σ = 1 and told 3, – with Σ = 5: 2.5, and 5 of which nobody else knows; Σ = 4."""
    own = estimated(numbers(0, 2, 4, 6)[:, None], onehot(0, 0, 1, 1), NOTHING, ridge=0.0)
    told = Gaussians(numbers(3, 9, 7)[:, None], numbers(5)[:, None], numbers(1, 0, 1))
    mixed = own.mixed(told, 0.25)
    assert mixed.means[:, 0].tolist() == [2.5, 5, 0.25 * 0 + 0.75 * 7]
    assert mixed.covariance.item() == 4.0
    assert mixed.known.tolist() == [1, 1, 1]
    assert own.mixed(NOTHING, 0.25).covariance.item() == 1.0  # a server that knows nothing has no say
    whole = estimated(numbers(0, 2, 4, 6)[:, None], onehot(0, 0, 1, 1), told, ridge=0.0)
    assert whole.means[2].item() == 7.0  # a class without a row is as told


@pytest.mark.parametrize("shrinkage", [1e-6, 0.3])
def test_its_own_gaussians_are_linear_discriminant_analysis(shrinkage):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [12, 20, 9])
    h = rng.standard_normal((len(y), 4)) @ rng.standard_normal((4, 4)) + 2.0 * np.eye(3, 4)[y]
    groups, told = onehot(*y), Gaussians(*(torch.zeros(3, 4).double(), torch.eye(4).double(), torch.zeros(3).double()))
    weights, bias = estimated(torch.from_numpy(h), groups, told, 0.0).scores(groups.mean(0), shrinkage)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(h, y)
    at = rng.standard_normal((7, 4))
    mine = torch.softmax(torch.from_numpy(at) @ weights.T + bias, 1)
    np.testing.assert_allclose(mine, theirs.predict_proba(at), atol=1e-9)


def test_numbers_are_ridge_regression_around_the_means():
    """Features and target as one Gaussian: with Σ = scatter / n + ρ I, weights are (XᵀX / n + ρ)⁻¹ Xᵀy / n of centred rows."""
    from sklearn.linear_model import Ridge

    rng = np.random.default_rng(2)
    h, n = rng.standard_normal((15, 3)), 15
    y = h @ [1.0, -2.0, 0.5] + 3.0 + 0.1 * rng.standard_normal(n)
    told = Gaussians(torch.zeros(1, 4).double(), torch.eye(4).double(), torch.zeros(1).double())
    rows = torch.from_numpy(np.column_stack([h, y]))
    weights, bias = estimated(rows, torch.ones(n, 1).double(), told, ridge=0.2).regression(1e-14)
    theirs = Ridge(alpha=0.2 * n).fit(h, y)
    np.testing.assert_allclose(weights[0], theirs.coef_, atol=1e-9)
    np.testing.assert_allclose(bias, theirs.intercept_, atol=1e-9)


def test_numbers_between_two_gaussians_by_hand():
    """Own: h and y are both 0 or 2, so means 1 and 1, all variances 1. Told: means 3 and 0, variances 3, covariance −1.

    β = ½: means 2 and ½, variance 2, covariance 0: the weight is 0 and the bias ½. β = 1: weight 1, bias 0.
    """
    own = estimated(numbers(0, 2)[:, None].repeat(1, 2), torch.ones(2, 1).double(), NOTHING_OF_TWO, ridge=0.0)
    told = Gaussians(numbers(3, 0)[None], torch.tensor([[3.0, -1.0], [-1.0, 3.0]]).double(), numbers(1))
    weight, bias = own.mixed(told, 0.5).regression(1e-14)
    assert (weight.item(), bias.item()) == pytest.approx((0.0, 0.5), abs=1e-12)
    weight, bias = own.mixed(told, 1.0).regression(1e-14)
    assert (weight.item(), bias.item()) == pytest.approx((1.0, 0.0), abs=1e-12)


@pytest.mark.parametrize("kind", ["regression", "robust", "count", "proportion"])
def test_other_kinds_are_served_and_each_client_has_its_own_line(kind):
    """What all know is better than half of a client's few rows, and then β = 0 is right; client 2 sees the world mirrored, has
    rows enough to notice, and goes its own way."""
    spec, _ = federation(3, kinds=(kind,), whole=True)
    rng = np.random.default_rng(0)
    data = {name: client(rng, n, 2, (kind,), ()) for name, n in zip(spec.clients, (12, 12, 150), strict=True)}
    data["client 2"] = replace(data["client 2"], x=-data["client 2"].x)
    made = PFedFDA(hidden=(6,), ridge=0.01, weighting="uniform")
    server, states, _ = run_rounds(made, spec, data, rounds=3)
    apart = {}
    for name, mine in data.items():
        own, shared = (made.predictor(server, state, mine)(mine.x)[kind] for state in (states[name], None))
        truth = mine.codecs[kind].decode(mine.labels[kind][1])
        assert np.isfinite(own.take(mine.labels[kind][0]).log_density(truth)).all()
        apart[name] = np.abs(own.mean - shared.mean).max()
    assert apart["client 2"] > 1e-3


def test_the_scores_are_bayes_rule():
    rng = np.random.default_rng(1)
    half = rng.standard_normal((3, 3))
    means, cov, pi = rng.standard_normal((3, 3)), half @ half.T + np.eye(3), np.array([0.2, 0.5, 0.3])
    made = Gaussians(*map(torch.from_numpy, (means, cov, np.ones(3))))
    weights, bias = made.scores(torch.from_numpy(pi), 1e-12)
    x = rng.standard_normal((5, 3))
    joint = np.stack([p * multivariate_normal(m, cov).pdf(x) for p, m in zip(pi, means, strict=True)], 1)
    mine = torch.softmax(torch.from_numpy(x) @ weights.T + bias, 1)
    np.testing.assert_allclose(mine, joint / joint.sum(1, keepdims=True), atol=1e-8)


# ---- β -------------------------------------------------------------------------------------------------------------------


def received_of(*means, variance=1.0):
    return Gaussians(numbers(*means)[:, None], numbers(variance)[:, None], numbers(1, 1, 1))


def test_what_is_told_counts_where_it_is_right_and_not_where_it_is_wrong():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    h = torch.from_numpy(rng.standard_normal((60, 1)) + 3.0 * y[:, None])
    groups = onehot(*y)
    made, priors = PFedFDA(ridge=1e-3), priors_of(groups)
    assert (
        made.beta(CLASSES["y"], h, groups, received_of(6.0, 3.0, 0.0), priors) >= 0.9
    )  # the classes are the other way round
    few = [0, 1, 20, 21, 40, 41]
    assert made.beta(CLASSES["y"], h[few], groups[few], received_of(0.0, 3.0, 6.0), priors) < 0.5
    assert made.beta(CLASSES["y"], h, groups, NOTHING, priors) == 1.0
    alone = [0, 20, 40]  # one label of each class: nothing can be put to the test
    assert made.beta(CLASSES["y"], h[alone], groups[alone], received_of(6.0, 3.0, 0.0), priors) == 0.0


def test_beta_is_where_the_loss_of_two_folds_is_least():
    """Folds are every other row of each class; the loss is scikit-learn's log loss, the classifier Bayes' rule."""
    from sklearn.metrics import log_loss

    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], 8)
    h = rng.standard_normal((24, 1)) + 1.5 * y[:, None]
    told = received_of(0.5, 1.5, 2.5, variance=2.0)
    groups = onehot(*y)
    pi = priors_of(groups).numpy()
    losses = []
    for beta in np.linspace(0, 1, 11):
        total = 0.0
        for fold in (0, 1):
            tested = np.arange(24) % 2 == fold
            means = np.array([h[~tested & (y == c)].mean() for c in range(3)])
            variance = ((h[~tested, 0] - means[y[~tested]]) ** 2).mean() + 0.1
            mu, s2 = beta * means + (1 - beta) * told.means[:, 0].numpy(), beta * variance + (1 - beta) * 2.0
            joint = pi * np.exp(-0.5 * (h[tested] - mu) ** 2 / s2)
            total += log_loss(y[tested], joint / joint.sum(1, keepdims=True), labels=[0, 1, 2])
        losses.append(total)
    found = PFedFDA(ridge=0.1).beta(CLASSES["y"], torch.from_numpy(h), groups, told, priors_of(groups))
    assert found == pytest.approx(np.argmin(losses) / 10)
    assert 0.0 < found < 1.0  # or the test would say little


# ---- rounds ----------------------------------------------------------------------------------------------------------------


def test_a_first_round_by_hand():
    """Features are the inputs. ann: a at 0, 2 and b at 6; bob: a at 4 alone. Nothing is known, so each sends its own:

    ann: means 1 and 6, Σ = 2/3 + 1;  bob: mean 4, Σ = 0 + 1.   By labels: a (3·1 + 1·4)/4, b 6, Σ (3·5/3 + 1·1)/4 = 3/2.
    """
    made = PFedFDA(hidden=())
    data = {"ann": client_of([0, 2, 6], [0, 0, 1], CLASSES), "bob": client_of([4], [0], CLASSES)}
    server, states = made.init(spec_of(data), START), {name: made.start(mine, START) for name, mine in data.items()}
    server, updates = one_round(made, server, states, data)
    assert server["means/0"][:, 0].tolist() == pytest.approx([1.75, 6, 0], abs=1e-14)
    assert server["covariance/0"].item() == pytest.approx(1.5, abs=1e-14)
    assert server["known/0"].tolist() == [1, 1, 0]
    assert updates["bob"].arrays["known/0"].tolist() == [1, 0, 0]
    assert not any("head" in name for name in updates["ann"].arrays)
    # The server alone: shares are even, and class c, of which nothing is known, is at 0.
    found = made.predictor(server, None, data["ann"])(np.array([[2.0]]))["y"].proba[0]
    joint = np.exp(-0.5 * (2.0 - np.array([1.75, 6.0, 0.0])) ** 2 / 1.5)
    np.testing.assert_allclose(found, joint / joint.sum(), atol=1e-12)
    only_bob, _ = one_round(made, server, states, data, who=["bob"], round=2)
    assert only_bob["means/0"][1].item() == 6.0  # bob has no b: he sends what he was told


def test_the_trunk_is_trained_below_the_servers_gaussians(monkeypatch):
    """φ(x) = t x with t = 1, told means −1 and 1 and Σ = 1: f = 2 t x + log odds, which are 0 for one label of each class.

    Labels no at −1, yes at 1: the loss log(1 + e^(−2t)) has the slope −2 / (1 + e²); a step of 0.1 gives t = 1 + 0.2/(1 + e²).
    """
    my_networks(monkeypatch, one_weight=one_weight)
    made = PFedFDA(
        network="my_networks:one_weight",
        local_epochs=1,
        momentum=0.0,
        weight_decay=0.0,
        learning_rate=0.1,
        shrinkage=1e-12,
    )
    data = {"ann": client_of([-1, 1], [-1, 1], TWO)}
    server, states = made.init(spec_of(data), START), {"ann": made.start(data["ann"], START)}
    server |= {
        "means/0": numbers(-1, 1)[:, None],
        "known/0": numbers(1, 1),
        "theta/trunk.0.weight": numbers(1)[:, None],
    }
    after, updates = one_round(made, server, states, data)
    t = 1 + 0.2 / (1 + np.e**2)
    assert after["theta/trunk.0.weight"].item() == pytest.approx(t, abs=1e-12)
    # One label of each class puts nothing to the test: β = 0, and what was told is sent back.
    assert updates["ann"].arrays["means/0"][:, 0].tolist() == [-1, 1]


def test_who_has_no_labels_gets_the_servers_and_who_has_them_their_own():
    rng = np.random.default_rng(0)
    far = ClientData(np.linspace(-3, 3, 40)[:, None], {"y": (np.arange(40), np.repeat([1.0, -1.0], 20))}, TWO)
    others = {f"c{i}": client_of(rng.normal(size=30), rng.permutation([-1, 1] * 15), TWO) for i in range(3)}
    for mine in others.values():
        mine.x[:] = mine.x + 2.0 * mine.labels["y"][1][:, None]
    data = {"far": far, **others}
    made = PFedFDA(hidden=(), ridge=0.1)
    server, states, _ = run_rounds(made, spec_of(data), data, rounds=2)
    at = np.array([[2.0]])
    mine = made.predictor(server, states["far"], far)(at)["y"].class_proba[0, 1]
    nobody = made.predictor(server, {}, ClientData(far.x, {}, TWO))(at)["y"].class_proba[0, 1]
    shared = made.predictor(server, None, far)(at)["y"].class_proba[0, 1]
    assert mine < 0.2 < 0.8 < shared == nobody


def test_the_contract_and_what_is_wrong():
    assert len(check_method(PFedFDA(hidden=(4,)))) == len(CHECKS)
    spec, data = federation(3, kinds=("binary", "multiclass"))
    made = PFedFDA(hidden=(4,))
    server, _, updates = run_rounds(made, spec, data, rounds=1)
    good = updates["client 0"]
    assert made.objection(server, good) is None
    i = int(server["position/binary"])
    for what, value, text in (
        (f"known/{i}", 0.5 * torch.ones(2).double(), "neither that they are known"),
        (f"covariance/{i}", -torch.eye(4).double(), "not positive"),
        (f"covariance/{i}", torch.arange(16.0).double().reshape(4, 4), "not symmetric"),
    ):
        bad = made.objection(server, type(good)(good.arrays | {what: value}, good.pooled, good.weight, good.counts, {}))
        assert text in bad
    for options in ({"shrinkage": 0.0}, {"shrinkage": 2.0}, {"ridge": -1.0}):
        with pytest.raises(ConfigError):
            PFedFDA(**options)
    assert groups_of(numbers(-1, 1), TWO["y"]).tolist() == [[1, 0], [0, 1]]
