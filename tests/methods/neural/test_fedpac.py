"""FedPAC against numbers by hand, a general-purpose optimiser, and FedPer with alternating training.

The toy: one feature, no hidden layer unless one is named, so that features are the inputs. The head has one weight w and one
bias b; with the feature 1 everywhere f = w + b, and both gradients of ½ mean (y − f)² are f − mean(y).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from federations import KINDS, START, codecs_of, federation, fit_of, my_networks, normed, one_round, run_rounds
from method_toys import NUMBER, client_of, one_weight, spec_of
from polyfed.data import ClientData, LabelCodec, Task
from polyfed.errors import ConfigError
from polyfed.methods import FedPer
from polyfed.methods.checks import CHECKS
from polyfed.methods.messages import ClientUpdate, from_bytes, strip_prefix, to_bytes
from polyfed.methods.neural import fedpac_statistics
from polyfed.methods.neural.fedpac import FedPAC
from polyfed.methods.neural.fedpac_statistics import mixing_weights, statistics, with_pooled_std
from polyfed.seeds import Stream

CLASSES = {"y": LabelCodec(Task("y", "multiclass", classes=("a", "b", "c")), ("a", "b", "c"), 0.0, 1.0)}
PLAIN = {"momentum": 0.0, "weight_decay": 0.0, "batch_size": 100, "local_epochs": 1}


def begin(made, data, head=0.0):
    """A server and clients whose heads are all this number."""
    server = made.init(spec_of(data), START)
    states = {name: made.start(mine, START) for name, mine in data.items()}
    for state in (server, *states.values()):
        state |= {name: torch.full_like(value, head) for name, value in state.items() if "head." in name}
    return server, states


# ---- which heads are mixed -----------------------------------------------------------------------------------------


def test_two_clients_by_hand():
    """V = (1, 2) and |H_0 − H_1|² = 3. P is diagonal for two clients, and the best α is as 1 over its entries.

    Client 0: P = diag(1, 2 + 3), α = (5, 1)/6.   Client 1: P = diag(1 + 3, 2), α = (2, 4)/6.
    """
    H = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    np.testing.assert_allclose(mixing_weights(H, np.array([1.0, 2.0])), [[5 / 6, 1 / 6], [1 / 3, 2 / 3]], atol=1e-14)


def test_the_ends_of_mixing():
    """Alike: one third each. Equal H and V = 1, 2, 4: as 1/V, (4, 2, 1)/7. Far apart: each for itself, exactly."""
    same = np.ones((3, 2, 2))
    np.testing.assert_allclose(mixing_weights(same, np.full(3, 0.3)), np.full((3, 3), 1 / 3), atol=1e-14)
    np.testing.assert_allclose(mixing_weights(same, np.array([1.0, 2, 4])), [[4 / 7, 2 / 7, 1 / 7]] * 3, atol=1e-14)
    apart = 1e3 * np.eye(3)
    assert (mixing_weights(apart, np.ones(3)) == np.eye(3)).all()
    assert mixing_weights(np.ones((1, 2)), np.array([0.4])) == 1.0


def test_without_any_spread_there_is_an_answer():
    """V = 0 makes P singular: alike clients share, others keep their own. Public code ends there with an error."""
    np.testing.assert_allclose(mixing_weights(np.zeros((4, 3)), np.zeros(4)), np.full((4, 4), 0.25), atol=1e-12)
    assert (mixing_weights(np.diag([1.0, 2.0, 3.0]), np.zeros(3)) == np.eye(3)).all()


@pytest.mark.parametrize("seed", range(8))
def test_the_weights_minimise_the_quadratic_and_follow_the_clients(seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 9))
    H, V = rng.normal(size=(m, 2, 3)) * rng.uniform(0.1, 1), rng.uniform(0.05, 2.0, m)
    alpha = mixing_weights(H, V)
    assert (alpha >= 0).all()
    np.testing.assert_allclose(alpha.sum(1), 1.0, atol=1e-14)
    for i in range(m):
        D = np.array([[np.sum((H[i] - H[j]) * (H[i] - H[k])) for k in range(m)] for j in range(m)])
        P = np.diag(V) + D
        sums = {"type": "eq", "fun": lambda a: a.sum() - 1, "jac": lambda a: np.ones_like(a)}
        best = minimize(
            lambda a, P=P: a @ P @ a,
            np.full(m, 1 / m),
            jac=lambda a, P=P: 2 * P @ a,
            bounds=[(0, 1)] * m,
            constraints=sums,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        # what is cut off below 1e-3 costs something of second order
        assert alpha[i] @ P @ alpha[i] == pytest.approx(best.fun, rel=1e-4)
        np.testing.assert_allclose(alpha[i], best.x, atol=2e-3)
    order = rng.permutation(m)
    np.testing.assert_allclose(mixing_weights(H[order], V[order]), alpha[np.ix_(order, order)], atol=1e-10)


def test_small_shares_go_but_never_all(monkeypatch):
    """|H_0 − H_1|² = 1999 and V = 1 give client 0 the weights (2000, 1)/2001: the second, below 1e-3, goes."""
    H = np.array([[0.0], [1999.0**0.5]])
    assert mixing_weights(H, np.ones(2))[0].tolist() == [1.0, 0.0]
    monkeypatch.setattr(
        fedpac_statistics, "LEAST_SHARE", 0.6
    )  # as if there were so many clients that every share is small
    np.testing.assert_allclose(mixing_weights(np.zeros((2, 1)), np.ones(2)), 0.5, atol=1e-14)


def test_one_label_is_not_certainty():
    """Clients with 2 and 4 labels have stds nV = 2·1 and 4·2; by labels (2·2 + 4·8)/6 = 6, which one label takes over."""
    np.testing.assert_allclose(with_pooled_std(np.array([1.0, 2.0, 0.0]), np.array([2.0, 4.0, 1.0])), [1, 2, 6])
    assert with_pooled_std(np.zeros(2), np.ones(2)).tolist() == [0, 0]


# ---- statistics ------------------------------------------------------------------------------------------------------


def test_statistics_of_classes_by_hand():
    """h = 1, 3 of class a and 2 of class b: H = (4/3, 2/3, 0), E h² = 14/3, |H|² = 20/9, tr Cov = 22/9, V = 22/27."""
    h, y = torch.tensor([[1.0], [3.0], [2.0]], dtype=torch.float64), torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    found = statistics(h, y, CLASSES["y"])
    np.testing.assert_allclose(found.moment[:, 0], [4 / 3, 2 / 3, 0], atol=1e-15)
    assert float(found.variance) == pytest.approx(22 / 27, abs=1e-15)
    assert found.means[:, 0].tolist() == [2, 2, 0]
    assert found.counts.tolist() == [2, 1, 0]


def test_statistics_of_numbers_by_hand():
    """h = 1, 2 with y = 1, −1: (y, 1) h = (1, 1), (−2, 2), H = (−½, 3/2), tr Cov = 5 − 5/2, V = 5/4."""
    h, y = torch.tensor([[1.0], [2.0]], dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64)
    found = statistics(h, y, NUMBER["y"])
    assert found.moment[:, 0].tolist() == [-0.5, 1.5]
    assert float(found.variance) == pytest.approx(1.25, abs=1e-15)
    assert found.means.tolist() == [[1.5]]


@pytest.mark.parametrize("kind", ["regression", "robust", "binary", "multiclass", "count", "proportion"])
def test_the_variance_is_the_trace_of_the_covariance_of_the_mean(kind):
    _, data = federation(2, kinds=(kind,))
    (at, y), codec = data["client 1"].labels[kind], codecs_of((kind,))[kind]
    h = np.random.default_rng(1).normal(size=(len(at), 4))
    if kind in ("binary", "multiclass"):
        e = np.eye(len(codec.classes))[((y + 1) / 2 if kind == "binary" else y).astype(int)]
    else:
        number = y[:, 0] / y[:, 1] if kind == "proportion" else y / codec.scale
        e = np.column_stack([number, np.ones(len(y))])
    products = np.einsum("ne,nd->ned", e, h).reshape(len(h), -1)
    found = statistics(torch.from_numpy(h), torch.from_numpy(y), codec)
    np.testing.assert_allclose(found.moment.reshape(-1), products.mean(0), atol=1e-12)
    assert float(found.variance) == pytest.approx(np.trace(np.cov(products.T, bias=True)) / len(h), rel=1e-10)


# ---- rounds ----------------------------------------------------------------------------------------------------------


def two_clients():
    return {"ann": client_of([1, 1], [0, 2], NUMBER), "bob": client_of([1, 1], [3, 5], NUMBER)}


def test_two_rounds_by_hand():
    """Labels 0, 2 and 3, 5 with feature 1, heads from 0, rate 0.1: own weights 0.1 and 0.4.

    H = (1, 1) and (4, 1); tr Cov = 1 each, V = ½, |H_0 − H_1|² = 9. For ann P = diag(½, 9½), α = (0.95, 0.05):
    mixed 0.95·0.1 + 0.05·0.4 = 0.115; for bob 0.385. The mean head, which the server has for others, is 0.25.
    Round 2 of ann alone: f = 0.23, w = 0.115 − 0.1 (0.23 − 1) = 0.192, and alone it is mixed with none; bob keeps 0.385.
    """
    made, data = FedPAC(hidden=(), **PLAIN), two_clients()
    server, states = begin(made, data)
    server, _ = one_round(made, server, states, data)
    sent = {name: float(made.broadcast(server, name)["combined/head.0.weight"]) for name in data}
    assert sent == pytest.approx({"ann": 0.115, "bob": 0.385}, abs=1e-14)
    assert float(server["theta/head.0.weight"]) == pytest.approx(0.25, abs=1e-14)
    x = np.ones((1, 1))
    for state, mean in (
        (states["ann"], 0.23),
        (states["bob"], 0.77),
        (None, 0.5),
        (made.start(data["ann"], START), 0.5),
    ):
        assert made.predictor(server, state, data["ann"])(x)["y"].mean[0] == pytest.approx(mean, abs=1e-14)
    server, _ = one_round(made, server, states, data, who=["ann"], round=2)
    sent = {name: float(made.broadcast(server, name)["combined/head.0.weight"]) for name in data}
    assert sent == pytest.approx({"ann": 0.192, "bob": 0.385}, abs=1e-14)


@pytest.mark.parametrize("reverse", [False, True])
def test_weights_are_those_of_the_client_in_whatever_order_updates_come(reverse):
    """As above, ann 0.115 and bob 0.385, also if bob comes first or has the other's name."""
    made, data = FedPAC(hidden=(), **PLAIN), two_clients()
    swapped = {"bob": data["ann"], "ann": data["bob"]}
    for clients, wanted in ((data, {"ann": 0.115, "bob": 0.385}), (swapped, {"ann": 0.385, "bob": 0.115})):
        clients = dict(reversed(clients.items())) if reverse else clients
        server, states = begin(made, clients)
        server, _ = one_round(made, server, states, clients)
        for name, w in wanted.items():
            assert float(made.broadcast(server, name)["combined/head.0.weight"]) == pytest.approx(w, abs=1e-14)


