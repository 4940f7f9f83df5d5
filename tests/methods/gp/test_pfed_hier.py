"""Clients that share functions: the ends at which they are other methods, what they send, and what the server lets in."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from federations import START, client, codecs_of, federation, one_round, run_rounds
from polyfed.data import ClientData
from polyfed.engine.rounds import FederationState, conclude, run_round
from polyfed.engine.settings import Settings
from polyfed.errors import ConfigError, DataError
from polyfed.gp import Evidence
from polyfed.methods import PFedHier, PFedMul, method
from polyfed.methods.gp.evidence_limits import ROUNDING
from polyfed.methods.gp.states import Served
from polyfed.methods.messages import strip_prefix
from polyfed.methods.update_batch import UpdateBatch
from polyfed.modelling.sparsity import Sparsity
from polyfed.seeds import Stream

ALL_KINDS = ("regression", "robust", "binary", "multiclass", "count", "proportion")
SMALL = {"n_shared": 2, "n_personal": 1, "n_points": 8}
AT = np.linspace(-2, 2, 12).reshape(6, 2)


def values_of(prediction):
    if hasattr(prediction, "class_proba"):
        return np.asarray(prediction.class_proba)
    return np.stack([prediction.mean, prediction.std])


def same(a, b):
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


def own_of(state):
    return Evidence(**strip_prefix(state, "own"))


def sums_of(server):
    return Evidence(**strip_prefix(server, "evidence"))


# ---- the ends at which it is another method -----------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["A", "K"])
@pytest.mark.parametrize("mode", ["gradient", "average"])
def test_without_shared_functions_it_is_pfed_mul_bit_for_bit(mode, scheme):
    spec, data = federation(4)
    like = {"mode": mode, "scheme": scheme, "theta_prior": "none" if mode == "average" else "weak"}
    common = {
        **like,
        "per_dimension": True,
        "learning_rate": 0.2,
        "betas": (0.8, 0.9),
        "halve_every": 2.0,
        "bound": "gaussian",
    }
    one, other = PFedHier(n_shared=0, n_personal=3, **common), PFedMul(n_latents=3, **common)
    (server, states, updates), (server_2, states_2, updates_2) = (
        run_rounds(made, spec, data, rounds=4) for made in (one, other)
    )
    same(server, server_2)
    for name, mine in data.items():
        same(states[name], states_2[name])
        same(updates[name].wire(), updates_2[name].wire())
        for state in (states[name], None):
            found, wanted = one.predictor(server, state, mine)(AT), other.predictor(server_2, state, mine)(AT)
            assert all(np.array_equal(values_of(found[task]), values_of(wanted[task])) for task in found)
    new = client(np.random.default_rng(9))
    same(one.join(server, new, Stream(0, "join")), other.join(server_2, new, Stream(0, "join")))
    assert one.objections(server, list(updates.values())) == [None] * len(data)
    assert one.personalises == other.personalises
    assert one.untrained(new) is other.untrained(new) is None


def test_one_client_alone_predicts_as_pfed_mul_with_its_prior_does():
    """Whatever the points: shared or personal, a latent is one function of one client."""
    spec, data = federation(1)
    made = PFedHier(**SMALL, bound="polya-gamma")
    server, states, _ = run_rounds(made, spec, data, rounds=3)
    (mine,), (state,) = data.values(), states.values()
    wanted = PFedMul(n_latents=3, per_dimension=True).model(mine).predict(Served.from_arrays(server).values, mine)(AT)
    found = made.predictor(server, state, mine)(AT)
    # What it keeps as its own evidence is all there is: without it nothing is known.
    assert torch.allclose(sums_of(server).triangle, own_of(state).triangle, rtol=0, atol=1e-12)
    for task in found:
        np.testing.assert_allclose(values_of(found[task]), values_of(wanted[task]), rtol=0, atol=1e-6)


def test_with_gaussian_tasks_alone_nothing_moves_after_one_round_but_theta():
    spec, data = federation(4, kinds=("regression",))
    made = PFedHier(**SMALL)
    server, states = made.init(spec, START), {name: made.start(mine, START) for name, mine in data.items()}
    after, _ = one_round(made, server, states, data)
    _, updates = one_round(made, server | {n: v for n, v in after.items() if made.is_evidence(n)}, states, data)
    for update in updates.values():
        assert float(update.arrays["evidence/triangle"].abs().max()) < 1e-10
        assert float(update.arrays["evidence/shift"].abs().max()) < 1e-10


# ---- what is sent and kept ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damping", [1.0, 0.4])
def test_the_server_has_the_sum_of_what_clients_keep(damping):
    """Under partial participation, with a client whose updates are rejected for some rounds, and damped."""
    spec, data = federation(5)
    made = PFedHier(**SMALL, damping=damping)
    progress = FederationState(0, made.init(spec, START), {})
    settings = Settings(rounds=9)
    rng = np.random.default_rng(0)
    for _ in range(8):
        who = list(rng.choice(sorted(data), 3, replace=False))
        corrupted = _Spoilt(**SMALL, damping=damping, corrupted=who[0])
        progress, event = run_round(corrupted, progress, data, settings, who)
        assert event["used"]
        assert list(event["rejected"]) == [who[0]]
        total = sums_of(progress.server)
        kept = [own_of(state) for state in progress.clients.values()]
        torch.testing.assert_close(total.triangle, sum(e.triangle for e in kept), rtol=0, atol=1e-9)
        torch.testing.assert_close(total.shift, sum(e.shift for e in kept), rtol=0, atol=1e-9)


@dataclass(frozen=True)
class _Spoilt(PFedHier):
    """One client's update is not finite."""

    corrupted: str = ""

    def local_many(self, jobs):
        done = super().local_many(jobs)
        for i, job in enumerate(jobs):
            if job.client == self.corrupted:
                state, update = done[i]
                arrays = {**update.arrays, "kernels.0.log_amplitude": torch.tensor(torch.nan).double()}
                done[i] = state, replace(update, arrays=arrays)
        return done


