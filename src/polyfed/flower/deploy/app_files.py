"""The Flower app and the study: what a run is made of. The app is two lines; what it does is in polyfed, on every machine."""

from __future__ import annotations

from polyfed.defaults import METHOD
from polyfed.experiments.toml_text import to_toml
from polyfed.kinds import KINDS

# Flower rejects a run config whose keys the app does not declare; these are their defaults.
RUN_KEYS: dict[str, str | int | float] = {
    "study": "",  # TOML: the same document as for polyfed run, without a source
    "folder": "",  # of the run, an absolute path on the server
    "nodes": 1,  # clients to wait for before the first round
    "timeout": 600.0,  # seconds for one phase
    "wait": 120.0,  # seconds to wait for the nodes
    "lost": 3,  # rounds in a row without a quorum before the run gives up
}


def app_files() -> dict[str, str]:
    """Path → text of a Flower app that `flwr run` takes."""
    return {
        "pyproject.toml": _PROJECT.format(config=to_toml(RUN_KEYS).rstrip("\n")),
        "polyfed_app/__init__.py": '"""The Flower app of polyfed."""\n',
        "polyfed_app/client_app.py": _MODULE.format(what="What a node does", name="client_app"),
        "polyfed_app/server_app.py": _MODULE.format(what="What the server does", name="server_app"),
    }


def study_text() -> str:
    """A study to be edited."""
    return _STUDY.replace("KINDS", ", ".join(KINDS)).replace("METHOD", METHOD)


_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "polyfed-app"
version = "1.0.0"
description = "Personalised Bayesian federated learning with polyfed"
license = "Apache-2.0"
dependencies = []  # polyfed[flower] is installed on every machine beforehand: Flower shall not fetch its own copy

[tool.flwr.app]
publisher = "polyfed"

[tool.flwr.app.components]
serverapp = "polyfed_app.server_app:app"
clientapp = "polyfed_app.client_app:app"

[tool.flwr.app.config]
{config}
"""

_MODULE = '''\
"""{what}: all of it is in polyfed."""

from polyfed.flower.{name} import app

__all__ = ["app"]
'''

_STUDY = """\
# What is learnt together. Every node has a table with these columns; no table leaves its machine. Edit, then run
#   polyfed deploy run . study.toml

[data]
# features = ["age", "sex"]  # the inputs; all columns that are no targets, if it is not given
# drop = ["number"]  # columns that are neither inputs nor targets
test = 0.2  # the share of each node's rows that is kept for testing
# scaling = "federated"  # or "local" (units of each node), "targets" (features as they are) or "none"

[data.tasks]  # the targets; kinds: KINDS
regression = ["pulse"]
# binary = ["sick"]

# [data.derive]
# disease = "num > 0"  # a column made from another by a comparison

[method]
name = "METHOD"  # see polyfed methods

[run]
rounds = 20
seed = 0
"""
