"""Notes of round 0 that nobody should trust: each is rejected by the name of its client, and the others go on."""

import json
import string
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import fuzz
from polyfed.data import ClientSummary, Encoder, agree, as_tasks, describe
from polyfed.data.features.transforms import Moments, pool_robustly, to_transform
from polyfed.data.raw import read_client
from polyfed.data.schema.vetting import FIELDS, MOST_ROWS, Rejected, read_schema, vet
from polyfed.data.splits import Division

TASKS = as_tasks({"pulse": "regression", "visits": "count", "sick": "binary", "stage": "multiclass"})
NONE = np.array([], dtype=np.int64)


def honest(i=0, n=20):
    rng = np.random.default_rng(i)
    X = pd.DataFrame({"age": rng.normal(50, 10, n), "ward": rng.choice(["north", "south"], n), "gap": [None] * n})
    X["pay"] = rng.lognormal(8, 1, n)
    labels = {
        "pulse": rng.normal(70, 8, n),
        "visits": rng.poisson(3, n),
        "sick": rng.choice(["no", "yes"], n),
        "stage": rng.choice([1, 2, 3], n),
    }
    raw = read_client("a", (X, labels), TASKS)
    raw = replace(raw, features=to_transform(raw.features, {"pay": "rank"}, where="a"))
    return json.loads(json.dumps(describe(TASKS, raw, Division(np.arange(n), NONE, NONE)).to_dict()))


def changed(*path, to):
    reported = honest(2)
    at = reported
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return reported


def without(key):
    return {field: value for field, value in honest(2).items() if field != key}


def checked(bad, scaling="federated"):
    """What is rejected of two honest summaries and this one; the honest two agree on as much as ever."""
    summaries, rejected = vet(TASKS, {"a": honest(0), "b": honest(1), "m": bad}, scaling)
    agreed = agree(TASKS, summaries)
    if rejected:
        two = {name: ClientSummary.from_dict(honest(i)) for i, name in enumerate("ab")}
        assert agreed.to_dict() == agree(TASKS, two).to_dict()
    return rejected


