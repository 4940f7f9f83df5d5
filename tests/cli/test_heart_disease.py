"""Four hospitals from a file to a report in one command; a fifth that was held out joins."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

TABLE = Path(__file__).resolve().parents[3] / "shared" / "data" / "tables" / "heart_disease.csv"

pytestmark = pytest.mark.skipif(not TABLE.is_file(), reason="the table of heart diseases is not beside the project")


@pytest.mark.slow
def test_heart_disease_from_the_file_to_the_report(polyfed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.read_csv(TABLE)
    held_out = table["client"] == "switzerland"
    table[~held_out].to_csv("heart.csv", index=False)
    late_client = table[held_out].drop(columns="client")
    late_client[:80].to_csv("learn.csv", index=False)
    late_client[80:].to_csv("later.csv", index=False)

    argv = ["--data", "heart.csv", "--derive", "disease=num>0", "--client", "client", "--drop", "num"]
    done = polyfed("run", *argv, "--regression", "thalach", "--binary", "disease", "--rounds", "3", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["clients"] == ["cleveland", "hungarian", "va"]
    assert document["scores"]["disease"]["accuracy"]["mean"] > 0.7  # the larger class alone is 0.55
    folder = document["folder"]
    if document["report"] is not None:
        assert "<html" in Path(document["report"]).read_text()

    assert polyfed("join", folder, "learn.csv", "--name", "switzerland").code == 0
    done = polyfed("predict", folder, "later.csv", "--client", "switzerland", "--out", "predicted.csv", "--json")
    assert done.code == 0, done.err
    predicted = pd.read_csv("predicted.csv")
    assert len(predicted) == held_out.sum() - 80
    true = (late_client["num"][80:] > 0).to_numpy()
    assert json.loads(done.out)["scores"]["disease"]["accuracy"] == pytest.approx(
        (predicted["disease.label"] == true).mean()
    )
    assert polyfed("predict", folder, "heart.csv", "--client", "va").code == 0
