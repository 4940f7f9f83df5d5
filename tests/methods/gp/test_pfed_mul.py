"""pFed-Mul against what one machine would compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from federations import KINDS, START, client, federation, run_rounds
from polyfed.data import ClientData
from polyfed.errors import ConfigError
from polyfed.gp import ExactModel, Prior, infer
from polyfed.methods import ClientUpdate, Local, PFedMul, PFedSt
from polyfed.methods.gp import pfed_mul
from polyfed.modelling.rows import likelihoods_of, rows_of
from polyfed.seeds import Stream

NOISY = ("noise.regression",)


def theta(server):
    names = ("initial/", "theta/", "pooled/")
    return {name.partition("/")[2]: value for name, value in server.items() if name.startswith(names)}


def assert_close(a, b, atol=1e-10):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


def prior_of(spec, values):
    likelihoods = likelihoods_of(spec.codecs, "polya-gamma")
    noise = {task: lik.initial_noise for task, lik in likelihoods.items() if lik.initial_noise is not None}
    outputs = {task: lik.n_outputs for task, lik in likelihoods.items()}
    prior = Prior(kernels=["rbf"] * len(outputs), dims=spec.n_features, outputs=outputs, noise=noise)
    return prior.load(values), likelihoods


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_a_round_is_a_step_on_the_average_bound(weighting):
    """Three rounds by torch's own Adam on the average of the bounds, all data in one place."""
    spec, data = federation(4)
    method = PFedMul(mode="gradient", weighting=weighting, learning_rate=0.07)
    prior, likelihoods = prior_of(spec, theta(method.init(spec, START)))
    learned = {name: p for name, p in prior.parameters.items() if name not in NOISY}
    adam = torch.optim.Adam(learned.values(), lr=0.07, maximize=True)
    warm = dict.fromkeys(data)
    total = sum(mine.n_labels for mine in data.values())
    for _ in range(3):
        bound, squares, count = 0.0, 0.0, 0.0
        for name, mine in data.items():
            model = ExactModel(prior, rows_of(mine, likelihoods))
            posterior = infer(model, start=warm[name], max_steps=2)
            warm[name] = posterior.marginals
            share = 1 / len(data) if weighting == "uniform" else mine.n_labels / total
            bound = bound + share * model.bound(posterior.q)
            statistics = model.rows.noise_statistics(prior, *posterior.marginals).get("regression", (0.0, 0.0))
            squares, count = squares + statistics[0], count + statistics[1]
        adam.zero_grad()
        bound.backward()
        adam.step()
        prior.load({NOISY[0]: (squares / count).log()})
    server, _, _ = run_rounds(method, spec, data, rounds=3)
    assert_close(theta(server), prior.state())


@pytest.mark.parametrize("mode", ["gradient", "average"])
@pytest.mark.parametrize("local_steps", [1, 3])
def test_one_client_federated_is_that_client_alone(mode, local_steps):
    spec, data = federation(1)
    options = {"local_steps": local_steps if mode == "average" else 1, "learning_rate": 0.05}
    server, _, _ = run_rounds(PFedMul(mode=mode, **options), spec, data, rounds=4)
    _, states, _ = run_rounds(Local(mode=mode, **options), spec, data, rounds=4)
    alone = {
        name.removeprefix("personal/"): v for name, v in states["client 0"].items() if name.startswith("personal/")
    }
    assert_close(theta(server), alone)


def test_the_bound_rises():
    spec, data = federation(5)
    method = PFedMul(learning_rate=0.05)
    bounds = [
        np.mean([update.metrics["bound"] for update in run_rounds(method, spec, data, rounds=rounds)[2].values()])
        for rounds in (1, 5, 20)
    ]
    assert bounds[0] + 1 < bounds[1] < bounds[2]


def test_separate_tasks_are_the_runs_of_each_task_alone():
    spec, data = federation(4)
    server, _, _ = run_rounds(PFedSt(), spec, data, rounds=3)
    for i, task in enumerate(KINDS):
        owners = {name: mine.only(task) for name, mine in data.items() if task in mine.labels}
        start = Stream(0, f"start {task}")
        alone = PFedMul()
        state = alone.init(spec.only(task), start)
        states = {name: alone.start(mine, start) for name, mine in owners.items()}
        for _ in range(3):
            updates = {}
            for name, mine in owners.items():
                states[name], updates[name] = alone.local(states[name], alone.broadcast(state, name), mine, START)
            state = alone.aggregate(state, updates)
        prefix = f"{i}/"
        assert_close({n.removeprefix(prefix): v for n, v in server.items() if n.startswith(prefix)}, state)


