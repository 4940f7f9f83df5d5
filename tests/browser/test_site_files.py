"""The built site as files: every link leads somewhere, every cell left its output. Skipped where it is not built."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
import pages
from links import broken_links

pytestmark = pytest.mark.skipif(not (pages.SITE / "index.html").is_file(), reason="the site is not built; make docs")
NOTEBOOKS = [path for path in pages.sources() if "```{code-cell}" in pages.text_of(path)]


def test_the_built_site_has_no_broken_link():
    assert broken_links(pages.SITE) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.relative_to(pages.DOCS)))
def test_every_page_with_cells_shows_what_they_gave(path):
    html = (pages.SITE / path.relative_to(pages.DOCS).with_suffix(".html")).read_text(encoding="utf-8")
    assert "Traceback" not in html
    assert "pasted-text" in html or "{glue:" not in pages.text_of(path)
    shown = "cell_output" in html
    assert shown or path.stem == "index"  # whose only cell fills in the text