def test_a_client_with_one_label_borrows():
    """Labels 0, 2 and 3: H = (1, 1) and (3, 1), |H_0 − H_1|² = 4, V_0 = ½; bob takes over the std 2·½, so V_1 = 1.

    For bob P = diag(4½, 1), α = (2, 9)/11, and the own weights 0.1 and 0.3 make 2.9/11. With V_1 = 0 it would keep 0.3.
    """
    made, data = (
        FedPAC(hidden=(), **PLAIN),
        {"ann": client_of([1, 1], [0, 2], NUMBER), "bob": client_of([1], [3], NUMBER)},
    )
    server, states = begin(made, data)
    server, _ = one_round(made, server, states, data)
    assert float(made.broadcast(server, "bob")["combined/head.0.weight"]) == pytest.approx(2.9 / 11, abs=1e-14)


def test_prototypes_are_weighted_and_missing_ones_are_kept():
    """Class a: one row of 2 and three of 6, (2 + 18)/4 = 5, not the 4 of a plain mean. Class b: 1. Nobody has c."""
    made = FedPAC(hidden=(), **PLAIN)
    data = {"ann": client_of([2, 1], [0, 1], CLASSES), "bob": client_of([6, 6, 6], [0, 0, 0], CLASSES)}
    server, states = begin(made, data)
    server, _ = one_round(made, server, states, data)
    assert server["prototype/0"][:, 0].tolist() == pytest.approx([5, 1, 0], abs=1e-14)
    assert server["known/0"].tolist() == [1, 1, 0]
    server, _ = one_round(made, server, states, data, who=["bob"], round=2)
    assert server["prototype/0"][:, 0].tolist() == pytest.approx([6, 1, 0], abs=1e-14)  # b is of nobody now, and stays


