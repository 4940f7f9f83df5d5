"""A real browser, where there is one: Debian's chromium, driven by playwright."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))  # run_folders.py and serving.py

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HERE = ("file:", "data:", "blob:", "http://127.0.0.1:")


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser) -> Callable:
    """Opens a page; when the test ends, it must have had no error and asked nothing of other machines."""
    pages, troubles = [], []

    def note(message):
        if message.type in ("error", "warning"):
            troubles.append(message.text)

    def opened(url, width=1280, height=900, allowed=(), **options):
        page = browser.new_page(viewport={"width": width, "height": height}, **options)
        pages.append(page)
        page.on("console", lambda m: None if any(text in m.text for text in allowed) else note(m))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda r: None if r.url.startswith(HERE) else troubles.append(f"asked for {r.url}"))
        page.goto(url)
        return page

    yield opened
    for page in pages:
        page.close()
    assert troubles == []
