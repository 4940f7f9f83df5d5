"""The texts of a deployment: the Flower app (two lines: all it does is in polyfed) and a study; what starts a server or a node
on its machine, alone, with systemd or in a container; and which file goes where. They are in `files/`, to be filled in."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

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
    module = '"""What {} does: all of it is in polyfed."""\n\nfrom polyfed.flower.{} import app\n\n__all__ = ["app"]\n'
    return {
        "pyproject.toml": _text("pyproject.toml", config=to_toml(RUN_KEYS).rstrip("\n")),
        "polyfed_app/__init__.py": '"""The Flower app of polyfed."""\n',
        "polyfed_app/client_app.py": module.format("a node", "client_app"),
        "polyfed_app/server_app.py": module.format("the server", "server_app"),
    }


def files_of_all(deployment: Deployment) -> dict[str, str]:
    """Path → text, for the folder of all: a study, the app, which file goes where, what starts the server."""
    here = "/srv/polyfed"
    unit = _text("unit.service", what="server", folder=here, script=f"{here}/server/start.sh", remark="")
    files = {"server/start.sh": _text("server.sh"), "server/polyfed-server.service": unit}
    files |= {f"app/{path}": text for path, text in app_files().items()}
    key = "yes: `node.key` is what makes a machine this node"
    readme = _text(
        "README.md",
        address=address(deployment.host, deployment.port),
        port=deployment.port,
        rows="\n".join(f"| `nodes/{name}/` | the machine of {name} | {key} |" for name in deployment.nodes),
        node=deployment.nodes[0] if deployment.nodes else "basel",
    )
    listening = 'The server must listen at all addresses: bind = "0.0.0.0" in deploy.toml.'
    containers = _container_files(
        how=f"docker compose up -d, in this folder. {listening}",
        service="server",
        command='["server", "."]',
        mounts=f'ports: ["{deployment.port}:{deployment.port}"]\n    volumes: [".:/deployment"]',
    )
    study = _text("study.toml", kinds=", ".join(KINDS), method=METHOD)
    return files | {"study.toml": study, "README.md": readme, **containers}


def node_files(name: str) -> dict[str, str]:
    here, service = f"/srv/polyfed/{name}", name.lower()
    containers = _container_files(
        how=f"TABLE=/data/{service}.csv docker compose up -d, in this folder.",
        service=f"node-{service}",
        command='["node", ".", "--data", "/data/table.csv"]',
        mounts='volumes: [".:/deployment", "${TABLE:?name the table}:/data/table.csv:ro"]',
    )
    remark = " node.toml may name the data."
    # Exit codes 2, 3, 4 and 6 (usage, settings, data, not installed) are for a person: starting again would not help.
    unit = _text("unit.service", what=f"node {name}", folder=here, script=f"{here}/start.sh", remark=remark)
    return {"start.sh": _text("node.sh"), f"polyfed-node-{name}.service": unit, **containers}


def _container_files(**compose: str) -> dict[str, str]:
    # An image is built of packages alone: no key, state or run of this folder is handed to the engine that builds it.
    # The user in the container must be able to write to the folder, hence its number. The logs are the engine's, and rotate.
    image = _text("Containerfile", polyfed=__version__, flwr=version("flwr"))
    return {"Containerfile": image, ".dockerignore": "*\n", "compose.yaml": _text("compose.yaml", **compose)}


def _text(name: str, **values: object) -> str:
    """A file of `files/` with the values in place of `{…}`; as it is without values."""
    text = (Path(__file__).parent / "files" / f"{name}.in").read_text(encoding="utf-8")
    return text.format(**values) if values else text
