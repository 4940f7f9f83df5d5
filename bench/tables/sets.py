"""The tables: whose rows, which targets, which features. Files are looked for in a folder that is no part of the project."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from polyfed.errors import DataError

MOST_CLIENTS = 12  # the largest


@dataclass(frozen=True)
class TableSet:
    """One table: `make` gets the folder and returns a frame with a column `client`, the tasks' columns and features."""

    name: str
    tasks: Mapping[str, str]
    features: tuple[str, ...]
    make: Callable[[Path], pd.DataFrame]

    def frame(self, folder: Path) -> pd.DataFrame:
        """The rows of the largest clients that have any label."""
        whole = self.make(folder)
        whole = whole[whole[list(self.tasks)].notna().any(axis=1)]
        whole = whole.assign(client="c" + whole["client"].astype(str))
        largest = whole["client"].value_counts(sort=False).sort_index().nlargest(MOST_CLIENTS).index
        kept = whole[whole["client"].isin(largest)]
        return kept[["client", *self.tasks, *self.features]].reset_index(drop=True)


def _csv(folder: Path, file: str, client: str) -> pd.DataFrame:
    if not (folder / file).is_file():
        raise DataError("there is no such table", where=str(folder / file), remedy="set POLYFED_DATA, or give --data")
    frame = pd.read_csv(folder / file)
    return frame[frame[client].notna()].rename(columns={client: "client"})


def _above(values: pd.Series, limit: float) -> pd.Series:
    """yes or no, and nothing where there is no value."""
    return pd.Series(
        np.where(values.isna(), None, np.where(values > limit, "yes", "no")), index=values.index, dtype=object
    )


def _star(folder: Path) -> pd.DataFrame:
    frame = _csv(folder, "star_grade3.csv", "sch")
    return frame.assign(good_at_math=_above(frame["math"], 618))


def _egsingle(folder: Path) -> pd.DataFrame:
    frame = _csv(folder, "egsingle.csv", "schoolid")
    return frame.assign(retained=_above(frame["retained"], 0.5))


def _covid(folder: Path) -> pd.DataFrame:
    frame = _csv(folder, "covid_testing.csv", "clinic_name")
    return frame.assign(
        log_hours=np.log1p(frame["rec_ver_tat"]), positive=_above((frame["result"] == "positive") * 1.0, 0.5)
    )


def _heart(folder: Path) -> pd.DataFrame:
    frame = _csv(folder, "heart_disease.csv", "client")
    return frame.assign(disease=_above(frame["num"], 0))


def _contraception(folder: Path) -> pd.DataFrame:
    frame = _csv(folder, "contraception.csv", "district")
    return frame.assign(children=frame["livch"].astype(str))


def _nmes(folder: Path) -> pd.DataFrame:
    frame = _csv(folder, "nmes1988.csv", "region")
    return frame.assign(log_visits=np.log1p(frame["visits"]))


def _stops(folder: Path) -> pd.DataFrame:
    frame = _csv(folder, "mpls_stops.csv.gz", "neighborhood")
    when = pd.to_datetime(frame["date"])
    angle = 2 * np.pi * (when.dt.hour + when.dt.minute / 60) / 24
    return frame.assign(hour_sin=np.sin(angle), hour_cos=np.cos(angle), day=when.dt.dayofyear.astype(float))


def _penguins(folder: Path) -> pd.DataFrame:
    import palmerpenguins  # pyright: ignore[reportMissingImports]

    frame = palmerpenguins.load_penguins().dropna()
    return frame.assign(client=frame["island"] + " " + frame["year"].astype(str))


def _phones(folder: Path) -> pd.DataFrame:
    from polyfed.data.datasets.phone_health import phone_health

    federation = phone_health(n_clients=MOST_CLIENTS, rows=200)
    parts = []
    for name, raw in federation.raw.items():
        columns = dict(zip(raw.features.names, raw.features.numbers.T, strict=True))
        labels = {}
        for task in ("heart_rate", "moving"):
            values = np.full(len(raw), None, dtype=object)
            if task in raw.labels:
                read = raw.labels[task]
                reported = (
                    read.values if read.vocabulary is None else np.array(read.vocabulary, dtype=object)[read.values]
                )
                values[read.at] = reported
            labels[task] = values
        parts.append(pd.DataFrame({"client": name, **columns, **labels}))
    whole = pd.concat(parts, ignore_index=True)
    return whole.assign(
        heart_rate=whole["heart_rate"].astype(float), moving=whole["moving"].map({True: "yes", False: "no"})
    )


SETS = {
    one.name: one
    for one in (
        TableSet(
            "star",
            {"read": "regression", "good_at_math": "binary"},
            ("ses", "cltype", "hdeg", "exp", "sx", "eth", "schtype", "birthy"),
            _star,
        ),
        TableSet(
            "egsingle",
            {"math": "regression", "retained": "binary"},
            ("year", "grade", "female", "black", "hispanic", "size", "lowinc", "mobility"),
            _egsingle,
        ),
        TableSet(
            "covid",
            {"log_hours": "regression", "positive": "binary"},
            ("age", "pan_day", "drive_thru_ind", "orderset", "gender", "payor_group", "patient_class", "demo_group"),
            _covid,
        ),
        TableSet(
            "heart",
            {"thalach": "regression", "disease": "binary"},
            ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "exang", "oldpeak", "slope"),
            _heart,
        ),
        TableSet("contraception", {"use": "binary", "children": "multiclass"}, ("age", "urban"), _contraception),
        TableSet(
            "nmes",
            {"log_visits": "regression", "insurance": "binary", "health": "multiclass"},
            ("chronic", "adl", "age", "afam", "gender", "married", "school", "income", "employed", "medicaid"),
            _nmes,
        ),
        TableSet(
            "stops",
            {"problem": "binary", "personSearch": "binary"},
            ("lat", "long", "hour_sin", "hour_cos", "day", "gender", "race"),
            _stops,
        ),
        TableSet(
            "penguins",
            {"body_mass_g": "regression", "sex": "binary", "species": "multiclass"},
            ("bill_length_mm", "bill_depth_mm", "flipper_length_mm"),
            _penguins,
        ),
        TableSet(
            "phones",
            {"heart_rate": "regression", "moving": "binary"},
            ("hour_sin", "hour_cos", "acceleration", "temperature"),
            _phones,
        ),
    )
}