@pytest.mark.parametrize("kinds", [("regression", "binary"), ("regression", "binary", "multiclass")])
def test_a_message_is_one_triangle_and_below_a_hundred_kilobytes(kinds):
    spec, data = federation(2, kinds=kinds, n_features=8)
    made = PFedHier()
    server, _, updates = run_rounds(made, spec, data, rounds=1)
    (update, _) = updates.values()
    width = len(update.arrays["evidence/shift"])
    assert len(update.arrays["evidence/triangle"]) == width * (width + 1) // 2
    assert width == 3 * 49
    assert 8 * width * (width + 1) // 2 < update.n_bytes() < 100_000
    assert "limit/binary" not in made.prediction_state(server, "client 0")


def test_all_kinds_of_tasks_learn_together_and_stay_finite():
    spec, data = federation(6, kinds=ALL_KINDS)
    server, states, _ = run_rounds(PFedHier(), spec, data, rounds=6)
    assert all(bool(torch.isfinite(value).all()) for value in server.values())
    for name, mine in data.items():
        found = PFedHier().predictor(server, states[name], mine)(AT)
        assert all(np.isfinite(values_of(found[task])).all() for task in ALL_KINDS), name


@pytest.mark.parametrize("some", [False, True], ids=["all", "some"])
def test_clients_with_inducing_inputs_say_the_same_of_shared_functions(some, monkeypatch):
    """As many as there are inputs: nothing is approximated. Then those with many rows alone, beside exact ones."""
    spec, data = federation(4, kinds=("regression", "binary"))
    exact, _, _ = run_rounds(PFedHier(**SMALL, learning_rate=0.01), spec, data, rounds=2)
    if some:
        many = sorted(mine.n_labels for mine in data.values())[2]
        monkeypatch.setattr(Sparsity, "points_for", lambda self, n_rows, n_latents: 40 if n_rows >= many else None)
    made = PFedHier(**SMALL, learning_rate=0.01, inducing=None if some else 40)
    server, states, _ = run_rounds(made, spec, data, rounds=2)
    for name in ("evidence/triangle", "evidence/shift"):
        torch.testing.assert_close(server[name], exact[name], rtol=0, atol=1e-3)
    mine = data["client 3"]
    wanted = PFedHier(**SMALL).predictor(exact, states["client 3"], mine)(AT)
    found = made.predictor(server, states["client 3"], mine)(AT)
    np.testing.assert_allclose(found["regression"].mean, wanted["regression"].mean, rtol=0, atol=1e-2)


