"""The table of methods and the table of clients, against numbers worked out by hand."""

from __future__ import annotations

import pytest
from run_folders import make_run

from polyfed import metrics
from polyfed.report import directions
from polyfed.report.folders import read_run
from polyfed.report.tables import client_table, comparison, grouped
from polyfed.report.tables.clients import MOST_CLIENTS

TASK = {"height": "regression"}


def runs_of(tmp_path, values, metric="rmse", tasks=TASK):
    """{(method, seed): scores of clients a, b} as runs."""
    found = []
    for (method, seed), of_clients in values.items():
        scores = dict(zip("ab", of_clients, strict=True))

        def score(client, task, name, round, scores=scores):
            return scores[client] if name == metric else 7.0

        folder = tmp_path / f"{method}-{seed}"
        found.append(read_run(make_run(folder, method=method, seed=seed, clients="ab", tasks=tasks, score=score)))
    return found


def cells(table, task_metric=0):
    return {name: row[task_metric] for name, _, row in table.rows}


def test_the_mean_is_over_clients_and_the_spread_over_seeds(tmp_path):
    # Means 1.5 and 2.5: 2 ± √((0.5² + 0.5²) / 1) = 0.7071
    runs = runs_of(tmp_path, {("mul", 0): (1.0, 2.0), ("mul", 1): (2.0, 3.0)})
    cell = cells(comparison(grouped(runs)))["mul"]
    assert (cell.mean, cell.spread) == ("2.000", "0.707")


def test_the_spread_of_one_seed_is_over_clients(tmp_path):
    # 1 and 4: mean 2.5, deviation √((1.5² + 1.5²) / 1) = 2.1213
    cell = cells(comparison(grouped(runs_of(tmp_path, {("mul", 0): (1.0, 4.0)}))))["mul"]
    assert (cell.mean, cell.spread, cell.best) == ("2.500", "2.121", False)


def test_the_best_is_marked_and_ties_share_it(tmp_path):
    runs = runs_of(tmp_path, {("a", 0): (1.0, 3.0), ("b", 0): (2.0, 2.0), ("c", 0): (2.0, 2.1)})
    assert {name: cell.best for name, cell in cells(comparison(grouped(runs))).items()} == {
        "a": True,
        "b": True,
        "c": False,
    }


@pytest.mark.parametrize(
    ("metric", "kind", "winner"),
    [("rmse", "regression", "low"), ("accuracy", "binary", "high"), ("coverage", "regression", "middle")],
)
def test_the_direction_of_the_metric_counts(tmp_path, metric, kind, winner):
    tasks = {"y": kind}
    values = {("low", 0): (0.5, 0.5), ("middle", 0): (0.93, 0.93), ("high", 0): (1.0, 1.0)}
    table = comparison(grouped(runs_of(tmp_path, values, metric, tasks)), every_metric=True)
    at = [column.metric for column in table.columns].index(metric)
    assert [name for name, cell in cells(table, at).items() if cell.best] == [
        winner if metric != "coverage" else "middle"
    ]


def test_options_make_another_line_and_say_so(tmp_path):
    folders = [make_run(tmp_path / str(rate), options={"rate": rate, "kernel": "rbf"}) for rate in (0.1, 0.2)]
    groups = grouped([read_run(folder) for folder in folders])
    assert [group.name for group in groups] == ["pfed-mul (rate=0.1)", "pfed-mul (rate=0.2)"]


def test_a_seed_that_comes_twice_counts_once(tmp_path):
    runs = [read_run(make_run(tmp_path / name)) for name in ("a", "b")]
    assert [len(group.runs) for group in grouped(runs)] == [1]


def test_a_task_that_a_method_lacks_is_left_empty(tmp_path):
    both = read_run(make_run(tmp_path / "both", method="both"))
    one = read_run(make_run(tmp_path / "one", method="one", tasks=TASK))
    table = comparison(grouped([both, one]))
    assert [cell is None for cell in table.rows[1][2]] == [False, True]


def test_clients_are_shaded_by_rank(tmp_path):
    values = {"basel": 0.9, "bern": 0.8, "thun": 0.8}
    run = read_run(
        make_run(tmp_path / "a", tasks={"high": "binary"}, score=lambda client, task, metric, round: values[client])
    )
    table = client_table(run.history)
    assert table is not None
    assert table.rows == [("basel", [("0.900", 1.0)]), ("bern", [("0.800", 0.0)]), ("thun", [("0.800", 0.0)])]


def test_a_score_that_is_missing_is_left_out(tmp_path):
    def score(client, task, metric, round):
        return None if client == "bern" else 0.5 if client == "basel" else 0.7

    run = read_run(make_run(tmp_path / "a", tasks=TASK, score=score))
    table = client_table(run.history)
    assert table is not None
    assert dict(table.rows)["bern"] == [None]
    assert run.history.curve("height", "rmse", part="test")[4] == pytest.approx(0.6)


def test_of_very_many_clients_the_worst_are_shown(tmp_path):
    clients = [str(i) for i in range(MOST_CLIENTS + 50)]
    run = read_run(
        make_run(tmp_path / "a", clients=clients, tasks=TASK, found=None, score=lambda client, *_: float(client))
    )
    table = client_table(run.history)
    assert table is not None
    assert table.n_clients == MOST_CLIENTS + 50
    assert [client for client, _ in table.rows] == clients[:49:-1]  # a large error is worse: from 249 down to 50


def test_directions_are_those_of_the_metrics():
    assert {
        name: name not in directions.HIGHER_IS_BETTER for name in metrics.LOWER_IS_BETTER if name != "coverage"
    } == {name: lower for name, lower in metrics.LOWER_IS_BETTER.items() if name != "coverage"}
    assert {kind: directions.headline(kind) for kind in metrics.HEADLINE} == metrics.HEADLINE
    assert directions.LEVEL == metrics.LEVEL
