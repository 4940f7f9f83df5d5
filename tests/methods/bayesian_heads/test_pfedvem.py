"""pFedVEM against numbers by hand, the exact evidence of a Gaussian toy, and FedPer with separate phases.

The toy: one regression task with one feature, no hidden layer, so that features are the inputs. A head has one weight and one
bias, kept as one row (weight, bias). With the feature 1 everywhere f = w + b.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from federations import KINDS, START, federation, fit_of, my_networks, normed, one_round, run_rounds
from method_toys import NUMBER, client_of, spec_of
from polyfed.data import ClientData, LabelCodec, Task
from polyfed.errors import ConfigError
from polyfed.methods import FedPer, Job
from polyfed.methods.bayesian_heads.pfedvem import PFedVEM
from polyfed.methods.bayesian_heads.uncertain_heads import Turn, divergence, expected_loss, prior_variance
from polyfed.methods.checks import CHECKS
from polyfed.methods.messages import ClientUpdate, from_bytes, strip_prefix, to_bytes
from polyfed.methods.neural.cohorts import Labels
from polyfed.seeds import Stream

TWO = {"y": LabelCodec(Task("y", "binary", classes=("no", "yes")), ("no", "yes"), 0.0, 1.0)}
TINY = -40.0  # softplus of it is 4e-18: no std at all


def row(*numbers):
    return torch.tensor([numbers], dtype=torch.float64)


def raw(*sigmas):
    """s of these σ."""
    return torch.log(torch.expm1(row(*sigmas)))


def headed(server, w, b):
    return server | {"theta/head.0.weight": row(w), "theta/head.0.bias": row(b)[0]}


# ---- the bound -------------------------------------------------------------------------------------------------------


def test_the_prior_variance_by_hand_is_where_the_divergence_is_least():
    """μ = (1, 3), w = 0, σ = (1, 2): ρ² = (1 + 4 + 1 + 9)/2 = 7.5, bias counted."""
    mean, s, w = row(1.0, 3.0), raw(1.0, 2.0), row(0.0, 0.0)
    rho2 = prior_variance(mean, s, w)
    assert float(rho2) == pytest.approx(7.5, abs=1e-14)
    least = divergence(mean, s, w, rho2)
    assert divergence(mean, s, w, rho2 * 0.99) > least
    assert divergence(mean, s, w, rho2 * 1.01) > least
    # log(ρ²/σ²) is what is left of the KL at its optimum: ½ (log 7.5 + log 7.5/4)
    assert float(least) == pytest.approx(0.5 * (np.log(7.5) + np.log(7.5 / 4)), abs=1e-14)


def test_the_divergence_is_that_of_torch_and_never_negative():
    rng = np.random.default_rng(0)
    for _ in range(20):
        mean, s, w = (torch.from_numpy(rng.normal(size=(3, 4))) for _ in range(3))
        rho2 = torch.tensor(rng.uniform(0.01, 5), dtype=torch.float64)
        normal = torch.distributions.Normal
        q, p = normal(mean, softplus(s)), normal(w, rho2.sqrt())
        assert float(divergence(mean, s, w, rho2)) == pytest.approx(
            float(torch.distributions.kl_divergence(q, p).sum()), rel=1e-10
        )
        assert divergence(mean, s, w, rho2) >= 0
    assert float(
        divergence(row(1.0, 2.0), raw(0.3, 0.3), row(1.0, 2.0), torch.tensor(0.09, dtype=torch.float64))
    ) == pytest.approx(0, abs=1e-9)


def test_the_bound_is_below_the_evidence_and_meets_it_at_the_posterior():
    """x = 1, −1 with y = 1, 0, noise and prior of variance 1, w = 0. The design is orthogonal, H'H = 2 I, H H' = 2 I.

    Evidence: y ~ N(0, 3 I), so −log p(y) = log 2π + log 3 + 1/6. Posterior: variance 1/3, mean (1/3, 1/3), with which the
    bound is exact.
    """
    h, y = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
    draws = torch.from_numpy(np.random.default_rng(0).standard_normal((400_000, 1, 2)))
    w, rho2 = row(0.0, 0.0), torch.tensor(1.0, dtype=torch.float64)

    def bound(mean, sigma):
        q = mean, raw(*sigma)
        return float(
            expected_loss(q, h, Labels.of(y, NUMBER["y"]), torch.tensor(1.0), draws) + divergence(*q, w, rho2)
        ) + np.log(2 * np.pi)

    evidence = np.log(2 * np.pi) + np.log(3) + 1 / 6
    third = 3**-0.5
    assert bound(row(1 / 3, 1 / 3), (third, third)) == pytest.approx(evidence, abs=5e-3)
    for mean, sigma in (((0.0, 0.0), (third, third)), ((1 / 3, 1 / 3), (1.0, 0.2)), ((1.0, -1.0), (0.5, 0.5))):
        assert bound(row(*mean), sigma) > evidence + 0.05


@pytest.mark.parametrize("kind", ["regression", "robust", "binary", "multiclass", "count", "proportion"])
def test_the_expected_loss_is_a_log_likelihood_up_to_a_constant(kind):
    """Its differences between two heads without std are those of textbook likelihoods."""
    from scipy import stats

    _, data = federation(1, kinds=(kind,))
    mine = data["client 0"]
    (at, y), codec = mine.labels[kind], mine.codecs[kind]
    h = torch.from_numpy(np.column_stack([mine.x[at], np.ones(len(at))]))
    noise = 0.0 if kind == "count" else 0.3
    n_outputs = 3 if kind == "multiclass" else 1
    rng, found, known = np.random.default_rng(2), [], []
    for _ in range(2):
        beta = rng.normal(size=(n_outputs, 3)) / 2
        q = torch.from_numpy(beta), torch.full((n_outputs, 3), TINY, dtype=torch.float64)
        draws = torch.from_numpy(rng.standard_normal((3, n_outputs, 3)))
        found.append(
            float(
                expected_loss(
                    q, h, Labels.of(torch.from_numpy(y), codec), torch.tensor(noise, dtype=torch.float64), draws
                )
            )
        )
        f = h.numpy() @ beta.T
        p = 1 / (1 + np.exp(-f[:, 0]))
        if kind == "regression":
            density = stats.norm.logpdf(y, f[:, 0], np.sqrt(noise))
        elif kind == "robust":
            density = stats.t.logpdf(y, codec.task.dof, f[:, 0], np.sqrt(noise))
        elif kind == "binary":
            density = stats.bernoulli.logpmf((y > 0).astype(int), p)
        elif kind == "multiclass":
            density = (f - np.log(np.exp(f).sum(1, keepdims=True)))[np.arange(len(y)), y.astype(int)]
        elif kind == "count":
            density = stats.poisson.logpmf(y, codec.scale * np.exp(f[:, 0]))
        else:
            density = stats.binom.logpmf(y[:, 0], y[:, 1], p)
        known.append(-density.sum())
    assert found[0] - found[1] == pytest.approx(known[0] - known[1], abs=1e-9)


# ---- a client ----------------------------------------------------------------------------------------------------------


def test_two_head_steps_by_hand():
    """Four labels of 2 with feature 1, noise 1, μ = (0, 0) without std, w = (1, 1): ρ² = (1 + 1)/2 = 1, step 0.1/(4 + 1).

    Slope 4 (f − 2) + (μ − w)/ρ²:  4·(−2) − 1 = −9, μ = 0.18;   4·(0.36 − 2) − 0.82 = −7.38, μ = 0.18 + 0.1476 = 0.3276.
    With momentum 0.9 the second step is along −7.38 − 8.1: 0.18 + 0.3096 = 0.4896.
    """
    data = {"ann": client_of([1] * 4, [2] * 4)}
    for momentum, mu in ((0.0, 0.3276), (0.9, 0.4896)):
        made = PFedVEM(hidden=(), head_rate=0.1, head_steps=2, momentum=momentum)
        server = headed(made.init(spec_of(data), START), 1.0, 1.0)
        states = {"ann": {"mean/0": row(0.0, 0.0), "raw/0": row(TINY, TINY)}}
        after, updates = one_round(made, server, states, data)
        assert states["ann"]["mean/0"].tolist() == [pytest.approx([mu, mu], abs=1e-12)]
        # sent is the ρ² with which the steps were made, and of one client w is its μ
        assert 1 / float(updates["ann"].pooled["precision/0"][0]) == pytest.approx(1.0, abs=1e-12)
        assert float(after["theta/head.0.weight"]) == pytest.approx(mu, abs=1e-12)


def test_a_first_round_begins_at_the_mean_head_with_the_given_spread():
    """μ = w then, so ρ² is the square of initial_std: 0.09."""
    data = {"ann": client_of([1, 1], [0, 2])}
    made = PFedVEM(hidden=(), initial_std=0.3)
    server, states = made.init(spec_of(data), START), {"ann": made.start(data["ann"], START)}
    _, updates = one_round(made, server, states, data)
    assert 1 / float(updates["ann"].pooled["precision/0"][0]) == pytest.approx(0.09, abs=1e-14)


def test_many_steps_find_the_posterior():
    """x = 1, −1 with y = 1, 0, as above, but with n_draws high and ρ² held by μ − w: the mean of q goes to (1/3, 1/3)."""
    data = {"ann": client_of([1, -1], [1, 0])}
    made = PFedVEM(hidden=(), head_rate=0.05, head_steps=1000, n_draws=20, momentum=0.0)
    net = made.net_of(data["ann"])
    # one step of 1.: σ² + (μ − w)² has the mean 1, with w = 0
    state = {"mean/0": row(0.6, 0.8), "raw/0": raw(0.8, 0.6)}
    values = strip_prefix(headed({}, 0.0, 0.0), "theta")
    [((mean, s), rho2)] = made.head_phase(
        net, "y", [Turn(Job("", state, {}, data["ann"], Stream(0, "head")), values, {})]
    )
    assert float(rho2) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(mean, [[1 / 3, 1 / 3]], atol=0.05)
    np.testing.assert_allclose(softplus(s), [[3**-0.5, 3**-0.5]], atol=0.05)


def test_without_spread_and_prior_it_is_fedper_with_separate_phases():
    """σ → 0 and ρ → ∞ (by a w that is far away): full-batch steps on the head, then epochs on the trunk."""
    spec, data = federation(2, kinds=("binary",))
    options = {"hidden": (5,), "activation": "tanh", "momentum": 0.0, "batch_size": 4}
    made = PFedVEM(**options, head_steps=3, head_rate=0.2, local_epochs=2, learning_rate=0.05)
    per = FedPer(**options, learning_rate=0.05)
    net = per.net_of(spec)
    server = made.init(spec, START)
    first = strip_prefix(server, "theta")
    far = {"theta/head.0.weight": torch.full((1, 5), 1e7, dtype=torch.float64)}
    mean = torch.cat([first["head.0.weight"], first["head.0.bias"][:, None]], 1)
    mine, stream = data["client 1"], Stream(0, "local", 1, "client 1")
    state = {"mean/0": mean, "raw/0": torch.full_like(mean, TINY)}
    state, update = made.local(state, made.broadcast(server | far, "client 1"), mine, stream)
    everything = {"binary": np.arange(len(mine.labels["binary"][0]))}
    values = dict(first)
    for _ in range(3):
        _, g = per.gradient(net, values, mine, everything, net.heads)
        values |= {name: values[name] - 0.2 * g[name] for name in net.heads}
    trunk = [name for name in values if name not in net.heads]
    values, _ = per.train(net, values, mine, stream, epochs=2, names=trunk)
    np.testing.assert_allclose(state["mean/0"][:, :-1], values["head.0.weight"], atol=1e-6)
    for name in trunk:
        torch.testing.assert_close(update.arrays[name], values[name] - first[name], rtol=0, atol=1e-6)


def test_phases_of_a_round_with_batch_norm(monkeypatch):
    """6 rows in batches of 3, 3 epochs: the trunk sees 6 batches in training mode; the head's steps leave no trace on it."""
    my_networks(monkeypatch, normed=normed)
    _, data = federation(2, kinds=("multiclass",))
    mine = data["client 1"]
    at, y = mine.labels["multiclass"]
    assert len(at) > 6
    data = {"ann": ClientData(mine.x, {"multiclass": (at[:6], y[:6])}, mine.codecs)}
    made = PFedVEM(network="my_networks:normed", batch_size=3, local_epochs=3, head_steps=7)
    server, states = made.init(spec_of(data), START), {"ann": made.start(data["ann"], START)}
    after, _ = one_round(made, server, states, data)
    assert int(after["theta/trunk.1.num_batches_tracked"]) == 6


