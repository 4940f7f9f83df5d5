"""The aggregation pipeline: parts in their order, parts of users, what a part may not do; and the page that shows one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import polyfed as pf
from federations import START, federation
from polyfed.engine import pipeline
from polyfed.engine.pipeline import parts_of, prepared, register
from polyfed.engine.settings import Settings
from polyfed.errors import ConfigError
from polyfed.methods import ClientUpdate, FedAvg
from polyfed.seeds import Stream

METHOD = FedAvg(hidden=())
SERVER = METHOD.init(federation(3, kinds=("regression",))[0], START)


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(pipeline, "PARTS", dict(pipeline.PARTS))


def sent(*scales: float) -> dict[str, ClientUpdate]:
    form = METHOD.template(SERVER)
    ones = {name: torch.ones_like(value) for name, value in form.arrays.items()}
    return {
        f"client {i}": replace(form, arrays={n: scale * v for n, v in ones.items()}) for i, scale in enumerate(scales)
    }


def first(updates) -> list[float]:
    return [float(next(iter(update.arrays.values())).reshape(-1)[0]) for update in updates.values()]


def run(aggregation: str, updates, round: int = 1):
    return prepared(METHOD, SERVER, updates, aggregation, 0.2, Stream(0, "aggregation", round))


def test_parts_run_from_left_to_right():
    register("double", lambda updates, context: {c: _times(u, 2.0) for c, u in updates.items()})
    register("loudest", lambda updates, context: dict([max(updates.items(), key=lambda pair: first({"": pair[1]})[0])]))
    updates = sent(1.0, 2.0, 100.0)
    assert first(run("double", updates)) == [2.0, 4.0, 200.0]
    assert first(run("clip+double", updates)) == pytest.approx([2.0, 4.0, 8.0])  # 100 is cut to twice the median, 2
    assert first(run("double+clip", updates)) == pytest.approx([2.0, 4.0, 8.0])
    assert first(run("clip + loudest", updates)) == pytest.approx([4.0])
    assert first(updates) == [1.0, 2.0, 100.0]  # nothing is changed in place


def _times(update: ClientUpdate, factor: float) -> ClientUpdate:
    return replace(update, arrays={name: factor * value for name, value in update.arrays.items()})


@pytest.mark.parametrize(
    ("aggregation", "said"),
    [
        ("clipp", "aggregation 'clipp' is unknown; did you mean 'clip'?"),
        ("clip+", "aggregation '' is unknown"),
        ("clip+clip", "aggregation 'clip+clip' names a part twice"),
        ("os:system", "aggregation 'os:system' is unknown"),
        (None, "aggregation 'None' is unknown"),
    ],
)
def test_unknown_parts_are_an_error_before_the_run(aggregation, said):
    with pytest.raises(ConfigError) as error:
        Settings(aggregation=aggregation)
    assert said.replace("; ", ": ") in str(error.value).replace("; ", ": ")


@pytest.mark.parametrize(
    "result",
    [None, {}, {"nobody": None}, {"client 0": 3}, [1]],
    ids=["nothing", "no client", "unknown client", "a number", "a list"],
)
def test_a_part_that_returns_something_else_is_named(result):
    register("odd", lambda updates, context: result)
    with pytest.raises(ConfigError, match="aggregation 'odd' returned no updates of clients of this round"):
        run("odd", sent(1.0, 2.0))


@pytest.mark.parametrize("name", ["clip", "Loud", "a+b", "", "2nd"])
def test_a_name_that_is_taken_or_cannot_be_written_is_an_error(name):
    with pytest.raises(ConfigError, match="a part cannot be named"):
        register(name, lambda updates, context: updates)


def test_a_package_registers_a_part_by_its_entry_point(monkeypatch):
    class Entry:
        name, value = "theirs", "theirs:part"

        def load(self):
            return lambda updates, context: updates

    class Broken(Entry):
        name, value = "broken", "broken:part"

        def load(self):
            raise ImportError("no module")

    monkeypatch.setattr("polyfed.plugins.entry_points", lambda group: [Entry(), Broken()])
    with pytest.warns(UserWarning, match="aggregation 'broken' of 'broken:part' cannot be loaded: no module"):
        assert list(parts_of("theirs")) == ["theirs"]


def test_the_part_that_the_page_shows_runs_and_repeats_itself():
    page = Path(__file__).resolve().parents[2] / "docs" / "howto" / "aggregation.md"
    shown = re.search(r"```python\n(.*?)```", page.read_text(), re.S)
    assert shown is not None
    names: dict = {}
    exec(shown[1], names)
    updates = sent(1.0, 1.0)
    once, again, later = run("noise", updates), run("noise", updates), run("noise", updates, round=2)
    assert first(once) == first(again) != first(later)
    noise = torch.cat(
        [v.reshape(-1) - 1.0 for u in run("noise", sent(*[1.0] * 400)).values() for v in u.arrays.values()]
    )
    assert float(noise.std()) == pytest.approx(names["NOISE"], rel=0.1)
    assert isinstance(names["run"], pf.Run)
