"""What is said of scores that are worth nothing."""

from __future__ import annotations

from run_folders import make_run

from polyfed.report.doubts import doubts
from polyfed.report.folders import read_run

CLIENTS = ("aarau", "basel", "bern", "thun")


def said(tmp_path, skills, values=(1.0, 1.0, 1.0, 1.0), tasks=None):
    of = {client: (skill, value) for client, skill, value in zip(CLIENTS, skills, values, strict=True)}

    def score(client, task, metric, round):
        return {"skill": of[client][0], "baseline": 1.0}.get(metric, of[client][1])

    tasks = tasks or {"pulse": "regression"}
    run = make_run(tmp_path / "a", clients=CLIENTS, tasks=tasks, score=score, guess=True, found=None)
    return doubts(read_run(run).history)


def test_good_scores_need_no_word(tmp_path):
    assert said(tmp_path, (0.5, 0.6, 0.1, 0.9)) == []


def test_a_task_that_is_not_better_than_guessing(tmp_path):
    (line,) = said(tmp_path, (-0.5, -0.1, 0.1, -0.3), tasks={"sick": "binary"})
    assert line.startswith(
        "sick: no better than guessing the frequencies of each client's classes (median skill -0.20 over 4 clients)"
    )


def test_clients_that_would_do_better_to_guess(tmp_path):
    assert said(tmp_path, (0.5, -0.12, 0.3, -0.3)) == [
        "pulse: worse than guessing each client's mean at 2 of 4 clients: thun (skill -0.30), basel (skill -0.12)"
    ]


def test_an_absurd_score_is_named(tmp_path):
    lines = said(tmp_path, (0.5, 0.6, 0.1, -40.0), values=(1.0, 2.0, 3.0, 110.6))
    assert lines[1] == (
        "pulse: the RMSE of thun is 110.6, 44 times the median of the clients, and decides the mean; "
        "look at its rows, or use kind robust"
    )


def test_a_count_is_not_advised_to_be_robust(tmp_path):
    lines = said(tmp_path, (0.5, 0.6, 0.1, -40.0), values=(1.0, 2.0, 3.0, 110.6), tasks={"visits": "count"})
    assert lines[1].endswith("and decides the mean; look at its rows")


def test_a_client_in_other_units_is_not_absurd(tmp_path):
    assert said(tmp_path, (0.5, 0.6, 0.1, 0.4), values=(1.0, 2.0, 3.0, 110.6)) == []


def test_a_score_that_is_not_finite_is_named(tmp_path):
    assert said(tmp_path, (0.5, 0.6, 0.1, 0.4), values=(1.0, 2.0, None, 1.0)) == [
        "pulse: the RMSE is not finite at bern; these are in no mean"
    ]
