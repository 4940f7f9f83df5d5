"""Tasks: what is accepted, what is rejected, and in which words."""

import json

import numpy as np
import pytest

from polyfed.data import Task, as_tasks
from polyfed.errors import ConfigError
from polyfed.kinds import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_needs_no_more_than_a_name(kind):
    task = Task("pulse", kind)
    assert (task.name, task.kind, task.classes, task.likelihood) == ("pulse", kind, None, None)
    assert (task.temperature, task.dof, task.power) == (1.0, 4.0, 1.0)


def test_regression_is_the_default_and_options_are_keywords():
    assert Task("pulse").kind == "regression"
    with pytest.raises(TypeError):
        Task("sick", "binary", ("no", "yes"))  # pyright: ignore[reportCallIssue]


def test_a_task_cannot_be_changed_and_can_be_a_key():
    task = Task("stage", "multiclass", classes=["a", "b"])
    with pytest.raises(AttributeError):
        task.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
    assert {task: 1}[Task("stage", "multiclass", classes=("a", "b"))] == 1


def test_numpy_scalars_become_python_ones():
    task = Task(np.str_("sick"), "binary", classes=np.array([0, 1]), power=np.float32(0.5))
    assert type(task.name) is str
    assert [type(label) for label in task.classes or ()] == [int, int]
    assert type(task.power) is float
    robust = Task("pulse", "robust", dof=np.int64(3))
    assert (robust.dof, type(robust.dof)) == (3.0, float)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: Task("pulse", "regresion"),
            "task 'pulse': kind 'regresion' is not known; did you mean 'regression'? known are "
            "'regression', 'robust', 'binary', 'multiclass', 'proportion', 'count'.",
        ),
        (lambda: Task(" "), "' ' is not a name for a task; give it a non-empty text such as 'heart_rate'."),
        (lambda: Task(3), "3 is not a name for a task; give it a non-empty text such as 'heart_rate'."),
        (
            lambda: Task("sick", "binary", classes=("no", "yes", "maybe")),
            "task 'sick': a binary task has two classes, not 3; give classes=(negative, positive).",
        ),
        (
            lambda: Task("stage", "multiclass", classes=("one",)),
            "task 'stage': 1 classes are too few to tell apart; list at least two.",
        ),
        (
            lambda: Task("sick", "binary", classes=(1, True)),
            "task 'sick': class True is listed twice; list each class once.",
        ),
        (
            lambda: Task("sick", "binary", classes="ab"),
            "task 'sick': classes='ab' is not a list of labels; give them as in classes=('no', 'yes').",
        ),
        (
            lambda: Task("sick", "binary", classes=(0.0, float("nan"))),
            "task 'sick': class nan cannot be a label; use text, finite numbers or booleans.",
        ),
        (
            lambda: Task("pulse", classes=("no", "yes")),
            "task 'pulse': classes=('no', 'yes') does not belong to a regression task; "
            "drop it, or use kind 'binary' or 'multiclass'.",
        ),
        (
            lambda: Task("pulse", dof=3),
            "task 'pulse': dof=3.0 does not belong to a regression task; drop it, or use kind 'robust'.",
        ),
        (
            lambda: Task("sick", "binary", likelihood="one-vs-each"),
            "task 'sick': likelihood='one-vs-each' does not belong to a binary task; "
            "drop it, or use kind 'multiclass'.",
        ),
        (
            lambda: Task("stage", "multiclass", likelihood="softmax"),
            "task 'stage': likelihood 'softmax' is not known; did you mean 'logistic-softmax'? "
            "known are 'one-vs-each', 'logistic-softmax'.",
        ),
        (
            lambda: Task("stage", "multiclass", temperature=2),
            "task 'stage': temperature=2.0 belongs to the logistic-softmax alone; "
            "drop it, or set likelihood='logistic-softmax'.",
        ),
        (
            lambda: Task("pulse", power=0),
            "task 'pulse': power=0 is not a positive number; give a finite number above 0.",
        ),
        (
            lambda: Task("sick", "binary", power="2/K"),
            "task 'sick': power='2/K' is not understood for a binary task; "
            "give a number above 0, or '2/K' for a multiclass task.",
        ),
    ],
)
def test_what_is_rejected_and_how(build, text):
    with pytest.raises(ConfigError) as caught:
        build()
    assert str(caught.value) == text


@pytest.mark.parametrize("dof", [0, -1, float("inf"), float("nan"), "4", True, None])
def test_degrees_of_freedom_are_a_positive_number(dof):
    with pytest.raises(ConfigError, match="is not a positive number"):
        Task("pulse", "robust", dof=dof)


def test_options_of_their_own_kind_are_accepted():
    assert Task("stage", "multiclass", likelihood="logistic-softmax", temperature=0.5).temperature == 0.5
    assert Task("stage", "multiclass", power="2/K").power == "2/K"
    assert Task("visits", "count", power=0.1).power == 0.1


@pytest.mark.parametrize(
    "task",
    [
        Task("pulse"),
        Task("pulse", "robust", dof=2.5, power=0.3),
        Task("sick", "binary", classes=(False, True)),
        Task("stage", "multiclass", classes=("a", 1, 2.5), likelihood="logistic-softmax", temperature=3.0, power="2/K"),
    ],
)
def test_tasks_survive_json(task):
    back = Task.from_dict(json.loads(json.dumps(task.to_dict())))
    assert back == task
    assert [type(c) for c in back.classes or ()] == [type(c) for c in task.classes or ()]


def test_from_dict_names_what_it_does_not_know():
    assert Task.from_dict({"name": "pulse"}) == Task("pulse")
    with pytest.raises(ConfigError, match="a task has no option 'clases'; did you mean 'classes'"):
        Task.from_dict({"name": "sick", "kind": "binary", "clases": [0, 1]})
    with pytest.raises(ConfigError, match="a task has no name"):
        Task.from_dict({"kind": "binary"})


def test_as_tasks_takes_what_is_handy():
    expected = (Task("pulse"), Task("sick", "binary"))
    assert as_tasks(expected) == expected
    assert as_tasks({"pulse": "regression", "sick": "binary"}) == expected
    assert as_tasks([("pulse", "regression"), ["sick", "binary"]]) == expected
    assert as_tasks(task for task in expected) == expected
    assert as_tasks(Task("pulse")) == (Task("pulse"),)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "there is no task; give at least one, for example Task('pulse', 'regression')."),
        ({}, "there is no task; give at least one, for example Task('pulse', 'regression')."),
        (["ab"], "'ab' is not a task; give a Task or a pair such as ('pulse', 'regression')."),
        ("pulse", "'pulse' is not a list of tasks; give for example [Task('pulse', 'regression')]."),
        (None, "None is not a list of tasks; give for example [Task('pulse', 'regression')]."),
        ([Task("a"), ("b", "count"), ("a", "binary")], "task 'a' is given twice; give each task a name of its own."),
    ],
)
def test_as_tasks_refuses_the_rest(given, text):
    with pytest.raises(ConfigError) as caught:
        as_tasks(given)
    assert str(caught.value) == text
