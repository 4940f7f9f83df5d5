"""Clients whose exact model memory does not hold become sparse and are named; long rounds are announced."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import polyfed as pf
from polyfed.engine import outlook
from polyfed.engine.outlook import Forecast
from polyfed.engine.rounds import common
from polyfed.engine.settings import Settings
from polyfed.gp import ClientBatch, SparseModel
from polyfed.methods import method as named
from polyfed.methods.base import Outlook
from polyfed.methods.gp import clients as gp_clients
from polyfed.methods.gp.clients import OneByOne, Parted, solver_of
from polyfed.methods.gp.model import prepared_rows
from polyfed.modelling import memory, sparsity
from problems import of_client

TASKS = {"height": "regression", "high": "binary"}


def federation(*sizes, seed=0):
    rng = np.random.default_rng(seed)

    def client(n):
        x = rng.uniform(-3, 3, (n, 1))
        f = np.sin(x[:, 0])
        return x, {"height": f + 0.1 * rng.standard_normal(n), "high": f > 0}

    return pf.Federation.from_clients({f"c{i}": client(n) for i, n in enumerate(sizes)}, TASKS)


def room_for(monkeypatch, n_rows):
    """Memory in which so many rows, and not one more, have an exact posterior."""
    limit = int(memory.exact_bytes(n_rows, 2) / memory.SHARE) + 1
    monkeypatch.setattr(memory, "memory", lambda: limit)


def test_memory_is_the_least_of_what_is_known(monkeypatch, tmp_path):
    memory.memory.cache_clear()
    monkeypatch.setattr(memory, "_machine", lambda: 8_000)
    monkeypatch.setattr(memory, "_address_space", lambda: None)
    (tmp_path / "none").write_text("max\n")
    (tmp_path / "some").write_text("5000\n")
    monkeypatch.setattr(memory, "_GROUPS", (tmp_path / "none", tmp_path / "nothing"))
    assert memory.memory() == 8_000
    memory.memory.cache_clear()
    monkeypatch.setattr(memory, "_GROUPS", (tmp_path / "none", tmp_path / "some"))
    assert memory.memory() == 5_000
    memory.memory.cache_clear()
    monkeypatch.setattr(memory, "_address_space", lambda: 3_000)
    assert memory.memory() == 3_000
    memory.memory.cache_clear()


def test_a_limit_of_the_shell_counts():
    resource = pytest.importorskip("resource")
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    assert memory._address_space() == (None if soft == resource.RLIM_INFINITY else soft)


def test_only_the_large_client_is_sparse_and_it_is_named(monkeypatch):
    room_for(monkeypatch, 100)
    made = []
    monkeypatch.setattr(sparsity, "SparseModel", lambda *a: made.append(len(a[1])) or SparseModel(*a))
    with pytest.warns(
        UserWarning, match=r"client 'c1' with up to 192 labels: the exact posterior does not fit"
    ) as told:
        run = pf.simulate("pfed-mul", federation(30, 120), rounds=2)
    assert len(told) == 1  # once, and not in every round
    assert "so inducing='auto' is used, with up to " in str(told[0].message)
    assert set(made) == {192}  # 96 training inputs, two labels each; the other client has 48 rows
    assert run.summary("all").loc["c1", ("high", "accuracy")] > 0.8


def test_who_goes_alone_changes_nothing_for_the_others(monkeypatch):
    study = federation(30, 120, 25).prepare(0)
    method = named("pfed-mul")
    datas = [parts.train for parts in study.clients.values()]
    model = method.model(datas[0])
    rows = [prepared_rows(data, model.likelihoods) for data in datas]
    prior = model.prior.expand(3)
    how = {"start": [None] * 3, "tolerance": 1e-9, "max_steps": 50, "groups": ("kernels", "mixing", "noise")}
    whole = solver_of(model, rows)
    assert isinstance(whole, ClientBatch)
    exact = whole.step(prior, **how)

    room_for(monkeypatch, 100)
    parted = solver_of(model, rows)
    assert isinstance(parted, Parted)
    mixed = parted.step(prior, **how)
    again = parted.step(prior, **{**how, "start": mixed})
    for i, same in ((0, 1e-9), (1, 1e-2), (2, 1e-9)):  # client 1 has inducing inputs now
        for step in (mixed, again):
            ours, theirs = of_client(step, i), of_client(exact, i)
            assert ours.bound == pytest.approx(theirs.bound, rel=same)
            assert set(ours.noise) == set(theirs.noise)
            for name, gradient in theirs.gradient.items():
                scale = float(gradient.abs().max()) + 1.0
                assert torch.allclose(ours.gradient[name], gradient, atol=same * scale), name
            assert torch.allclose(ours.marginals[0], theirs.marginals[0], atol=max(same, 0.1 * (i == 1)))

    monkeypatch.setattr(memory, "memory", lambda: int(memory.exact_bytes(10, 2)))
    assert isinstance(solver_of(model, rows), OneByOne)


def test_exact_clients_that_do_not_fit_together_go_in_turn(monkeypatch):
    study = federation(*[30] * 40).prepare(0)
    model = named("pfed-mul").model(study.clients["c0"].train)
    rows = [prepared_rows(parts.train, model.likelihoods) for parts in study.clients.values()]
    prior = model.prior.expand(40)
    how = {"start": [None] * 40, "tolerance": 1e-9, "max_steps": 50, "groups": ("kernels", "mixing", "noise")}
    whole = solver_of(model, rows)
    assert isinstance(whole, ClientBatch)
    room_for(monkeypatch, 50)  # one client has 48 rows; what is kept of sixteen is as much as an exact posterior takes
    parted = solver_of(model, rows)
    assert isinstance(parted, Parted)
    assert len(parted.parts) == 3
    assert all(isinstance(make(), ClientBatch) for _, make in parted.parts)
    one, other = whole.step(prior, **how), parted.step(prior, **how)
    torch.testing.assert_close(one.bound, other.bound)
    for name, gradient in one.gradient.items():
        torch.testing.assert_close(gradient, other.gradient[name])
    for i in (0, 17, 39):
        torch.testing.assert_close(one.marginals_of(i), other.marginals_of(i))
    room_for(monkeypatch, 400)
    assert isinstance(solver_of(model, rows), ClientBatch)


def test_shared_functions_go_in_turn_too_and_a_client_that_is_too_large_gets_inducing_inputs(monkeypatch):
    """pfed-hier, whose clients tell what their labels say of functions that all share."""
    exact = pf.simulate("pfed-hier", federation(30, 28, 26), rounds=2, n_points=8)
    limit = (
        memory.exact_bytes(48, exact.method.model(exact.prepared.clients["c0"].train).prior.n_latents) / memory.SHARE
    )
    monkeypatch.setattr(gp_clients, "holds", lambda n: n <= 2 * 8 * 48**2)  # what is kept of two clients
    monkeypatch.setattr(memory, "memory", lambda: int(limit) + 1)
    in_turn = pf.simulate("pfed-hier", federation(30, 28, 26), rounds=2, n_points=8)
    for one, other in zip(exact.rounds["bound"], in_turn.rounds["bound"], strict=True):
        assert one == pytest.approx(other, rel=1e-8)
    monkeypatch.undo()
    monkeypatch.setattr(memory, "memory", lambda: int(limit) + 1)
    with pytest.warns(UserWarning, match="client 'c1'"):
        run = pf.simulate("pfed-hier", federation(30, 60), rounds=2, n_points=8)
    assert [event["rejected"] for event in run.events if event["event"] == "round"] == [{}, {}]
    monkeypatch.undo()
    whole = pf.simulate("pfed-hier", federation(30, 60), rounds=2, n_points=8)
    for name in ("c0", "c1"):
        x = np.linspace(-2, 2, 7)[:, None]
        near, exact = (one.client(name).predict(x)["height"].mean for one in (run, whole))
        np.testing.assert_allclose(near, exact, atol=0.05)


def test_pfed_st_pooled_and_those_who_join_say_it_too(monkeypatch):
    room_for(monkeypatch, 100)
    with pytest.warns(UserWarning, match=r"client 'all clients together' with up to 144 labels"):
        run = pf.simulate("pooled", federation(40, 50), rounds=1)
    room_for(monkeypatch, 70)
    with pytest.warns(UserWarning, match=r"client 'c1' with up to 160 labels"):
        pf.simulate("pfed-st", federation(20, 100), rounds=1)
    room_for(monkeypatch, 120)
    run = pf.simulate("pfed-mul", federation(20, 30), rounds=1)
    x = np.linspace(-3, 3, 200)[:, None]
    with pytest.warns(UserWarning, match=r"client 'new' with up to 200 labels"):
        run.join("new", (x, {"height": np.sin(x[:, 0])}))


def test_a_single_gaussian_process_says_it(monkeypatch):
    monkeypatch.setattr(memory, "memory", lambda: int(memory.exact_bytes(50, 1) / memory.SHARE) + 1)
    x = np.linspace(0, 6, 60)[:, None]
    with pytest.warns(UserWarning, match=r"60 rows: the exact posterior does not fit into memory"):
        gp = pf.MultiTaskGP({"height": "regression"}, n_latents=1).fit({"height": (x, np.sin(x[:, 0]))}, learn=False)
    assert gp.n_inducing is not None


def test_auto_looks_at_a_part_of_many_labels(monkeypatch):
    """As many inducing inputs as all labels ask for, from a tenth of the labels."""
    x = np.linspace(0, 20, 600)[:, None]
    data = {"height": (x, np.sin(3 * x[:, 0])), "high": (x, np.sin(3 * x[:, 0]) > 0)}
    whole = pf.MultiTaskGP(TASKS, inducing="auto", kernel="laplace").fit(data, learn=False)
    seen = []
    monkeypatch.setattr(sparsity, "SparseModel", lambda *a: seen.append(len(a[1])) or SparseModel(*a))
    monkeypatch.setattr(sparsity, "LOOKED_AT", 120)
    part = pf.MultiTaskGP(TASKS, inducing="auto", kernel="laplace").fit(data, learn=False)
    assert seen[0] == 120  # 60 of each task
    assert seen[-1] == 1200  # the model itself has all
    assert part.n_inducing == whole.n_inducing


def test_long_rounds_are_announced_and_learned_from():
    settings = Settings(rounds=3, evaluate_every=2)
    assert Forecast(Outlook(), models=1).event(1, settings) is None
    ahead = Forecast(Outlook(1e18, 1e17), models=2, shorter="run.sample=0.5")
    first, second = ahead.event(1, settings), ahead.event(2, settings)
    assert first["run_seconds"] == pytest.approx(3.4 * first["seconds"])  # three rounds, and twice two models
    assert first["shorter"] == "run.sample=0.5"
    assert "run_seconds" not in second
    assert first["event"] == "outlook"
    assert (first["round"], first["rounds"], first["evaluation_seconds"]) == (1, 3, 0.0)
    assert second["evaluation_seconds"] == pytest.approx(0.2 * first["seconds"])
    ahead.learn(40.0, None)
    assert ahead.event(1, settings)["seconds"] == 40.0
    assert ahead.event(2, settings)["evaluation_seconds"] == pytest.approx(8.0)  # what was counted was off as much
    ahead.learn(10.0, 5.0)
    assert ahead.event(2, settings) is None
    ahead.learn(20.0, 15.0)
    assert ahead.event(1, settings) is None
    assert ahead.event(2, settings)["evaluation_seconds"] == 15.0


def test_whoever_listens_is_told_before_the_round(monkeypatch):
    monkeypatch.setattr(outlook, "speed", lambda: 1e3)
    heard = []
    run = pf.simulate("pfed-mul", federation(700), rounds=2, evaluate_every=0, on_event=heard.append)
    assert [event["event"] for event in heard[:2]] == ["outlook", "round"]
    assert heard[0]["seconds"] > 1e6  # at a thousand operations a second
    assert heard[2]["event"] == "round"  # the first took no time
    assert all(event["event"] != "outlook" for event in run.events)


def test_a_larger_client_costs_more():
    for options in ({}, {"inducing": 64, "kernel": "laplace"}):
        method = named("pfed-mul", **options)
        costs = []
        for n in (700, 1400):
            study = federation(n).prepare(0)
            server = method.init(study.spec, common(0))
            costs.append(method.outlook(server, None, study.clients["c0"].train))
        ratio = costs[1].operations / costs[0].operations
        # What goes by the cube and what goes by the square; or what goes by the number of inputs.
        assert ratio == pytest.approx(2.0, rel=0.05) if options else 4.0 < ratio < 8.0
        assert costs[0].inducing is None  # nobody need be told of what was asked for


def test_many_short_rounds_are_announced_once():
    settings = Settings(rounds=20, evaluate_every=0)
    ahead = Forecast(Outlook(), models=1)
    ahead.learn(4.0, 1.0)
    assert ahead.event(2, settings)["run_seconds"] == pytest.approx(19 * 4.0 + 1.0)
    assert ahead.event(3, settings) is None


def test_what_makes_rounds_shorter_follows_from_what_takes_long():
    mul = named("pfed-mul")
    large, small = Outlook(1e10, exact=1e10), Outlook(1e8)
    assert outlook._shorter(mul, [large] * 3) == "method.inducing=auto"
    assert outlook._shorter(mul, [small] * 2000) == "run.sample=200"
    assert outlook._shorter(mul, [Outlook(1e10, inducing=64)]) == "method.inducing=32"
    assert outlook._shorter(named("fedavg"), [Outlook()] * 3) == "run.sample=0.5"


def test_a_client_that_would_take_long_gets_inducing_inputs_where_memory_is_no_matter(monkeypatch):
    monkeypatch.setattr(memory, "MOST_ROWS", 100)
    with pytest.warns(
        UserWarning, match=r"client 'c1' with up to 192 labels: the exact posterior of more than 4,096 rows"
    ):
        run = pf.simulate("pfed-mul", federation(30, 120), rounds=1)
    assert run.federation_state.round == 1
    pf.simulate("pfed-mul", federation(30, 120), rounds=1, inducing="exact")  # and no warning
    room_for(monkeypatch, 100)
    with pytest.raises(pf.ConfigError, match=r"inducing is 'exact', and memory \(.* does not hold .* of 192 rows"):
        named("pfed-mul", inducing="exact").model(run.prepared.clients["c1"].train).config.sparsity.points_for(192, 2)


def test_auto_takes_fewer_inducing_inputs_of_more_rows():
    sizes = [sparsity.most_for(n) for n in (100, 2048, 4096, 14_000, 10**6)]
    assert sizes == [1024, 512, 256, 64, 64]
