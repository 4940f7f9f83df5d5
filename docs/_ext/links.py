"""Every link and anchor of the built site is followed, those that templates and raw HTML made included."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SKIPPED = ("_static/", "_modules/", "genindex", "py-modindex", "search.html")  # made by Sphinx and the theme


class Page(HTMLParser):
    """The anchors of a page, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.anchors: set[str] = set()
        self.targets: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        for name in ("href", "src"):
            if (value := given.get(name)) and tag in ("a", "img", "script", "link"):
                self.targets.add(value)


def broken_links(site: Path) -> list[str]:
    """What leads nowhere, as sentences; addresses of other machines are not followed."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        here = path.relative_to(site).as_posix()
        if here.startswith(SKIPPED):
            continue
        for target in sorted(page.targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            other = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not other.is_file():
                found.append(f"{here}: {target} is no file")
            elif parts.fragment and other in pages and unquote(parts.fragment) not in pages[other].anchors:
                found.append(f"{here}: {target} has no such anchor")
    return found


def _follow(app, exception):
    from sphinx.errors import ExtensionError  # here: the tests follow links where Sphinx is not installed

    if exception is None and app.builder.name == "html":
        found = broken_links(Path(app.outdir))
        if found:
            raise ExtensionError("links that lead nowhere:\n" + "\n".join(found))


def setup(app):
    app.connect("build-finished", _follow, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
