"""The report in a browser: it draws, its selectors work, it fits a phone, follows the theme and can be printed."""

from __future__ import annotations

import pytest
from run_folders import make_run

from polyfed.report import write_report

NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two methods, two seeds, a name that is markup, and one of every section."""
    tmp_path = tmp_path_factory.mktemp("runs")
    folders = [
        make_run(
            tmp_path / f"{method}-{seed}",
            method=method,
            seed=seed,
            models=("personal", "global"),
            clients=("basel", NASTY, "a client with quite a long name in_one_piece_without_a_place_to_break_it"),
            tasks={"height": "regression", "high": "binary", "stage of the disease": "multiclass", "visits": "count"},
            refused={2: {"basel": "its norm is 1e9 times the median"}},
            command=["polyfed", "run", "--data", "a-very-long-name-of-a-file/" * 6],
        )
        for method in ("pfed-mul", "local")
        for seed in (0, 1)
    ]
    return write_report(folders, tmp_path / "report.html").as_uri()


def plotted(page):
    """The titles of the charts that are drawn."""
    return page.evaluate(
        "[...document.querySelectorAll('.chart')].filter(c => c.querySelector('.main-svg')).map(c => c.dataset.chart)"
    )


def drawn(page, chart):
    """What plotly holds for a chart: its traces' values, and the colour of its text."""
    return page.evaluate(
        "id => { const p = document.querySelector(`[data-chart='${id}'] .plot`);"
        " return {y: p.data.map(t => t.y), ink: p.layout.font.color, axis: p.layout.yaxis.title.text}; }",
        chart,
    )


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_all_charts_of_the_chosen_run_are_drawn(open_page, report):
    page = open_page(report)
    shown = plotted(page)
    assert "all-curve-0" in shown
    assert {chart.split("-")[0] for chart in shown} == {"all", "run0"}
    assert page.locator(".run:visible .chart:visible").count() == sum(chart.startswith("run0") for chart in shown)
    assert page.locator("img").count() == 0, "a name is not markup"


def test_another_run_can_be_chosen_with_the_keyboard(open_page, report):
    page = open_page(report)
    choice = page.get_by_label("Run", exact=True)
    choice.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen"
    page.keyboard.press("ArrowDown")
    assert choice.input_value() == "run1"
    assert page.locator("[data-run=run0]").is_hidden()
    assert page.locator("[data-run=run1]").is_visible()
    assert "run1-curve-0" in plotted(page)


def test_another_metric_can_be_chosen(open_page, report):
    page = open_page(report)
    before = drawn(page, "run0-curve-0")
    page.locator("[data-chart=run0-curve-0] select").select_option("nlpd")
    after = drawn(page, "run0-curve-0")
    assert (before["axis"], after["axis"]) == ("RMSE", "NLPD")


def test_another_client_can_be_chosen_with_the_keyboard(open_page, report):
    page = open_page(report)
    before = [drawn(page, f"run0-latent-{i}")["y"] for i in (0, 1)]
    page.locator("#run0-latent-client").focus()
    page.keyboard.press("ArrowDown")
    after = [drawn(page, f"run0-latent-{i}")["y"] for i in (0, 1)]
    assert before[0] != after[0]
    assert before[1] != after[1], "all charts of the section follow"


def test_every_metric_opens_with_the_keyboard(open_page, report):
    page = open_page(report)
    table = page.get_by_label("Every metric by method and task")
    assert table.is_hidden()
    page.get_by_text("Every metric", exact=True).focus()
    page.keyboard.press("Enter")
    assert table.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_no_sideways_scroll(open_page, report, scheme):
    page = open_page(report, width=360, height=740, color_scheme=scheme)
    page.get_by_text("Every metric", exact=True).click()
    assert fits(page)
    page.get_by_label("Run", exact=True).select_option("run3")
    assert fits(page)


def test_charts_follow_the_theme(open_page, report):
    page = open_page(report, color_scheme="light")
    light = drawn(page, "run0-curve-0")["ink"]
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "ink => document.querySelector('[data-chart=run0-curve-0] .plot').layout.font.color !== ink", arg=light
    )
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in background[4:-1].split(",")) < 60, "dark is dark"


def test_paper_is_light_and_holds_the_charts(open_page, report):
    page = open_page(report, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_function("() => document.querySelector('[data-chart=run0-curve-0] .plot').layout.width === 660")
    assert drawn(page, "run0-curve-0")["ink"] == "#1f2630"
    assert page.locator("nav").first.is_hidden()
    page.emulate_media(media="screen")
    page.wait_for_function("() => document.querySelector('[data-chart=run0-curve-0] .plot').layout.width !== 660")


def test_a_run_without_results_has_a_page_too(open_page, tmp_path):
    folder = make_run(tmp_path / "a", played=0, found=None)
    page = open_page(write_report([folder], tmp_path / "report.html").as_uri())
    assert page.get_by_text("There is no results.json yet").count() == 6
