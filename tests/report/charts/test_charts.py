"""The figures: numbers by hand, and that plotly understands every one of them."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest
from run_folders import make_run, results
from scipy import stats

from polyfed.report.charts import calibration, effects, latents, predicted, scores
from polyfed.report.charts.predicted import MOST_POINTS
from polyfed.report.details import details
from polyfed.report.folders import read_run
from polyfed.report.tables.comparison import grouped

EVERY_KIND = {"height": "regression", "high": "binary", "stage": "multiclass", "visits": "count"}


def test_two_classes_at_a_half_mean_the_second():
    chart = calibration.reliability("r", "sick", {"a": {"sick": {"y": [1, 1], "proba": [[0.5, 0.5], [0.5, 0.5]]}}})
    assert chart is not None
    assert chart.title == "sick: ECE 0.500 over 2 rows"
    assert chart.figures[""]["data"][0]["y"] == [1.0]


def test_the_reliability_diagram_says_counts_and_error():
    # Bin 13 of 15 is [0.8, 0.8667): 0.8 lies on its edge and belongs to it. Confidence 0.82, half are right: gap 0.32.
    # Bin 15 ends with 1 and has it: confidence 0.97, both right: gap 0.03. (2 · 0.32 + 2 · 0.03) / 4 = 0.175
    of_a = {"y": [1, 1, 1, 1], "proba": [[0.2, 0.8], [0.84, 0.16], [0.0, 1.0], [0.06, 0.94]]}
    chart = calibration.reliability("r", "sick", {"a": {"sick": of_a}, "b": {}})
    assert chart is not None
    assert chart.title == "sick: ECE 0.175 over 4 rows"
    accuracy, confidence, counts = chart.figures[""]["data"]
    assert accuracy["y"] == [0.5, 1.0]
    assert confidence["y"] == [0.82, 0.97]
    assert counts["text"] == ["2", "2"]


def test_the_coverage_counts_every_row_also_those_not_drawn():
    n = 10 * MOST_POINTS
    column = {"y": [0.0] * n, "mean": [0.1] * n, "lower": [-1.0] * n, "upper": [0.0] * (n // 4 * 3) + [-0.5] * (n // 4)}
    chart = predicted.predicted("p", "pulse", {"a": {"pulse": column}})
    assert chart is not None
    assert chart.title == f"pulse: 75 % of 4,000 rows lie in their 95 % interval, {MOST_POINTS} of them drawn"
    drawn = [len(trace["x"]) for trace in chart.figures[""]["data"] if trace["mode"] == "markers"]
    assert sum(drawn) == MOST_POINTS


def test_the_interval_is_drawn_around_the_mean():
    column = {"y": [1.0, 5.0], "mean": [2.0, 2.0], "lower": [0.5, 1.0], "upper": [2.5, 4.0]}
    chart = predicted.predicted("p", "pulse", {"a": {"pulse": column}})
    assert chart is not None
    inside, outside, _ = chart.figures[""]["data"]
    assert (inside["error_y"]["array"], inside["error_y"]["arrayminus"]) == ([0.5], [1.5])
    assert (outside["x"], outside["y"]) == ([5.0], [2.0])


def test_curves_are_solid_for_test_rows_and_dashed_for_validation(tmp_path):
    history = read_run(make_run(tmp_path / "a", models=("personal", "global"))).history
    chart = scores.evaluated("x", history)[0]
    lines = chart.figures["rmse"]["data"]
    assert {(line["name"], line["line"]["dash"]) for line in lines} == {
        ("test", "solid"),
        ("validation", "dash"),
        ("server's model alone, test", "solid"),
        ("server's model alone, validation", "dash"),
    }
    assert next(iter(chart.options or {})) == "rmse", "the headline metric is chosen at first"


def test_compared_curves_are_means_over_seeds(tmp_path):
    runs = [
        read_run(make_run(tmp_path / str(seed), seed=seed, score=lambda *_, seed=seed: 1.0 + seed)) for seed in (0, 2)
    ]
    chart = scores.compared("all", {"mul": [run.history for run in runs]})[0]
    test = next(line for line in chart.figures["rmse"]["data"] if line["name"] == "mul")
    assert (test["x"], test["y"]) == ([2.0, 4.0], [2.0, 2.0])


def test_functions_show_the_truth_and_where_labels_are():
    found = results()
    chosen = latents.latents("l", found["tasks"], found["latents"])
    assert chosen is not None
    control, (height, high) = chosen
    assert list(control.options.values()) == ["basel", "bern", "thun"]
    assert height.follows == high.follows == control.id
    by_name = {trace.get("name"): trace for trace in height.figures["1"]["data"]}
    assert by_name["truth"]["line"]["dash"] == "dash"
    assert by_name["labels"]["y"][0] == pytest.approx(0.3)  # sin 0 and the shift of the second client
    classes = {
        trace["name"]: set(trace["y"]) for trace in high.figures["0"]["data"] if "label" in trace.get("name", "")
    }
    assert {len(heights) for heights in classes.values()} == {1}, "one height for all ticks of a class"
    assert max(classes["label no"]) < -1.4 < 1.4 < min(classes["label yes"])  # outside the band


@pytest.mark.parametrize("one_dimensional", [True, False])
def test_plotly_understands_every_figure(tmp_path, one_dimensional):
    found = results(tasks=EVERY_KIND, one_dimensional=one_dimensional)
    run = read_run(make_run(tmp_path / "a", tasks=EVERY_KIND, found=found, models=("personal", "global")))
    shown = [chart for found in details(run, "r", "a run").charts.values() for chart in found]
    # Curves, reliability, predictions, coverage, balance; functions or inputs (two of each task) with their importance.
    expected = 4 + 2 + 2 + 2 + 2 + (4 if one_dimensional else 2 * 4 + 1) + 3
    assert len({chart.id for chart in shown}) == len(shown) == expected
    for chart in shown:
        assert set(chart.options or chart.figures) == set(chart.figures)
        for figure in chart.figures.values():
            go.Figure(inked(figure))  # raises if a name or a value is not one of plotly's


def two_methods(tmp_path, values, metric="rmse", kind="regression"):
    """local and another method with these scores of clients a, b, c."""

    def of(method):
        scores = dict(zip("abc", values[method], strict=True))
        run = make_run(
            tmp_path / method,
            method=method,
            clients="abc",
            tasks={"y": kind},
            score=lambda client, task, name, round: scores[client] if name == metric else 0.5,
        )
        return read_run(run)

    return grouped([of(method) for method in values])


def test_the_gain_over_learning_alone_is_by_client(tmp_path):
    groups = two_methods(tmp_path, {"local": (2.0, 4.0, 1.0), "pfed-hier": (1.0, 5.0, 1.0)})
    (chart,) = scores.gains("g", groups)
    (dots,) = chart.figures[""]["data"]
    assert dict(zip(dots["text"], dots["x"], strict=True)) == {"b": -25.0, "c": 0.0, "a": 50.0}, "from the worst"
    assert chart.title == "y: better off at 1 of 3 with pfed-hier"
    assert chart.figures[""]["layout"]["shapes"][0]["x0"] == 0.0
    assert scores.gains("g", groups[1:]) == [], "there is nothing to compare with"


def test_the_gain_of_a_share_is_in_percentage_points(tmp_path):
    groups = two_methods(tmp_path, {"local": (0.5, 0.8, 1.0), "x": (0.75, 0.7, 1.0)}, "accuracy", "binary")
    (dots,) = scores.gains("g", groups)[0].figures[""]["data"]
    assert dict(zip(dots["text"], dots["x"], strict=True)) == pytest.approx({"b": -10.0, "c": 0.0, "a": 25.0})


def test_coverage_by_client_has_the_interval_of_a_share():
    column = {"y": [0.0] * 20, "lower": [-1.0] * 20, "upper": [1.0] * 10 + [-0.5] * 10}
    chart = predicted.coverages("c", "pulse", {"basel": {"pulse": column}, "bern": {}})
    assert chart is not None
    (dots,) = chart.figures[""]["data"]
    low, high = stats.binomtest(10, 20).proportion_ci(method="wilson")
    assert dots["x"] == [0.5]
    assert dots["error_x"]["arrayminus"] == pytest.approx([0.5 - low], rel=1e-4)
    assert dots["error_x"]["array"] == pytest.approx([high - 0.5], rel=1e-4)
    assert chart.title == "pulse: 1 of 1 clients off 95 %"


def test_class_balance_is_a_share_of_each_clients_labels():
    def of(*classes):
        return {"labels": {"sick": {"train": sum(classes), "validation": 0, "test": 0, "classes": list(classes)}}}

    chart = calibration.balance("b", "sick", ["no", "yes"], {"basel": of(1, 3), "bern": of(3, 1), "zug": of(0, 0)})
    assert chart is not None
    no, yes = chart.figures[""]["data"]
    assert (no["text"], no["x"], yes["x"]) == (["bern", "basel"], [0.75, 0.25], [0.25, 0.75])


def test_importance_is_by_length_scales_where_there_is_one_for_each_input():
    model = {"length_scales": [{"latent": 1, "kernel": "rbf", "values": [0.5, 4.0]}]}
    chart = effects.importance("i", model, ["age", "bmi"], {})
    assert chart is not None
    (dots,) = chart.figures[""]["data"]
    assert dict(zip(dots["text"], dots["x"], strict=True)) == {"age": 2.0, "bmi": 0.25}


def test_importance_is_by_movement_where_there_is_not():
    def moves(name, *mean):
        return {"input": name, "x": [0.0, 1.0], "curves": [{"mean": list(mean)}]}

    found = {"basel": {"pulse": [moves("age", 60.0, 66.0), moves("bmi", 60.0, 62.0)]}}
    model = {"length_scales": [{"latent": 1, "kernel": "rbf", "values": [0.5]}]}
    chart = effects.importance("i", model, ["age", "bmi"], found)
    assert chart is not None
    (dots,) = chart.figures[""]["data"]
    assert dict(zip(dots["text"], dots["x"], strict=True)) == {"age": 0.75, "bmi": 0.25}


def test_shares_end_at_one_and_a_guess_is_dotted(tmp_path):
    run = read_run(make_run(tmp_path / "a", guess=True))
    height, high = scores.evaluated("x", run.history)
    assert high.figures["accuracy"]["layout"]["yaxis"]["range"] == [None, 1]
    assert "range" not in height.figures["rmse"]["layout"]["yaxis"]
    assert [trace["line"]["dash"] for trace in height.figures["rmse"]["data"]][-1] == "dot"
    assert "baseline" not in height.figures


def test_every_round_has_its_bound(tmp_path):
    history = read_run(make_run(tmp_path / "a", rounds=60)).history
    chart = scores.trained("x", history)
    assert chart is not None
    assert chart.figures[""]["data"][0]["x"] == list(range(1, 61)), "also rounds without an evaluation"


def inked(value):
    """The figure with a real colour in place of the names of colours, as the page does it."""
    if isinstance(value, dict):
        return {key: inked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [inked(item) for item in value]
    return "#123456" if isinstance(value, str) and value.startswith("--") else value
