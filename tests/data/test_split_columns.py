"""Rows divided by a column of the table: a time, a group that stays together, or the part itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from polyfed.data import Federation, Split
from polyfed.errors import ConfigError, DataError

N = 40
TABLE = pd.DataFrame(
    {
        "ward": ["a", "b"] * (N // 2),
        "age": np.arange(float(N)),
        "day": [f"2024-01-{1 + (7 * i) % 31:02}" for i in range(N)],
        "patient": [f"p{i // 2 % 7}" for i in range(N)],
        "fold": (["train"] * 6 + ["val"] * 2 + ["TEST"] * 2) * (N // 10),
        "pulse": np.arange(float(N)),
    }
)


def parts(split, table=TABLE, **options):
    """client → train, validation and test rows of the table."""
    options = {"client": "ward", "tasks": {"pulse": "regression"}, "features": ["age"], **options}
    study = Federation.from_table(table, split=split, scaling="none", **options).prepare(0)
    return {name: [part.x[:, 0].astype(int) for part in vars(own).values()] for name, own in study.clients.items()}


def test_the_latest_rows_are_tested():
    for train, validation, test in parts(Split(test=0.25, validation=0.2, by="day")).values():
        days = [TABLE["day"].to_numpy()[rows] for rows in (train, validation, test)]
        assert (len(train), len(validation), len(test)) == (11, 4, 5)
        assert days[0].max() <= days[1].min() <= days[1].max() <= days[2].min()


def test_a_time_may_be_a_number_and_dates_can_be_written_in_any_way():
    usual = parts(Split(test=0.25, by="day"))
    written = TABLE.assign(day=[f"{day[8:]}.{day[5:7]}.{day[:4]}" for day in TABLE["day"]])
    typed = TABLE.assign(day=pd.to_datetime(TABLE["day"]))
    number = TABLE.assign(day=[int(day[8:]) for day in TABLE["day"]])
    for table in (written, typed, number):
        found = parts(Split(test=0.25, by="day"), table)
        assert all(np.array_equal(a, b) for name in usual for a, b in zip(usual[name], found[name], strict=True))


def test_groups_stay_together():
    for train, validation, test in parts(Split(test=0.3, validation=0.2, group="patient")).values():
        groups = [set(TABLE["patient"].to_numpy()[rows]) for rows in (train, validation, test)]
        assert all(groups)
        assert not groups[0] & groups[1] | groups[0] & groups[2] | groups[1] & groups[2]
        assert 3 <= len(test) <= 9


def test_a_client_with_one_group_trains_on_it():
    table = TABLE.assign(patient=np.where(TABLE["ward"] == "a", "only one", TABLE["patient"]))
    train, validation, test = parts(Split(test=0.3, group="patient"), table)["a"]
    assert (len(train), len(validation), len(test)) == (N // 2, 0, 0)


def test_a_column_says_the_part():
    found = parts(Split(column="fold"))
    for part, name in enumerate(["train", "val", "TEST"]):
        rows = np.sort(np.concatenate([own[part] for own in found.values()]))
        assert rows.tolist() == np.flatnonzero(TABLE["fold"] == name).tolist()


def test_the_group_and_the_part_are_no_features_but_the_time_may_be():
    options = {"client": "ward", "tasks": {"pulse": "regression"}, "drop": ["day", "patient", "fold"]}

    def names(split, *kept):
        drop = [name for name in options["drop"] if name not in kept]
        return Federation.from_table(TABLE, **{**options, "drop": drop}, split=split).raw["a"].features.names

    assert names(Split(column="fold"), "fold") == ("age",)
    assert names(Split(group="patient"), "patient") == ("age",)
    assert names(Split(by="day"), "day")[:3] == ("age", "day, days", "day, year")


def test_a_folder_is_split_by_its_columns(tmp_path):
    for ward, rows in TABLE.groupby("ward"):
        rows.drop(columns="ward").to_csv(tmp_path / f"{ward}.csv", index=False)
    found, usual = parts(Split(by="day"), tmp_path, client=None), parts(Split(by="day"))
    assert all(np.array_equal(a, b) for name in usual for a, b in zip(usual[name], found[name], strict=True))


@pytest.mark.parametrize(
    ("split", "changes", "text"),
    [
        (
            Split(by="dya"),
            {},
            "table: has no column 'dya'; did you mean 'day'? known are 'ward', 'age', 'day', 'patient', 'fold', 'pulse'.",
        ),
        (
            Split(by="patient"),
            {},
            "row 0 (client 'a'): column 'patient', by which the rows are split, is 'p0', which is neither a date nor a "
            "number; split otherwise.",
        ),
        (
            Split(group="patient"),
            {"patient": [None, *TABLE["patient"][1:]]},
            "row 0 (client 'a'): column 'patient', by which the rows are split, is empty; fill it in, drop the row, or "
            "split otherwise.",
        ),
        (
            Split(column="fold"),
            {"fold": ["train", "tset"] * (N // 2)},
            "row 1 (client 'b'): column 'fold', by which the rows are split, is 'tset'; give train, validation or test.",
        ),
        (
            Split(column="fold"),
            {"fold": ["train", "test"] * (N // 2)},
            "client 'b': column 'fold' leaves no row for training; give the client rows to train on, or leave it out.",
        ),
    ],
)
def test_columns_that_cannot_split(split, changes, text):
    with pytest.raises(DataError) as caught:
        parts(split, TABLE.assign(**changes))
    assert str(caught.value) == text


def test_arrays_have_no_column_to_split_by():
    clients = {"a": (np.zeros((4, 1)), {"pulse": [1, 2, 3, 4]})}
    with pytest.raises(ConfigError, match="by='day' names a column, but the clients were not read from a table"):
        Federation.from_clients(clients, {"pulse": "regression"}, split=Split(by="day")).prepare(0)
