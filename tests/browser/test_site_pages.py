"""The documentation site in a browser: desktop and phone, light and dark, formulas, search, nothing asked of other machines."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

SITE = Path(__file__).resolve().parents[2] / "docs" / "_build" / "html"
PAGES = [
    "index.html",
    "start/own-table.html",
    "tutorials/few-labels.html",
    "reference/api/estimators.html",
    "reference/generated/cli.html",
    "results/tables.html",
    "explanation/notation.html",
    "gallery.html",
]
WIDTHS = {"desktop": 1280, "phone": 390}
CONTRAST = """element => {
    const light = colour => {
        const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map(v => v / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const text = light(getComputedStyle(element).color), ground = light(getComputedStyle(document.body).backgroundColor);
    return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
}"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def open_site(open_page):
    def opened(page, **options):
        if not (SITE / page).is_file():
            pytest.skip("the site is not built; make docs")
        return open_page((SITE / page).as_uri(), **options)

    return opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_and_can_be_read(open_site, page, width, scheme):
    shown = open_site(page, width=width, color_scheme=scheme)
    assert shown.locator("h1").is_visible()
    assert shown.evaluate("document.documentElement.scrollWidth") <= width, "a page never scrolls sideways"
    assert shown.evaluate("document.documentElement.dataset.theme") == scheme
    assert shown.locator("article p").first.evaluate(CONTRAST) >= 4.5  # WCAG 2.2 AA
    broken = shown.evaluate(
        "[...document.images].filter(i => i.complete && !i.naturalWidth && i.checkVisibility()).map(i => i.src)"
    )
    assert broken == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "picture"), [(1280, "wide"), (390, "narrow")])
def test_the_front_page_has_one_picture_made_for_its_screen(open_site, width, picture, scheme):
    shown = open_site("index.html", width=width, color_scheme=scheme)
    visible = shown.locator("article img:visible")
    assert visible.count() == 1
    assert set((visible.get_attribute("class") or "").split()) >= {picture, f"only-{scheme}"}


def test_formulas_are_drawn_without_a_network(open_site):
    shown = open_site("explanation/notation.html")
    shown.locator("mjx-container svg").first.wait_for()
    assert shown.locator("mjx-container svg").count() > 10


def test_the_search_finds_a_public_name(open_page):
    if not (SITE / "search.html").is_file():
        pytest.skip("the site is not built; make docs")
    handler = partial(Quiet, directory=str(SITE))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:  # excerpts of what was found are fetched
        Thread(target=server.serve_forever, daemon=True).start()
        shown = open_page(f"http://127.0.0.1:{server.server_port}/search.html?q=MultiTaskGP")
        hits = shown.locator("#search-results li a")
        hits.first.wait_for()
        assert any("estimators" in (hit.get_attribute("href") or "") for hit in hits.all())
        shown.wait_for_load_state("networkidle")
        server.shutdown()


def test_a_phone_reaches_every_part_through_the_menu(open_site):
    shown = open_site("tutorials/few-labels.html", width=390)
    shown.locator("button.primary-toggle").click()
    menu = shown.locator("#pst-primary-sidebar-modal, #pst-primary-sidebar").locator("visible=true").first
    for part in ("Start", "Tutorials", "Reference", "Results"):
        assert menu.get_by_role("link", name=part, exact=True).first.is_visible()
