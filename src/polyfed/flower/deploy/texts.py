"""The texts of a deployment: the Flower app (two lines: all it does is in polyfed) and a study; what starts a server or a node on
its machine, alone, with systemd or in a container; and which file goes where."""

from __future__ import annotations

from importlib.metadata import version

from polyfed import __version__
from polyfed.defaults import METHOD
from polyfed.experiments.toml_text import to_toml
from polyfed.flower.deploy.layout import Deployment, address
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


def server_files() -> dict[str, str]:
    """Name → text, for the folder of the server."""
    here = "/srv/polyfed"
    unit = _UNIT.format(what="server", folder=here, script=f"{here}/server/start.sh", remark="")
    return {"start.sh": _SERVER_SCRIPT, "polyfed-server.service": unit}


def files_of_all(deployment: Deployment) -> dict[str, str]:
    """Name → text, for the folder of all: a study, which file goes where, what runs the server in a container."""
    readme = _README.format(
        address=address(deployment.host, deployment.port),
        port=deployment.port,
        rows="\n".join(f"| `nodes/{name}/` | the machine of {name} | {_KEY} |" for name in deployment.nodes),
        node=deployment.nodes[0] if deployment.nodes else "basel",
    )
    study = _STUDY.replace("KINDS", ", ".join(KINDS)).replace("METHOD", METHOD)
    listening = 'The server must listen at all addresses: bind = "0.0.0.0" in deploy.toml.'
    compose = _COMPOSE.format(
        how=f"docker compose up -d, in this folder. {listening}",
        service="server",
        command='["server", "."]',
        mounts=f'ports: ["{deployment.port}:{deployment.port}"]\n    volumes: [".:/deployment"]',
    )
    return {"study.toml": study, "README.md": readme, **_image_files(), "compose.yaml": compose}


def node_files(name: str) -> dict[str, str]:
    """Name → text, for the folder of a node."""
    here, service = f"/srv/polyfed/{name}", name.lower()
    compose = _COMPOSE.format(
        how=f"TABLE=/data/{service}.csv docker compose up -d, in this folder.",
        service=f"node-{service}",
        command='["node", ".", "--data", "/data/table.csv"]',
        mounts='volumes: [".:/deployment", "${TABLE:?name the table}:/data/table.csv:ro"]',
    )
    remark = " node.toml may name the data."
    unit = _UNIT.format(what=f"node {name}", folder=here, script=f"{here}/start.sh", remark=remark)
    files = {"start.sh": _NODE_SCRIPT, f"polyfed-node-{name}.service": unit}
    return files | _image_files() | {"compose.yaml": compose}


def _image_files() -> dict[str, str]:
    # An image is built of packages alone: no key, state or run of this folder is handed to the engine that builds it.
    return {"Containerfile": _IMAGE.format(polyfed=__version__, flwr=version("flwr")), ".dockerignore": "*\n"}


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

_KEY = "yes: `node.key` is what makes a machine this node"

_SERVER_SCRIPT = """\
#!/bin/sh
# Starts the server; POLYFED may name another polyfed than the one on the PATH.
set -eu
cd "$(dirname "$0")/.."
exec "${POLYFED:-polyfed}" deploy server . "$@"
"""

_NODE_SCRIPT = """\
#!/bin/sh
# Starts the node: start.sh --data TABLE.csv. POLYFED may name another polyfed than the one on the PATH.
set -eu
exec "${POLYFED:-polyfed}" deploy node "$(dirname "$0")" "$@"
"""

# Exit codes 2, 3, 4 and 6 (usage, settings, data, not installed) are for a person: starting again would not help.
_UNIT = """\
# To /etc/systemd/system, after correcting the three lines with paths and the user.{remark}
[Unit]
Description=polyfed {what}
After=network-online.target
Wants=network-online.target

[Service]
User=polyfed
Environment=POLYFED=/opt/polyfed/bin/polyfed
WorkingDirectory={folder}
ExecStart=/bin/sh {script}
Restart=on-failure
RestartSec=10
RestartPreventExitStatus=2 3 4 6
KillMode=mixed
TimeoutStopSec=40
UMask=0077
NoNewPrivileges=true

[Install]
WantedBy=multi-user.target
"""

_IMAGE = """\
# The same image for the server and the nodes; the folder of either is mounted at /deployment.
FROM docker.io/library/python:3.12-slim
# The default build of torch brings CUDA along: --build-arg PIP_EXTRA_INDEX_URL=... names an index with the small CPU build.
ARG PIP_EXTRA_INDEX_URL
RUN pip install --no-cache-dir 'polyfed[flower]=={polyfed}' 'flwr=={flwr}' && useradd --uid 1000 polyfed
USER polyfed
WORKDIR /deployment
ENTRYPOINT ["polyfed", "deploy"]
"""

# The user in the container must be able to write to the folder, hence its number. The logs are the engine's, and rotate.
_COMPOSE = """\
# {how}
services:
  {service}:
    build: {{context: ., dockerfile: Containerfile}}
    command: {command}
    user: "${{UID:-1000}}:${{GID:-1000}}"
    {mounts}
    init: true
    restart: on-failure
    stop_grace_period: 40s
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    logging: {{driver: local, options: {{max-size: 10m, max-file: "5"}}}}
"""

_README = """\
# A deployment of polyfed

The server is `{address}`. Install `polyfed[flower]`, the same version, on every machine.

| file or folder | goes to | secret? |
|---|---|---|
| `ca/ca.key` | a safe place; needed for `polyfed deploy renew` alone | **yes: it never goes to another machine** |
| `ca/ca.crt` | all machines; the nodes' folders have it already | no |
| `server/` | the server | **yes: `server.key` never leaves it** |
| `server/keys/*.pub` | the server | no |
{rows}
| `flower/`, `app/`, `deploy.toml`, `study.toml` | the server, and any machine from which runs are started | no |

1. This folder, without `nodes/` and `ca/ca.key`, is the server's. Start it there: `sh server/start.sh`
2. Copy each folder of `nodes/` to its machine, over a channel you trust (`scp -rp`), then delete its `node.key` here.
   Start it there: `sh start.sh --data TABLE.csv` (in `nodes/{node}`: `cd {node} && sh start.sh --data TABLE.csv`).
3. Edit `study.toml`, then, on the server: `polyfed deploy run . study.toml`
4. Who is online, and which runs there are: `polyfed deploy status .`; is all well: `polyfed deploy doctor .`

A further node: `polyfed deploy add . NAME`; one less: `polyfed deploy revoke . NAME`. The `.service` files start server and
nodes with the machine (systemd); `Containerfile` and `compose.yaml` are for containers.

Port {port} of the server must be open to the nodes, and to nobody else: Flower does not ask who starts a run, so whoever
reaches this port can start one on all nodes, and nodes with `--stock` run code that comes with it.
"""
