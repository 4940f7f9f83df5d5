"""Clients side by side against each of them alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from federations import START
from method_toys import client_of, spec_of
from polyfed.data import ClientData, LabelCodec, Task
from polyfed.methods import Job, PFedGP, PFedMe, PFedVEM
from polyfed.methods.neural.cohorts import Cohort, cohorts
from polyfed.nets import Network
from polyfed.seeds import Stream

KINDS = {
    "number": LabelCodec(Task("number"), None, 0.0, 1.0),
    "heavy": LabelCodec(Task("heavy", "robust"), None, 0.0, 1.0),
    "two": LabelCodec(Task("two", "binary", classes=("no", "yes")), ("no", "yes"), 0.0, 1.0),
    "three": LabelCodec(Task("three", "multiclass", classes=("a", "b", "c")), ("a", "b", "c"), 0.0, 1.0),
    "events": LabelCodec(Task("events", "count"), None, 0.0, 2.0),
    "share": LabelCodec(Task("share", "proportion"), None, 0.0, 1.0),
}


def client(seed: int, n: int, without: tuple[str, ...] = ()) -> ClientData:
    """Labels of every kind, of each task another number."""
    rng = np.random.default_rng(seed)
    x, trials = rng.standard_normal((n, 3)), rng.integers(1, 9, n)
    labels = {
        "number": rng.standard_normal(n),
        "heavy": rng.standard_t(3, n),
        "two": rng.choice([-1.0, 1.0], n),
        "three": rng.integers(0, 3, n).astype(float),
        "events": rng.poisson(2.0, n).astype(float),
        "share": np.stack([rng.binomial(trials, 0.4), trials], 1).astype(float),
    }
    seen = {task: (np.arange(i, n), y[i:]) for i, (task, y) in enumerate(labels.items()) if task not in without}
    return ClientData(x, seen, KINDS)


@pytest.fixture
def members():
    return {"a": client(0, 11), "b": client(1, 17, without=("share", "two")), "c": client(2, 14)}


def jobs_of(method, data):
    spec = spec_of(data)
    server = method.init(spec, START)
    return [
        Job(name, method.start(mine, START), method.broadcast(server, name), mine, Stream(3, "local", 1, name))
        for name, mine in data.items()
    ]


def assert_equal_outcomes(together, alone):
    for (state, update), (state1, update1) in zip(together, alone, strict=True):
        assert state.keys() == state1.keys()
        for name, value in state1.items():
            torch.testing.assert_close(state[name], value, rtol=1e-11, atol=1e-13)
        for name, value in update1.wire().items():
            torch.testing.assert_close(update.wire()[name], value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("task_mode", ["shared", "separate"])
def test_gradients_of_a_cohort_are_those_of_its_members_for_every_kind(members, task_mode):
    method = PFedMe(task_mode=task_mode)
    data = list(members.values())
    net = method.net_of(data[0])
    states = [net.initial(seed) for seed in range(3)]
    positions = [{task: np.arange(0, len(at), 2) for task, (at, _) in mine.labels.items()} for mine in data]
    cohort, names = Cohort(net, data), method.trainable(net, states[0])
    losses, gradient = cohort.gradient(cohort.stack(states), cohort.batch(positions), names)
    for i, (mine, state) in enumerate(zip(data, states, strict=True)):
        loss, alone = method.gradient(net, state, mine, positions[i], names)
        assert float(losses[i]) == pytest.approx(loss, rel=1e-12, abs=1e-14)
        for name in names:  # what a client does not touch has no slope for it
            wanted = alone.get(name, torch.zeros_like(state[name]))
            torch.testing.assert_close(gradient[name][i], wanted, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    "method",
    [
        PFedMe(local_steps=4, batch_size=6, weight_decay=0.1),
        PFedVEM(local_epochs=3, batch_size=4, weight_decay=0.1, head_steps=3),
        PFedVEM(local_epochs=2, batch_size=4, task_mode="separate", head_steps=3),
        PFedVEM(
            local_epochs=2, batch_size=4, learning_rate=3.0, head_steps=3
        ),  # rates are halved, each client's its own times
        PFedGP(),
        PFedGP(batch_size=6, task_mode="separate", learn_kernel=True),
        PFedGP(objective="marginal", learn_kernel=True, clip=0.5),
        PFedGP(inference="gibbs", n_chains=4, n_sweeps=2),
        PFedGP(inference="gibbs", objective="marginal", n_chains=4, n_sweeps=2, batch_size=7),
        PFedGP(hidden=()),
    ],
)
def test_a_round_side_by_side_is_that_of_each_alone(method, members):
    jobs = jobs_of(method, members)
    assert max(map(len, cohorts(jobs, method.net_of(jobs[0].data), method.batch_size))) == 3
    assert_equal_outcomes(method.local_many(jobs), [method.local(j.state, j.message, j.data, j.stream) for j in jobs])


@pytest.mark.parametrize("method", [PFedMe(local_steps=2), PFedVEM(local_epochs=1), PFedGP(local_epochs=1)])
def test_a_client_that_breaks_leaves_the_others_as_they_are(method, members):
    jobs = jobs_of(method, members)
    broken = Job("b", {}, {}, jobs[1].data, jobs[1].stream)  # nothing came down to it
    outcomes = method.local_many([jobs[0], broken, jobs[2]])
    assert isinstance(outcomes[1], Exception)
    assert_equal_outcomes([outcomes[0], outcomes[2]], [method.local_many([jobs[i]])[0] for i in (0, 2)])


def test_rows_that_fill_up_have_finite_slopes_where_a_count_is_as_usual():
    """At a dispersion equal to the typical count, here 2, the shift of the logistic form is zero."""
    data = {"a": client(0, 11), "b": client(1, 14)}
    outcomes = PFedGP(local_epochs=1).local_many(jobs_of(PFedGP(), data))
    assert all(torch.isfinite(value).all() for _, update in outcomes for value in update.arrays.values())


def test_nobody_to_train_is_no_error():
    assert PFedMe().local_many([]) == []


def test_who_trains_side_by_side():
    sizes = {"small": 3, "like it": 4, "large": 90, "larger": 200}
    data = {name: client_of(np.ones(n), np.zeros(n)) for name, n in sizes.items()}
    method = PFedMe()
    jobs = jobs_of(method, data)
    net = method.net_of(jobs[0].data)
    assert sorted(cohorts(jobs, net, batch_size=1000)) == [[0, 1], [2], [3]]
    assert sorted(cohorts(jobs, net, batch_size=16)) == [[0, 1], [2, 3]]
    factory = Network({"y": 1}, 1, factory="torch.nn:Identity")
    assert cohorts(jobs, factory, batch_size=16) == [[0], [1], [2], [3]]
