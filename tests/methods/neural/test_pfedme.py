"""pFedMe against numbers by hand and against the proximal point in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from federations import START, federation, one_round, run_rounds
from method_toys import at, begin, toy, value
from polyfed.methods import PFedMe
from polyfed.methods.messages import strip_prefix
from polyfed.methods.neural.cohorts import Cohort


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
    net = made.net_of(data["client 0"])
    batch = {"y": np.arange(4)}

    def envelope(w, b):
        point = strip_prefix(at({}, w, b), "theta")
        cohort = Cohort(net, [data["client 0"]])
        theta, _ = made.near(cohort, cohort.stack([point]), cohort.stack([point]), [batch], 3000)
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
    server, states, _ = run_rounds(made, spec, data, rounds=2)
    own = strip_prefix(states["client 0"], "theta")
    message = made.broadcast(server, "client 0")
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
    theta = strip_prefix(states["client 0"], "theta")
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


def test_two_steps_of_w_by_hand():
    """As above, and once more from θ = 0.34 with w_i = 0.17:

    θ: 0.68 − 2 + 0.17 = −1.15 → 0.455;  0.91 − 2 + 0.285 = −0.805 → 0.5355.   w_i = 0.17 + 0.5·(0.5355 − 0.17) = 0.35275
    The client predicts 2θ = 1.071, the server 2w = 0.7055; with β = ½ the server goes half the way, to 0.176375.
    """
    spec, data = toy(2)
    options = {"penalty": 1.0, "personal_rate": 0.1, "inner_steps": 2, "local_steps": 2, "learning_rate": 0.5}
    made = PFedMe(hidden=(), **options)
    server, states = begin(made, spec, data)
    after, _ = one_round(made, server, states, data)
    assert value(after) == pytest.approx(0.35275, abs=1e-15)
    for state, mean in ((states["client 0"], 1.071), (None, 0.7055)):
        found = made.predictor(after, state, data["client 0"])(np.ones((1, 1)))["y"].mean[0]
        assert found == pytest.approx(mean, abs=1e-14)
    half, _ = one_round(PFedMe(hidden=(), server_rate=0.5, **options), server, states, data)
    assert value(half) == pytest.approx(0.176375, abs=1e-15)


def test_where_eta_times_lambda_is_one_the_shared_parameters_follow_the_own():
    spec, data = federation(1)
    made = PFedMe(penalty=2.0, learning_rate=0.5, local_steps=3, personal_rate=0.1, batch_size=3)
    server, states, _ = run_rounds(made, spec, data, rounds=2)
    first = made.init(spec, START)
    for name, theta in strip_prefix(states["client 0"], "theta").items():
        torch.testing.assert_close(server[f"theta/{name}"], theta, rtol=0, atol=1e-13)
    assert max(float((server[n] - v).abs().max()) for n, v in first.items() if n.startswith("theta/")) > 0.1


def test_nothing_of_the_own_parameters_is_shared_memory():
    """Each in turn is overwritten; the others stay."""
    spec, data = federation(1)
    made = PFedMe(local_steps=2)
    server = made.init(spec, START)
    state, update = made.local(made.start(data["client 0"], START), made.broadcast(server, ""), data["client 0"], START)
    after = made.aggregate(server, {"client 0": update})
    held = [state, update.arrays, server, after]
    for i, one in enumerate(held):
        kept = [{n: v.clone() for n, v in other.items()} for other in held]
        for n, v in one.items():
            if not n.startswith(("noise/", "task/", "uncounted/")):  # what did not change may be handed on as it is
                v.add_(1.0)
        for j, other in enumerate(held):
            if j != i:
                assert all(torch.equal(v, kept[j][n]) for n, v in other.items()), (i, j)


def test_a_batch_serves_all_inner_steps(monkeypatch):
    spec, data = federation(1, kinds=("regression",))
    seen, plain = [], Cohort.gradient

    def recorded(self, values, batch, names):
        seen.append(tuple(batch["regression"].y[0].tolist()))
        return plain(self, values, batch, names)

    monkeypatch.setattr(Cohort, "gradient", recorded)
    run_rounds(PFedMe(inner_steps=3, local_steps=7, batch_size=2), spec, data, rounds=1)
    groups = [seen[i : i + 3] for i in range(0, len(seen), 3)]
    assert len(groups) == 7
    assert all(len(set(group)) == 1 for group in groups)
    y = data["client 0"].labels["regression"][1]  # an epoch is over when every label had its turn
    assert sorted(label for group in groups[: -(-len(y) // 2)] for label in group[0]) == sorted(y)


def test_weights_decay_only_if_asked_for():
    """At λ = 1 and w = b = 0.3 there is no slope where 2θ − 2 + (θ − 0.3) + μθ = 0: θ = 2.3/3, and 2.3/3.5 with μ = ½."""
    _, data = toy(2)
    for decay, wanted in ((0.0, 2.3 / 3), (0.5, 2.3 / 3.5)):
        made = PFedMe(hidden=(), penalty=1.0, personal_rate=0.3, weight_decay=decay)
        point = strip_prefix(at({}, 0.3, 0.3), "theta")
        alone = Cohort(made.net_of(data["client 0"]), [data["client 0"]])
        theta, _ = made.near(alone, alone.stack([point]), alone.stack([point]), [{"y": np.arange(4)}], 500)
        assert value(theta, "head.0.weight") == pytest.approx(wanted, abs=1e-12)