# ---- clients without labels ---------------------------------------------------------------------------------------------


def alike(n_clients, rng, n=25):
    """Clients that all have one function and little of their own."""
    data = {}
    for i in range(n_clients):
        x = rng.uniform(-2, 2, (n, 2))
        f = np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * rng.standard_normal()
        y = {"regression": f + 0.1 * rng.standard_normal(n), "binary": np.where(f > 0, 1.0, -1.0)}
        data[f"client {i}"] = ClientData(
            x, {t: (np.arange(n), v) for t, v in y.items()}, codecs_of(("regression", "binary"))
        )
    return data


def test_a_client_without_labels_predicts_from_the_others_with_an_honest_interval():
    data = alike(8, np.random.default_rng(0))
    spec, _ = federation(1, kinds=("regression", "binary"))
    spec = replace(spec, clients=tuple(data))
    made = PFedHier(n_points=32)
    server, _, _ = run_rounds(made, spec, data, rounds=25)
    new = alike(20, np.random.default_rng(1))
    errors, inside, right = [], [], []
    for mine in new.values():
        unlabelled = ClientData(mine.x, {}, mine.codecs)
        state = made.join(server, unlabelled, Stream(0, "join"))
        found = made.predictor(server, state, unlabelled)(mine.x)
        y, b = mine.labels["regression"][1], mine.labels["binary"][1]
        low, high = found["regression"].interval(0.95)
        errors += list((found["regression"].mean - y) ** 2)
        inside += list((low < y) & (y < high))
        right += list((found["binary"].class_proba[:, 1] > 0.5) == (b > 0))
    assert np.mean(errors) < 0.1 * np.var([mine.labels["regression"][1] for mine in new.values()])
    assert 0.88 < np.mean(inside) <= 1.0
    assert np.mean(right) > 0.9
    nobody = PFedMul()
    plain, _, _ = run_rounds(nobody, spec, data, rounds=5)
    blank = nobody.predictor(plain, None, ClientData(mine.x, {}, mine.codecs))(mine.x)
    assert np.allclose(blank["regression"].mean, 0.0)  # what a shared prior alone can say


def test_a_client_that_lacks_a_task_predicts_it_from_the_others():
    data = alike(8, np.random.default_rng(0))
    spec, _ = federation(1, kinds=("regression", "binary"))
    spec = replace(spec, clients=tuple(data))
    lacking = {
        **data,
        "client 0": ClientData(
            data["client 0"].x, {"regression": data["client 0"].labels["regression"]}, data["client 0"].codecs
        ),
    }
    made = PFedHier(n_points=32)
    server, states, _ = run_rounds(made, spec, lacking, rounds=15)
    found = made.predictor(server, states["client 0"], lacking["client 0"])(data["client 0"].x)
    assert np.mean((found["binary"].class_proba[:, 1] > 0.5) == (data["client 0"].labels["binary"][1] > 0)) > 0.85


def test_who_took_part_is_not_counted_twice_by_the_model_of_the_server_alone():
    """Its labels are in the sums: seen once more, they would make intervals too narrow."""
    spec, data = federation(3)
    made = PFedHier(**SMALL)
    server, _, _ = run_rounds(made, spec, data, rounds=3)
    mine = data["client 0"]
    alone = made.predictor(server, None, mine)(AT)
    blank = made.predictor(server, {}, ClientData(mine.x, {}, mine.codecs))(AT)
    for task in alone:
        np.testing.assert_array_equal(values_of(alone[task]), values_of(blank[task]))
    assert made.untrained(mine) == {}
    seen = made.predictor(server, {}, mine)(AT)  # a member that was never asked uses its labels
    assert not np.allclose(seen["regression"].mean, alone["regression"].mean)


# ---- what the server lets in --------------------------------------------------------------------------------------------


def changed(update, **arrays):
    return replace(update, arrays=update.arrays | {f"evidence/{name}": value for name, value in arrays.items()})


@pytest.fixture(scope="module")
def settled():
    spec, data = federation(4, kinds=("regression", "binary", "multiclass"))
    made = PFedHier(**SMALL)
    return made, *run_rounds(made, spec, data, rounds=3)


