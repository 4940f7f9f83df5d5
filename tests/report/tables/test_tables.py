"""The table of methods and the table of clients, against numbers worked out by hand."""

from __future__ import annotations

import pytest
from run_folders import make_run

from polyfed.report.folders import read_run
from polyfed.report.tables.comparison import MOST_CLIENTS, client_table, comparison, grouped

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
    return {row.name: row.cells[task_metric] for row in table.rows}


def test_the_mean_is_over_clients_and_the_spread_over_seeds(tmp_path):
    # Means 1.5 and 2.5: 2 ± √((0.5² + 0.5²) / 1) = 0.7071
    runs = runs_of(tmp_path, {("mul", 0): (1.0, 2.0), ("mul", 1): (2.0, 3.0)})
    cell = cells(comparison(grouped(runs)))["mul"]
    assert (cell.mean, cell.std) == ("2.000", "0.707")


def test_the_spread_of_one_seed_is_over_clients(tmp_path):
    # 1 and 4: mean 2.5, deviation √((1.5² + 1.5²) / 1) = 2.1213
    cell = cells(comparison(grouped(runs_of(tmp_path, {("mul", 0): (1.0, 4.0)}))))["mul"]
    assert (cell.mean, cell.std, cell.best) == ("2.500", "2.121", False)


CLIENTS = "abcdefgh"


def line_of(tmp_path, method, values, metric="rmse", tasks=TASK, seed=0):
    """A run in which clients a, b, ... have these scores."""
    scores = dict(zip(CLIENTS, values, strict=True))

    def score(client, task, name, round):
        return scores[client] if name == metric else 7.0

    folder = tmp_path / f"{method}-{seed}"
    return read_run(make_run(folder, method=method, seed=seed, clients=CLIENTS, tasks=tasks, score=score))


def test_the_best_is_marked_where_it_is_best_in_pairs(tmp_path):
    usual = [1.0 + 0.1 * i for i in range(8)]
    # b is better at all eight clients (p = 2 / 2⁸, twice that for two tests); c has the same mean as b's and more luck.
    shifted, lucky = [v - 0.05 for v in usual], [v - 0.4 if i == 0 else v + 0.01 for i, v in enumerate(usual)]
    runs = [line_of(tmp_path, name, v) for name, v in (("a", usual), ("b", shifted))]
    marked = {name: cell.best for name, cell in cells(comparison(grouped(runs))).items()}
    assert marked == {"a": False, "b": True}
    runs = [line_of(tmp_path, name, v) for name, v in (("a", usual), ("c", lucky))]
    table = comparison(grouped(runs))
    assert not any(cell.best for cell in cells(table).values()), "the best mean comes from one client"
    assert float(cells(table)["c"].mean) < float(cells(table)["a"].mean)


@pytest.mark.parametrize(
    ("metric", "kind", "winner"),
    [("rmse", "regression", "low"), ("accuracy", "binary", "high"), ("coverage", "regression", "middle")],
)
def test_the_direction_of_the_metric_counts(tmp_path, metric, kind, winner):
    values = {"low": 0.5, "middle": 0.93, "high": 1.0}
    runs = [line_of(tmp_path, name, [v] * 8, metric, {"y": kind}) for name, v in values.items()]
    table = comparison(grouped(runs), every_metric=True)
    at = [column.metric for column in table.columns].index(metric)
    assert [name for name, cell in cells(table, at).items() if cell.best] == [winner]


def test_mean_ranks_and_wins_are_over_clients_tasks_and_seeds(tmp_path):
    # Client by client a, b: 1 < 2 and 3 < 4 with seed 0, 2 = 2 and 5 > 4 with seed 1: ranks of a are 1, 1, 1.5, 2.
    runs = runs_of(tmp_path, {("a", 0): (1.0, 3.0), ("b", 0): (2.0, 4.0), ("a", 1): (2.0, 5.0), ("b", 1): (2.0, 4.0)})
    found = comparison(grouped(runs)).ranking
    assert found is not None
    assert found.mean == {"a": 1.375, "b": 1.625}
    assert (found.n_blocks, found.wins["a"]["b"], found.wins["b"]["a"]) == (4, 0.625, 0.375)
    assert found.critical == pytest.approx(1.960 * (2 * 3 / 24) ** 0.5)
    assert [row.rank for row in comparison(grouped(runs)).rows] == ["1.38", "1.62"]


