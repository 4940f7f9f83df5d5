"""Runs that end before their last round."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from federations import make_federation, people
from polyfed.engine import Settings
from polyfed.engine.stopping import best_round
from polyfed.errors import ConfigError, DataError

KINDS = {"height": "regression", "high": "binary"}


def evaluated(losses, every=5):
    """Events whose validation losses are these: that of one task falls, and the sum of both is what counts."""
    return [
        {
            "event": "evaluation",
            "round": every * i,
            "part": part,
            "model": "personal",
            "clients": {
                client: {"height": {"nlpd": sign * loss + shift}, "high": {"log_loss": 1.0}}
                for client, shift in (("basel", 0.5), ("bern", -0.5))
            },
        }
        for i, loss in enumerate(losses, 1)
        for part, sign in (("validation", 1.0), ("test", -1.0))  # the test rows say the opposite, and nobody listens
    ]


def bounds(values):
    return [
        {"event": "round", "round": i, "used": True, "metrics": {"basel": {"bound": v - 1}, "bern": {"bound": v + 1}}}
        for i, v in enumerate(values, 1)
    ]


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ([3.0, 2.0, 1.0], None),
        ([3.0, 2.0, 2.5], None),  # once is not enough
        ([3.0, 2.0, 2.5, 2.1], 10),
        ([3.0, 2.0, 2.5, 2.0], 10),  # as good is no better
        ([3.0, 2.0, 2.5, 1.9], None),
        ([1.0, 2.0], None),
        ([1.0, 2.0, 3.0], 5),
        ([], None),
    ],
)
def test_validation_rows_decide(losses, best):
    settings = Settings(rounds=100, stop="validation", patience=2)
    assert best_round(evaluated(losses), KINDS, settings) == best
    assert best_round(evaluated(losses), KINDS, Settings(rounds=100)) is None


def test_bounds_decide_where_there_are_no_validation_rows():
    """A tenth of a nat in two evaluations of two rounds each."""
    settings = Settings(rounds=100, evaluate_every=2, stop="validation", patience=2)
    assert best_round(bounds([-9, -8, -7, -6, -5, -4]), KINDS, settings) is None
    assert best_round(bounds([-9, -5, -5, -5, -4.99, -4.95]), KINDS, settings) is None  # the first two average to −7
    assert best_round(bounds([-9, -8, -5, -5, -5, -4.95, -4.95, -4.9]), KINDS, settings) == 4
    assert best_round(bounds([-9, -8, -5, -5, -5, -4.95, -4.95, -4.8]), KINDS, settings) is None


def rounds_of(run):
    return [event["round"] for event in run.events if event["event"] == "round"]


def test_a_run_ends_and_is_resumed_as_it_ended(tmp_path):
    """Steps so large that the models get worse: the same end in one go, and with a break in the middle."""
    options = {"evaluate_every": 1, "stop": "validation", "patience": 3, "learning_rate": 0.8}
    told = []
    run = pf.simulate("pfed-mul", make_federation(3), rounds=60, on_event=told.append, **options)
    assert run.stopped is not None
    assert rounds_of(run)[-1] == run.stopped + 3 < 60
    assert told[-1] == {"event": "stopped", "round": run.federation_state.round, "rounds": 60, "best": run.stopped}
    assert run.resume().federation_state.round == run.stopped + 3  # it has learned enough
    half = pf.simulate("pfed-mul", make_federation(3), rounds=2, folder=tmp_path / "run", **options)
    assert half.stopped is None
    again = pf.load(tmp_path / "run").resume(60)
    assert rounds_of(again) == rounds_of(run)
    losses = run.history.query("part == 'validation' and model == 'personal'")
    assert set(losses["round"]) == set(rounds_of(run))


def test_something_must_be_able_to_end_it():
    federation = pf.Federation.from_clients(
        {"basel": people(np.random.default_rng(0), 12)},
        {"height": "regression", "high": "binary", "visits": "count"},
        split=pf.Split(test=0.2),
    )
    with pytest.raises(DataError) as error:
        pf.simulate("fedavg", federation, rounds=2, stop="validation")
    assert "stop is 'validation', no client has validation rows and fedavg sends no bound" in str(error.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"stop": "early"}, "stop 'early' is unknown; known are 'none', 'validation'."),
        ({"stop": "validation", "evaluate_every": 0}, "stop is 'validation', and evaluate_every is 0"),
        ({"patience": 0}, "patience is 0; give a whole number from 1 up."),
    ],
)
def test_wrong_settings(options, text):
    with pytest.raises(ConfigError) as error:
        Settings(**options)
    assert text in str(error.value)
