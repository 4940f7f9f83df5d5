"""Rows of new runs in a page of earlier ones."""

from __future__ import annotations

import pytest

from polyfed.errors import DataError
from polyfed.paper.beside import read_page, with_rows
from polyfed.paper.records import Record, _ranked
from polyfed.paper.tables import Table, tables

SAYS = "# A page\n\nWhat it says.\n\n"


def record(row, setting, metric, mean, published=None):
    return Record("celeba", setting, "", row, row, "a", metric, "", None, mean, 0.01, 3, published=published)


def page_of(rows):
    made = [
        record(row, setting, metric, value + shift, published)
        for row, (accuracy, mse, published) in rows.items()
        for setting, shift in (("10x20", 0.0), ("50x10", 0.01))
        for metric, value in (("accuracy", accuracy), ("mse", mse))
    ]
    return made, [table.markdown() for table in tables(_ranked(made))]


ALL = {
    "fedavg": (0.8, 0.5, 0.7),
    "local": (0.7, 0.8, None),
    "pfed-mul": (0.75, 0.6, 0.9),
    "pfed-hier": (0.78, 0.45, None),
}


def test_it_is_the_page_that_all_runs_together_would_have_made():
    _, (whole,) = page_of(ALL)
    _, (old,) = page_of({name: ALL[name] for name in list(ALL)[:3]})
    new, _ = page_of({"pfed-hier": ALL["pfed-hier"]})
    page = with_rows(f"{SAYS}{old}\n\n- command: `x`\n", tables(_ranked(new)), ["run later: pfed-hier"])
    assert page == f"{SAYS}{whole}\n\n- command: `x`\n- run later: pfed-hier\n"


def test_a_row_that_is_there_already_is_replaced():
    _, (whole,) = page_of(ALL)
    _, (old,) = page_of({**ALL, "pfed-hier": (0.76, 0.55, None)})
    kept = {name: ALL[name] for name in list(ALL)[:3]}
    _, (before,) = page_of(kept)
    new, _ = page_of({"pfed-hier": ALL["pfed-hier"]})
    assert with_rows(old, tables(_ranked(new)), []).strip() == whole.strip()
    assert with_rows(before, tables(_ranked(new)), []).strip() == whole.strip()


def test_other_tables_and_rounds_stay_and_higher_accuracies_are_better_there_too():
    page = "**wards**\n\n| method | MSE |\n|:--|--:|\n| a | 1 |\n\n"
    page += "**celeba, accuracy % by round**\n\n| method | round 1 |\n|:--|--:|\n| a | 70.00 (1) |\n"
    made = with_rows(page, [Table("celeba, accuracy % by round", ["method", "round 1"], [["b", "80.00 ± 1.00"]])], [])
    assert "| a | 1 |\n" in made
    assert "| a | 70.00 (2) |\n| b | 80.00 ± 1.00 (1) |" in made


def test_equal_numbers_share_the_rank_between():
    page = "**x**\n\n| method | MSE |\n|:--|--:|\n| a | 0.5 (1) |\n| b | 0.6 (2) |\n"
    made = with_rows(page, [Table("x", ["method", "MSE"], [["c", "0.6"]])], [])
    assert "| a | 0.5 (1) |\n| b | 0.6 (2.5) |\n| c | 0.6 (2.5) |" in made


def test_a_page_of_another_preset_and_one_that_is_not_there_are_told(tmp_path):
    with pytest.raises(DataError, match="no table 'celeba'"):
        with_rows(SAYS, [Table("celeba", ["method"], [["a"]])], [])
    with pytest.raises(DataError, match="cannot be read"):
        read_page(tmp_path / "absent.md")
