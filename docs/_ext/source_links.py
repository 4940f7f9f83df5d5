"""Links of the pages to files of the repository, such as ../src/polyfed/gp/prior.py: the file is shown beside the site."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.transforms import SphinxTransform

TARGETS = {"README.md": "index", "../README.md": "index"}


class SourceLinks(SphinxTransform):
    """Before Markdown links are resolved: the README is the front page, a folder is its name alone."""

    default_priority = 5

    def apply(self, **_):
        from sphinx import addnodes

        here = Path(self.env.doc2path(self.env.docname)).parent
        root = Path(self.env.srcdir).parent
        for node in list(self.document.findall(addnodes.pending_xref)):
            target = node.get("reftarget", "")
            path = (here / target).resolve()
            if path == root / "README.md":
                node["reftype"], node["refdomain"] = "myst", ""
                node["reftarget"] = "/index.md"
        for node in list(self.document.findall(addnodes.download_reference)):
            path = (here / node.get("reftarget", "")).resolve()
            if path.is_dir():
                node.replace_self(nodes.inline("", "", *node.children))


def setup(app):
    app.add_transform(SourceLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