def test_honest_updates_are_never_objected_to():
    for kinds in (("regression",), ("binary", "multiclass"), ALL_KINDS):
        spec, data = federation(5, kinds=kinds)
        for bound in ("polya-gamma", "gaussian"):
            made = PFedHier(**SMALL, bound=bound)
            server, states = made.init(spec, START), {name: made.start(mine, START) for name, mine in data.items()}
            for r in range(1, 6):
                updates = {}
                for name, mine in data.items():
                    message = made.broadcast(server, name)
                    states[name], updates[name] = made.local(states[name], message, mine, Stream(0, "local", r, name))
                    assert made.objection(server, updates[name]) is None, (kinds, bound, r, name)
                server = made.aggregate(server, updates)


def test_a_factor_that_takes_more_than_there_is_is_rejected(settled):
    made, server, _, updates = settled
    update = updates["client 0"]
    bad = changed(update, triangle=-2 * server["evidence/triangle"])
    reason = "with its evidence, the precision of the shared functions would no longer be positive definite"
    assert made.objection(server, bad) == reason


def test_more_evidence_than_labels_allow_is_rejected(settled):
    made, server, states, updates = settled
    update = updates["client 0"]
    own = states["client 0"]["own/triangle"]
    assert made.objection(server, changed(update, triangle=1e3 * own)).startswith("its evidence has a trace of ")
    shift = torch.full_like(update.arrays["evidence/shift"], 1e5)
    assert made.objection(server, changed(update, shift=shift)).startswith("its evidence has a shift of ")


def test_the_limit_is_that_of_the_labels(settled):
    """By hand, for a client with labels of two tasks: h is 1/σ² and ¼, and no feature is longer than the prior variance."""
    made, server, _, updates = settled
    theta = {name.partition("/")[2]: v for name, v in server.items() if name.startswith(("theta/", "pooled/"))}
    amplitude = torch.stack([theta[f"kernels.{b}.log_amplitude"].exp() for b in range(2)])
    trace = 0.0
    for task, n, h in (("regression", 3, 1 / float(theta["noise.regression"].exp())), ("binary", 5, 0.25)):
        trace += n * h * float((theta[f"mixing.{task}"][:, :2].square() * amplitude).sum())
    update = replace(updates["client 0"], counts={"regression": 3, "binary": 5, "multiclass": 0})
    width = len(update.arrays["evidence/shift"])
    one = torch.zeros_like(update.arrays["evidence/triangle"])
    one[0] = 1.0  # a diagonal entry
    assert width > 1
    assert (
        made.objection(server, changed(update, triangle=0.99 * trace * one, shift=torch.zeros(width).double())) is None
    )
    text = made.objection(server, changed(update, triangle=1.01 * trace * one))
    assert text == f"its evidence has a trace of {1.01 * trace:.4g}, and its 8 labels allow {trace:.4g}"


def test_many_updates_are_objected_to_as_each_alone(settled):
    made, server, states, updates = settled
    good = updates["client 0"]
    bad = [
        changed(good, triangle=-2 * server["evidence/triangle"]),
        changed(good, triangle=1e3 * states["client 0"]["own/triangle"]),
        changed(good, shift=torch.full_like(good.arrays["evidence/shift"], 1e5)),
    ]
    sent = [*updates.values(), *bad, *updates.values(), *bad]  # enough of them for compiled code
    batch = UpdateBatch({name: torch.stack([one.arrays[name] for one in sent]) for name in good.arrays}, {})
    stacked = [batch.update(i, one.weight, one.counts, {}) for i, one in enumerate(sent)]
    expected = [made.objection(server, one) for one in sent]
    assert {"with", "its", None} == {reason and reason.split()[0] for reason in expected}
    assert made.objections(server, stacked) == made.objections(server, sent) == expected


def test_of_updates_that_are_sound_alone_and_not_together_one_is_rejected(settled):
    made, server, _, updates = settled
    half = changed(updates["client 0"], triangle=-0.6 * server["evidence/triangle"])
    assert made.objection(server, half) is None
    outcomes = {name: ({}, half) for name in ("client 0", "client 1")}
    declared = dict.fromkeys(outcomes, updates["client 0"].counts)
    progress, event = conclude(
        made, FederationState(0, server, {}), outcomes, Settings(rounds=1), declared=declared, bytes_down=0
    )
    assert event["used"]
    (reason,) = event["rejected"].values()
    assert "the evidence of all clients is no distribution of the shared functions" in reason
    assert bool(sums_of(progress.server).is_positive(ROUNDING))
    assert len(progress.clients) == 1