@pytest.mark.parametrize("kind", ["multiclass", "regression", "proportion"])
@pytest.mark.parametrize("buffers", ["average", "local", "frozen"])
def test_batch_norm_with_a_client_of_one_sample(monkeypatch, buffers, kind):
    my_networks(monkeypatch, normed=normed)
    spec, data = federation(3, kinds=(kind,))
    one = data["client 1"]
    data["client 1"] = ClientData(one.x[:1], {kind: (np.array([0]), one.labels[kind][1][:1])}, one.codecs)
    made = PFedVEM(network="my_networks:normed", bn_buffers=buffers, batch_size=3, local_epochs=1)
    server, states, _ = run_rounds(made, spec, data, rounds=3)
    assert all(torch.isfinite(v).all() for v in [*server.values(), *states["client 1"].values()])
    read = made.predictor(server, states["client 1"], data["client 1"])
    assert np.isfinite(read(one.x)[kind].latent_mean).all()
    assert len(read(one.x[:1])[kind]) == 1


def test_a_rate_fits_clients_of_any_size():
    """The steps of 3 and of 3,000 labels of the same kind are alike: nothing runs away."""
    made, found = PFedVEM(hidden=(), head_steps=200), []
    for n in (3, 3000):
        data = {"ann": client_of([1.0, -1.0, 0.5] * (n // 3), [1.0, 0.0, 2.0] * (n // 3))}
        server = headed(made.init(spec_of(data), START), 0.0, 0.0)
        server["noise/y"] = torch.tensor(0.01, dtype=torch.float64)
        states = {"ann": {"mean/0": row(1.0, -1.0), "raw/0": raw(0.1, 0.1)}}
        one_round(made, server, states, data)
        found.append(states["ann"]["mean/0"].numpy())
    best = np.linalg.lstsq([[1, 1], [-1, 1], [0.5, 1]], np.array([1.0, 0.0, 2.0]), rcond=None)[0]
    np.testing.assert_allclose(found, [[best]] * 2, atol=0.1)


# ---- the trunk on wide features ------------------------------------------------------------------------------------------


WIDE = {"momentum": 0.9, "learning_rate": 0.05, "local_epochs": 2, "task_mode": "separate"}
BOTH = {**TWO, "z": LabelCodec(Task("z", "regression"), None, 0.0, 1.0)}


def wide(n_features=2000, seed=0, scale=1.0):
    """40 rows, a class and a number each; features of variance 1 follow four causes, so that steps at 0.05 overshoot."""
    rng = np.random.default_rng(seed)
    causes, at = rng.normal(size=(40, 4)), np.arange(40)
    x = (causes @ np.random.default_rng(99).normal(size=(4, n_features)) + rng.normal(size=(40, n_features))) / 5**0.5
    y, z = np.where(causes[:, 0] > 0, 1.0, -1.0), scale * (causes[:, 1] + rng.normal(size=40) / 2)
    return ClientData(x, {"y": (at, y), "z": (at, z)}, BOTH)


def exact_loss(trunk, mean, sigma, data):
    """½ E (z − β·h)² by hand: the square at μ, and Σ σ² h² for the std of the head."""
    weight, bias = trunk
    h = np.column_stack([np.maximum(data.x @ weight.T + bias, 0), np.ones(len(data.x))])
    return 0.5 * np.mean((data.labels["z"][1] - h @ mean[0]) ** 2 + h**2 @ sigma[0] ** 2)


def test_epochs_on_the_trunk_never_make_it_worse():
    """By numpy alone, with the expectation in closed form. At a fixed rate of 0.05 it rises from 0.35 to 398."""
    made = PFedVEM(**WIDE)
    data = {"ann": wide()}
    server, states = made.init(spec_of(data), START), {"ann": made.start(data["ann"], START)}
    first = strip_prefix(server, "theta")
    _, updates = one_round(made, server, states, data)
    mean, sigma = states["ann"]["mean/1"].numpy(), softplus(states["ann"]["raw/1"]).numpy()
    names = "trunk.1.0.weight", "trunk.1.0.bias"
    before = exact_loss([first[name].numpy() for name in names], mean, sigma, data["ann"])
    after = exact_loss([(first[n] + updates["ann"].arrays[n]).numpy() for n in names], mean, sigma, data["ann"])
    assert after < before
    assert any(updates["ann"].arrays[name].abs().max() > 0 for name in names)  # it learned, it did not just give up
    # the rate that was found is remembered, for the number alone: the class had no trouble
    assert float(states["ann"]["rate/z"]) < 0.05
    assert float(states["ann"]["rate/y"]) == 0.05


def test_many_rounds_on_wide_features_stay_sensible():
    """Labels of variance about 1.25: no client's noise is above it, nor is any parameter absurd."""
    made = PFedVEM(**WIDE)
    data = {f"client {i}": wide(seed=i) for i in range(3)}
    server, _, _ = run_rounds(made, spec_of(data), data, rounds=10)
    assert float(server["noise/z"]) < 1.25
    assert all(value.abs().max() < 10 for value in strip_prefix(server, "theta").values())


def test_the_trouble_of_one_task_is_not_that_of_another():
    """With trunks of their own the class learns the same, to the bit, whatever the numbers are."""
    made, found = PFedVEM(**WIDE), []
    for scale in (1.0, 100.0):
        data = {"ann": wide(scale=scale)}
        server, states = made.init(spec_of(data), START), {"ann": made.start(data["ann"], START)}
        _, updates = one_round(made, server, states, data)
        found.append(updates["ann"].arrays["trunk.0.0.weight"])
    assert torch.equal(*found)


def test_the_noise_is_that_under_the_head_not_at_its_mean():
    """E_q (y − f)² = (y − μ·h)² + Σ σ² h². h = (2, 1), μ = (1, −1), y = 1.5: 0.25; σ = (0.3, 0.4): 4·0.09 + 0.16 = 0.52."""
    data = client_of([2.0], [1.5])
    made = PFedVEM(hidden=(), read_draws=20_000)
    net, values = made.net_of(data), strip_prefix(headed({}, 0.0, 0.0), "theta")
    total, count = made.noise_under(net, values, data, "y", (row(1.0, -1.0), raw(0.3, 0.4)))
    assert float(count) == 1
    assert float(total) == pytest.approx(0.77, abs=0.02)
    assert float(made.noise_under(net, values, data, "y", (row(1.0, -1.0), row(TINY, TINY)))[0]) == pytest.approx(0.25)


# ---- the server ----------------------------------------------------------------------------------------------------------


def sent(made, server, mu, w, rho2, n=2):
    """An update of a client with this μ (weight; bias 0), ρ² and number of labels."""
    plain = made.template(server)
    change = {
        "head.0.weight": row(mu - w),
        "head.0.bias": row(0.0)[0],
    }
    one = torch.ones((), dtype=torch.float64)
    pooled = {**plain.pooled, "precision/0": (one / rho2, one)}
    return ClientUpdate({**plain.arrays, **change}, pooled, float(n), {"y": n}, plain.metrics)


def test_the_mean_head_is_weighted_by_precision():
    """μ = 1 with ρ² = 1 and μ = 4 with ρ² = ½: w = (1 + 8)/(1 + 2) = 3, whatever w was and however many labels there are.

    Half the way (server_rate ½) from w = 7: 5. It is where Σ (w − μ)²/ρ² has no slope: 2·(3 − 1)/1 + 2·(3 − 4)/½ = 4 − 4 = 0.
    """
    data = {"ann": client_of([1], [1]), "bob": client_of([1], [4])}
    for rate, wanted in ((1.0, 3.0), (0.5, 5.0)):
        made = PFedVEM(hidden=(), server_rate=rate)
        server = headed(made.init(spec_of(data), START), 7.0, 0.0)
        updates = {"ann": sent(made, server, 1.0, 7.0, 1.0, n=50), "bob": sent(made, server, 4.0, 7.0, 0.5)}
        after = made.aggregate(server, updates)
        assert float(after["theta/head.0.weight"]) == pytest.approx(wanted, abs=1e-14)
    w = torch.tensor(3.0, requires_grad=True)
    ((w - 1) ** 2 / 1.0 + (w - 4) ** 2 / 0.5).backward()
    assert float(w.grad) == 0.0


def test_who_lacks_a_task_has_no_say_in_its_head():
    spec, data = federation(3)
    made = PFedVEM(hidden=(4,), local_epochs=1)
    _, states, updates = run_rounds(made, spec, data, rounds=2)
    lacking = next(task for task in KINDS if task not in data["client 1"].labels)
    i = KINDS.index(lacking)
    assert float(updates["client 1"].pooled[f"precision/{i}"][0]) == 0
    assert f"mean/{i}" not in states["client 1"]
    weights = made.weights(f"head.{i}.weight", [updates[name] for name in data])
    assert weights[1] == 0
    assert (weights[[0, 2]] > 0).all()
    assert float(weights[0]) == pytest.approx(1 / float(states["client 0"][f"rho2/{i}"]))


def test_the_order_of_clients_does_not_matter_and_one_client_is_enough():
    spec, data = federation(3)
    made = PFedVEM(hidden=(4,), local_epochs=1)
    a, _, _ = run_rounds(made, spec, data, rounds=2)
    b, _, _ = run_rounds(made, spec, dict(reversed(data.items())), rounds=2)
    assert all(torch.equal(v, b[n]) for n, v in a.items())
    server, states, _ = run_rounds(made, spec, {"client 0": data["client 0"]}, rounds=2)
    for i in range(3):
        mean = states["client 0"][f"mean/{i}"]
        torch.testing.assert_close(server[f"theta/head.{i}.weight"], mean[:, :-1], rtol=0, atol=1e-12)
        torch.testing.assert_close(server[f"theta/head.{i}.bias"], mean[:, -1], rtol=0, atol=1e-12)


def test_spreads_stay_at_home_and_storage_changes_nothing():
    spec, data = federation(3)
    made = PFedVEM(hidden=(4,), local_epochs=1)
    server, states, updates = run_rounds(made, spec, data, rounds=1)
    assert not any("raw" in name for name in [*server, *updates["client 0"].arrays])
    a, _ = one_round(made, server, dict(states), data, round=2)
    back = {name: from_bytes(to_bytes(state)) for name, state in states.items()}
    b, _ = one_round(made, from_bytes(to_bytes(server)), back, data, round=2)
    assert all(torch.equal(v, b[n]) for n, v in a.items())


# ---- predictions -----------------------------------------------------------------------------------------------------------


def reading(codecs, mean, sigma, x, **options):
    made = PFedVEM(hidden=(), **options)
    data = {"ann": client_of([1.0, 1.0], [1.0, -1.0], codecs)}
    server = headed(made.init(spec_of(data), START), 9.0, 0.0)
    state = {"mean/0": row(*mean), "raw/0": raw(*sigma)}
    return made.predictor(server, state, data["ann"])(np.asarray(x, dtype=float).reshape(-1, 1))["y"]


def test_regression_reads_out_the_spread_of_the_head():
    """μ = (1, 2), σ = (0.3, 0.4), x = 2: mean 4, σ_f² = 4·0.09 + 0.16 = 0.52.

    Noise from the labels 1 and −1 at x = 1, where f is N(3, 0.09 + 0.16): (4 + 16)/2 + 0.25 = 10.25. Standard deviation
    √(10.25 + 0.52); √10 with `mean`, which knows of no std.
    """
    read = reading(NUMBER, (1.0, 2.0), (0.3, 0.4), [2.0], read_draws=20_000)
    assert read.mean[0] == pytest.approx(4.0, abs=1e-14)
    assert read.latent_std[0] == pytest.approx(0.52**0.5, abs=1e-14)
    assert read.noise_std[0] ** 2 == pytest.approx(10.25, abs=0.01)
    assert read.std[0] == pytest.approx(10.77**0.5, abs=0.002)
    assert reading(NUMBER, (1.0, 2.0), (0.3, 0.4), [2.0], read_out="mean").std[0] == pytest.approx(10**0.5, abs=1e-14)


def test_probabilities_are_averaged_over_the_head():
    """μ = (2, 0), σ = (2, 0): the logit at x = 1 is N(2, 4), at x = 0 it is 0.

    The mean read-out says 1/(1 + e⁻²) = 0.8808; E σ(f) has no closed form: two quadratures agree on 0.7752. At 0 it is ½.
    """
    x = [1.0, 0.0, -1.0]
    t, weight = np.polynomial.hermite_e.hermegauss(101)
    exact = (weight / (1 + np.exp(-(2 + 2 * t)))).sum() / weight.sum()
    mc = reading(TWO, (2.0, 0.0), (2.0, 1e-12), x, read_draws=5000).proba
    assert exact == pytest.approx(0.7752, abs=5e-5)  # Gauss-Hermite here, adaptive when this was written
    assert mc[0] == pytest.approx(exact, abs=0.01)
    assert mc[1] == pytest.approx(0.5, abs=1e-12)
    assert mc[0] + mc[2] == pytest.approx(1.0, abs=1e-12)
    undecided = reading(TWO, (0.0, 0.0), (2.0, 1.0), x, read_draws=3).proba
    np.testing.assert_allclose(undecided, 0.5, atol=1e-12)  # with few draws too: they come in mirrored pairs
    plain = reading(TWO, (2.0, 0.0), (2.0, 1e-12), x, read_out="mean").proba
    assert plain[0] == pytest.approx(1 / (1 + np.exp(-2)), abs=1e-14)
    again = reading(TWO, (2.0, 0.0), (2.0, 1e-12), x[:1], read_draws=5000).proba
    assert again[0] == pytest.approx(mc[0], abs=1e-13)  # of its row alone, and the same at any time


def test_the_servers_model_and_a_newcomer():
    """The server alone reads w. A late client with ten rows of x = y = 1 goes from w = 0 towards f = 1; w alone does not."""
    data = {"ann": client_of([1.0] * 10, [1.0] * 10)}
    made = PFedVEM(hidden=(), join_rounds=20)
    server = headed(made.init(spec_of(data), START), 0.0, 0.0)
    server["noise/y"] = torch.tensor(0.01, dtype=torch.float64)
    x = np.ones((1, 1))
    assert made.predictor(server, None, data["ann"])(x)["y"].mean[0] == 0.0
    assert made.predictor(server, made.start(data["ann"], START), data["ann"])(x)["y"].mean[0] == 0.0
    state = made.join(server, data["ann"], Stream(0, "join"))
    assert made.predictor(server, state, data["ann"])(x)["y"].mean[0] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("kind", ["regression", "robust", "binary", "multiclass", "count", "proportion"])
def test_every_kind_of_task_is_learned_and_predicted(kind):
    made = PFedVEM(hidden=(8,), local_epochs=2)
    assert fit_of(made, kind, 20) > fit_of(made, kind, 1) + 0.03


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("task_mode", ["shared", "separate"])
def test_the_contract(check, task_mode):
    check(PFedVEM(hidden=(4,), local_epochs=1, task_mode=task_mode))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n_draws": 0}, "n_draws is 0; give a whole number from 1 up."),
        ({"initial_std": 0.0}, "initial_std is 0.0; give a number above 0."),
        ({"head_rate": -1.0}, "head_rate is -1.0; give a number above 0."),
        ({"head_steps": 2.5}, "head_steps is 2.5; give a whole number from 1 up."),
        ({"read_out": "mcmc"}, "read_out 'mcmc' is unknown; did you mean 'mc'?"),
        ({"read_draws": 0}, "read_draws is 0; give a whole number from 1 up."),
    ],
)
def test_wrong_options(options, text):
    with pytest.raises(ConfigError) as error:
        PFedVEM(**options)
    assert text in str(error.value)
