"""The report in a browser: it draws, its selectors work, it fits a phone, follows the theme and can be printed."""

from __future__ import annotations

import pytest
from run_folders import make_run, results

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
            rejected={2: {"basel": "its norm is 1e9 times the median"}},
            command=["polyfed", "run", "--data", "a-very-long-name-of-a-file/" * 6],
        )
        for method in ("pfed-mul", "local")
        for seed in (0, 1)
    ]
    return write_report(folders, tmp_path / "report.html").as_uri()


@pytest.fixture(scope="module")
def several_inputs(tmp_path_factory):
    """A method and learning alone, with inputs of two dimensions, guesses and a yardstick without privacy."""
    tmp_path, clients = tmp_path_factory.mktemp("inputs"), ("basel", "bern", NASTY)
    tasks = {"height": "regression", "high": "binary"}
    folders = [
        make_run(
            tmp_path / method,
            method=method,
            clients=clients,
            tasks=tasks,
            guess=True,
            described={"pools_data": method.endswith("pooled")},
            found=results(clients, tasks, one_dimensional=False),
        )
        for method in ("pfed-mul", "local", "sklearn-hgb-pooled")
    ]
    return write_report(folders, tmp_path / "report.html").as_uri()


def plotted(page):
    """The titles of the charts that are drawn."""
    return page.evaluate(
        "[...document.querySelectorAll('.chart')].filter(c => c.querySelector('.plot svg')).map(c => c.dataset.chart)"
    )


def drawn(page, chart):
    """What is seen of a chart: the ways of its lines, the texts of its axes, and the colour of these."""
    return page.evaluate(
        "id => { const p = document.querySelector(`[data-chart='${id}'] .plot svg`);"
        " const texts = [...p.querySelectorAll('text')];"
        " return {lines: [...p.querySelectorAll('path')].map(l => l.getAttribute('d')),"
        " texts: texts.map(t => t.textContent), ink: getComputedStyle(texts[0]).fill}; }",
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
    assert "RMSE" in before["texts"]
    assert "NLPD" in after["texts"]
    assert "RMSE" not in after["texts"]


def test_another_client_can_be_chosen_with_the_keyboard(open_page, report):
    page = open_page(report)
    before = [drawn(page, f"run0-latent-{i}")["texts"] for i in (0, 1)]
    page.locator("#run0-latent-client").focus()
    page.keyboard.press("ArrowDown")
    after = [drawn(page, f"run0-latent-{i}")["texts"] for i in (0, 1)]
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
    assert drawn(page, "run0-curve-0")["ink"] != light
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in background[4:-1].split(",")) < 60, "dark is dark"


def test_paper_is_light_and_holds_the_charts(open_page, report):
    light = drawn(open_page(report, color_scheme="light"), "run0-curve-0")["ink"]
    page = open_page(report, color_scheme="dark")
    assert drawn(page, "run0-curve-0")["ink"] != light
    page.emulate_media(media="print", color_scheme="dark")
    assert drawn(page, "run0-curve-0")["ink"] == light
    assert page.locator("nav").first.is_hidden()
    page.set_viewport_size({"width": 660, "height": 900})  # across a sheet of A4, between its margins
    assert fits(page)


def test_a_line_can_be_hidden_and_shown(open_page, report):
    page = open_page(report)
    chart = page.locator("[data-chart=run0-curve-0]")
    before = chart.locator("path[data-series]").count()
    key = chart.get_by_role("button", name="test", exact=True)
    key.click()
    assert chart.locator("path[data-series]").count() == before - 1
    assert key.get_attribute("aria-pressed") == "false"
    key.click()
    assert chart.locator("path[data-series]").count() == before


def test_what_one_points_at_is_told(open_page, report):
    page = open_page(report)
    page.locator("[data-chart=run0-bytes]").scroll_into_view_if_needed()
    page.locator("[data-chart=run0-bytes] rect").last.hover()
    told = page.locator("[data-chart=run0-bytes] .tip")
    assert told.is_visible()
    assert told.inner_text().startswith("round ")
    assert told.inner_text().endswith("bytes")


@pytest.mark.parametrize("width", [1280, 360])
def test_the_table_of_clients_sorts_and_filters(open_page, report, width):
    page = open_page(report, width=width)
    rows = page.locator("#run0-table tbody tr")
    heading = page.locator("#run0-table thead").get_by_role("button", name="height RMSE")

    def values():
        at = page.locator("#run0-table thead th").evaluate_all(
            "all => all.findIndex(h => h.textContent.includes('height RMSE'))"
        )
        return rows.evaluate_all("(rows, at) => rows.map(row => Number(row.cells[at].dataset.value))", at)

    heading.click()
    assert values() == sorted(values(), reverse=True)
    heading.press("Enter")
    assert values() == sorted(values())
    page.get_by_label("Find a client").first.fill("BASEL")
    assert [row.locator("th").inner_text() for row in rows.all() if row.is_visible()] == ["basel"]


@pytest.mark.parametrize("width", [1280, 360])
def test_what_is_new_is_seen(open_page, several_inputs, width):
    page = open_page(several_inputs, width=width)
    shown = plotted(page)
    for chart in ("all-ranks", "all-gain-0", "run0-balance-0", "run0-coverage-0", "run0-effect-0-0", "run0-importance"):
        assert chart in shown
        box = page.locator(f"[data-chart={chart}] .plot svg").bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 80
    assert page.get_by_text("all rows pooled: no privacy").count() == 2, "in both tables of scores"
    assert page.get_by_text("No model").first.is_visible()
    assert fits(page)
    before = drawn(page, "run0-effect-0-0")["texts"]
    page.locator("#run0-effect-client").select_option("1")
    assert drawn(page, "run0-effect-0-0")["texts"] != before
    ticks = [float(text) for text in drawn(page, "run0-curve-1")["texts"] if "." in text]
    assert max(ticks) == 1.0, "an axis of accuracy ends there"


def test_a_run_without_results_has_a_page_too(open_page, tmp_path):
    folder = make_run(tmp_path / "a", completed=0, found=None)
    page = open_page(write_report([folder], tmp_path / "report.html").as_uri())
    assert page.get_by_text("There is no results.json yet").count() == 7