@pytest.mark.parametrize(
    ("codecs", "x", "y", "known", "strength", "t"),
    [
        (CLASSES, [1, 1], [0, 0], [1, 1, 1], 1.0, 1.4),
        (CLASSES, [1, 1], [0, 0], [1, 1, 1], 0.5, 1.2),
        (CLASSES, [1, 3], [0, 0], [0, 0, 0], 1.0, 1.0),
        (CLASSES, [1, 3], [0, 0], [0, 1, 0], 1.0, 0.8),
        (NUMBER, [0, 2], [0, 0], [1], 1.0, 1.4),
    ],
)
def test_alignment_by_hand(monkeypatch, codecs, x, y, known, strength, t):
    """φ(x) = t x with t = 1, head 0 so that the loss does not reach t, every mean 3, one step of 0.1.

    Classes: (t − 3)² has the slope −4, t = 1.4; with λ = ½ it is 1.2. In the first round nothing is known: 1. If the
    server lacks this class alone, the client's own mean is used, 2 for features 1 and 3: ½ ((t − 2)² + (3t − 2)²) has the
    slope −1 + 3 = 2, t = 0.8. Numbers: features 0, 2 have the mean t, so 1.4 again.
    """
    my_networks(monkeypatch, one_weight=one_weight)
    made = FedPAC(network="my_networks:one_weight", **PLAIN, alignment=strength, learning_rate=0.1, head_rate=1e-15)
    data = {"ann": client_of(x, y, codecs)}
    server, states = begin(made, data)
    server["prototype/0"] = torch.full_like(server["prototype/0"], 3.0)
    server["known/0"] = torch.tensor(known, dtype=torch.float64)
    after, _ = one_round(made, server, states, data)
    assert float(after["theta/trunk.0.weight"]) == pytest.approx(t, abs=1e-12)


