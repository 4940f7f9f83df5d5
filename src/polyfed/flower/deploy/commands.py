"""Flower's programs: where they are, what they are given, and what `flwr` answers.

>>> node_config({"data": 'C:/my "best" table.csv', "rounds": 3})
'data="C:/my \\\\u0022best\\\\u0022 table.csv" rounds=3'
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyfed.errors import MissingExtraError, PolyfedError
from polyfed.experiments.toml_text import to_toml
from polyfed.flower.deploy.layout import Deployment

Note = Callable[[str], None]

RESTART = 60.0  # seconds for a server to take a new certificate
TIMEOUT = 120.0  # seconds for a command of flwr; it waits for a server that does not answer
OURS = {
    "FLWR_TELEMETRY_ENABLED": "0",  # nothing is sent to third parties
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "PYTHONUNBUFFERED": "1",  # what a program says is seen when it says it
}


def program(name: str) -> str:
    """The path of a program, which is beside this Python as a rule."""
    if found := shutil.which(name, path=environment(Path())["PATH"]):
        return found
    raise MissingExtraError(f"the program {name} is not there", remedy="pip install 'polyfed[flower]'")


def environment(home: Path) -> dict[str, str]:
    """The environment of all programs of Flower: they start each other by name, so the folder of this Python comes first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    # Compiled code is kept beside the sources or in the user's cache; the user of a service or a container may have neither.
    cache = os.environ.get("XDG_CACHE_HOME") or str(home / "cache")
    return {**os.environ, **OURS, "FLWR_HOME": str(home), "PATH": path, "XDG_CACHE_HOME": cache}


def shown(command: Sequence[str], home: Path) -> str:
    variables = {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
    before = " ".join(f"{key}={shlex.quote(value)}" for key, value in variables.items())
    return f"$ {before} {shlex.join([Path(command[0]).name, *command[1:]])}"


def node_config(values: Mapping[str, str | int | float]) -> str:
    """The values as Flower takes them on a command line: quotes inside texts would end them there, whatever precedes them."""
    return " ".join(
        to_toml({k: v}).rstrip("\n").replace('\\"', "\\u0022").replace(" = ", "=", 1) for k, v in values.items()
    )


def ask(deployment: Deployment, *arguments: str, note: Note | None = None) -> dict[str, Any]:
    """What `flwr ARGUMENTS` answers, as JSON; an error with its reason if it fails."""
    deployment.write_flower_config()
    command = [program("flwr"), *arguments, "--format", "json"]
    if note is not None:
        note(shown(command, deployment.flower_home))
    await_restart(deployment)
    answer = _run(command, deployment)
    try:
        document = json.loads(answer.stdout[answer.stdout.index("{") :])
    except ValueError:
        document = {"success": False, "error-message": answer.stderr + answer.stdout}
    if not document.get("success"):  # flwr ends with 0 even then
        remedy = f"is the server up? polyfed deploy server starts it, at {deployment.address}"
        # Flower reports the connection it uses first, and the reason of a failure last.
        said = [line.strip() for line in str(document.get("error-message", "")).splitlines()]
        reason = " ".join(line for line in said if line and not line.startswith("Using SuperLink")).rstrip(".")
        raise PolyfedError(reason or "no answer that can be read", where=f"flwr {arguments[0]}", remedy=remedy)
    return document


def await_restart(deployment: Deployment) -> None:
    end = time.monotonic() + RESTART
    while deployment.restarting.exists() and time.monotonic() < end:
        time.sleep(0.2)


def log_of(deployment: Deployment, run_id: str) -> str:
    return _run([program("flwr"), "log", run_id, "--show"], deployment).stdout


def _run(command: Sequence[str], deployment: Deployment) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=environment(deployment.flower_home),
            cwd=deployment.root,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        what = f"{deployment.address} did not answer within {TIMEOUT:.0f} seconds"
        raise PolyfedError(what, remedy="start it with polyfed deploy server, or look at the firewall") from None
