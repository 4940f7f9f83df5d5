"""Pages about images: what is compared, how it is written, and pictures that are drawn from pages."""

from __future__ import annotations

import json
import math
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_every_cell_is_another_and_can_be_made():
    from bench.images.pages import PAGES

    for page in PAGES.values():
        cells = list(page.cells(2))
        assert len({page.key(cell) for cell in cells}) == len(cells)
        assert all(cell.made().name == cell.method for cell in cells)


def test_a_page_has_means_over_seeds_and_says_which_seeds_are_missing():
    from bench.images.pages import PAGES

    page = PAGES["parts"]
    first, second = (next(cell for cell in page.cells(2) if cell.seed == seed) for seed in (0, 1))
    scores = {"accuracy": 0.9, "mse": 0.5, "nll": 0.2, "ece": 0.01}
    known = {page.key(first): scores, page.key(second): scores | {"accuracy": 0.8}}
    assert "| pfed-hier | 85.00 ± 7.07 | 0.500 ± 0.000 |" in page.text(known, 2, "the command")
    text = page.text({page.key(first): scores}, 2, "the command")
    assert "| pfed-hier (1 of 2 seeds) | 90.00 |" in text
    assert "each task alone" not in text
    assert "`the command`" in text


def test_cells_are_read_back(tmp_path):
    from bench.images.cells import keep, known

    path = tmp_path / "runs" / "cells.jsonl"
    assert known(path) == {}
    keep(path, "a", {"mse": 1.0})
    keep(path, "b", {"mse": 2.0})
    assert known(path) == {"a": {"mse": 1.0}, "b": {"mse": 2.0}}
    assert len([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]) == 2


def test_columns_of_a_page_are_its_numbers():
    from bench.pictures import columns

    page = """# A title

**celeba**

| method | MSE | published | accuracy % | mean rank |
|:--|--:|--:|--:|--:|
| fedavg | 0.545 ± 0.068 (3) | 0.672 | 81.33 (1) | 2.00 |
| pfed-hier | 0.468 (1) | – | – | 1.00 |
"""
    mse, accuracy = columns(page)
    assert (mse.table, mse.heading, mse.methods) == ("celeba", "MSE", ["fedavg", "pfed-hier"])
    assert mse.values == [0.545, 0.468]
    assert mse.stds[0] == 0.068
    assert math.isnan(mse.stds[1])
    assert mse.published is not None
    assert mse.published[0] == 0.672
    assert accuracy.values[0] == 81.33
    assert math.isnan(accuracy.values[1])
    assert accuracy.published is None


def test_the_committed_pictures_have_their_pages():
    from bench.pictures import DRAWN, columns

    for name, (page, _) in DRAWN.items():
        folder = ROOT / "docs" / "results"
        assert (folder / f"{name}.png").is_file()
        shown = list(columns((folder / f"{page}.md").read_text(encoding="utf-8")))
        assert shown
        if page != "trained":  # no network is learned below shared functions
            assert all("pfed-hier" in column.methods for column in shown)
