"""Server and nodes in containers: a file that says what is in them, packages of PyPI alone, and one that starts them."""

from __future__ import annotations

from importlib.metadata import version

from polyfed.flower.deploy.layout import Deployment


def container_files(deployment: Deployment) -> dict[str, str]:
    """Name → text, for the folder of the server."""
    return _image_files() | {"compose.yaml": _SERVER.format(port=deployment.port)}


def node_container_files(name: str) -> dict[str, str]:
    """Name → text, for the folder of a node."""
    return _image_files() | {"compose.yaml": _NODE.format(name=name.lower())}


def _image_files() -> dict[str, str]:
    from polyfed import __version__

    # An image is built of packages alone: no key, state or run of this folder is handed to the engine that builds it.
    return {"Containerfile": _IMAGE.format(polyfed=__version__, flwr=version("flwr")), ".dockerignore": "*\n"}


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
_SERVER = """\
# docker compose up -d, in this folder. The server must listen at all addresses: bind = "0.0.0.0" in deploy.toml.
services:
  server:
    build: {{context: ., dockerfile: Containerfile}}
    command: ["server", "."]
    user: "${{UID:-1000}}:${{GID:-1000}}"
    ports: ["{port}:{port}"]
    volumes: [".:/deployment"]
    init: true
    restart: on-failure
    stop_grace_period: 40s
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    logging: {{driver: local, options: {{max-size: 10m, max-file: "5"}}}}
"""

_NODE = """\
# TABLE=/data/{name}.csv docker compose up -d, in this folder.
services:
  node-{name}:
    build: {{context: ., dockerfile: Containerfile}}
    command: ["node", ".", "--data", "/data/table.csv"]
    user: "${{UID:-1000}}:${{GID:-1000}}"
    volumes: [".:/deployment", "${{TABLE:?name the table}}:/data/table.csv:ro"]
    init: true
    restart: on-failure
    stop_grace_period: 40s
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    logging: {{driver: local, options: {{max-size: 10m, max-file: "5"}}}}
"""
