"""The live page in a browser: it follows a run that grows, is killed, resumed and done."""

from __future__ import annotations

import os
import time

import pytest
from run_folders import evaluation_event, make_run, results, round_event, start_event, write_lines
from serving import served

NOT_THERE = (
    "ERR_CONNECTION_REFUSED",
    "ERR_EMPTY_RESPONSE",
    "ERR_CONNECTION_RESET",
)  # what chromium says of a server that is gone


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "a", rounds=10, completed=2, found=None)


def state_is(page, state):
    page.wait_for_function("state => document.getElementById('state').textContent === state", arg=state, timeout=15_000)


def round_is(page, round):
    page.wait_for_function("n => document.getElementById('progress').value === n", arg=round, timeout=15_000)


def rounds_drawn(page, chart="live-curve-0"):
    return page.evaluate("id => document.querySelector(`[data-chart='${id}'] .plot`).shown.data[0].x", chart)


def add(folder, *rounds):
    for number in rounds:
        new = [round_event(number)] + ([evaluation_event(number)] if number % 2 == 0 else [])
        write_lines(folder / "events.jsonl", new, mode="a")


def test_a_run_is_followed_and_what_is_chosen_stays_chosen(open_page, folder):
    with served(folder) as url:
        page = open_page(url)
        round_is(page, 2)
        state_is(page, "running")
        assert "2 of 10" in page.locator("#facts").inner_text()
        assert "≈ 24 s" in page.locator("#facts").inner_text()
        page.locator("[data-chart=live-curve-0] select").focus()
        page.keyboard.press("ArrowDown")
        chosen = page.locator("[data-chart=live-curve-0] select").input_value()
        add(folder, 3, 4)
        round_is(page, 4)
        assert rounds_drawn(page) == [2, 4]
        assert rounds_drawn(page, "live-training") == [1, 2, 3, 4], "every round has its bound"
        assert page.locator("[data-chart=live-curve-0] select").input_value() == chosen != "rmse"
        assert page.locator("[data-chart=live-bytes] .chart-title").inner_text() == "19.2 kB in 4 rounds"


def test_a_killed_and_resumed_run_is_followed(open_page, folder):
    with served(folder) as url:
        page = open_page(url)
        add(folder, 3, 4, 5)
        round_is(page, 5)
        write_lines(folder / "events.jsonl", [start_event(), round_event(1), round_event(2), evaluation_event(2)])
        round_is(page, 2)
        assert rounds_drawn(page, "live-bytes") == [1, 2]
        add(folder, 3, 4)
        round_is(page, 4)
        assert rounds_drawn(page, "live-bytes") == [1, 2, 3, 4]


def test_a_run_is_waited_for_until_it_is_done(open_page, tmp_path):
    with served(tmp_path / "later") as url:
        page = open_page(url)
        state_is(page, "waiting")
        folder = make_run(tmp_path / "later", completed=1, found=None)
        state_is(page, "running")
        add(folder, 2, 3, 4)
        state_is(page, "finished")
        assert page.locator("#progress").evaluate("bar => bar.value === bar.max")


def test_a_quiet_run_counts_as_stopped(open_page, folder):
    then = time.time() - 3600
    for path in folder.iterdir():
        os.utime(path, (then, then))
    with served(folder) as url:
        page = open_page(url)
        state_is(page, "stopped")
        add(folder, 3)
        state_is(page, "running")


def test_the_page_waits_for_its_server(open_page, folder):
    with served(folder) as url:
        page = open_page(url, allowed=NOT_THERE)
        state_is(page, "running")
    state_is(page, "away")
    with served(folder, int(url.rstrip("/").rpartition(":")[2])):
        state_is(page, "running")


def test_rejections_are_shown_as_they_are_written(open_page, tmp_path):
    rejected = {1: {"<img src=x onerror=alert(1)>": "too large"}}
    folder = make_run(tmp_path / "a", completed=2, rejected=rejected, found=None)
    with served(folder) as url:
        page = open_page(url)
        page.get_by_role("cell", name="<img src=x onerror=alert(1)>").wait_for()
        assert page.locator("img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_no_sideways_scroll(open_page, tmp_path, scheme):
    folder = make_run(tmp_path / "a", rejected={1: {"basel": "a_reason_in_one_piece" * 10}}, found=results())
    with served(folder) as url:
        page = open_page(url, width=360, height=740, color_scheme=scheme)
        state_is(page, "finished")
        assert page.locator(".plot svg").count() > 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
