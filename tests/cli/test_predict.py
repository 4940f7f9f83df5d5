"""`polyfed predict` and `polyfed join`: tables in, tables out."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest

import polyfed as pf


@pytest.fixture
def new(home):
    """Two rows like those of the run and one far from them all; the labels of one task."""
    (home / "new.csv").write_text("age,sick\n40,no\n70,yes\n900,\n")
    return home / "new.csv"


def test_the_table_is_what_the_model_says(polyfed, run, new):
    done = polyfed("predict", run, new, "--client", "bern")
    assert done.code == 0
    table = pd.read_csv(io.StringIO(done.out))
    assert list(table) == [
        *(f"pulse.{name}" for name in ("mean", "std", "lower", "upper", "ood")),
        *(f"sick.{name}" for name in ("label", "p(no)", "p(yes)", "ood")),
        "notes",
    ]
    said = pf.load(run).client("bern").predict([[40.0], [70.0], [900.0]])
    np.testing.assert_allclose(table["pulse.mean"], said["pulse"].mean, rtol=1e-5)
    np.testing.assert_allclose(table["sick.p(yes)"], said["sick"].proba, rtol=1e-5)
    assert table["sick.label"].tolist() == said["sick"].label.tolist()
    assert table["notes"].tolist()[2] == "far from training"
    far, scores = done.err.splitlines()  # beside the table
    assert far == "1 of 3 rows are far from all that the model was trained on (notes, ood)"
    assert scores.startswith("sick: accuracy ")  # the task with labels


def test_a_row_out_of_distribution_is_noticed(polyfed, run, new):
    columns = json.loads(polyfed("predict", run, new, "--client", "bern", "--json").out)["predictions"]
    for task in ("pulse", "sick"):
        like, _, out = columns[f"{task}.ood"]
        assert out > 1.3 * like  # planes are bounded far out, and so is what is not known of them
        assert 0.2 < like < 5  # near 1: as at the rows that were learned from


def test_the_level_widens_the_interval(polyfed, run, new):
    widths = []
    for level in ("0.5", "0.99"):
        columns = json.loads(polyfed("predict", run, new, "--client", "bern", "--json", "--level", level).out)[
            "predictions"
        ]
        widths.append(columns["pulse.upper"][0] - columns["pulse.lower"][0])
    assert widths[1] / widths[0] == pytest.approx(2.5758 / 0.6745, rel=1e-3)  # quantiles of a normal


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_predictions_go_to_a_file(polyfed, home, run, new, name):
    done = polyfed("predict", run, new, "--client", "bern", "--tasks", "sick", "--out", name)
    assert done.code == 0
    assert done.err == ""
    assert f"3 rows of bern are predicted in {name}" in done.out
    table = pd.read_csv(name) if name.endswith("csv") else pd.read_parquet(name)
    assert list(table) == ["sick.label", "sick.p(no)", "sick.p(yes)", "sick.ood", "notes"]


def test_scores_are_those_of_the_labels(polyfed, run, new):
    document = json.loads(polyfed("predict", run, new, "--client", "bern", "--json").out)
    columns, labels = document["predictions"], ["no", "yes"]
    right = sum(said == label for said, label in zip(columns["sick.label"], labels, strict=False))
    assert document["scores"]["sick"]["accuracy"] == pytest.approx(right / 2)
    loss = -np.mean([np.log(columns["sick.p(no)"][0]), np.log(columns["sick.p(yes)"][1])])
    assert document["scores"]["sick"]["nll"] == pytest.approx(loss)
    assert "pulse" not in document["scores"]


def test_a_client_joins_and_predicts(polyfed, home, run, new):
    (home / "chur.csv").write_text("age,pulse\n" + "".join(f"{age},{200 - age}\n" for age in range(30, 70, 2)))
    assert polyfed("predict", run, new, "--client", "chur").code == 3
    done = polyfed("join", run, "chur.csv", "--name", "chur")
    assert done.out == (
        "chur joined run with 20 rows; labels: 20 of pulse, 0 of sick\n"
        "No row was held out to measure on: --test-fraction 0.2 would\n"
    )
    means = {}
    for client in ("bern", "chur"):
        document = json.loads(polyfed("predict", run, new, "--client", client, "--json").out)
        means[client] = document["predictions"]["pulse.mean"]
    assert means["bern"][0] < means["bern"][1]  # there the pulse rises with age, in chur it falls
    assert means["chur"][0] > means["chur"][1]
    assert polyfed("join", run, "chur.csv", "--name", "chur").code == 4


def test_a_label_that_the_run_derives_is_derived_again(polyfed, home):
    argv = ["run", "--data", "hospitals.csv", "--client", "ward", "--features", "visits,pulse", "--no-report"]
    assert polyfed(*argv, "--binary", "old", "--derive", "old=age > 55", "--rounds", "1", "--out", "r").code == 0
    (home / "rows.csv").write_text("visits,pulse,age\n1,80,40\n2,90,60\n")
    with_labels = json.loads(polyfed("predict", "r", "rows.csv", "--client", "bern", "--json").out)
    assert set(with_labels["scores"]) == {"old"}
    assert "old.p(True)" in with_labels["columns"]
    (home / "rows.csv").write_text("visits,pulse\n1,80\n")
    assert json.loads(polyfed("predict", "r", "rows.csv", "--client", "bern", "--json").out)["scores"] == {}


def test_a_method_without_a_variance_has_no_score_of_foreignness(polyfed, home, new):
    argv = ["run", "--data", "hospitals.csv", "--client", "ward", "--features", "age", "--regression", "pulse"]
    assert polyfed(*argv, "--method", "fedavg", "--rounds", "1", "--out", "r", "--no-report").code == 0
    columns = json.loads(polyfed("predict", "r", new, "--client", "bern", "--json").out)["predictions"]
    assert columns["pulse.ood"] == [None, None, None]


def test_a_client_without_labels_joins_and_is_served_by_what_the_others_know(polyfed, home):
    argv = ["run", "--data", "hospitals.csv", "--client", "ward", "--features", "age", "--regression", "pulse"]
    assert polyfed(*argv, "--method", "pfed-hier", "--rounds", "5", "--no-report", "--out", "r").code == 0
    (home / "chur.csv").write_text("age\n40\n70\n")
    done = polyfed("join", "r", "chur.csv", "--name", "chur")
    assert done.out == "chur joined r with 2 rows and no label: it is served by what the others have learned\n"
    said = polyfed("predict", "r", "chur.csv", "--client", "chur", "--json")
    document = json.loads(said.out)
    assert document["trained_on"] == 0  # its rows taught nobody anything
    young, old = document["predictions"]["pulse.mean"]
    assert young < old  # as in all other wards
    std = np.subtract(document["predictions"]["pulse.upper"], document["predictions"]["pulse.lower"])
    assert (std > 0).all()


# The whole file at once


def test_each_row_is_predicted_by_its_own_client(polyfed, home, run):
    rows = pd.read_csv(home / "hospitals.csv").iloc[::-1].assign(weight=1234567.891)
    rows.to_csv(home / "all.csv", index=False)
    done = polyfed("predict", run, "all.csv", "--keep", "visits,weight", "--out", "p.csv")
    assert done.code == 0, done.err
    assert "mean over 3 clients" in done.out
    assert "24 rows of 3 clients are predicted in p.csv" in done.out
    table = pd.read_csv("p.csv")
    assert list(table)[:4] == ["ward", "visits", "weight", "pulse.mean"]
    assert table[["ward", "visits", "weight"]].equals(rows[["ward", "visits", "weight"]].reset_index(drop=True))
    for ward, own in rows.groupby("ward"):
        said = pf.load(run).client(ward).predict(own[["age"]])
        np.testing.assert_allclose(table.loc[table["ward"] == ward, "pulse.mean"], said["pulse"].mean, rtol=1e-5)


def test_scores_of_several_clients_are_their_means_and_training_rows_are_told_apart(polyfed, home, run):
    document = json.loads(polyfed("predict", run, "hospitals.csv", "--json").out)
    assert (document["client"], document["clients"]) == (None, {"basel": 8, "bern": 8, "thun": 8})
    trained = [note.startswith("trained on") for note in document["predictions"]["notes"]]
    assert sum(trained) == document["trained_on"] > 12
    own = document["client_scores"]
    assert document["scores"]["pulse"]["rmse"] == pytest.approx(np.mean([own[ward]["pulse"]["rmse"] for ward in own]))
    assert set(document["training_scores"]) == {"pulse", "sick"}


def test_rows_with_categories_that_nobody_knew_are_marked(polyfed, home):
    text = (home / "hospitals.csv").read_text().splitlines()
    argv = ["run", "--data", "hospitals.csv", "--client", "ward", "--features", "age,sick", "--regression", "pulse"]
    assert polyfed(*argv, "--rounds", "1", "--out", "r", "--no-report").code == 0
    (home / "new.csv").write_text("\n".join([text[0], text[1], text[2].replace("no", "maybe").replace("yes", "maybe")]))
    document = json.loads(polyfed("predict", "r", "new.csv", "--json").out)
    assert "unseen category" in document["predictions"]["notes"][1]
    assert "unseen category" not in document["predictions"]["notes"][0]
    assert document["unseen"]["sick"]["rows"] == 1


def test_a_client_joins_with_rows_held_out_and_is_updated(polyfed, home, run, new):
    rows = "".join(f"{age},{200 - age}\n" for age in range(30, 70, 2))
    (home / "chur.csv").write_text(f"age,pulse\n{rows}")
    done = polyfed("join", run, "chur.csv", "--name", "chur", "--test-fraction", "0.25", "--json")
    document = json.loads(done.out)
    assert (document["rows"], document["test_rows"], document["labels"]["pulse"]) == (15, 5, 15)
    assert set(document["scores"]) == {"pulse"}
    # the held-out rows are rows that the model was not trained on
    predicted = json.loads(polyfed("predict", run, "chur.csv", "--client", "chur", "--json").out)
    assert predicted["trained_on"] == 15
    assert predicted["scores"]["pulse"]["rmse"] == pytest.approx(document["scores"]["pulse"]["rmse"])
    assert polyfed("join", run, "chur.csv", "--name", "chur").err == (
        "error: join: client 'chur' is there already; choose another name, or update it.\n"
    )
    before = json.loads(polyfed("predict", run, new, "--client", "chur", "--json").out)["predictions"]["pulse.mean"]
    (home / "more.csv").write_text("age,pulse\n" + "".join(f"{age},{age}\n" for age in range(30, 70)))
    done = polyfed("join", run, "more.csv", "--name", "chur", "--update", "--test-fraction", "0.1")
    assert done.out.startswith(
        "chur is updated in run with 36 rows; labels: 36 of pulse, 0 of sick\npulse, 4 rows held out: "
    )
    after = json.loads(polyfed("predict", run, new, "--client", "chur", "--json").out)["predictions"]["pulse.mean"]
    assert before[0] > before[1]
    assert after[0] < after[1]
    assert list(pf.load(run).late_states) == ["chur"]