# ---- what is shared and what is not ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "shared"),
    [("K", {"kernels"}), ("W", {"kernels", "mixing"}), ("A", {"kernels", "mixing", "noise"}), (["noise"], {"noise"})],
)
@pytest.mark.parametrize("mode", ["gradient", "average"])
def test_schemes(scheme, shared, mode):
    spec, data = federation(3)
    server, states, updates = run_rounds(PFedMul(scheme=scheme, mode=mode), spec, data, rounds=2)
    sent = PFedMul(scheme=scheme, mode=mode).broadcast(server, "client 0")
    assert {name.partition(".")[0] for name in sent} == shared
    for update in updates.values():
        assert {name.partition(".")[0] for name in [*update.arrays, *update.pooled]} == shared
    own = {name.removeprefix("personal/") for name in states["client 0"] if name.startswith("personal/")}
    assert {name.partition(".")[0] for name in own} == {"kernels", "mixing", "noise"} - shared


def test_personal_parameters_differ_and_persist():
    spec, data = federation(3, whole=True)
    _, states, _ = run_rounds(PFedMul(scheme="K"), spec, data, rounds=3)
    rows = [states[name]["personal/mixing.binary"] for name in data]
    assert not torch.allclose(rows[0], rows[1])
    _, longer, _ = run_rounds(PFedMul(scheme="K"), spec, data, rounds=4)
    assert not torch.equal(longer["client 0"]["personal/mixing.binary"], rows[0])
    assert longer["client 0"]["adam/steps"] == 4


def test_a_client_without_a_task_leaves_its_rows_alone():
    """Mode average: two clients have the task, one does not; only the two count."""
    method = PFedMul(mode="average")
    spec, _ = federation(1)
    server = method.init(spec, START)
    zero = method.template(server)

    def update(change, count):
        arrays = {name: torch.full_like(value, change) for name, value in zero.arrays.items()}
        return ClientUpdate(arrays, zero.pooled, 10.0, dict.fromkeys(KINDS, count), {"bound": 0.0})

    after = method.aggregate(server, {"a": update(0.1, 5), "b": update(0.3, 5), "c": update(0.8, 0)})
    moved = {name: float((after[name] - server[name]).reshape(-1)[0]) for name in server if name.startswith("theta/")}
    assert moved["theta/mixing.binary"] == pytest.approx(0.2)  # (0.1 + 0.3) / 2
    assert moved["theta/noise.count"] == pytest.approx(0.2)
    assert moved["theta/kernels.0.log_phi1"] == pytest.approx(0.4)  # (0.1 + 0.3 + 0.8) / 3


def test_weights_by_samples():
    method = PFedMul(mode="average", weighting="samples")
    spec, _ = federation(1)
    server = method.init(spec, START)
    zero = method.template(server)
    updates = {
        name: ClientUpdate(
            {n: torch.full_like(v, change) for n, v in zero.arrays.items()},
            zero.pooled,
            weight,
            zero.counts | {"binary": 1},
        )
        for name, change, weight in (("a", 0.1, 30.0), ("b", 0.5, 10.0))
    }
    after = method.aggregate(server, updates)
    name = "theta/kernels.0.log_amplitude"
    assert float(after[name] - server[name]) == pytest.approx(0.2)  # (30·0.1 + 10·0.5) / 40


def test_noise_is_pooled_not_averaged():
    method = PFedMul()
    spec, _ = federation(1)
    server = method.init(spec, START)
    zero = method.template(server)
    scalar = lambda value: torch.tensor(value, dtype=torch.float64)  # noqa: E731
    pairs = {"a": (2.0, 10.0), "b": (60.0, 50.0), "c": (0.0, 0.0)}
    updates = {
        name: ClientUpdate(zero.arrays, {NOISY[0]: (scalar(total), scalar(count))}, 1.0, zero.counts)
        for name, (total, count) in pairs.items()
    }
    after = method.aggregate(server, updates)
    assert after["pooled/noise.regression"].exp().item() == pytest.approx(62 / 60)


def test_a_strong_pull_keeps_personal_parameters_where_they_started():
    spec, data = federation(2)
    change = {}
    for proximal in (0.0, 1e6):
        method = PFedMul(scheme="K", proximal=proximal, learning_rate=1e-3)
        _, states, _ = run_rounds(method, spec, data, rounds=30)
        first = method.start(data["client 0"], START)["personal/mixing.regression"]
        change[proximal] = float((states["client 0"]["personal/mixing.regression"] - first).abs().max())
    assert change[1e6] < 0.2 * change[0.0]


# ---- clients that join, clients that break -----------------------------------------------------------------------


def test_joining_without_personal_groups_is_the_servers_model():
    spec, data = federation(3)
    method = PFedMul()
    server, _, _ = run_rounds(method, spec, data, rounds=3)
    new = client(np.random.default_rng(9))
    x = np.array([[0.1, 0.2], [1.0, -1.0]])
    joined = method.predictor(server, method.join(server, new, Stream(0, "join")), new)(x)
    alone = method.predictor(server, None, new)(x)
    np.testing.assert_array_equal(joined["regression"].mean, alone["regression"].mean)