def test_clients_whose_theta_is_their_own_have_no_limit_that_a_server_knows():
    spec, _ = federation(2)
    assert not strip_prefix(PFedHier(**SMALL, scheme="K").init(spec, START), "limit")
    assert strip_prefix(PFedHier(**SMALL).init(spec, START), "limit").keys() == {
        "regression",
        "binary",
    }  # counts have none


# ---- bad input ------------------------------------------------------------------------------------------------------------


def test_a_client_with_other_inputs_than_agreed_is_told_so():
    spec, data = federation(2)
    made = PFedHier(**SMALL)
    server = made.init(spec, START)
    other = client(np.random.default_rng(0), n_features=3)
    text = "the client's inputs: 3 features, and the shared functions have 2; give the columns that the federation agreed on"
    with pytest.raises(DataError, match=text):
        made.local(made.start(other, START), made.broadcast(server, "x"), other, Stream(0, "local", 1, "x"))
    with pytest.raises(DataError, match=text):
        made.predictor(server, {}, other)
    jobs_outcome = run_round(made, FederationState(0, server, {}), {**data, "odd": other}, Settings(rounds=1))
    assert list(jobs_outcome[1]["rejected"]) == ["odd"]
    assert jobs_outcome[1]["used"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n_shared": 0, "n_personal": 0}, "n_shared and n_personal are both 0: no latent is left; give at least one"),
        ({"n_shared": -1}, "n_shared is -1; give a whole number from 0 up"),
        ({"n_points": 0}, "n_points is 0; give a whole number from 1 up"),
        ({"damping": 0.0}, "damping is 0.0; give a number above 0 and at most 1"),
        ({"damping": 1.5}, "damping is 1.5; give a number above 0 and at most 1"),
        (
            {"n_shared": 2, "n_latents": 7},
            "n_latents is 7, and shared and personal latents are counted apart; leave n_latents out",
        ),
        ({"projection": 2}, "projection is set, and shared functions are functions of the features themselves"),
        (
            {"inducing_method": "paper"},
            "inducing_method is 'paper', which has no place for shared functions; use another",
        ),
        ({"mean": "linear"}, "mean is set, and shared functions are functions of the features themselves"),
        ({"n_shared": 2, "kernel": ["rbf"]}, "1 kernels for 4 latents; give one kernel, or one for each"),
    ],
)
def test_options_that_cannot_be(options, text):
    with pytest.raises(ConfigError) as error:
        method("pfed-hier", **options)
    assert str(error.value).startswith(text)


def test_more_points_than_memory_holds_are_an_error_and_no_crash():
    spec, _ = federation(2)
    with pytest.raises(ConfigError, match="2 shared latents have 2,000,000 features, and memory does not hold"):
        PFedHier(n_shared=2, n_points=1_000_000).init(spec, START)


def test_a_server_that_sends_what_is_no_distribution_is_an_error_with_a_remedy():
    spec, data = federation(2)
    made = PFedHier(**SMALL)
    server, states, _ = run_rounds(made, spec, data, rounds=1)
    broken = server | {"evidence/triangle": -10 * server["evidence/triangle"]}
    with pytest.raises(ArithmeticError, match="no positive definite precision; go on from a state of the server"):
        made.predictor(broken, states["client 0"], data["client 0"])


def test_what_is_shared_and_what_is_personal_by_default_and_where_its_lengths_start():
    """Planes have no length, and do not count where those of the others start at 1, ½ and 2 times the typical distance."""
    spec, data = federation(2, kinds=("regression", "binary"), n_features=2)
    made = PFedHier()
    prior = made.model(data["client 0"]).prior
    assert tuple(map(str, prior.kernels)) == ("affine",) * 3 + ("rbf", "rbf") + ("affine", "rbf")
    lengths = prior.with_values(Served.from_arrays(made.init(spec, START)).values).length_scales()
    assert lengths[:3] + lengths[5:6] == [[]] * 4
    found = [lengths[b][0][1].tolist() for b in (3, 4, 6)]
    np.testing.assert_allclose(found, np.outer([2.0, 1.0, 4.0], [1.0, 1.0]), rtol=1e-12)
