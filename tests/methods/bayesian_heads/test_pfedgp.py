"""pFedGP: its samplers against closed forms and other samplers, its tree and its rounds against numbers by hand.

With no hidden layer the features are the inputs, divided by their length: with inputs e₁ and e₂ the kernel is 8 at the same
input and 8 e⁻¹ between the two, since ‖e₁ − e₂‖² = 2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import expit

from federations import START, codecs_of, federation, run_rounds
from method_toys import spec_of
from polyfed.data import ClientData, FederationSpec, LabelCodec, Task
from polyfed.errors import ConfigError
from polyfed.gp import ExactModel, Prior, Rows, infer, predict_latents
from polyfed.gp.likelihoods import Bernoulli, likelihood_for
from polyfed.gp.quadrature import expected_sigmoid
from polyfed.methods import PFedSt
from polyfed.methods.bayesian_heads.class_tree import ClassTree
from polyfed.methods.bayesian_heads.node_gp import NodeGP, kernel, log_predictive, unit_features
from polyfed.methods.bayesian_heads.pfedgp import PFedGP
from polyfed.methods.bayesian_heads.polya_gamma_draws import TERMS, exponentials, gibbs, polya_gamma_from
from polyfed.methods.bayesian_heads.task_gp import TaskGP, halves
from polyfed.methods.checks import CHECKS
from polyfed.methods.messages import strip_prefix
from polyfed.methods.neural.cohorts import Cohort
from polyfed.predictions import CountPrediction, ProportionPrediction, RobustPrediction
from polyfed.seeds import Stream

REGRESSION = {"y": LabelCodec(Task("y"), None, 0.0, 1.0)}
BARE = {"hidden": (), "local_epochs": 1, "momentum": 0.0}


def tensor(values):
    return torch.tensor(np.asarray(values, dtype=float))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def classes(kind, labels, x, names=("a", "b", "c")):
    """One client with these labels, in order of its inputs."""
    names = ("no", "yes") if kind == "binary" else names
    codec = LabelCodec(Task(kind, kind, classes=names), names, 0.0, 1.0)
    return ClientData(
        np.asarray(x, dtype=float), {kind: (np.arange(len(labels)), np.array(labels, dtype=float))}, {kind: codec}
    )


def predict(made, data, x, seed=0):
    server = made.init(spec_of({"one": data}), Stream(seed, "start"))
    return made.predictor(server, {}, data)(x)


# ---- Pólya-Gamma variables -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [0.0, 0.3, 2.0, 9.0])
def test_draws_have_the_moments_and_the_distribution_of_polya_gamma(c):
    """Mean tanh(c/2)/2c and variance (sinh c − c)/(4c³ cosh²(c/2)), 1/4 and 1/24 at zero."""
    n = 20_000
    mean, variance = (0.25, 1 / 24) if c == 0 else (
        np.tanh(c / 2) / (2 * c),
        (np.sinh(c) - c) / (4 * c**3 * np.cosh(c / 2) ** 2),
    )  # fmt: skip
    drawn = polya_gamma_from(torch.full((n,), c, dtype=torch.float64), exponentials((n, TERMS), generator())).numpy()
    assert drawn.min() > 0
    assert drawn.mean() == pytest.approx(mean, abs=4 * (variance / n) ** 0.5)
    assert drawn.var() == pytest.approx(variance, rel=0.06)
    polyagamma = pytest.importorskip("polyagamma")  # no wheels for Python 3.14 yet
    other = polyagamma.random_polyagamma(1.0, c, size=n, random_state=np.random.default_rng(1))
    assert stats.ks_2samp(drawn, other).pvalue > 1e-3
    assert stats.ks_2samp(drawn, 1.05 * other).pvalue < 1e-3 or c > 5  # the test can tell five percent apart


def test_draws_depend_on_the_size_of_c_and_not_on_its_sign():
    c = tensor([-3.0, -0.1, 0.0, 2.0])
    one = exponentials((4, TERMS), generator())
    assert torch.equal(polya_gamma_from(c, one), polya_gamma_from(-c, one))


# ---- classifiers: eight points against importance sampling ---------------------------------------------------------


def eight_points(seed):
    rng = np.random.default_rng(seed)
    z = unit_features(tensor(rng.standard_normal((9, 3))))
    y = tensor(np.where(rng.random(8) < 0.5, -1.0, 1.0))
    return kernel(z, z, 8.0, 1.0), y


def reference(K, y, n=400_000):
    """Means, standard deviations and E[sigmoid] of nine latents given eight labels: draws of the prior, weighted."""
    root = np.linalg.cholesky(K.numpy() + 1e-10 * np.eye(9))
    f = np.random.default_rng(3).standard_normal((n, 9)) @ root.T
    w = np.exp(-np.logaddexp(0.0, -y.numpy() * f[:, :8]).sum(1))
    w /= w.sum()
    assert 1 / (w**2).sum() > 5000  # draws that count
    mean = w @ f
    return mean, np.sqrt(w @ (f - mean) ** 2), w @ expit(f)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_gibbs_and_mean_field_against_importance_sampling(seed):
    K, y = eight_points(seed)
    mean, sd, proba = reference(K, y)
    node = NodeGP(K[:8, :8], Bernoulli(), y)
    q = node.posterior(1e-10, 500)
    omega, f = gibbs(K[:8, :8], y, q.h, n_chains=4000, n_sweeps=15, generator=generator())
    assert np.abs(f.mean(0).numpy() - mean[:8]).max() < 0.06 * sd[:8].min()
    np.testing.assert_allclose(f.std(0).numpy() / sd[:8], 1.0, atol=0.05)
    # mean field is close, and too narrow, as it is known to be
    assert (np.abs(q.m.numpy() - mean[:8]) / sd[:8]).max() < 0.3
    assert 0.75 < (q.v.sqrt().numpy() / sd[:8]).mean() < 1.0
    # the ninth point has no label: its probability
    for sites, tolerance in (((omega, (0.5 * y).expand_as(omega)), 0.005), ((q.h, q.r), 0.03)):
        m, v = node.predict(sites, K[:8, 8:], 8.0)
        p = integrate.quad_vec(lambda t, m=m, v=v: expit(m.numpy() + v.numpy() ** 0.5 * t) * stats.norm.pdf(t), -9, 9)[
            0
        ]
        assert p.mean() == pytest.approx(proba[8], abs=tolerance)


def slices(K, y, n_chains=4000, n_sweeps=60):
    """The same latents by elliptical slice sampling, many chains at once: no weights, no augmentation."""
    rng, root = np.random.default_rng(5), np.linalg.cholesky(K.numpy() + 1e-10 * np.eye(9))

    def log_likelihood(f):
        return -np.logaddexp(0.0, -y.numpy() * f[:, :8]).sum(1)

    f = rng.standard_normal((n_chains, 9)) @ root.T
    for _ in range(n_sweeps):
        other, level = rng.standard_normal(f.shape) @ root.T, log_likelihood(f) + np.log(rng.random(n_chains))
        angle = rng.uniform(0, 2 * np.pi, n_chains)
        low, high, todo, new = angle - 2 * np.pi, angle.copy(), np.ones(n_chains, dtype=bool), f.copy()
        while todo.any():
            new[todo] = (f * np.cos(angle)[:, None] + other * np.sin(angle)[:, None])[todo]
            todo &= log_likelihood(new) < level
            low, high = np.where(todo & (angle < 0), angle, low), np.where(todo & (angle >= 0), angle, high)
            angle = np.where(todo, rng.uniform(low, high), angle)
        f = new
    return f


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_gibbs_and_mean_field_against_slice_sampling(seed):
    """Means within 0.1 standard deviations for Gibbs, whose 4,000 chains and those of the slices leave 0.022 of noise."""
    K, y = eight_points(seed)
    known = slices(K, y)
    mean, sd = known.mean(0)[:8], known.std(0)[:8]
    node = NodeGP(K[:8, :8], Bernoulli(), y)
    q = node.posterior(1e-10, 500)
    omega, f = gibbs(K[:8, :8], y, q.h, n_chains=4000, n_sweeps=15, generator=generator(7))
    assert (np.abs(f.mean(0).numpy() - mean) / sd).max() < 0.1
    np.testing.assert_allclose(f.std(0).numpy() / sd, 1.0, atol=0.07)
    assert (np.abs(q.m.numpy() - mean) / sd).max() < 0.35
    assert 0.75 < (q.v.sqrt().numpy() / sd).mean() < 1.0
    m, v = node.predict((omega, (0.5 * y).expand_as(omega)), K[:8, 8:], 8.0)
    assert float(expected_sigmoid(m, v).mean()) == pytest.approx(expit(known[:, 8]).mean(), abs=0.02)


def test_one_label_by_hand():
    """One label, K = 8: m = v/2 and v = 1/(1/8 + h), h = tanh(c/2)/2c, c² = m² + v.

    From c² = 8: h = 0.8884/5.6569 = 0.1570, v = 1/0.2820 = 3.5455, m = 1.7727, so c² = 3.1426 + 3.5455 = 6.6881;
    then h = 0.8600/5.1723 = 0.1663, v = 3.4334, m = 1.7167, c² = 6.3805; and on, to v = 3.3966 and m = 1.6983.
    """
    q = NodeGP(tensor([[8.0]]), Bernoulli(), tensor([1.0])).posterior(0.0, 500)
    m, v = q.m.item(), q.v.item()
    c = (m**2 + v) ** 0.5
    h = np.tanh(c / 2) / (2 * c)
    assert v == pytest.approx(1 / (1 / 8 + h), rel=1e-8)
    assert m == pytest.approx(v / 2, rel=1e-12)
    assert (round(m, 4), round(v, 4)) == (1.6983, 3.3966)


def test_probabilities_are_averages_of_the_sigmoid():
    """A client without labels knows f ~ N(0, 8): one half, not the 0.263 of exp(E[log sigmoid])."""
    data = ClientData(np.zeros((0, 2)), {}, classes("binary", [1.0], np.ones((1, 2))).codecs)
    prediction = predict(PFedGP(), data, np.eye(2))["binary"]
    np.testing.assert_allclose(prediction.proba, 0.5, atol=1e-12)
    np.testing.assert_allclose(prediction.latent_std, 8**0.5)
    for inference in ("mf", "gibbs"):
        data = classes("binary", [1, 1, -1], np.eye(3))
        prediction = predict(PFedGP(hidden=(), inference=inference), data, np.eye(3)[:2] + 0.3)["binary"]
        if inference == "mf":
            average = [
                integrate.quad(lambda f, m=m, s=s: expit(f) * stats.norm.pdf(f, m, s), m - 9 * s, m + 9 * s)[0]
                for m, s in zip(prediction.latent_mean, prediction.latent_std, strict=True)
            ]
            np.testing.assert_allclose(prediction.proba, average, atol=1e-7)
        assert (prediction.proba > 0.5).all()


@pytest.mark.parametrize("inference", ["mf", "gibbs"])
def test_swapped_labels_give_swapped_probabilities(inference):
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((12, 2)), np.where(rng.random(12) < 0.3, 1.0, -1.0)
    made, new = PFedGP(inference=inference), rng.standard_normal((20, 2))
    one, other = (predict(made, classes("binary", sign * labels, x), new)["binary"] for sign in (1, -1))
    np.testing.assert_allclose(one.proba, 1 - other.proba, rtol=0, atol=1e-12)
    assert np.ptp(one.proba) > 0.05
    # two classes of a tree are the same classifier, and swap alike
    first, second = (
        predict(made, classes("multiclass", (labels == sign).astype(float), x, ("a", "b")), new)["multiclass"].proba
        for sign in (1, -1)
    )
    np.testing.assert_allclose(first, second[:, ::-1], rtol=0, atol=1e-12)
    if inference == "mf":
        np.testing.assert_allclose(first[:, 1], one.proba, rtol=0, atol=1e-12)


def test_a_binary_task_is_the_single_task_process_of_pfed_st():
    """The same classifier as `gp.ExactModel` with one latent, φ₀ = 8 and φ₁ = 1, on inputs of length one."""
    rng = np.random.default_rng(6)
    x, labels, new = (
        rng.standard_normal((10, 3)),
        np.where(rng.random(10) < 0.5, 1.0, -1.0),
        rng.standard_normal((5, 3)),
    )
    found = predict(PFedGP(hidden=()), classes("binary", labels, x), new)["binary"]
    unit = [tensor(a / np.linalg.norm(a, axis=1, keepdims=True)) for a in (x, new)]
    prior = Prior(kernels=("rbf",), dims=3, outputs={"t": 1}, noise={})
    values = {"mixing.t": np.ones((1, 1)), "kernels.0.log_amplitude": np.log(8.0), "kernels.0.log_phi1": np.zeros(1)}
    prior = prior.with_values({name: tensor(value) for name, value in values.items()})
    model = ExactModel(prior, Rows.of(unit[0], {"t": (torch.arange(10), tensor(labels))}, {"t": Bernoulli()}))
    mean, cov = predict_latents(model, infer(model, tolerance=1e-10, max_steps=500).q, unit[1]).of("t")
    np.testing.assert_allclose(found.latent_mean, mean[:, 0], atol=1e-5)
    np.testing.assert_allclose(found.proba, expected_sigmoid(mean[:, 0], cov[:, 0, 0]), atol=1e-6)


def test_two_classes_are_pfed_st_on_features_of_length_one():
    """The same posterior from two programs: a tree with one branch here, one task of a multi-output process there."""
    rng = np.random.default_rng(8)
    x, new = rng.standard_normal((14, 3)), rng.standard_normal((6, 3))
    labels = np.where(rng.random(14) < 0.4, 1.0, -1.0)
    unit, unit_new = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (x, new))
    initial = {"mixing.binary": [[1.0]], "kernels.0.log_amplitude": np.log(8.0), "kernels.0.log_phi1": 0.0}
    st = predict(PFedSt(n_latents=1, initial=initial), classes("binary", labels, unit), unit_new)["binary"]
    binary = predict(PFedGP(hidden=()), classes("binary", labels, x), new)["binary"]
    tree = predict(PFedGP(hidden=()), classes("multiclass", (labels > 0).astype(float), x, ("a", "b")), new)
    np.testing.assert_allclose(binary.latent_mean, st.latent_mean, atol=1e-4)
    np.testing.assert_allclose(binary.latent_std, st.latent_std, atol=1e-4)
    np.testing.assert_allclose(binary.proba, st.proba, atol=1e-5)
    np.testing.assert_allclose(tree["multiclass"].proba[:, 1], st.proba, atol=1e-5)
    assert np.ptp(st.proba) > 0.1


# ---- the tree ------------------------------------------------------------------------------------------------------


def test_leaves_sum_to_one_and_permuted_classes_permute_them():
    rng = np.random.default_rng(1)
    x, labels = rng.standard_normal((30, 3)), rng.integers(0, 5, 30)
    new, names = rng.standard_normal((15, 3)), tuple("abcde")
    made = PFedGP()
    proba = predict(made, classes("multiclass", labels, x, names), new)["multiclass"].proba
    np.testing.assert_allclose(proba.sum(1), 1.0, atol=1e-12)
    assert (proba > 0).all()
    order = np.array([3, 0, 4, 2, 1])  # class k is called order[k] now
    permuted = predict(made, classes("multiclass", order[labels], x, names), new)["multiclass"].proba
    np.testing.assert_allclose(permuted[:, order], proba, atol=1e-8)


def test_classes_that_look_alike_part_last():
    """Means 0, 1, 10 and 11 on a line: {0, 1} | {10, 11} first, whatever the classes are called."""
    tree = ClassTree.grow(tensor([[10.0], [0.0], [11.0], [1.0]]), classes=(0, 1, 2, 3))
    assert [(b.left, b.right) for b in tree.branches] == [((0, 2), (1, 3)), ((0,), (2,)), ((1,), (3,))]
    turns = [tensor([[0.7, 0.3]]), tensor([[0.5, 0.5]]), tensor([[0.1, 0.9]])]
    np.testing.assert_allclose(
        tree.leaf_probabilities(turns)[0], [0.35, 0.03, 0.35, 0.27]
    )  # 0.7·½, 0.3·0.1, 0.7·½, 0.3·0.9


def test_classes_with_the_same_features_still_part():
    tree = ClassTree.grow(torch.zeros(5, 2, dtype=torch.float64), classes=(0, 1, 2, 3, 4))
    assert len(tree.branches) == 4
    assert sorted(c for b in tree.branches for side in (b.left, b.right) if len(side) == 1 for c in side) == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_only_the_classes_present_have_branches_and_others_a_floor():
    data = classes("multiclass", [0, 2, 2, 0], np.eye(4))
    assert ClassTree.of(torch.eye(4).double(), tensor([0.0, 2.0, 2.0, 0.0])).classes == (0, 2)
    prediction = predict(PFedGP(hidden=(), floor=0.03), data, np.eye(4))["multiclass"]
    np.testing.assert_allclose(prediction.proba[:, 1], 0.01)
    np.testing.assert_allclose(prediction.proba.sum(1), 1.0)
    assert (prediction.label == ["a", "c", "c", "a"]).all()


# ---- regression and the other kinds --------------------------------------------------------------------------------


def test_regression_by_hand():
    """One label y = 1 at e₁, noise 0.1: mean 8/8.1 and variance 8 − 64/8.1 there, 8e⁻¹/8.1 and 8 − 64e⁻²/8.1 at e₂."""
    data = ClientData(np.eye(2)[:1], {"y": (np.array([0]), np.array([1.0]))}, REGRESSION)
    prediction = predict(PFedGP(**BARE), data, np.array([[3.0, 0.0], [0.0, 0.2]]))["y"]  # lengths do not matter
    np.testing.assert_allclose(prediction.mean, [8 / 8.1, 8 * np.exp(-1) / 8.1], rtol=1e-12)
    np.testing.assert_allclose(prediction.latent_std**2, [8 - 64 / 8.1, 8 - 64 * np.exp(-2) / 8.1], rtol=1e-10)
    np.testing.assert_allclose(prediction.noise_std**2, 0.1, rtol=1e-12)


def test_a_round_by_hand():
    """Two clients, one label each at the same place (0 and 9), `marginal`: only log σ² can move, from log 0.1.

    −log N(y; 0, 8 + σ²) has the derivative σ² (½/8.1 − y²/(2·8.1²)) in log σ²: 0.1·0.0617284 = 0.00617284 for y = 0, and
    0.1·(0.0617284 − 0.617284) = −0.0555556 for y = 9. Steps of 0.05, averaged: −0.05·(0.00617284 − 0.0555556)/2 = 0.00123457.
    """
    data = {
        name: ClientData(np.eye(2)[:1], {"y": (np.array([0]), np.array([y]))}, REGRESSION)
        for name, y in (("a", 0.0), ("b", 9.0))
    }
    made = PFedGP(**BARE, objective="marginal")
    server, _, updates = run_rounds(made, spec_of(data), data, rounds=1)
    assert list(strip_prefix(server, "theta")) == ["noise.0"]
    assert float(server["theta/noise.0"]) - np.log(0.1) == pytest.approx(0.05 * (0.05 / 0.9 - 0.05 / 8.1) / 2, rel=1e-9)
    assert float(server["theta/noise.0"]) - np.log(0.1) == pytest.approx(0.00123457, abs=1e-8)
    loss = 0.5 * np.log(2 * np.pi * 8.1) + 81 / 16.2
    assert updates["b"].metrics["loss"] == pytest.approx(loss, rel=1e-12)


def test_the_marginal_objective_of_regression_is_the_density_of_the_labels():
    rng = np.random.default_rng(0)
    z, y = unit_features(tensor(rng.standard_normal((7, 3)))), tensor(rng.standard_normal(7))
    node = NodeGP(kernel(z, z, 8.0, 1.0), likelihood_for("regression"), y, tensor(0.3))
    cov = node.K.numpy() + 0.3 * np.eye(7)
    assert float(node.bound(node.posterior())) == pytest.approx(
        stats.multivariate_normal(None, cov).logpdf(y), rel=1e-10
    )


@pytest.mark.parametrize("kind", ["regression", "robust", "count", "proportion"])
def test_scores_are_the_densities_of_predictions(kind):
    """Against the densities that predictions compute for themselves, by other quadratures."""
    rng = np.random.default_rng(2)
    mean, variance = rng.standard_normal(40), rng.uniform(0.1, 8.0, 40)
    trials = rng.integers(1, 60, 40).astype(float)
    std, noise = variance**0.5, 0.4
    y, expected = {
        "regression": lambda: (v := 2 * rng.standard_normal(40), stats.norm(mean, (variance + noise) ** 0.5).logpdf(v)),
        "robust": lambda: (
            v := 2 * rng.standard_normal(40),
            RobustPrediction(mean, std, noise**0.5, 4.0).log_density(v),
        ),
        "count": lambda: (v := rng.poisson(3.0, 40).astype(float), CountPrediction(mean, std, noise).log_density(v)),
        "proportion": lambda: (
            v := np.column_stack([np.floor(trials * rng.random(40)), trials]),
            ProportionPrediction(mean, std, expit(mean)).log_density(v),
        ),
    }[kind]()
    found = log_predictive(likelihood_for(kind, typical=1.0), tensor(y), tensor(mean), tensor(variance), tensor(noise))
    tolerance = 0.02 if kind == "robust" else 1e-3 if kind != "regression" else 1e-10
    np.testing.assert_allclose(found.numpy(), expected, atol=tolerance)


@pytest.mark.parametrize("kind", ["regression", "robust", "binary", "multiclass", "count", "proportion"])
@pytest.mark.parametrize("options", [{}, {"objective": "marginal", "task_mode": "separate", "learn_kernel": True}])
def test_every_kind_of_task_is_learned_and_predicted(kind, options):
    spec, data = federation(2, kinds=(kind,), whole=True)
    made = PFedGP(hidden=(8,), **options)
    start = made.init(spec, START)
    server, states, _ = run_rounds(made, spec, data, rounds=6)
    assert all(torch.isfinite(v).all() for v in server.values())
    moved = [
        name
        for name in strip_prefix(server, "theta")
        if not torch.equal(server[f"theta/{name}"], start[f"theta/{name}"])
    ]
    assert moved == list(strip_prefix(server, "theta"))
    mine = data["client 0"]
    prediction = made.predictor(server, states["client 0"], mine)(mine.x)[kind]
    truth = mine.codecs[kind].decode(mine.labels[kind][1])
    assert np.isfinite(prediction.take(mine.labels[kind][0]).log_density(truth)).all()


# ---- gradients -----------------------------------------------------------------------------------------------------


def scalar_loss(made, data, kind, values, net):
    batch = {kind: np.arange(len(data.labels[kind][1]))}
    cohort = Cohort(net, [data])
    stacked = cohort.stack([values])
    (loss,), gradient, said = made.step(cohort, stacked, [batch], list(values), [Stream(0, "draws")])
    return loss, {name: g[0] for name, g in gradient.items()}, said[0]


@pytest.mark.parametrize(
    ("kind", "objective"),
    [("regression", "marginal"), ("regression", "predictive"), ("binary", "marginal"), ("count", "marginal")],
)
def test_gradients_against_differences(kind, objective):
    """Where nothing is held fixed: exact regression, and bounds, whose sites stand still at their optimum."""
    _, clients = federation(1, kinds=(kind,), seed=4)
    data = clients["client 0"]
    made = PFedGP(hidden=(3,), activation="tanh", objective=objective, learn_kernel=True, clip=1e9)
    spec = spec_of({"one": data})
    values, net = strip_prefix(made.init(spec, START), "theta"), made.net_of(data)
    _, gradient, _ = scalar_loss(made, data, kind, values, net)
    assert gradient.keys() == values.keys()
    for name, g in gradient.items():
        direction, h = torch.randn(g.shape, generator=generator(1), dtype=torch.float64), 1e-3
        up, down = (
            scalar_loss(made, data, kind, values | {name: values[name] + s * direction}, net)[0] for s in (h, -h)
        )
        assert (up - down) / (2 * h) == pytest.approx(float((g * direction).sum()), rel=2e-3, abs=2e-6), name


@pytest.mark.slow
def test_gibbs_gradients_are_those_of_the_evidence():
    """Of log p(y) = log E[Π sigmoid(y f)] in log s and log ℓ, by differences of averages over the same draws."""
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((6, 2)), np.array([1.0, 1.0, -1.0, 1.0, -1.0, -1.0])
    data = classes("binary", y, x)
    options = {"objective": "marginal", "learn_kernel": True, "n_chains": 6000, "n_sweeps": 20}
    made = PFedGP(hidden=(), inference="gibbs", **options)
    values = strip_prefix(made.init(spec_of({"one": data}), START), "theta")
    found = scalar_loss(made, data, "binary", values, made.net_of(data))[1]
    white, z = rng.standard_normal((400_000, 6)), unit_features(tensor(x))

    def evidence(amplitude, length):
        root = np.linalg.cholesky(kernel(z, z, amplitude, length).numpy() + 1e-9 * np.eye(6))
        return np.log(np.exp(-np.logaddexp(0.0, -y * (white @ root.T)).sum(1)).mean())

    h = 0.05
    slopes = {
        "kernel.0.amplitude": (evidence(8 * np.exp(h), 1) - evidence(8 * np.exp(-h), 1)) / (2 * h),
        "kernel.0.length": (evidence(8, np.exp(h)) - evidence(8, np.exp(-h))) / (2 * h),
    }
    for name, slope in slopes.items():
        assert float(found[name]) == pytest.approx(-slope / 6, abs=0.01), name
        assert abs(slope) / 6 > 0.02, name


def test_a_gradient_is_clipped():
    _, clients = federation(1, kinds=("regression",))
    data = clients["client 0"]
    loose, tight = PFedGP(clip=1e9), PFedGP(clip=0.01)
    values = strip_prefix(loose.init(spec_of({"one": data}), START), "theta")
    a, b = (scalar_loss(made, data, "regression", values, made.net_of(data))[1] for made in (loose, tight))
    norm = sum(float(g.square().sum()) for g in b.values()) ** 0.5
    assert norm == pytest.approx(0.01)
    assert all(torch.allclose(b[n] / norm, a[n] / sum(float(g.square().sum()) for g in a.values()) ** 0.5) for n in a)


# ---- the split -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
@pytest.mark.parametrize("inference", ["mf", "gibbs"])
def test_scored_labels_have_no_say_in_what_scores_them(kind, inference):
    """The loss is that of a client that has the other half alone and is asked for these rows."""
    _, clients = federation(1, kinds=(kind,), seed=5, whole=True)
    data = clients["client 0"]
    at, y = data.labels[kind]
    chains = {"n_chains": 400, "n_test_chains": 400, "n_sweeps": 10} if inference == "gibbs" else {}
    made = PFedGP(hidden=(4,), inference=inference, **chains)
    server = made.init(spec_of({"one": data}), START)
    loss = scalar_loss(made, data, kind, strip_prefix(server, "theta"), made.net_of(data))[0]
    given, scored = (rows.numpy() for rows in halves(tensor(y), 0.5))
    assert not set(given) & set(scored)
    assert set(given) | set(scored) == set(range(len(y)))
    assert set(y[scored]) <= set(y[given])
    half = replace(data, labels={kind: (at[given], y[given])})
    proba = made.predictor(server, {}, half)(data.x[at[scored]])[kind].class_proba
    position = (y[scored] > 0).astype(int) if kind == "binary" else y[scored].astype(int)
    floor = made.floor / 3 * (3 - len(set(y[given]))) if kind == "multiclass" else 0.0
    expected = -np.log(proba[np.arange(len(scored)), position] / (1 - floor)).mean()
    assert loss == pytest.approx(expected, abs=0.003 if inference == "mf" else 0.03)
    leaked = made.predictor(server, {}, data)(data.x[at[scored]])[kind].class_proba
    assert abs(loss + np.log(leaked[np.arange(len(scored)), position]).mean()) > 0.1


def test_the_split_keeps_shares_and_a_label_of_every_class():
    labels = tensor([0] * 10 + [1] * 3 + [2])
    given, scored = halves(labels, 0.3)
    assert [int((labels[scored] == c).sum()) for c in (0, 1, 2)] == [3, 1, 0]
    assert [int((labels[given] == c).sum()) for c in (0, 1, 2)] == [7, 2, 1]


def test_steps_split_anew():
    """The halves follow the order of the batch, which is shuffled in every epoch."""
    _, clients = federation(1, kinds=("binary",))
    made, data = PFedGP(), clients["client 0"]
    net = made.net_of(data)
    orders = [tuple(next(made.batches(net, data, Stream(0, "local", 1, "a"), epoch))["binary"]) for epoch in range(4)]
    assert len(set(orders)) > 1


# ---- clients that cannot teach -------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["predictive", "marginal"])
@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_a_client_with_one_class_teaches_nothing_and_is_not_averaged_in(kind, objective):
    _, data = federation(2, kinds=(kind,), whole=True, seed=1)
    lonely = data["client 0"]
    at, y = lonely.labels[kind]
    data["client 0"] = replace(lonely, labels={kind: (at, np.ones_like(y))})
    made = PFedGP(objective=objective, hidden=(4,))
    spec = spec_of(data)
    both, states, updates = run_rounds(made, spec, data, rounds=2)
    assert all(not v.any() for v in updates["client 0"].arrays.values())
    alone, _, _ = run_rounds(made, spec, {"client 1": data["client 1"]}, rounds=2)
    for name, value in alone.items():
        torch.testing.assert_close(both[name], value, rtol=0, atol=1e-13)
    prediction = made.predictor(both, states["client 0"], data["client 0"])(lonely.x)[kind]
    assert (prediction.class_proba[:, 1] > 0.5).all()
    assert (prediction.class_proba < 1).all()


def test_one_sample_or_none():
    spec, data = federation(2, kinds=("regression", "binary", "multiclass"), whole=True)
    one = data["client 1"]
    data["client 1"] = replace(one, labels={task: (at[:1], y[:1]) for task, (at, y) in one.labels.items()})
    data["nobody"] = replace(one, labels={})
    spec = spec_of(data)
    for inference in ("mf", "gibbs"):
        made = PFedGP(inference=inference, n_chains=4, n_test_chains=4)
        server, states, updates = run_rounds(made, spec, data, rounds=1)
        assert all(not v.any() for v in updates["nobody"].arrays.values())
        for name in data:
            for task, prediction in made.predictor(server, states[name], data[name])(one.x).items():
                assert np.isfinite(prediction.latent_mean).all(), (name, task)
        blank = made.predictor(server, {}, data["nobody"])(one.x)
        np.testing.assert_allclose(blank["multiclass"].proba, 1 / 3)
        np.testing.assert_allclose(blank["regression"].latent_std, 8**0.5)


# ---- the method as a whole -----------------------------------------------------------------------------------------


def test_the_diagonal_of_the_kernel_is_its_amplitude():
    rng = np.random.default_rng(0)
    _, clients = federation(1, n_features=2)
    data = clients["client 0"]
    made = PFedGP()
    values = strip_prefix(made.init(spec_of({"one": data}), START), "theta")
    z = unit_features(made.net_of(data).features(values, tensor(100 * rng.standard_normal((30, 2))), "binary"))
    np.testing.assert_allclose(z.norm(dim=-1), 1.0, rtol=1e-12)
    K = TaskGP.of(made, values, data, "binary").covariance(z, z)
    np.testing.assert_allclose(K.diagonal(), 8.0, rtol=1e-12)
    assert float(K.min()) >= 8 * np.exp(-2) - 1e-12  # no two features of length one are more than 2 apart


def test_no_head_and_no_label_travels_and_kernels_stay_unless_asked_for():
    spec, data = federation(2)
    server, states, updates = run_rounds(PFedGP(), spec, data, rounds=1)
    assert {name.split(".")[0] for name in updates["client 0"].arrays} == {"trunk", "noise"}
    assert not states["client 0"]
    server, _, _ = run_rounds(PFedGP(learn_kernel=True), spec, data, rounds=2)
    assert {name.split(".")[0] for name in strip_prefix(server, "theta")} == {"trunk", "noise", "kernel"}
    assert all(abs(float(server[f"theta/kernel.{i}.length"])) > 1e-9 for i in range(3))


def test_averages_are_uniform_over_those_with_the_task():
    spec, data = federation(3)
    made = PFedGP(task_mode="separate", hidden=(4,))
    start = made.init(spec, START)
    server, _, updates = run_rounds(made, spec, data, rounds=1)
    for i, task in enumerate(spec.codecs):
        owners = [name for name, mine in data.items() if task in mine.labels]
        assert 0 < len(owners) < 3 or task == "regression"
        name = f"trunk.{i}.0.weight"
        mean = torch.stack([updates[owner].arrays[name] for owner in owners]).mean(0)
        torch.testing.assert_close(server[f"theta/{name}"], start[f"theta/{name}"] + mean, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_learning_features_pays():
    """Two inputs that matter among noise: a network trained by others predicts a late_client better than one that is not."""
    rng = np.random.default_rng(0)
    codecs = codecs_of(("binary",))

    def draw(n):
        x = rng.standard_normal((n, 8))
        return x, np.where(x[:, 0] * x[:, 1] > 0, 1.0, -1.0)

    def client(n):
        x, y = draw(n)
        return ClientData(x, {"binary": (np.arange(n), y)}, codecs)

    data = {f"client {i}": client(60) for i in range(4)}
    spec, new, (x, y) = spec_of(data), client(40), draw(300)
    made = PFedGP(hidden=(16,))
    scores = []
    for rounds in (0, 40):
        server = run_rounds(made, spec, data, rounds=rounds)[0] if rounds else made.init(spec, START)
        state = made.join(server, new, Stream(0, "join"))
        p = made.predictor(server, state, new)(x)["binary"].proba
        scores.append(-np.log(np.where(y > 0, p, 1 - p)).mean())
    assert scores[1] < scores[0] - 0.05


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("inference", ["mf", "gibbs"])
def test_the_contract(check, inference):
    check(PFedGP(inference=inference, n_chains=2, n_test_chains=2, n_sweeps=2, local_epochs=1, hidden=(6,)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"inference": "gibs"}, "inference 'gibs' is unknown; did you mean 'gibbs'? known are 'mf', 'gibbs'."),
        ({"objective": "elbo"}, "objective 'elbo' is unknown; known are 'predictive', 'marginal'."),
        ({"predict_ratio": 1.0}, "predict_ratio is 1.0; give a number between 0 and 1."),
        ({"floor": 0}, "floor is 0; give a number above 0."),
        ({"amplitude": -8}, "amplitude is -8; give a number above 0."),
        ({"n_chains": 5}, "n_chains is 5; give an even number: chains are paired."),
        ({"n_sweeps": 0}, "n_sweeps is 0; give a whole number from 1 up."),
        ({"learn_kernel": "yes"}, "learn_kernel is 'yes'; give true or false."),
    ],
)
def test_wrong_options(options, text):
    with pytest.raises(ConfigError) as error:
        PFedGP(**options)
    assert str(error.value) == text


def test_gibbs_refuses_a_power_before_the_first_round():
    codecs = {"sick": LabelCodec(Task("sick", "binary", power=0.5), ("no", "yes"), 0.0, 1.0)}
    spec = FederationSpec((codecs["sick"].task,), 2, ("a",), codecs)
    PFedGP().init(spec, START)
    with pytest.raises(ConfigError, match=r"task 'sick': power=0.5 is not for inference='gibbs'; leave power at 1"):
        PFedGP(inference="gibbs").init(spec, START)