def test_joining_learns_personal_groups_and_leaves_shared_ones():
    spec, data = federation(3)
    method = PFedMul(scheme="K", join_steps=30)
    server, _, _ = run_rounds(method, spec, data, rounds=3)
    new = client(np.random.default_rng(9), n=30)
    state = method.join(server, new, Stream(0, "join"))
    assert not torch.equal(state["personal/mixing.regression"], server["initial/mixing.regression"])
    assert not any("kernels" in name for name in state if name.startswith("personal/"))

    def bound(own):
        values = {**theta(server), **{n.removeprefix("personal/"): v for n, v in own.items() if "personal/" in n}}
        prior, likelihoods = prior_of(spec, values)
        return infer(ExactModel(prior, rows_of(new, likelihoods))).bound

    assert bound(state) > bound(method.start(new, START)) + 1


def test_one_client_that_breaks_does_not_break_the_others():
    spec, data = federation(3)
    method = PFedMul()
    server = method.init(spec, START)
    from polyfed.methods import Job

    broken = ClientData(np.full_like(data["client 1"].x, np.nan), data["client 1"].labels, data["client 1"].codecs)
    jobs = [
        Job(name, method.start(mine, START), method.broadcast(server, name), mine, START)
        for name, mine in (data | {"client 1": broken}).items()
    ]
    outcomes = method.local_many(jobs)
    assert isinstance(outcomes[1], Exception)
    expected = method.local(jobs[0].state, jobs[0].message, jobs[0].data, START)[1]
    torch.testing.assert_close(
        outcomes[0][1].arrays["mixing.binary"], expected.arrays["mixing.binary"], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("forgotten", [False, True])
def test_clients_that_count_in_units_of_their_own(forgotten, monkeypatch):
    """Under local scaling the typical count, part of the likelihood, differs from client to client.

    Of many models some are forgotten, and another may take their place in memory: an address tells nothing.
    """
    from dataclasses import replace

    if forgotten:
        monkeypatch.setattr(pfed_mul, "id", lambda model: 1, raising=False)
    spec, data = federation(3, whole=True)
    own = {
        name: replace(mine, codecs={t: replace(c, scale=1.0 + i) for t, c in mine.codecs.items()})
        for i, (name, mine) in enumerate(data.items())
    }
    _, _, updates = run_rounds(PFedMul(), spec, own, rounds=1)
    assert len({update.metrics["bound"] for update in updates.values()}) == 3
    method = PFedMul()
    server = method.init(spec, START)
    for name, mine in own.items():
        alone = method.local(method.start(mine, START), method.broadcast(server, name), mine, START)[1]
        assert updates[name].metrics["bound"] == pytest.approx(alone.metrics["bound"], abs=1e-10)


@pytest.mark.parametrize("mode", ["gradient", "average"])
def test_inducing_inputs_at_every_input_give_the_exact_run(mode):
    spec, data = federation(3)
    exact, _, _ = run_rounds(PFedMul(mode=mode), spec, data, rounds=2)
    sparse, _, updates = run_rounds(PFedMul(mode=mode, inducing=100), spec, data, rounds=2)
    assert_close(theta(exact), theta(sparse), atol=1e-4)
    assert updates["client 0"].arrays.keys() == PFedMul().template(exact).arrays.keys()


def test_initial_values_can_be_given():
    spec, _ = federation(1)
    server = PFedMul(n_latents=2, initial={"kernels.0.log_phi1": -3.0, "mixing.binary": [[0.6, 0.4]]}).init(spec, START)
    assert server["theta/kernels.0.log_phi1"].tolist() == [-3.0]
    assert server["theta/mixing.binary"].tolist() == [[0.6, 0.4]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "averge"}, "mode 'averge' is unknown; did you mean 'average'?"),
        ({"scheme": "Q"}, "scheme 'Q' is unknown"),
        ({"scheme": "N"}, "scheme 'N' shares the features alone, and nothing makes any"),
        ({"weighting": "size"}, "weighting 'size' is unknown"),
        ({"kernel": "rfb"}, "kernel 'rfb' is unknown; did you mean 'rbf'?"),
        ({"bound": "gauss"}, "bound 'gauss' is unknown; did you mean 'gaussian'?"),
        ({"local_steps": 0}, "local_steps is 0; give a whole number from 1 up."),
        ({"learning_rate": -1.0}, "learning_rate is -1.0; give a number above 0."),
        ({"learning_rate": {"kernel": 0.1}}, "learning_rate names 'kernel'; did you mean 'kernels'?"),
        ({"kernel": ["rbf"], "n_latents": 2}, "1 kernels for 2 latents; give one kernel, or one for each."),
        ({"proximal": float("nan")}, "proximal is nan"),
    ],
)
def test_bad_options(options, text):
    with pytest.raises(ConfigError) as error:
        PFedMul(**options)
    assert text in str(error.value)


def test_bad_initial_values():
    spec, _ = federation(1)
    with pytest.raises(ConfigError, match="initial has no parameter 'phi'"):
        PFedMul(initial={"phi": 1.0}).init(spec, START)
    with pytest.raises(ConfigError, match=r"initial value \(1.0, 2.0, 3.0\) does not fit 'mixing.binary'"):
        PFedMul(n_latents=2, initial={"mixing.binary": [1.0, 2.0, 3.0]}).init(spec, START)