def test_phases_of_a_round_with_batch_norm(monkeypatch):
    """6 rows in batches of 3, 2 head epochs, 2 of the trunk: the trunk sees 2·2 batches in training mode, heads none.

    One epoch of the trunk is one epoch, however many the head has; the statistics are those of the trunk that was sent.
    """
    my_networks(monkeypatch, normed=normed)
    options = {"network": "my_networks:normed", "batch_size": 3, "head_epochs": 2}
    _, data = federation(2, kinds=("multiclass",))
    mine = data["client 1"]
    at, y = mine.labels["multiclass"]
    assert len(at) > 6
    data = {"ann": ClientData(mine.x, {"multiclass": (at[:6], y[:6])}, mine.codecs)}
    made = FedPAC(**options, local_epochs=2)
    server, states = begin(made, data, head=0.1)
    message = made.broadcast(server, "ann")
    after, updates = one_round(made, server, states, data)
    assert int(after["theta/trunk.1.num_batches_tracked"]) == 4
    net = made.net_of(data["ann"])
    before = {**strip_prefix(message, "theta"), **strip_prefix(states["ann"], "personal")}
    with torch.no_grad():
        h = net.features(before, torch.from_numpy(mine.x[at[:6]]), "multiclass").numpy()
    onehot = np.eye(3)[y[:6].astype(int)]
    np.testing.assert_allclose(updates["ann"].arrays["moment/0"], onehot.T @ h / 6, atol=1e-14)
    once, _ = one_round(FedPAC(**options, local_epochs=1), *begin(made, data, head=0.1), data)
    assert int(once["theta/trunk.1.num_batches_tracked"]) == 2
    assert not torch.equal(once["theta/trunk.0.weight"], server["theta/trunk.0.weight"])


@pytest.mark.parametrize("buffers", ["average", "local", "frozen"])
def test_batch_norm_with_a_client_of_one_sample_and_one_class(monkeypatch, buffers):
    my_networks(monkeypatch, normed=normed)
    spec, data = federation(3, kinds=("multiclass",))
    one = data["client 1"]
    data["client 1"] = ClientData(one.x[:1], {"multiclass": (np.array([0]), np.array([2.0]))}, one.codecs)
    made = FedPAC(network="my_networks:normed", bn_buffers=buffers, batch_size=3)
    server, states, _ = run_rounds(made, spec, data, rounds=3)
    assert all(torch.isfinite(v).all() for v in [*server.values(), *states["client 1"].values()])
    proba = made.predictor(server, states["client 1"], data["client 1"])(one.x)["multiclass"].proba
    np.testing.assert_allclose(proba.sum(1), 1.0, atol=1e-12)


