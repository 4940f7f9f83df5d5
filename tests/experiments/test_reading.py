"""Settings: --set, what is read again, and what the engine makes of it."""

from __future__ import annotations

import tomllib

import pytest

from polyfed.experiments.config import Config, RunConfig
from polyfed.experiments.reading import check, set_value
from polyfed.experiments.toml_text import to_toml


@pytest.mark.parametrize(
    ("assignment", "document"),
    [
        ("run.rounds=3", {"run": {"rounds": 3}}),
        ("run.sample = 0.5", {"run": {"sample": 0.5}}),
        ("method.name=local", {"method": {"name": "local"}}),
        ("method.per_dimension=true", {"method": {"per_dimension": True}}),
        ('data.tasks.binary=["a", "b"]', {"data": {"tasks": {"binary": ["a", "b"]}}}),
        ("data.derive.old=age == 3", {"data": {"derive": {"old": "age == 3"}}}),
    ],
)
def test_set_takes_toml_and_plain_text(assignment, document):
    made = {}
    set_value(made, assignment)
    assert made == document


def test_the_settings_of_a_run_are_those_of_the_engine():
    from polyfed.engine import Settings

    assert RunConfig().model_dump(exclude={"folder"}) == Settings().to_dict()


def test_settings_that_are_read_again_are_the_same():
    document = {
        "data": {"source": "a.csv", "tasks": {"binary": "sick", "count": ["visits"]}, "derive": {"x": "y > 1"}},
        "method": {"name": "local", "learning_rate": {"kernels": 0.2}},
    }
    config = check(document, "study.toml")
    assert [(task.name, task.kind) for task in config.data.tasks] == [("sick", "binary"), ("visits", "count")]
    assert check(tomllib.loads(to_toml(config.model_dump())), "again") == config
    assert isinstance(config, Config)
