"""What used to be wrong in silence: names, unseen categories, rows that were trained on, formulas, exit codes, plug-ins."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import polyfed as pf
from polyfed.cli.predict import as_csv
from polyfed.data import ClientData, LabelCodec, Task
from polyfed.experiments.familiar import trained_on
from polyfed.methods import PFedMul

RUN = ["run", "--data", "t.csv", "--client", "ward", "--rounds", "1", "--no-report", "--out", "r"]


def people(wards=("a", "b"), n=12, sexes=("f", "m"), classes=("no", "yes")):
    """Rows of age, sex and ward; the old are of the second class."""
    rng = np.random.default_rng(0)
    lines = ["ward,age,sex,sick"]
    for i in range(n * len(wards)):
        age = round(float(rng.uniform(20, 80)), 3)
        lines.append(f"{wards[i % len(wards)]},{age},{sexes[i // len(wards) % len(sexes)]},{classes[int(age > 50)]}")
    return "\n".join(lines) + "\n"


# ---- names -------------------------------------------------------------------------------------------------------


def test_clients_called_mean_and_spread_are_clients(polyfed, home):
    (home / "t.csv").write_text(people(("mean", "spread", "bern")))
    done = polyfed(*RUN, "--binary", "sick")
    assert done.code == 0, done.err
    names = re.findall(r"^│ (\w+) ", done.out, re.M)
    assert names == ["bern", "mean", "spread", "mean", "spread", "median"]
    below = done.out[: done.out.index("└")].rindex("├")
    assert re.findall(r"^│ (\w+) ", done.out[below:], re.M) == [
        "mean",
        "spread",
        "median",
    ]  # what sums up stands below a line
    run = pf.load("r")
    assert list(run.summary().index) == ["bern", "mean", "spread"]
    assert run.averages().loc["clients", ("sick", "accuracy")] == 3
    assert run.averages().loc["mean", ("sick", "accuracy")] == pytest.approx(run.summary()["sick"]["accuracy"].mean())


def test_the_json_of_a_run_counts_them(polyfed, home):
    (home / "t.csv").write_text(people(("mean", "spread", "bern")))
    document = json.loads(polyfed(*RUN, "--binary", "sick", "--json").out)
    assert document["scores"]["sick"]["accuracy"]["clients"] == 3
    assert document["clients"] == ["bern", "mean", "spread"]


def test_a_class_called_na_is_a_class_from_the_run_to_the_prediction(polyfed, home):
    (home / "t.csv").write_text(people(classes=("None", "NA")))
    done = polyfed(*RUN, "--binary", "sick")
    assert done.code == 0
    assert "warning: t.csv: task 'sick': 'NA' is taken for a class" in done.err
    assert "missing=['', 'NA'] (--missing)" in done.err
    found = json.loads(polyfed("predict", "r", "t.csv", "--client", "a", "--json").out)
    assert found["columns"][:3] == ["sick.label", "sick.p(NA)", "sick.p(None)"]
    assert set(found["predictions"]["sick.label"]) == {"NA", "None"}
    assert set(found["scores"]) | set(found["training_scores"]) == {"sick"}


def test_markers_go_with_the_run(polyfed, home):
    (home / "t.csv").write_text(people(n=20).replace("yes\n", "?\n", 1))
    assert polyfed(*RUN, "--binary", "sick", "--missing", ",?").code == 0
    assert 'missing = ["", "?"]' in (home / "r" / "config.toml").read_text()
    (home / "new.csv").write_text("age,sex,sick\n30,f,?\n70,m,yes\n")
    found = json.loads(polyfed("predict", "r", "new.csv", "--client", "a", "--json").out)
    assert found["scores"]["sick"]["accuracy"] in (0.0, 1.0)  # of the one label that is one
    assert json.loads(polyfed("join", "r", "new.csv", "--name", "c", "--json").out)["labels"] == {"sick": 1}


def test_no_marker_at_all_is_a_setting_too(polyfed, home):
    (home / "t.csv").write_text(people(classes=("no", "")))
    assert polyfed(*RUN, "--binary", "sick", "--set", "data.missing=[]").code == 0
    assert "missing = []" in (home / "r" / "config.toml").read_text()
    found = json.loads(polyfed("predict", "r", "t.csv", "--client", "a", "--json").out)
    assert found["columns"][:3] == ["sick.label", "sick.p()", "sick.p(no)"]


def test_a_parquet_column_of_lists_is_refused(polyfed, home):
    pd.DataFrame({"ward": [["a"], ["b"]], "age": [1, 2], "pulse": [1, 2]}).to_parquet(home / "t.parquet")
    done = polyfed("run", "--data", "t.parquet", "--client", "ward", "--regression", "pulse")
    assert done.code == 4
    assert done.err == (
        "error: row 0 of t.parquet: column 'ward' holds a ndarray, which is no name of a client; "
        "give each row the name of one client.\n"
    )


def test_a_compressed_table_runs(polyfed, home):
    pd.read_csv(io.StringIO(people())).to_csv(home / "t.csv.gz", index=False)
    assert polyfed("run", "--data", "t.csv.gz", "--client", "ward", "--binary", "sick", "--rounds", "1", "-q").code == 0
    assert (home / "runs" / "t-pfed-hier-0" / "run.json").is_file()


# ---- unseen categories -------------------------------------------------------------------------------------------


def test_unseen_categories_are_counted_and_said(polyfed, home):
    (home / "t.csv").write_text(people())
    assert polyfed(*RUN, "--binary", "sick").code == 0
    (home / "new.csv").write_text("age,sex\n30,f\n40,x\n50,y\n60,x\n70,\n")
    done = polyfed("predict", "r", "new.csv", "--client", "a")
    assert "column 'sex': 3 rows hold a category that training did not know ('x', 'y')\n" in done.err
    found = json.loads(polyfed("predict", "r", "new.csv", "--client", "a", "--json").out)
    assert found["unseen"] == {"sex": {"rows": 3, "categories": ["x", "y"]}}
    done = polyfed("join", "r", "new.csv", "--name", "c", "--json")
    assert json.loads(done.out)["unseen"] == {"sex": {"rows": 3, "categories": ["x", "y"]}}
    assert (
        done.err == "warning: client 'c': column 'sex': 3 rows hold a category that training did not know ('x', 'y')\n"
    )
    (home / "new.csv").write_text("age,sex\n30,f\n")
    assert json.loads(polyfed("predict", "r", "new.csv", "--client", "a", "--json").out)["unseen"] == {}


def test_unseen_categories_are_said_in_python(polyfed, home):
    (home / "t.csv").write_text(people())
    assert polyfed(*RUN, "--binary", "sick").code == 0
    model = pf.load("r").client("a")
    with pytest.warns(UserWarning, match="client 'a', new rows: column 'sex': 1 row holds a category"):
        model.predict({"age": [30.0], "sex": ["x"]})


# ---- rows that were trained on -----------------------------------------------------------------------------------


def test_rows_of_a_client_that_joined_are_no_new_rows(polyfed, home):
    (home / "t.csv").write_text(people())
    assert polyfed(*RUN, "--binary", "sick").code == 0
    (home / "c.csv").write_text("age,sex,sick\n30,f,yes\n60,m,no\n65,f,no\n")
    assert polyfed("join", "r", "c.csv", "--name", "c").code == 0
    done = polyfed("predict", "r", "c.csv", "--client", "c", "--json")
    found = json.loads(done.out)
    assert (found["trained_on"], found["scores"]) == (3, {})
    assert set(found["training_scores"]) == {"sick"}
    (home / "c.csv").write_text("age,sex,sick\n30,f,yes\n60,m,no\n65,f,no\n62,m,yes\n")
    done = polyfed("predict", "r", "c.csv", "--client", "c")
    lines = done.err.splitlines()
    assert lines[0] == "3 of 4 rows were trained on, and are no measure of what is new"
    assert lines[1].startswith("sick: accuracy ")
    assert lines[2].startswith("sick, rows that were trained on: accuracy ")
    found = json.loads(polyfed("predict", "r", "c.csv", "--client", "c", "--json").out)
    labels = found["predictions"]["sick.label"]
    assert found["scores"]["sick"]["accuracy"] == float(labels[3] == "yes")
    right = np.mean([said == true for said, true in zip(labels[:3], ["yes", "no", "no"], strict=True)])
    assert found["training_scores"]["sick"]["accuracy"] == pytest.approx(right)


def test_the_table_of_the_run_itself_has_test_rows_that_are_new(polyfed, home):
    (home / "t.csv").write_text(people(n=15))
    assert polyfed(*RUN, "--binary", "sick").code == 0
    frame = pd.read_csv("t.csv")
    frame[frame["ward"] == "a"].to_csv("a.csv", index=False)
    found = json.loads(polyfed("predict", "r", "a.csv", "--client", "a", "--json").out)
    study = pf.load("r").study
    assert found["trained_on"] == len(study.clients["a"].train.x) == 12
    known = pf.load("r").summary("all").loc["a"]["sick"]
    assert found["scores"]["sick"]["accuracy"] == pytest.approx(known["accuracy"])
    assert found["scores"]["sick"]["nll"] == pytest.approx(known["nll"])
    frame[frame["ward"] == "b"].to_csv("b.csv", index=False)
    assert json.loads(polyfed("predict", "r", "b.csv", "--client", "a", "--json").out)["trained_on"] == 0


def test_a_model_of_all_data_was_trained_on_everyones_rows(polyfed, home):
    (home / "t.csv").write_text(people(n=15))
    assert polyfed(*RUN, "--binary", "sick", "--method", "pooled").code == 0
    frame = pd.read_csv("t.csv")
    frame[frame["ward"] == "b"].to_csv("b.csv", index=False)
    assert json.loads(polyfed("predict", "r", "b.csv", "--client", "a", "--json").out)["trained_on"] == 12


def coded(x, **seen):
    codec = LabelCodec(Task("pulse"), None, 0.0, 1.0)
    pairs = {task: (np.array(list(labels)), np.array(list(labels.values()))) for task, labels in seen.items()}
    return ClientData(np.array(x, dtype=float), pairs, dict.fromkeys(seen, codec))


def test_each_training_row_answers_for_one_row():
    known = coded([[1], [1], [2], [0.0], [3]], pulse={0: 5.0, 1: 6.0, 2: 7.0, 3: 8.0}, rate={2: [1.0, 3.0]})
    asked = coded(
        [[1], [1], [1], [2], [2], [-0.0], [3]],
        pulse={0: 5.0, 1: 5.0, 2: 6.0, 3: 7.0, 6: 1.0},
        rate={3: [1.0, 3.0], 4: [2.0, 3.0]},
    )
    # The second has a label that is taken; the fifth another label; the sixth has none, and is known by its features; of the
    # last a training row had the features and no label, so that nothing was learned from it.
    assert trained_on(asked, [known]).tolist() == [True, False, True, True, False, True, False]
    assert not trained_on(asked, []).any()


# ---- what a spreadsheet would run --------------------------------------------------------------------------------


def test_a_class_that_is_a_formula_is_a_text_in_the_table(polyfed, home):
    (home / "t.csv").write_text(people(classes=("=cmd|'/c calc'!A1", "@x")))
    assert polyfed(*RUN, "--binary", "sick").code == 0
    (home / "new.csv").write_text("age,sex\n20,f\n80,m\n")
    table = pd.read_csv(io.StringIO(polyfed("predict", "r", "new.csv", "--client", "a").out))
    assert set(table["sick.label"]) <= {"'=cmd|'/c calc'!A1", "'@x"}
    assert polyfed("predict", "r", "new.csv", "--client", "a", "--out", "p.csv").code == 0
    assert set(pd.read_csv("p.csv")["sick.label"]) <= {"'=cmd|'/c calc'!A1", "'@x"}
    found = json.loads(polyfed("predict", "r", "new.csv", "--client", "a", "--json").out)
    assert set(found["predictions"]["sick.label"]) <= {"=cmd|'/c calc'!A1", "@x"}  # JSON is no spreadsheet


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_every_beginning_of_a_formula(begin):
    table = pd.DataFrame({f"{begin}task.label": [f"{begin}SUM(A1)", "fine"], "mean": [-1.5, 2.0]})
    back = pd.read_csv(io.StringIO(as_csv(table)))
    assert list(back) == [f"'{begin}task.label", "mean"]
    assert back.iloc[:, 0].tolist() == [f"'{begin}SUM(A1)", "fine"]
    assert back["mean"].tolist() == [-1.5, 2.0]  # numbers stay numbers
    inside = as_csv(pd.DataFrame({"label": [f"x{begin}=SUM(A1)"]}))
    assert pd.read_csv(io.StringIO(inside)).to_numpy().tolist() == [[f"x{begin}=SUM(A1)"]]  # one cell
    assert list(table) == [f"{begin}task.label", "mean"]  # what was given is left alone


def test_texts_that_are_numbers_stay_as_they_are():
    table = pd.DataFrame({"label": ["-1", "+1.5", "-x"], "other": pd.Series([-1, True, "-"], dtype=object)})
    assert as_csv(table) == "label,other\n-1,-1\n+1.5,True\n'-x,'-\n"


# ---- the command itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "code", "said"), [(3, 3, ""), (None, 0, ""), (0, 0, ""), ("No.", 1, "error: No.\n")])
def test_whoever_leaves_leaves_with_its_own_code(monkeypatch, polyfed, given, code, said):
    from polyfed.cli import app

    class Leaves:
        def main(self, *_, **__):
            raise SystemExit(given)

    monkeypatch.setattr(app, "command", Leaves)
    done = polyfed("methods")
    assert (done.code, done.err) == (code, said)


def test_a_reader_that_has_seen_enough_is_no_failure(monkeypatch):
    from polyfed.cli import app

    class Leaves:
        def main(self, *_, **__):
            try:
                raise BrokenPipeError(32, "Broken pipe")
            except OSError:
                raise SystemExit(1)  # noqa: B904 (as click does)

    monkeypatch.setattr(app, "command", Leaves)
    module = sys.modules["polyfed.cli.main"]
    monkeypatch.setattr(module, "_unread", lambda: 0)
    assert module.main(["methods"]) == 0


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ...")]
)
def test_no_memory_left_is_a_sentence(monkeypatch, polyfed, error):
    from polyfed.cli import app

    class Leaves:
        def main(self, *_, **__):
            raise error

    monkeypatch.setattr(app, "command", Leaves)
    done = polyfed("methods")
    said = "memory does not hold what this takes; use fewer rows, or inducing='auto' where the method has it."
    assert (done.code, done.err) == (5, f"error: {said}\n")


@dataclass(frozen=True)
class Ours(PFedMul):
    """Ours.

    Args:
        depth: how deep it goes.
    """

    name: ClassVar[str] = "ours"
    summary: ClassVar[str] = "a method of another package"
    depth: int = 3


class Entry:
    name, value = "ours", "ours:Ours"

    def load(self):
        return Ours


class Broken(Entry):
    name = "broken"

    def load(self):
        raise ImportError("it is not there")


def test_methods_of_other_packages_are_listed(monkeypatch, polyfed):

    monkeypatch.setattr(
        "polyfed.plugins.entry_points", lambda group: [Entry(), Broken()] if group == "polyfed.methods" else []
    )
    done = polyfed("methods", "--json")
    listed = {entry["name"]: entry for entry in json.loads(done.out)["methods"]}
    assert listed["ours"]["summary"] == "a method of another package"
    assert {"name": "depth", "default": 3, "help": "how deep it goes"} in listed["ours"]["options"]
    assert "pfed-mul" in listed
    assert done.err == "warning: method 'broken' of 'ours:Ours' cannot be loaded: it is not there\n"
    assert [entry["name"] for entry in json.loads(polyfed("methods", "ours", "--json").out)["methods"]] == ["ours"]
    assert "a method of another package" in polyfed("methods").out


# ---- long rounds -------------------------------------------------------------------------------------------------


def test_a_long_round_is_announced_off_a_terminal(monkeypatch, polyfed, home):
    from polyfed.engine import outlook

    monkeypatch.setattr(outlook.Forecast, "event", lambda self, round, settings: OUTLOOK | {"round": round})
    (home / "t.csv").write_text(people())
    done = polyfed(*RUN, "--binary", "sick", "--json")
    assert done.err == "pfed-hier: round 1 of 1 will take about 40 minutes, and measuring its models about 9 seconds\n"
    assert "round 1: expected to take 2409 s" in (home / "r" / "run.log").read_text()
    assert polyfed(*RUN[:-1], "quiet", "--binary", "sick", "--quiet").err == ""


OUTLOOK = {"event": "outlook", "rounds": 1, "seconds": 2400.0, "evaluation_seconds": 9.0}