NAN, HUGE = float("nan"), 10**400
BAD = [
    (5, "its summary is 5, not an object"),
    ([], "its summary is a list, not an object"),
    (None, "its summary is None, not an object"),
    (without("moments"), "its summary lacks 'moments'"),
    ({**honest(2), "more": 1}, "its summary has 'more', which nobody asked for"),
    (changed("columns", to=3), "columns are 3, not a list"),
    (changed("columns", to=["age", "age", "gap"]), "columns have 'age' twice"),
    (changed("columns", to=["age", "x" * 5000, "gap"]), "columns have a text of 5000 characters"),
    (changed("columns", to=["age", 7, "gap"]), "columns have 7"),
    (changed("columns", to=["age", "\ud800", "gap"]), "columns have '\\ud800'"),
    (changed("columns", to=[str(i) for i in range(100_001)]), "columns are 100001, more than 100000"),
    (changed("columns", to=[]), "there are no columns"),
    (changed("kinds", to=["number"]), "kinds are 1, not 4"),
    (changed("kinds", 0, to="secret"), "a kind of column is 'secret'"),
    (changed("kinds", 0, to=["text"]), "a kind of column is a list"),
    (changed("gaps", 0, to=0), "gaps have 0, not true or false"),
    (changed("categories", to={}), "categories lack 'ward'"),
    (changed("categories", "age", to=["x"]), "categories have 'age', which nobody asked for"),
    (changed("categories", "ward", to=[f"w{i}" for i in range(102)]), "categories of 'ward' are 102, more than 101"),
    (changed("categories", "ward", to=["y" * 10**6]), "categories of 'ward' have a text of 1000000 characters"),
    (changed("labels", "pulse", to=10**15), "labels of task 'pulse' is 1000000000000000"),
    (changed("labels", "pulse", to=-3), "labels of task 'pulse' is -3"),
    (changed("labels", "pulse", to=True), "labels of task 'pulse' is True, not a whole number"),
    (changed("labels", "mood", to=4), "labels have 'mood', which nobody asked for"),
    (changed("labels", to={}), "it declares no labels, but tells of its data"),
    (changed("moments", to=None), "moments is None, not an object"),
    (changed("moments", "mean", 0, to=NAN), "moments: a mean is nan"),
    (changed("moments", "mean", 0, to=float("inf")), "moments: a mean is inf"),
    (changed("moments", "mean", 0, to=HUGE), "moments: a mean is a huge number"),
    (changed("moments", "mean", 0, to="50"), "moments: a mean is '50', not a number"),
    (changed("moments", "count", 0, to=10**15), "moments: a count is 1000000000000000"),
    (changed("moments", "count", 0, to=-1), "moments: a count is -1"),
    (changed("moments", "count", 0, to=2.5), "moments: a count is 2.5, not a whole number"),
    (changed("moments", "std", 0, to=-1.0), "moments: a std is -1.0"),
    (changed("moments", "mean", 1, to=4.0), "moments: a column without values has a mean or a std"),
    (changed("moments", "mean", to=[1.0]), "moments, mean are 1, not 3"),
    (changed("targets", "pulse", "mean", 0, to=NAN), "target 'pulse': a mean is nan"),
    (changed("targets", "pulse", "count", 0, to=19), "target 'pulse' has a count of 19, but 20 labels"),
    (changed("targets", "visits", "mean", 0, to=-2.0), "target 'visits' is a count with a mean of -2.0"),
    (changed("targets", to={}), "targets lack 'pulse'"),
    (changed("ranks", to=[]), "ranks are a list, not an object"),
    (changed("ranks", "age", to={}), "ranks have 'age', which nobody asked for"),
    (changed("ranks", "pay", to={"mean": [1.0]}), "ranks of 'pay' lacks 'count'"),
    (changed("ranks", "pay", "count", to=[5] * 130), "ranks of 'pay': counts are not a list of 1 to 129"),
    (changed("ranks", "pay", "count", to=[]), "ranks of 'pay': counts are not a list of 1 to 129"),
    (changed("ranks", "pay", "count", 0, to=4), "ranks of 'pay': a count is 4"),
    (changed("ranks", "pay", "count", 0, to=10**10), "ranks of 'pay': a count is 10000000000"),
    (changed("ranks", "pay", "mean", to=[1.0]), "ranks of 'pay', means are 1, not 4"),
    (changed("ranks", "pay", "mean", 1, to=NAN), "ranks of 'pay': a mean is nan"),
    (changed("ranks", "pay", to={"mean": [2.0, 2.0], "count": [5, 5]}), "ranks of 'pay': 2.0 comes after 2.0"),
    (changed("kinds", 3, to="log"), "ranks have 'pay', which nobody asked for"),
    (changed("classes", "sick", to=["no", "yes", "x"]), "classes of task 'sick' are 3, more than 2"),
    (changed("classes", "stage", to=list(range(1001))), "classes of task 'stage' are 1001, more than 1000"),
    (changed("classes", "stage", to=[1, True]), "classes of task 'stage' have one twice"),
    (changed("classes", "stage", to=[NAN]), "classes of task 'stage': a label is nan"),
    (changed("classes", "stage", to=[[1]]), "classes of task 'stage': a label is a list, not a number"),
    (changed("classes", "sick", to=["no", "maybe"]), "task 'sick': 'maybe' is a third class"),
    (changed("columns", to=["age", "ward", "name", "pay"]), "lacks column 'gap', which most clients have"),
    (changed("kinds", 2, to="wide"), "moments, count are 3, not 2"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[reason[:50] for _, reason in BAD])
def test_a_bad_note_is_rejected_by_name(bad, reason):
    assert checked(bad) == {"m": reason}


def test_honest_notes_pass_whatever_is_scaled():
    assert checked(honest(2)) == {}
    reported = {**honest(2), "moments": None}
    assert vet(TASKS, {"a": reported}, "targets")[1] == {}
    assert vet(TASKS, {"a": reported}, "none")[1] == {"a": "targets have 'pulse', which nobody asked for"}
    assert vet(TASKS, {"a": honest()}, "targets")[1] == {"a": "it tells moments, which nobody asked for"}


def test_kinds_are_settled_by_most_clients():
    other = changed("kinds", to=["text", "text", "empty", "rank"])
    other["categories"]["age"] = ["old"]
    other["moments"] = {"count": [0, 0], "mean": [0.0, 0.0], "std": [0.0, 0.0]}
    assert checked(other) == {"m": "column 'age' holds text, and number at most clients"}
    other = changed("kinds", 3, to="log")
    other["ranks"] = {}
    assert checked(other) == {"m": "column 'pay' holds log, and rank at most clients"}


def test_more_columns_than_most_clients_have():
    reported = honest(2)
    reported["columns"].append("shoe"), reported["kinds"].append("empty"), reported["gaps"].append(True)
    for values in reported["moments"].values():
        values.append(0)
    assert checked(reported) == {"m": "has column 'shoe', which most clients lack"}


# Units


def says(mean, std, count=20):
    return Moments(np.array([count]), np.array([mean]), np.array([std]))


HONEST = [says(mean, std) for mean, std in ((60.0, 9.0), (64.0, 11.0), (70.0, 8.0), (58.0, 10.0))]


@pytest.mark.parametrize("mean", [1e300, -1e300, 1e9, 64.0, -1.7e308])
@pytest.mark.parametrize("std", [0.0, 1e9, 1.7e308])
@pytest.mark.parametrize("count", [1, 20, MOST_ROWS])
def test_one_client_cannot_choose_the_units(mean, std, count):
    pooled = pool_robustly([*HONEST, says(mean, std, count)]).scaler()
    assert abs(pooled.mean[0] - 63) < 110
    assert 5 < pooled.scale[0] < 110
    exact = Moments.pool(HONEST).scaler()
    assert exact.scale[0] == pytest.approx(10.5, abs=0.5)


def test_honest_clients_are_pooled_to_the_last_bit():
    exact, robust = Moments.pool(HONEST), pool_robustly(HONEST)
    assert all(getattr(exact, key).tobytes() == getattr(robust, key).tobytes() for key in ("count", "mean", "std"))
    apart = [says(0.0, 1.0), says(1000.0, 1.0)]  # of two, nobody can tell which one is odd
    assert pool_robustly(apart).std.tobytes() == Moments.pool(apart).std.tobytes()


def test_a_column_that_only_some_have_is_judged_by_those():
    parts = [says(0.0, 0.0, count=0)] * 5 + [says(1e6, 5.0), says(1e6 + 3, 5.0)]
    assert pool_robustly(parts).mean.tobytes() == Moments.pool(parts).mean.tobytes()
    constant = [says(0.0, 0.0)] * 4 + [says(1.0, 0.0)]
    assert pool_robustly(constant).mean.tobytes() == Moments.pool(constant).mean.tobytes()


# Anything at all

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**25), 10**25),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from([*FIELDS, "pulse", "sick", "age", "ward", "number", "text", HUGE, "\ud800"]),
    ),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(string.printable, max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


def places(value, path=()):
    """The paths to all parts of a document."""
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


@st.composite
def corrupted(draw, make):
    """An honest document with up to three of its parts replaced or removed; or anything."""
    if draw(st.integers(0, 9)) == 0:
        return draw(JSON)
    reported = make()
    known = [path for path in places(reported) if path]
    for path in draw(st.lists(st.sampled_from(known), min_size=1, max_size=3)):
        at = reported
        try:
            for key in path[:-1]:
                at = at[key]
            if draw(st.integers(0, 3)) == 0:
                del at[path[-1]]
            else:
                at[path[-1]] = draw(JSON)
        except (KeyError, IndexError, TypeError):
            continue  # what is replaced already has no such part
    return reported


@fuzz(400)
@given(corrupted(lambda: honest(2)), st.sampled_from(["federated", "targets", "none", "local"]))
def test_no_note_ends_round_0(bad, scaling):
    """Rejected, or harmless: what is agreed then is finite and travels as JSON."""
    reported = {name: honest(i) for i, name in enumerate("ab")}
    if scaling != "federated":
        reported = {name: {**summary, "moments": None} for name, summary in reported.items()}
    if scaling in ("none", "local"):
        reported = {name: {**summary, "targets": {}} for name, summary in reported.items()}
    summaries, rejected = vet(TASKS, {**reported, "m": bad}, scaling)
    assert set(rejected) <= {"m"}
    assert all(len(reason) < 300 and reason.isprintable() for reason in rejected.values())
    agreed = agree(TASKS, summaries)
    assert np.isfinite(agreed.scaler.mean).all()
    assert (np.isfinite(agreed.scaler.scale) & (agreed.scaler.scale > 0)).all()
    assert len(Encoder.of(agreed).names) < 300
    json.dumps(agreed.to_dict(), allow_nan=False).encode()


def schema():
    summaries = {name: ClientSummary.from_dict(honest(i)) for i, name in enumerate("ab")}
    return json.loads(json.dumps(agree(TASKS, summaries).to_dict()))


@fuzz(200)
@given(corrupted(schema))
def test_nothing_that_a_server_says_was_agreed_breaks_a_client(bad):
    """Rejected in a few words, or an schema that is finite and travels as JSON."""
    agreed, why = None, ""
    try:
        agreed = read_schema(bad)
    except Rejected as reason:
        why = str(reason)
    assert len(why) < 300
    assert why.isprintable()
    if agreed is None:
        return
    assert (np.isfinite(agreed.scaler.scale) & (agreed.scaler.scale > 0)).all()
    assert len(Encoder.of(agreed).names) < 300
    json.dumps(agreed.to_dict(), allow_nan=False).encode()


def test_an_honest_agreement_passes():
    assert read_schema(schema()).to_dict() == schema()
