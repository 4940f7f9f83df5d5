"""The documentation site. `make docs` builds it without a network; a warning, a broken link or a cell that fails ends it."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

import polyfed  # noqa: E402

project = "polyfed"
author = "the polyfed authors"
copyright = author
release = version = polyfed.__version__

extensions = [
    "myst_nb",  # pages are Markdown; cells of tutorials are run when the site is built
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.bibtex",
    "console",  # commands of cells, as they are typed
    "docstrings",  # docstrings as they are written in the code
    "generated",  # pages that the code writes itself
    "source_links",  # links to files of the repository
    "links",  # every link and anchor is followed
]

exclude_patterns = ["_build", "_ext", "reference/generated/_*"]
nitpicky = False
root_doc = "index"
language = "en"

# ---- Markdown and cells -----------------------------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist", "tasklist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
nb_execution_mode = "force"
nb_execution_timeout = 600  # ends what hangs; a cell takes seconds, the first of all compiles for 20 s
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True
nb_render_markdown_format = "myst"
suppress_warnings = ["myst.strikethrough"]
# Cells run in processes of their own; they find these sources, one thread each, and a stable width of tables.
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE / "_ext"), str(Path(polyfed.__file__).parents[1])])
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # !polyfed
os.environ["MATPLOTLIBRC"] = str(HERE / "_ext" / "matplotlibrc")
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("COLUMNS", "110")
# A kernel says at every start that its port on 127.0.0.1 is not encrypted; the build shows its own warnings alone.
os.environ["IPYTHONDIR"] = str(HERE / "_build" / "ipython")
_PROFILE = HERE / "_build" / "ipython" / "profile_default"
_PROFILE.mkdir(parents=True, exist_ok=True)
(_PROFILE / "ipython_kernel_config.json").write_text('{"IPKernelApp": {"log_level": 40}}')

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "unsrt"
bibtex_reference_style = "author_year"

# ---- Python -----------------------------------------------------------------------------------------------------
default_role = "code"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = False
python_display_short_literal_types = True
python_maximum_signature_line_length = 88

# ---- HTML -------------------------------------------------------------------------------------------------------
html_theme = "pydata_sphinx_theme"
html_title = "polyfed"
html_static_path = ["_static"]
html_css_files = ["polyfed.css"]
html_show_sourcelink = False
html_copy_source = False
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_context = {"default_mode": "auto"}  # light or dark as the reader's system is
html_sidebars = {"index": [], "gallery": []}
html_theme_options = {
    "logo": {"text": "polyfed", "alt_text": "polyfed: to the front page"},
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "show_prev_next": True,
    "show_nav_level": 1,
    "navigation_depth": 3,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "back_to_top_button": True,
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# MathJax comes from a package, so that neither the build nor a reader needs a network; one file has all of it.
mathjax_path = "tex-svg.js"
mathjax3_config = {"svg": {"fontCache": "global"}, "options": {"enableMenu": False}}


def _mathjax() -> Path:
    files = importlib.metadata.files("sphinx-mathjax-offline") or []
    (found,) = [file for file in files if file.as_posix().endswith("static/mathjax/tex-svg.js")]
    return Path(str(found.locate()))


def _copy_mathjax(app, exception):
    if exception is None and app.builder.format == "html":
        (Path(app.outdir) / "_static" / "tex-svg.js").write_bytes(_mathjax().read_bytes())


def setup(app):
    app.connect("build-finished", _copy_mathjax, priority=100)