def test_the_guess_has_a_line_below_the_methods(tmp_path):
    def score(client, task, metric, round):
        return {"rmse": 2.0, "baseline": 3.0 if client == "a" else 4.0, "skill": 0.3}.get(metric, 1.0)

    run = read_run(make_run(tmp_path / "r", clients="ab", tasks=TASK, score=score, guess=True))
    table = comparison(grouped([run]), every_metric=True)
    assert [column.metric for column in table.columns].count("baseline") == 0
    by_metric = dict(zip([column.metric for column in table.columns], table.baseline, strict=True))
    assert by_metric["rmse"] == "3.500"
    assert by_metric["nlpd"] is None


def test_who_pools_all_rows_is_known(tmp_path):
    folder = make_run(tmp_path / "r", method="sklearn-hgb-pooled", described={"pools_data": True})
    assert [row.pools_data for row in comparison(grouped([read_run(folder)])).rows] == [True]


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
    assert [cell is None for cell in table.rows[1].cells] == [False, True]


def test_clients_are_shaded_by_rank(tmp_path):
    values = {"basel": 0.9, "bern": 0.8, "thun": 0.8}
    run = read_run(
        make_run(tmp_path / "a", tasks={"high": "binary"}, score=lambda client, task, metric, round: values[client])
    )
    table = client_table(run.history)
    assert table is not None
    assert [(client, cell.text, cell.shade) for client, (cell,) in table.rows if cell] == [
        ("basel", "0.900", 1.0), ("bern", "0.800", 0.0), ("thun", "0.800", 0.0),
    ]  # fmt: skip


def test_clients_have_their_labels_the_guess_and_the_skill(tmp_path):
    def score(client, task, metric, round):
        return {"rmse": 2.0, "baseline": 4.0, "skill": 0.75}.get(metric, 1.0)

    run = read_run(make_run(tmp_path / "a", tasks=TASK, score=score, guess=True))
    assert run.results is not None
    table = client_table(run.history, run.results["data"])
    assert table is not None
    assert [(column.name, column.says) for column in table.columns] == [
        ("rows", "to train on"),
        ("labels", "to train on"),
        ("labels", "measured on"),
        ("RMSE", "lower is better"),
        ("guess: mean", "RMSE"),
        ("skill", "0 is a guess, 1 perfect"),
    ]
    assert [cell.text for cell in dict(table.rows)["bern"] if cell] == ["30", "20", "40", "2.000", "4.000", "0.750"]


def test_a_score_that_is_missing_is_left_out(tmp_path):
    def score(client, task, metric, round):
        return None if client == "bern" else 0.5 if client == "basel" else 0.7

    run = read_run(make_run(tmp_path / "a", tasks=TASK, score=score))
    table = client_table(run.history)
    assert table is not None
    assert dict(table.rows)["bern"] == [None]
    assert run.history.curve("height", "rmse", part="test")[4] == pytest.approx(0.6)


def test_clients_are_in_the_order_in_which_people_count(tmp_path):
    clients = ["1", "10", "11", "2", "site 10", "site 9"]
    run = read_run(make_run(tmp_path / "a", clients=clients, tasks=TASK, found=None, score=lambda *_: 1.0))
    table = client_table(run.history)
    assert table is not None
    assert [client for client, _ in table.rows] == ["1", "2", "10", "11", "site 9", "site 10"]


def test_of_very_many_clients_the_worst_are_shown(tmp_path):
    clients = [str(i) for i in range(MOST_CLIENTS + 50)]
    run = read_run(
        make_run(tmp_path / "a", clients=clients, tasks=TASK, found=None, score=lambda client, *_: float(client))
    )
    table = client_table(run.history)
    assert table is not None
    assert table.n_clients == MOST_CLIENTS + 50
    assert [client for client, _ in table.rows] == clients[:49:-1]  # a large error is worse: from 249 down to 50
