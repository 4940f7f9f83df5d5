"""FedAvg, FedPer, SCAFFOLD and pFedMe against numbers by hand and against what one machine would compute.

The toy: one regression task with one feature that is always 1, no hidden layer. The head has one weight w and one bias b, so
f = w + b for every row, the loss of a client is ½ mean (y − w − b)², and both gradients are w + b − mean(y).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from federations import KINDS, START, federation, my_networks, normed, one_round, play
from polyfed.data import ClientData, FederationSpec, LabelCodec, Task
from polyfed.errors import ConfigError
from polyfed.methods import FedAvg, FedPer, PFedMe, Scaffold, method
from polyfed.methods.messages import labelled, n_bytes, part
from polyfed.methods.supervised import SUPERVISION
from polyfed.seeds import Stream

CODECS = {"y": LabelCodec(Task("y"), None, 0.0, 1.0)}
LINEAR = {"hidden": (), "batch_size": 100, "local_epochs": 1, "learning_rate": 0.1}


def toy(*targets, n=4):
    """One client for each target: all its labels are that number."""
    data = {
        f"client {i}": ClientData(np.ones((n, 1)), {"y": (np.arange(n), np.full(n, float(t)))}, CODECS)
        for i, t in enumerate(targets)
    }
    return FederationSpec((CODECS["y"].task,), 1, tuple(data), CODECS), data


def at(server, w=0.0, b=0.0):
    """The server with these values of weight and bias."""
    return server | {
        "theta/head.0.weight": torch.full((1, 1), w, dtype=torch.float64),
        "theta/head.0.bias": torch.full((1,), b, dtype=torch.float64),
    }


def value(state, name="theta/head.0.weight"):
    return float(state[name].reshape(-1)[0])


def begin(made, spec, data, **values):
    return at(made.init(spec, START), **values), {name: made.start(mine, START) for name, mine in data.items()}


# ---- FedAvg ------------------------------------------------------------------------------------------------------


def test_fedavg_by_hand():
    """Targets 1 and 4 with 4 and 8 labels, from 0: one step of 0.1 gives w = 0.1 and 0.4; weighted (4·0.1 + 8·0.4)/12 = 0.3."""
    spec, data = toy(1, 4)
    _, large = toy(4, n=8)
    data["client 1"] = large["client 0"]
    made = FedAvg(**LINEAR)
    server, states = begin(made, spec, data)
    after, _ = one_round(made, server, states, data)
    assert value(after) == pytest.approx(0.3, abs=1e-15)
    uniform, _ = one_round(FedAvg(**LINEAR, weighting="uniform"), server, states, data)
    assert value(uniform) == pytest.approx(0.25, abs=1e-15)


@pytest.mark.parametrize("task_mode", ["shared", "separate"])
def test_one_full_batch_epoch_with_everyone_is_one_step_on_the_pooled_loss(task_mode):
    """With all tasks at all clients and as many labels of each, so that the weights of all parameters agree."""
    spec, data = federation(3, whole=True)
    made = FedAvg(
        batch_size=1000, local_epochs=1, learning_rate=0.1, task_mode=task_mode, hidden=(5,), activation="tanh"
    )
    server, states = made.init(spec, START), {n: made.start(d, START) for n, d in data.items()}
    after, _ = one_round(made, server, states, data)
    net = made.net(spec.codecs, spec.n_features)
    leaves = {name: v.clone().requires_grad_() for name, v in part(server, "theta").items()}
    losses = {}
    for name, mine in data.items():
        for task, (where, y) in mine.seen.items():
            outputs = net(leaves, torch.from_numpy(mine.x[where]), task)
            codec = mine.codecs[task]
            losses[name, task] = SUPERVISION[codec.task.kind].loss(outputs, torch.from_numpy(y), codec)
    for name, leaf in leaves.items():
        owner = net.owner(name)
        total, weight = 0.0, 0.0
        for client, mine in data.items():
            counts = mine.counts()
            n = sum(counts.values()) if owner is None else counts[owner]
            own = [loss for (c, task), loss in losses.items() if c == client and owner in (None, task)]
            total, weight = total + n * sum(own), weight + n
        (gradient,) = torch.autograd.grad(total / weight, leaf, retain_graph=True)
        torch.testing.assert_close(after[f"theta/{name}"], leaf.detach() - 0.1 * gradient, rtol=0, atol=1e-12)


def test_identical_clients_are_as_one_and_order_does_not_matter():
    spec, data = federation(1)
    twins = {"client 0": data["client 0"], "client 1": data["client 0"]}
    made = FedAvg(batch_size=1000)
    alone, _, _ = play(made, spec, data, rounds=3)
    together, _, _ = play(made, spec, twins, rounds=3)
    for name in part(alone, "theta"):
        torch.testing.assert_close(alone[f"theta/{name}"], together[f"theta/{name}"], rtol=0, atol=1e-12)
    spec, data = federation(3)
    a, _, _ = play(made, spec, data, rounds=2)
    b, _, _ = play(made, spec, dict(reversed(data.items())), rounds=2)
    assert all(torch.equal(v, b[n]) for n, v in a.items())


def test_separate_tasks_learn_as_if_each_had_a_run_of_its_own():
    spec, data = federation(3)
    made = FedAvg(task_mode="separate", hidden=(4,), batch_size=4)
    server = made.init(spec, START)
    both, _, _ = play(made, spec, data, rounds=2)
    for i, task in enumerate(KINDS):
        only = {n: ClientData(d.x, {t: p for t, p in d.seen.items() if t == task}, d.codecs) for n, d in data.items()}
        only = {n: d for n, d in only.items() if d.n_labels}
        alone, _, _ = play(made, spec, only, rounds=2)
        mine = [n for n in part(server, "theta") if n.startswith((f"trunk.{i}.", f"head.{i}."))]
        others = [n for n in part(server, "theta") if n not in mine]
        assert all(torch.equal(alone[f"theta/{n}"], server[f"theta/{n}"]) for n in others)  # untouched, to the bit
        assert not any(torch.equal(both[f"theta/{n}"], server[f"theta/{n}"]) for n in mine)


def test_finetuning_makes_a_model_of_ones_own():
    spec, data = toy(1, 4)
    made = FedAvg(**LINEAR, finetune_epochs=1)
    server, states = begin(made, spec, data, w=2.0)
    x = np.ones((1, 1))
    assert made.predictor(server, None, data["client 0"])(x)["y"].mean[0] == pytest.approx(2.0)
    # one step of 0.1 on the gradient 2 − 1 for weight and bias: 2 − 0.1 − 0.1
    assert made.predictor(server, states["client 0"], data["client 0"])(x)["y"].mean[0] == pytest.approx(1.8)


# ---- FedPer ------------------------------------------------------------------------------------------------------


class Everything(FedPer):
    def personal(self, net):
        return [*net.heads, *net.last_layers(9)]


class Nothing(FedPer):
    def personal(self, net):
        return []


def test_fedper_with_an_empty_head_is_fedavg_to_the_bit():
    spec, data = federation(3)
    a, _, _ = play(FedAvg(), spec, data, rounds=2)
    b, _, _ = play(Nothing(), spec, data, rounds=2)
    assert all(torch.equal(v, b[n]) for n, v in a.items())


def test_fedper_with_everything_personal_is_local_training():
    spec, data = federation(2)
    server, states, updates = play(Everything(), spec, data, rounds=2)
    assert not part(server, "theta")
    _, own, _ = play(Everything(), spec, {"client 1": data["client 1"]}, rounds=2)
    assert all(torch.equal(v, own["client 1"][n]) for n, v in states["client 1"].items())
    assert not updates["client 0"].arrays


def test_heads_stay_at_home_and_differ():
    spec, data = federation(2, whole=True)
    data["client 1"] = ClientData(
        data["client 0"].x,
        {t: (a, -y) if t == "binary" else (a, y) for t, (a, y) in data["client 0"].seen.items()},
        data["client 0"].codecs,
    )
    made = FedPer()
    server, states, updates = play(made, spec, data, rounds=3)
    assert not any("head" in name for name in [*part(server, "theta"), *updates["client 0"].arrays])
    heads = [states[n]["personal/head.1.weight"] for n in data]
    assert not torch.allclose(*heads)
    trunk = n_bytes(part(server, "theta"))
    assert updates["client 0"].n_bytes() < trunk + 2000


@pytest.mark.parametrize("init", ["shared", "own"])
def test_where_heads_begin(init):
    spec, data = federation(2)
    made = FedPer(head_init=init, local_epochs=1, learning_rate=1e-12)
    _, states, _ = play(made, spec, data, rounds=1)
    first, second = (states[n]["personal/head.0.weight"] for n in data)
    assert torch.allclose(first, second, atol=1e-6) is (init == "shared")


def test_a_newcomer_trains_its_head_alone():
    spec, data = federation(3)
    made = FedPer(head_epochs=20)
    server, _, _ = play(made, spec, data, rounds=2)
    state = made.join(server, data["client 0"], Stream(0, "join"))
    start = made.start(data["client 0"], Stream(0, "join"))
    assert not torch.equal(state["personal/head.0.weight"], start["personal/head.0.weight"])


# ---- SCAFFOLD ------------------------------------------------------------------------------------------------------


def test_scaffold_by_hand():
    """Two clients (targets 1 and 3), bias frozen by symmetry: weight and bias move alike, f = 2w, so g = 2w − t.

    Two local steps of 0.1, option II, two rounds; in round 1 both take part, in round 2 only client 1 (target 3).
    Round 1, c = c_i = 0, w = 0:
      client 0: g = −1 → w = 0.1; g = 0.2 − 1 = −0.8 → w = 0.18.   c_0 = (0 − 0.18)/(2·0.1) = −0.9
      client 1: g = −3 → w = 0.3; g = 0.6 − 3 = −2.4 → w = 0.54.   c_1 = −2.7
      server: w = (0.18 + 0.54)/2 = 0.36;  c = (−0.9 − 2.7)/2 = −1.8
    Round 2, client 1: step g − c_1 + c = g + 0.9:
      g = 0.72 − 3 = −2.28 → −1.38 → w = 0.498;  g = 0.996 − 3 = −2.004 → −1.104 → w = 0.6084
      c_1 = −2.7 + 1.8 + (0.36 − 0.6084)/0.2 = −0.9 − 1.242 = −2.142
      server: w = 0.6084;  c = −1.8 + (−2.142 + 2.7)/2 = −1.521 = (−0.9 − 2.142)/2
    """
    spec, data = toy(1, 3)
    made = Scaffold(**LINEAR | {"local_epochs": 2})
    server, states = begin(made, spec, data)
    server, _ = one_round(made, server, states, data)
    assert value(server) == pytest.approx(0.36, abs=1e-14)
    assert value(states["client 0"], "control/head.0.weight") == pytest.approx(-0.9, abs=1e-14)
    assert value(states["client 1"], "control/head.0.weight") == pytest.approx(-2.7, abs=1e-14)
    assert value(server, "control/head.0.weight") == pytest.approx(-1.8, abs=1e-14)
    server, _ = one_round(made, server, states, data, who=["client 1"], round=2)
    assert value(server) == pytest.approx(0.6084, abs=1e-14)
    assert value(states["client 1"], "control/head.0.weight") == pytest.approx(-2.142, abs=1e-14)
    assert value(server, "control/head.0.weight") == pytest.approx(-1.521, abs=1e-14)


def test_the_servers_control_is_the_mean_of_the_clients_also_under_partial_participation():
    spec, data = federation(4)
    made = Scaffold(hidden=(6,))
    server = made.init(spec, START)
    states = {name: made.start(mine, START) for name, mine in data.items()}
    for r, who in enumerate([["client 0", "client 2"], ["client 1"], ["client 0", "client 3"], ["client 2"]]):
        server, _ = one_round(made, server, states, data, who=who, round=r)
        for name, c in part(server, "control").items():
            mean = torch.stack([states[n][f"control/{name}"] for n in data]).mean(0)
            torch.testing.assert_close(c, mean, rtol=0, atol=1e-12)


def uneven():
    """Two clients whose losses curve differently: FedAvg with several steps ends between the optima, but not at the best."""
    first = ClientData(np.ones((4, 1)), {"y": (np.arange(4), np.full(4, 1.0))}, CODECS)
    second = ClientData(2.0 * np.ones((4, 1)), {"y": (np.arange(4), np.full(4, 3.0))}, CODECS)
    third = ClientData(np.full((4, 1), -0.5), {"y": (np.arange(4), np.full(4, 2.0))}, CODECS)
    data = {"client 0": first, "client 1": second, "client 2": third}
    return FederationSpec((CODECS["y"].task,), 1, tuple(data), CODECS), data


def test_scaffold_ends_at_the_optimum_where_fedavg_does_not():
    spec, data = uneven()
    # minimise Σ (y − w x − b)² over x = 1, 2, −½ and y = 1, 3, 2
    X = np.array([[1.0, 1.0], [2.0, 1.0], [-0.5, 1.0]])
    best = np.linalg.lstsq(X, np.array([1.0, 3.0, 2.0]), rcond=None)[0]
    distance = {}
    for made in (Scaffold(**LINEAR | {"local_epochs": 5}), FedAvg(**LINEAR | {"local_epochs": 5})):
        server, _, _ = play(made, spec, data, rounds=800)
        found = [value(server), value(server, "theta/head.0.bias")]
        distance[made.name] = np.abs(found - best).max()
    assert distance["scaffold"] < 1e-9
    assert distance["fedavg"] > 1e-3


def test_the_optimum_with_its_gradients_is_a_fixed_point():
    spec, data = uneven()
    made = Scaffold(**LINEAR | {"local_epochs": 3})
    X = np.array([[1.0, 1.0], [2.0, 1.0], [-0.5, 1.0]])
    y = np.array([1.0, 3.0, 2.0])
    w, b = np.linalg.lstsq(X, y, rcond=None)[0]
    server, states = begin(made, spec, data, w=w, b=b)
    for i, name in enumerate(data):
        residual = X[i] @ [w, b] - y[i]
        own = {"head.0.weight": torch.tensor([[residual * X[i, 0]]]), "head.0.bias": torch.tensor([residual])}
        states[name] |= labelled("control", own)
    after, _ = one_round(made, server, states, data)
    assert value(after) == pytest.approx(w, abs=1e-12)
    assert value(after, "control/head.0.weight") == pytest.approx(0.0, abs=1e-12)


def test_one_step_without_controls_is_a_gradient_step_and_both_options_agree():
    spec, data = federation(3)
    options = {"batch_size": 1000, "local_epochs": 1, "hidden": (4,)}
    results = {}
    for label, made in (
        ("I", Scaffold(**options, option="I")),
        ("II", Scaffold(**options, option="II")),
        ("avg", FedAvg(**options, weighting="uniform")),
    ):
        server = made.init(spec, START)
        states = {name: made.start(mine, START) for name, mine in data.items()}
        results[label] = one_round(made, server, states, data)[0], states
    for name in part(results["I"][0], "theta"):
        a, b, c = (results[label][0][f"theta/{name}"] for label in ("I", "II", "avg"))
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
        torch.testing.assert_close(a, c, rtol=0, atol=1e-12)
    for name, v in part(results["I"][1]["client 0"], "control").items():
        torch.testing.assert_close(v, results["II"][1]["client 0"][f"control/{name}"], rtol=0, atol=1e-10)


def test_identical_clients_go_the_way_of_fedavg():
    spec, data = federation(1)
    twins = {"client 0": data["client 0"], "client 1": data["client 0"]}
    spec = FederationSpec(spec.tasks, spec.n_features, tuple(twins), spec.codecs)
    a, _, _ = play(Scaffold(batch_size=1000), spec, twins, rounds=3)
    b, _, _ = play(FedAvg(batch_size=1000), spec, twins, rounds=3)
    for name in part(a, "theta"):
        torch.testing.assert_close(a[f"theta/{name}"], b[f"theta/{name}"], rtol=0, atol=1e-12)


# ---- pFedMe ------------------------------------------------------------------------------------------------------


def test_pfedme_by_hand():
    """Target 2, λ = 1, two inner steps of 0.1 from w = b = 0, one step of w with η = 0.5; weight and bias alike, f = 2θ.

    θ: g = 0 − 2 + 0 = −2 → 0.2;  g = 0.4 − 2 + 0.2 = −1.4 → 0.34.   w_i = 0 − 0.5·1·(0 − 0.34) = 0.17
    """
    spec, data = toy(2)
    made = PFedMe(
        hidden=(), batch_size=100, penalty=1.0, personal_rate=0.1, inner_steps=2, local_steps=1, learning_rate=0.5
    )
    server, states = begin(made, spec, data)
    after, _ = one_round(made, server, states, data)
    assert value(states["client 0"], "theta/head.0.weight") == pytest.approx(0.34, abs=1e-15)
    assert value(after) == pytest.approx(0.17, abs=1e-15)


def prox(target, w, b, penalty):
    """argmin ½ (t − θ_w − θ_b)² + λ/2 ((θ_w − w)² + (θ_b − b)²), solved as a linear system."""
    A = np.array([[1 + penalty, 1.0], [1.0, 1 + penalty]])
    return np.linalg.solve(A, [target + penalty * w, target + penalty * b])


@pytest.mark.parametrize("penalty", [0.5, 15.0])
def test_the_inner_problem_converges_to_the_proximal_point_and_its_envelope_has_the_right_slope(penalty):
    _, data = toy(2)
    made = PFedMe(hidden=(), penalty=penalty, personal_rate=1.0 / (2.0 + penalty))
    net = made.net(CODECS, 1)
    batch = {"y": np.arange(4)}

    def envelope(w, b):
        point = part(at({}, w, b), "theta")
        theta, _ = made.near(net, point, point, data["client 0"], batch, 3000)
        found = np.array([float(theta["head.0.weight"]), float(theta["head.0.bias"])])
        return found, 0.5 * (2 - found.sum()) ** 2 + penalty / 2 * ((found - [w, b]) ** 2).sum()

    theta, _ = envelope(0.3, -0.2)
    np.testing.assert_allclose(theta, prox(2, 0.3, -0.2, penalty), atol=1e-9)
    h = 1e-4
    slope = (envelope(0.3 + h, -0.2)[1] - envelope(0.3 - h, -0.2)[1]) / (2 * h)
    assert slope == pytest.approx(penalty * (0.3 - theta[0]), rel=1e-5)


def test_personal_and_shared_parameters_are_not_the_same_arrays():
    spec, data = federation(2)
    made = PFedMe(local_steps=3)
    server, states, _ = play(made, spec, data, rounds=2)
    own = part(states["client 0"], "theta")
    message = made.download(server, "client 0")
    kept = {name: v.clone() for name, v in own.items()}
    for v in message.values():
        v.add_(1.0)
    assert all(torch.equal(v, kept[name]) for name, v in own.items())
    x = data["client 0"].x[:3]
    personal = made.predictor(server, states["client 0"], data["client 0"])(x)["regression"].mean
    shared = made.predictor(server, None, data["client 0"])(x)["regression"].mean
    assert np.abs(personal - shared).max() > 1e-3


def test_the_ends_of_the_penalty():
    spec, data = toy(2)
    common = {"hidden": (), "inner_steps": 200, "local_steps": 1}
    made = PFedMe(**common, penalty=0.0, personal_rate=0.2, learning_rate=1.0)
    server, states = begin(made, spec, data, w=0.5)
    after, _ = one_round(made, server, states, data)
    theta = part(states["client 0"], "theta")
    assert float(theta["head.0.weight"] + theta["head.0.bias"]) == pytest.approx(2.0, abs=1e-9)  # the local minimiser
    assert value(after) == pytest.approx(0.5, abs=1e-15)  # nothing pulls w
    made = PFedMe(**common, penalty=1e6, personal_rate=1e-6, learning_rate=1e-6)  # ηλ = 1: w_i is θ
    server, states = begin(made, spec, data, w=0.5)
    after, _ = one_round(made, server, states, data)
    assert value(states["client 0"], "theta/head.0.weight") == pytest.approx(0.5, abs=1e-5)
    assert value(after) == pytest.approx(value(states["client 0"], "theta/head.0.weight"), abs=1e-12)


def test_a_client_that_was_never_sampled_gets_the_proximal_point():
    spec, data = toy(2)
    made = PFedMe(hidden=(), penalty=1.0, personal_rate=0.3, inner_steps=20, local_steps=20)
    server, states = begin(made, spec, data, w=0.3, b=-0.2)
    mean = made.predictor(server, states["client 0"], data["client 0"])(np.ones((1, 1)))["y"].mean[0]
    assert mean == pytest.approx(prox(2, 0.3, -0.2, 1.0).sum(), abs=1e-9)


# ---- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedavg", "fedper", "scaffold", "pfedme"])
@pytest.mark.parametrize("buffers", ["average", "local", "frozen"])
def test_batch_norm_with_a_client_of_one_sample(name, buffers, monkeypatch):
    my_networks(monkeypatch, normed=normed)
    spec, data = federation(3, kinds=("regression",))
    one = data["client 1"]
    data["client 1"] = ClientData(one.x[:1], {"regression": (np.array([0]), one.seen["regression"][1][:1])}, one.codecs)
    made = method(name, network="my_networks:normed", bn_buffers=buffers, batch_size=3)
    server, states, _ = play(made, spec, data, rounds=2)
    assert all(torch.isfinite(v).all() for v in [*server.values(), *states["client 1"].values()])
    assert np.isfinite(made.predictor(server, states["client 1"], data["client 1"])(one.x)["regression"].mean).all()
    counted = [n for n in part(server, "theta") if "num_batches" in n]
    assert bool(counted) is (buffers != "local")
    if buffers == "average":
        assert all(server[f"theta/{n}"].dtype == torch.int64 for n in counted)


@pytest.mark.parametrize("kind", ["regression", "robust", "binary", "multiclass", "count", "proportion"])
@pytest.mark.parametrize("name", ["fedavg", "fedper", "scaffold", "pfedme"])
def test_every_kind_of_task_is_learned_and_predicted(name, kind):
    spec, data = federation(3, kinds=(kind,), whole=True)
    options = {"learning_rate": 0.2} if name != "pfedme" else {"personal_rate": 0.02}
    made = method(name, hidden=(8,), **options)
    first = play(made, spec, data, rounds=1)[2]
    server, states, last = play(made, spec, data, rounds=30)
    loss = [np.mean([update.metrics["loss"] for update in updates.values()]) for updates in (first, last)]
    assert loss[1] < loss[0]
    mine = data["client 0"]
    prediction = made.predictor(server, states["client 0"], mine)(mine.x)[kind]
    truth = mine.codecs[kind].decode(mine.seen[kind][1])
    assert np.isfinite(prediction.take(mine.seen[kind][0]).log_density(truth)).all()


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("scaffold", {"momentum": 0.9}, "option 'II' with momentum=0.9"),
        ("scaffold", {"weight_decay": 0.1}, "option 'II' with weight_decay=0.1"),
        ("scaffold", {"weighting": "samples"}, "SCAFFOLD needs 'uniform'"),
        ("pfedme", {"penalty": -1.0}, "penalty is -1.0; give a number from 0 up."),
        ("fedper", {"n_personal_layers": 0}, "n_personal_layers is 0; give a whole number from 1 up."),
        ("fedavg", {"task_mode": "both"}, "task_mode 'both' is unknown"),
        ("fedavg", {"hidden": (0,)}, "hidden is 0; give a whole number from 1 up."),
        ("fedavg", {"activation": "relo"}, "activation 'relo' is unknown; did you mean 'relu'?"),
    ],
)
def test_wrong_options(name, options, text):
    with pytest.raises(ConfigError) as error:
        method(name, **options)
    assert text in str(error.value)


def test_a_network_that_is_not_there():
    spec, _ = federation(1)
    with pytest.raises(ConfigError, match="network 'nowhere:thing' cannot be found"):
        method("fedavg", network="nowhere:thing").init(spec, START)