@pytest.mark.parametrize("task_mode", ["shared", "separate"])
def test_without_mixing_and_alignment_it_is_fedper_with_alternating_training(task_mode):
    options = {"hidden": (5,), "task_mode": task_mode, "momentum": 0.5, "batch_size": 4}
    made = FedPAC(**options, combine=False, alignment=0.0, head_rate=0.1, head_epochs=2, local_epochs=3)
    per = FedPer(**options, learning_rate=0.01, weight_decay=5e-4)
    spec, data = federation(3)
    server, states, updates = run_rounds(made, spec, data, rounds=2)
    assert not any("head" in name for name in [*strip_prefix(server, "theta"), *updates["client 0"].arrays])
    net, theirs = per.net_of(spec), per.init(spec, START)
    own = {name: strip_prefix(per.start(mine, START), "personal") for name, mine in data.items()}
    for r in (1, 2):
        sent = {}
        for name, mine in data.items():
            trunk = strip_prefix(theirs, "theta")
            first = Stream(0, "local head", r, name)
            after, _ = per.train(net, {**trunk, **own[name]}, mine, first, epochs=2, names=net.heads, rate=0.1)
            after, _ = per.train(net, after, mine, Stream(0, "local", r, name), epochs=3, names=list(trunk))
            own[name] = {n: after[n] for n in net.heads}
            change = {n: after[n] - v for n, v in trunk.items()}
            sent[name] = per.update(change, net, after, mine, 0.0)
        theirs = per.aggregate(theirs, sent)
    for n, v in strip_prefix(theirs, "theta").items():
        torch.testing.assert_close(server[f"theta/{n}"], v, rtol=0, atol=1e-14)
    for n, v in own["client 0"].items():
        torch.testing.assert_close(states["client 0"][f"own/{n}"], v, rtol=0, atol=1e-14)


def test_a_client_without_a_task_reads_the_mean_head_of_those_who_have_it():
    spec, data = federation(3)
    made = FedPAC(hidden=(4,))
    server, states, updates = run_rounds(made, spec, data, rounds=2)
    lacking = next(task for task in KINDS if task not in data["client 1"].labels)
    i = KINDS.index(lacking)
    assert not any(f"head.{i}." in name for name in strip_prefix(made.broadcast(server, "client 1"), "combined"))
    assert not updates["client 1"].arrays[f"moment/{i}"].any()
    assert not updates["client 1"].arrays[f"head.{i}.weight"].any()
    x = data["client 1"].x
    mine = made.predictor(server, states["client 1"], data["client 1"])(x)[lacking].latent_mean
    shared = made.predictor(server, None, data["client 1"])(x)[lacking].latent_mean
    np.testing.assert_array_equal(mine, shared)


def test_storage_and_the_wire_change_nothing():
    """Names come back in another order."""
    spec, data = federation(3)
    made = FedPAC(hidden=(4,))
    server, states, updates = run_rounds(made, spec, data, rounds=1)
    stored = from_bytes(to_bytes(server))
    again, back = {}, {name: from_bytes(to_bytes(state)) for name, state in states.items()}
    a, updates = one_round(made, server, states, data, round=2)
    b, _ = one_round(made, stored, back, data, round=2)
    assert all(torch.equal(v, b[n]) for n, v in a.items())
    again = {name: ClientUpdate.from_wire(from_bytes(to_bytes(u.wire()))) for name, u in updates.items()}
    heads = made.aggregate(server, updates)
    assert all(torch.equal(v, made.aggregate(server, again)[n]) for n, v in heads.items() if n.startswith("combined"))


def test_a_newcomer_trains_its_head_alone():
    """From the mean head 0.25 (see above) on labels 0, 2: two epochs of 0.1, f = 0.5, 0.6: w = 0.3, then 0.34."""
    made, data = FedPAC(hidden=(), **PLAIN, join_epochs=2), two_clients()
    server, states = begin(made, data)
    server, _ = one_round(made, server, states, data)
    state = made.join(server, data["ann"], Stream(0, "join"))
    assert float(state["own/head.0.weight"]) == pytest.approx(0.34, abs=1e-14)
    assert made.predictor(server, state, data["ann"])(np.ones((1, 1)))["y"].mean[0] == pytest.approx(0.68, abs=1e-14)


@pytest.mark.parametrize("kind", ["regression", "robust", "binary", "multiclass", "count", "proportion"])
def test_every_kind_of_task_is_learned_and_predicted(kind):
    made = FedPAC(hidden=(8,))
    assert fit_of(made, kind, 20) > fit_of(made, kind, 1) + 0.03


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("options", [{}, {"task_mode": "separate"}, {"combine": False}])
def test_the_contract(check, options):
    check(FedPAC(hidden=(4,), local_epochs=1, **options))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"alignment": -1.0}, "alignment is -1.0; give a number from 0 up."),
        ({"head_rate": 0.0}, "head_rate is 0.0; give a number above 0."),
        ({"head_epochs": 0}, "head_epochs is 0; give a whole number from 1 up."),
        ({"join_epochs": 1.5}, "join_epochs is 1.5; give a whole number from 0 up."),
        ({"combine": "yes"}, "combine is 'yes'; give true or false."),
        ({"task_mode": "both"}, "task_mode 'both' is unknown"),
    ],
)
def test_wrong_options(options, text):
    with pytest.raises(ConfigError) as error:
        FedPAC(**options)
    assert text in str(error.value)
