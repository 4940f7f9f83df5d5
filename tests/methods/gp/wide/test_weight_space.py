"""pfed-hier on wide inputs: stages of a run, what is sent and kept, what the server lets in, and clients with little to say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import polyfed as pf
from federations import START, codecs_of, one_round
from polyfed.data import ClientData, FederationSpec
from polyfed.engine.rounds import FederationState, run_round
from polyfed.engine.settings import Settings
from polyfed.engine.stopping import best_round
from polyfed.engine.validation import validate_updates
from polyfed.errors import ConfigError, DataError
from polyfed.gp import Evidence
from polyfed.methods import METHODS, PFedHier, method
from polyfed.methods.checks import CHECKS
from polyfed.methods.gp.evidence_limits import FARTHEST
from polyfed.methods.gp.wide.weight_space import WIDEST, WeightSpace
from polyfed.methods.messages import PREPARING, strip_prefix
from polyfed.seeds import Stream

MIXED = ("regression", "binary")
WIDE = 150  # features
SMALL = {"n_components": 6, "passes": 2, "linear_rounds": 3}


def client(rng, n, kinds=MIXED, lacks=(), offset=0.0):
    """Three directions of the inputs have a large std, and the first of them tells the labels."""
    z = rng.standard_normal((n, 3)) * [3.0, 2.0, 1.5]
    directions = np.random.default_rng(99).standard_normal((3, WIDE)) / np.sqrt(WIDE)
    x = z @ directions + 0.02 * rng.standard_normal((n, WIDE))
    f = z[:, 0] / 3.0 + offset
    noisy = f + 0.2 * rng.standard_normal(n)
    labels = {
        "regression": noisy,
        "robust": noisy,
        "binary": np.where(rng.random(n) < 1 / (1 + np.exp(-4 * f)), 1.0, -1.0),
        "multiclass": np.digitize(noisy, [-0.5, 0.5]).astype(float),
        "count": rng.poisson(2 * np.exp(0.5 * f)).astype(float),
        "proportion": np.column_stack([rng.binomial(5, 1 / (1 + np.exp(-f))), np.full(n, 5)]).astype(float),
    }
    return ClientData(x, {kind: (np.arange(n), labels[kind]) for kind in kinds if kind not in lacks}, codecs_of(kinds))


def federation(n_clients=5, kinds=MIXED, n=14, seed=0, std=0.0):
    rng = np.random.default_rng(seed)
    offsets = std * rng.standard_normal(n_clients)
    lacks = [(), *[(kind,) for kind in kinds]]
    data = {
        f"client {i}": client(rng, n + i, kinds, lacks[i % len(lacks)] if len(kinds) > 1 else (), offsets[i])
        for i in range(n_clients)
    }
    tasks = tuple(codec.task for codec in codecs_of(kinds).values())
    return FederationSpec(tasks, WIDE, tuple(data), codecs_of(kinds)), data


def run_rounds(made, spec, data, rounds):
    server, states, updates = made.init(spec, START), {name: made.start(mine, START) for name, mine in data.items()}, {}
    for r in range(1, rounds + 1):
        server, updates = one_round(made, server, states, data, round=r)
    return server, states, updates


def values_of(prediction):
    if hasattr(prediction, "class_proba"):
        return np.asarray(prediction.class_proba)
    return np.stack([prediction.mean, prediction.std])


@pytest.fixture(scope="module")
def completed():
    """All stages are over."""
    made, (spec, data) = PFedHier(**SMALL), federation()
    return made, spec, data, *run_rounds(made, spec, data, rounds=8)


# ---- the contract, in every stage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    "options", [{"passes": 3}, {"passes": 1, "linear_rounds": 5}, {"passes": 1, "linear_rounds": 1}]
)
def test_it_keeps_to_the_contract(check, options):
    """Two or three rounds: they end while components are sought, in the linear stage, and after it."""
    check(PFedHier(wide=0, **options))


def test_users_get_it_by_the_width_of_their_inputs(completed):
    _, _, _, server, _, _ = completed
    assert METHODS["pfed-hier"] is PFedHier
    assert "components/directions" in server
    narrow = FederationSpec(tuple(c.task for c in codecs_of(MIXED).values()), 128, ("a",), codecs_of(MIXED))
    assert "shared/Z" in PFedHier().init(narrow, START)
    assert "basis" in PFedHier(wide=127).init(narrow, START)


def test_rounds_find_the_components_of_the_pooled_rows():
    spec, data = federation()
    made = PFedHier(n_components=3, passes=6, linear_rounds=3)
    server, _, _ = run_rounds(made, spec, data, rounds=6)
    x = np.concatenate([mine.x for mine in data.values()])
    _, S, Vt = np.linalg.svd(x - x.mean(0), full_matrices=False)
    found = server["components/directions"].numpy()
    cosines = np.abs((found / np.linalg.norm(found, axis=0) * Vt[:3].T).sum(0))
    np.testing.assert_allclose(cosines, 1.0, atol=1e-12)
    np.testing.assert_allclose(server["components/variances"], S[:3] ** 2 / len(x), rtol=1e-9)
    np.testing.assert_allclose(server["components/centre"], x.mean(0), atol=1e-12)


def test_every_kind_of_task_is_learned():
    kinds = ("regression", "robust", "binary", "multiclass", "count", "proportion")
    spec, data = federation(4, kinds)
    made = PFedHier(**SMALL)
    first = made.init(spec, START)
    server, states, _ = run_rounds(made, spec, data, rounds=7)
    assert float(server["noise/count"]) != float(first["noise/count"])  # by its gradient
    mine = data["client 0"]
    for task, (at, y) in mine.labels.items():
        before, after = (
            made.predictor(known, own, mine)(mine.x)[task].take(at).log_density(mine.codecs[task].decode(y)).mean()
            for known, own in ((first, None), (server, states["client 0"]))
        )
        assert after > before


# ---- what is sent and kept --------------------------------------------------------------------------------------------------


def test_the_server_has_the_sum_of_what_clients_keep_whoever_takes_part_and_whoever_is_rejected():
    spec, data = federation()
    made, settings = PFedHier(**SMALL, damping=0.7), Settings(rounds=20)
    progress, rng = FederationState(0, made.init(spec, START), {}), np.random.default_rng(0)
    for _ in range(9):
        progress, event = run_round(made, progress, data, settings, list(rng.choice(sorted(data), 3, replace=False)))
        assert event["used"]
        assert event["rejected"] == {}
    kept = [Evidence(**strip_prefix(state, "own")) for state in progress.clients.values() if "own/shift" in state]
    width = len(progress.server["evidence/shift"])
    kept = [own for own in kept if len(own.shift) == width] + [
        _wider(own, width) for own in kept if len(own.shift) < width
    ]
    torch.testing.assert_close(sum(own.shift for own in kept), progress.server["evidence/shift"], rtol=0, atol=1e-9)
    torch.testing.assert_close(
        sum(own.triangle for own in kept), progress.server["evidence/triangle"], rtol=0, atol=1e-9
    )


def _wider(own, width):
    from polyfed.gp.weight_space import wider

    return wider(own, 2, width // 2)


def test_components_are_told_once_and_scores_are_kept(completed):
    made, _, data, server, states, _ = completed
    assert not [name for name in made.broadcast(server, "client 1") if name.startswith("components/")]
    assert "components/directions" in made.broadcast(server, "somebody else")
    mine = data["client 1"]
    scores = (torch.from_numpy(mine.x) - server["components/centre"]) @ server["components/directions"]
    kept = states["client 1"]["scores"]
    assert kept.shape == (len(mine.x), 7)
    assert sorted(kept[:, 0].tolist()) == pytest.approx(sorted(scores[:, 0].tolist()))
    without = {name: value for name, value in states["client 1"].items() if name != "scores"}
    with pytest.raises(DataError, match="no longer has what it received"):
        made.local(without, made.broadcast(server, "client 1"), mine, START)


def test_inputs_of_curved_features_know_no_label_of_their_own_client():
    """One label changes, and with it all that the client sends; what it keeps as outputs of its rows does not."""
    spec, data = federation()
    made = PFedHier(**SMALL)
    server, states, _ = run_rounds(made, spec, data, rounds=4)
    mine = data["client 0"]
    at, y = mine.labels["regression"]
    other = replace(mine, labels={**mine.labels, "regression": (at, np.concatenate([y[:1] + 2.0, y[1:]]))})
    # The client has said `own` before, and the sums have it: take out what it said of one set of labels, put in the other.
    message = made.broadcast(server, "client 0")
    after, update = made.local(states["client 0"], message, mine, START)
    state_2, sent_2 = made.local(states["client 0"], message, other, START)
    assert torch.equal(after["outputs"], state_2["outputs"])
    assert not torch.allclose(update.arrays["evidence/shift"], sent_2.arrays["evidence/shift"])
    told, told_2 = (
        {n: v + sent.arrays[n] if n.startswith("evidence/") else v for n, v in message.items()}
        for sent in (update, sent_2)
    )
    again, again_2 = made.local(after, told, mine, START)[0], made.local(state_2, told_2, other, START)[0]
    torch.testing.assert_close(again["outputs"], again_2["outputs"], rtol=0, atol=1e-10)
    # With its own labels in, they would differ.
    scores = {"scores": after["scores"]}
    with_own, with_own_2 = (made.local(scores, known, one, START)[0] for known, one in ((told, mine), (told_2, other)))
    assert float((with_own["outputs"] - with_own_2["outputs"]).abs().max()) > 1e-3


def test_a_bent_function_keeps_the_outputs_of_the_linear_one(completed):
    made, _, data, server, states, _ = completed
    assert server["curve/weights"].shape == (2, 7)
    before = states["client 2"]["outputs"]
    after, _ = made.local(states["client 2"], made.broadcast(server, "client 2"), data["client 2"], START)
    assert torch.equal(before, after["outputs"])
    # They are not what all clients together said when it was bent, in which its own labels have a part.
    assert float((before - after["scores"] @ server["curve/weights"].mT).abs().max()) > 1e-3
    assert len(server["evidence/shift"]) == 2 * (6 + 1 + 2 * 9)
    # And they are what its curved features are made of: with others, it would say something else.
    moved = {**states["client 2"], "outputs": before + 1.0}
    shifts = [
        made.local(own, made.broadcast(server, "client 2"), data["client 2"], START)[1].arrays["evidence/shift"]
        for own in (states["client 2"], moved)
    ]
    assert float((shifts[0] - shifts[1]).abs().max()) > 1e-3


def test_a_federation_of_many_outputs_stays_linear_and_small():
    kinds = {"multiclass": tuple("abcdefghijkl")}
    task = pf.Task("multiclass", "multiclass", classes=kinds["multiclass"])
    codec = replace(codecs_of(("multiclass",))["multiclass"], task=task, classes=kinds["multiclass"])
    spec = FederationSpec((task,), 1000, ("a",), {"multiclass": codec})
    server = PFedHier().init(spec, START)
    assert int(server["wanted"]) * 12 <= WIDEST
    assert not WeightSpace(PFedHier())._bends(12)
    assert WeightSpace(PFedHier())._bends(4)


# ---- what the server lets in ------------------------------------------------------------------------------------------------


def corrupted(update, **arrays):
    return replace(
        update, arrays={**update.arrays, **{name.replace("__", "/"): value for name, value in arrays.items()}}
    )


def rejected(made, server, data, update):
    outcomes = {"client 0": ({}, update)}
    return validate_updates(made, server, outcomes, {"client 0": data["client 0"].counts()})[1].get("client 0", "")


def test_sums_that_no_rows_have_are_rejected():
    made, (spec, data) = PFedHier(**SMALL), federation()
    server = made.init(spec, START)
    _, update = made.local({}, made.broadcast(server, "client 0"), data["client 0"], START)
    Y, n = update.arrays["pass/products"], update.arrays["pass/count"]
    assert rejected(made, server, data, update) == ""
    turned = torch.from_numpy(np.random.default_rng(0).standard_normal(Y.shape))
    assert "not symmetric" in rejected(made, server, data, corrupted(update, pass__products=turned))
    assert "those of no rows" in rejected(made, server, data, corrupted(update, pass__products=-Y))
    assert "those of no rows" in rejected(
        made, server, data, corrupted(update, pass__inputs=100 * update.arrays["pass/inputs"])
    )
    assert "mean square above" in rejected(made, server, data, corrupted(update, pass__products=1e8 * Y))
    assert "rows" in rejected(made, server, data, corrupted(update, pass__count=-n))
    assert "rows" in rejected(made, server, data, corrupted(update, pass__count=n + 0.5))
    assert "rows and 28 labels" in rejected(made, server, data, corrupted(update, pass__count=n + 1e6))


def test_evidence_that_labels_cannot_give_is_rejected(completed):
    made, _, data, server, states, _ = completed
    _, update = made.local(states["client 0"], made.broadcast(server, "client 0"), data["client 0"], START)
    assert rejected(made, server, data, update) == ""
    nothing = {name: torch.zeros_like(value) for name, value in update.arrays.items()}
    width = len(nothing["evidence/shift"])
    much = Evidence.of(FARTHEST * 1e5 * torch.eye(width).double(), nothing["evidence/shift"])
    assert "a trace of" in rejected(made, server, data, corrupted(update, evidence__triangle=much.triangle))
    shift = 1e9 * torch.ones(width).double()
    assert "a shift of" in rejected(made, server, data, corrupted(update, evidence__shift=shift))
    taken = -2.0 * server["evidence/triangle"]
    assert "no longer be positive" in rejected(made, server, data, corrupted(update, evidence__triangle=taken))
    moments = update.arrays["moments"]
    assert "positive semi-definite" in rejected(made, server, data, corrupted(update, moments=-moments))
    assert "larger than its labels allow" in rejected(made, server, data, corrupted(update, moments=1e9 * moments))


def test_sums_of_outputs_are_looked_at():
    made, (spec, data) = PFedHier(**SMALL), federation()
    server, states, _ = run_rounds(made, spec, data, rounds=3)
    _, update = made.local(states["client 0"], made.broadcast(server, "client 0"), data["client 0"], START)
    assert rejected(made, server, data, update) == ""
    first, second, n = update.arrays["outputs"]
    wrong = torch.stack([100 * (1 + first.abs()), second, n])
    assert "sums of outputs" in rejected(made, server, data, corrupted(update, outputs=wrong))


# ---- clients and federations with little to say ---------------------------------------------------------------------------


def test_a_client_without_labels_and_one_that_joins_predict_as_the_others_do():
    spec, data = federation(6, n=30)
    made = PFedHier(**SMALL)
    server, _, _ = run_rounds(made, spec, {name: data[name] for name in list(data)[:5]}, rounds=9)
    new = client(np.random.default_rng(5), 200)
    silent = ClientData(new.x, {}, new.codecs)
    y = new.labels["regression"][1]
    for own, seen in (
        (None, new),
        (made.untrained(silent), silent),
        (made.join(server, silent, Stream(0, "join")), silent),
    ):
        found = made.predictor(server, own, seen)(new.x)["regression"]
        assert np.mean((found.mean - y) ** 2) < 0.4 * np.var(y)
        lower, upper = found.interval(0.95)
        assert 0.85 < np.mean((lower < y) & (y < upper)) <= 1.0


def test_personal_offsets_are_learned_where_clients_have_them():
    made = PFedHier(**SMALL)
    found = {}
    for std in (0.0, 2.0):
        spec, data = federation(10, ("regression",), n=12, std=std)
        server, _, _ = run_rounds(made, spec, data, rounds=30)
        found[std] = float(server["coregionalisation/personal"][1])
    assert found[0.0] < 0.1
    assert 1.0 < found[2.0] < 9.0  # the variance of the offsets is four


def test_one_client_alone_learns_its_own_function():
    spec, data = federation(1, n=40)
    made = PFedHier(**SMALL)
    server, states, _ = run_rounds(made, spec, data, rounds=8)
    (mine,) = data.values()
    found = made.predictor(server, states["client 0"], mine)(mine.x)["regression"].mean
    assert np.mean((found - mine.labels["regression"][1]) ** 2) < 0.2


def test_fewer_rows_than_components_and_clients_of_one_row():
    rng = np.random.default_rng(0)
    data = {"a": client(rng, 3), "b": client(rng, 2), "single": client(rng, 1)}
    spec = FederationSpec(tuple(c.task for c in codecs_of(MIXED).values()), WIDE, tuple(data), codecs_of(MIXED))
    made = PFedHier(n_components=64, passes=2, linear_rounds=2)
    server = made.init(spec, START)
    _, update = made.local({}, made.broadcast(server, "single"), data["single"], START)
    assert all(not bool(value.any()) for value in update.arrays.values())  # its sums would be its row
    server, states, _ = run_rounds(made, spec, data, rounds=6)
    assert server["components/directions"].shape == (WIDE, 4)  # five rows around their mean
    for name, mine in data.items():
        assert np.isfinite(values_of(made.predictor(server, states[name], mine)(mine.x)["binary"])).all()


@pytest.mark.parametrize("n_personal", [0, 1])
def test_a_client_without_a_single_row_changes_nothing_for_the_others_and_predicts(n_personal):
    spec, data = federation(3)
    empty = ClientData(np.zeros((0, WIDE)), {}, codecs_of(MIXED))
    made, known = PFedHier(**SMALL, n_personal=n_personal), {}
    for name, extra in (("without", {}), ("with", {"nobody": empty})):
        everyone = data | extra
        server, states, _ = run_rounds(made, replace(spec, clients=tuple(everyone)), everyone, rounds=10)
        known[name] = made.predictor(server, states["client 0"], data["client 0"])(data["client 1"].x)["regression"]
    np.testing.assert_allclose(known["with"].mean, known["without"].mean, atol=1e-9)
    found = made.predictor(server, states["nobody"], empty)(data["client 1"].x)
    assert np.isfinite(values_of(found["binary"])).all()


def test_inputs_that_the_components_do_not_see_have_a_larger_variance_and_the_same_mean(completed):
    made, _, data, server, states, _ = completed
    mine = data["client 0"]
    directions = server["components/directions"].numpy()
    away = np.random.default_rng(1).standard_normal(WIDE)
    away -= directions @ np.linalg.lstsq(directions, away, rcond=None)[0]
    predict = made.predictor(server, states["client 0"], mine)
    near, far = predict(mine.x)["regression"], predict(mine.x + 3.0 * away)["regression"]
    np.testing.assert_allclose(far.mean, near.mean, atol=1e-8)
    assert (far.latent_std > 1.5 * near.latent_std).all()


def test_constant_features_leave_a_constant_function():
    spec, data = federation(3)
    data = {name: replace(mine, x=np.full_like(mine.x, 0.3)) for name, mine in data.items()}
    made = PFedHier(**SMALL)
    server, states, _ = run_rounds(made, spec, data, rounds=8)
    assert server["components/directions"].shape == (WIDE, 0)
    mine = data["client 0"]
    found = made.predictor(server, states["client 0"], mine)(mine.x)["regression"].mean
    assert np.ptp(found) < 1e-9
    assert abs(found[0] - mine.labels["regression"][1].mean()) < 0.6


def test_other_features_than_those_agreed_on_are_an_error():
    made, (spec, data) = PFedHier(**SMALL), federation(2)
    other = replace(data["client 0"], x=data["client 0"].x[:, :140])
    server = made.init(spec, START)
    with pytest.raises(DataError, match="140 features, and the federation agreed on 150"):
        made.local({}, made.broadcast(server, "client 0"), other, START)
    server, _, _ = run_rounds(made, spec, data, rounds=3)
    with pytest.raises(DataError, match="140 features, and the shared functions have 150"):
        made.predictor(server, {}, other)(other.x)


@pytest.mark.parametrize("options", [{"kernel": "matern52"}, {"n_shared": 4}, {"n_points": 5}, {"learning_rate": 0.1}])
def test_options_that_mean_nothing_here_are_an_error(options):
    spec, _ = federation(2)
    with pytest.raises(ConfigError, match="principal components") as error:
        PFedHier(**options).init(spec, START)
    assert next(iter(options)) in str(error.value)
    PFedHier(**options, wide=WIDE)  # as remedied


@pytest.mark.parametrize("options", [{"wide": -1}, {"n_components": 0}, {"passes": 0}, {"linear_rounds": 1.5}])
def test_wrong_options(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        method("pfed-hier", **options)


def test_memory_that_does_not_hold_the_weights_is_told():
    spec, _ = federation(2)
    with pytest.raises(ConfigError, match="memory does not hold"):
        PFedHier(n_components=10_000_000).init(spec, START)


# ---- in a run ---------------------------------------------------------------------------------------------------------------


def make_runs_federation():
    rng = np.random.default_rng(3)
    clients = {}
    for i in range(4):
        mine = client(rng, 20)
        labels = {
            "regression": 50 + 10 * mine.labels["regression"][1],
            "binary": np.where(mine.labels["binary"][1] > 0, "yes", "no"),
        }
        clients[f"site {i}"] = {task: (mine.x, y) for task, y in labels.items()}
    tasks = [pf.Task("regression", "regression"), pf.Task("binary", "binary", classes=("no", "yes"))]
    return pf.Federation.from_clients(clients, tasks, split=pf.Split(test=0.3, validation=0.2))


def test_a_run_can_be_resumed_in_any_stage(tmp_path):
    federation = make_runs_federation()
    whole = pf.simulate("pfed-hier", federation, rounds=8, sample=3, **SMALL)
    for stop in (1, 4, 6):
        pf.simulate("pfed-hier", federation, rounds=stop, sample=3, folder=tmp_path / str(stop), **SMALL)
        again = pf.load(tmp_path / str(stop)).resume(8)
        assert whole.federation_state.server.keys() == again.federation_state.server.keys()
        assert all(torch.equal(v, again.federation_state.server[n]) for n, v in whole.federation_state.server.items())
    site = whole.prepared.clients["site 0"].train
    said = PFedHier(**SMALL).explain(whole.federation_state.server, site)
    assert said["task_correlation"]["names"] == ["regression", "binary"]
    assert said["task_correlation"]["matrix"][0][1] > 0.3  # both follow the same direction
    assert said["noise"].keys() == {"regression"}


def test_rounds_that_prepare_do_not_end_a_run():
    run = pf.simulate(
        "pfed-hier", make_runs_federation(), rounds=8, stop="validation", evaluate_every=1, patience=1, **SMALL
    )
    prepared = [
        e["round"] for e in run.events if e["event"] == "round" and PREPARING in next(iter(e["metrics"].values()))
    ]
    assert prepared == [1, 2]
    assert run.federation_state.round > 3
    events = [{"event": "round", "round": r, "used": True, "metrics": {"a": {PREPARING: 1.0}}} for r in (1, 2, 3)]
    assert best_round(events, {}, Settings(rounds=9, stop="validation", patience=1)) is None
