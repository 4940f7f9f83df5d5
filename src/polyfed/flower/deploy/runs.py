"""Runs on a deployment: submitted, followed until they end, listed."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyfed.errors import ConfigError, DataError, Interrupted, PolyfedError, UsageError
from polyfed.experiments.building import build_method, build_settings
from polyfed.experiments.reading import check, put, read_document
from polyfed.experiments.toml_text import to_toml
from polyfed.files import write_whole
from polyfed.flower.deploy.commands import Note, ask, log_of
from polyfed.flower.deploy.layout import Deployment
from polyfed.flower.deploy.server import node_numbers, versions_of
from polyfed.folders.documents import read_content
from polyfed.folders.documents import read_document as read_folder_document
from polyfed.folders.lines import parse_events
from polyfed.folders.making import is_free
from polyfed.folders.schemas import RunDocument

Entry = dict[str, Any]  # an object of JSON

POLL = 15.0  # seconds between two questions to the server, each of which starts a program: two seconds of a processor
SOON = 1.0  # the same when the last round is done
COMPLETED = "finished:completed"
MISSES = 5  # questions in a row without an answer after which the server is taken to be gone
LOOK = 0.5  # seconds between two looks at the folder of the run


def read_prepared(path: Path, rounds: int | None = None) -> tuple[str, str]:
    """The text of a study, checked before it is sent anywhere, and a name for its folder; the tables are the nodes' own."""
    document = read_document(path)
    where = str(path)
    if rounds is not None:
        put(document, ("run", "rounds"), rounds)
    if isinstance(data := document.get("data"), dict):
        if data.get("dataset") is not None:
            remedy = "leave it out: each node names its table when it is started"
            raise ConfigError("a deployment has no data set", where=f"{where}, data.dataset", remedy=remedy)
        data.pop("source", None)
        data.pop("sha256", None)
    config = check(document, where)
    if not config.data.tasks:
        remedy = 'add for example binary = ["sick"]'
        raise ConfigError("there are no targets", where=f"{where}, data.tasks", remedy=remedy)
    if build_method(config, where).pools_data:
        what = f"method {config.method.name!r} puts all data in one place"
        raise ConfigError(what, where=f"{where}, method.name", remedy="choose one that does not: polyfed methods")
    build_settings(config, where)
    return to_toml(document), f"{path.stem}-{config.method.name}-{config.run.seed}"


def new_folder(deployment: Deployment, name: str, folder: Path | None) -> str:
    if not deployment.is_server:
        if folder is None:
            what = "the folder of the run is on the server, so it cannot be chosen here"
            raise UsageError(what, remedy="give --folder with an absolute path on the server")
        return str(folder)
    chosen = (deployment.root / "runs" / name if folder is None else folder).absolute()
    if chosen.exists() and not (chosen.is_dir() and is_free(chosen)):
        remedy = f"go on with polyfed deploy resume {deployment.root} {chosen}, or choose another --folder"
        raise UsageError("is not empty", where=chosen, remedy=remedy)
    return str(chosen)


def submit(deployment: Deployment, config: Mapping[str, str | int | float], note: Note) -> str:
    """Start a run on the server; its number."""
    path = deployment.flower_home / "run.toml"
    deployment.flower_home.mkdir(exist_ok=True)
    write_whole(path, to_toml(config).encode())  # a study has many lines, which no command line takes well
    return str(ask(deployment, "run", str(deployment.app), "polyfed", "--run-config", str(path), note=note)["run-id"])


def follow(deployment: Deployment, run_id: str, folder: Path | None, note: Note) -> tuple[str, str | None]:
    """Show the rounds as they come until the run has ended; its status, and the reason if it was not completed."""
    rounds, asked, status, misses, details = _Rounds(folder), 0.0, "", 0, ""
    try:
        while not status.startswith("finished"):
            rounds.show(note)
            if time.monotonic() - asked > POLL or (rounds.are_over() and time.monotonic() - asked > SOON):
                now = status
                try:
                    found, misses = ask(deployment, "list", "--run-id", run_id)["runs"][0], 0
                    now, details = str(found["status"]), str(found.get("status-details", ""))
                except PolyfedError:
                    misses += 1
                    if misses == MISSES:
                        raise
                if now != status:
                    note(f"Run {run_id} is {now.replace(':', ': ')}")
                status, asked = now, time.monotonic()
            else:
                time.sleep(LOOK)
    except KeyboardInterrupt:
        what = f"run {run_id} goes on on the server"
        remedy = f"look at it with polyfed deploy status {deployment.root}, end it with flwr stop {run_id}"
        raise Interrupted(what, remedy=remedy) from None
    rounds.show(note)
    return status, None if status == COMPLETED else reason_of(log_of(deployment, run_id), details)


def reason_of(log: str, details: str) -> str:
    """Why a run ended, as the server reports it; if it reports nothing, the last error in its log, in one line.

    >>> reason_of("INFO : start\\nTraceback (most recent call last):\\n  x\\nValueError: no quorum\\nINFO : end", "")
    'ValueError: no quorum'
    """
    if details not in ("", "N/A"):
        return details.removeprefix("ServerApp failed with exception: ")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    raised = re.findall(r"^\s*(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt): .+)$", plain, re.M)
    if raised:
        return raised[-1].strip()
    said = [line.strip() for line in plain.splitlines() if re.match(r"\s*ERROR", line)]
    return re.sub(r"^ERROR\s*:\s*", "", said[-1]) if said else "its log does not say why"


def nodes_of(deployment: Deployment, note: Note | None = None) -> list[Entry]:
    """All nodes: name, number, state, since when, and the versions that they had in the last study of `runs`."""
    registered = {node["node-id"]: node for node in ask(deployment, "supernode", "list", note=note)["nodes"]}
    numbers, known = node_numbers(deployment), versions_of(deployment)
    names = {number: name for name, number in numbers.items()}
    listed: list[Entry] = []
    for number, node in registered.items():
        state = node["status"]
        when = node[f"{state}-at"] if state in ("online", "offline") else "N/A"
        entry = {"name": names.get(number), "number": number, "state": state, "since": None if when == "N/A" else when}
        if state != "unregistered":
            listed.append({**entry, "versions": known.get(number, {})})
    unknown = [name for name in deployment.nodes if numbers.get(name) not in registered] if deployment.is_server else []
    nothing = {"number": None, "state": "not registered", "since": None, "versions": {}}
    return listed + [{"name": name, **nothing} for name in unknown]


def runs_of(deployment: Deployment, note: Note | None = None) -> list[Entry]:
    """All runs, the newest first: number, status, seconds, bytes."""
    return [
        {
            "number": run["run-id"],
            "status": run["status"],
            "began": run["running-at"],
            "seconds": round(float(run["elapsed"]), 1),
            "bytes": run["network-traffic"]["total-bytes"],
        }
        for run in ask(deployment, "list", note=note)["runs"]
    ]


def studies_of(deployment: Deployment) -> list[Entry]:
    """The runs in the server's folder, the latest first: rounds done, and the clients that did not answer in the last one."""
    found = []
    for path in (deployment.root / "runs").glob("*/events.jsonl") if deployment.is_server else ():
        rounds = [event for event in parse_events(read_content(path), path) if event.get("event") == "round"]
        last = rounds[-1] if rounds else {}
        silent = {client: why for client, why in last.get("rejected", {}).items() if str(why).startswith("NoAnswer")}
        found.append(
            {
                "folder": str(path.parent),
                "round": len(rounds),
                "rounds": _planned(path.parent),
                "seconds_ago": round(time.time() - path.stat().st_mtime, 1) if rounds else None,
                "late": sorted(silent),
            }
        )
    return sorted(found, key=lambda study: study["seconds_ago"] if study["seconds_ago"] is not None else -1.0)


class _Rounds:
    """The rounds of a run that were not shown yet, one line each."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._n_shown = len(self._events())  # a run that goes on has had rounds before
        self._before = self._written()

    def show(self, note: Note) -> None:
        events = self._events()
        for event in events[self._n_shown :]:
            if event.get("event") == "round":
                note(_in_a_line(event))
        self._n_shown = len(events)  # what came after the last checkpoint is run again

    def are_over(self) -> bool:
        """Whether results were written since."""
        return self._written() != self._before

    def _written(self) -> float | None:
        path = self._folder and self._folder / "results.json"
        return path.stat().st_mtime if path and path.is_file() else None

    def _events(self) -> list[Entry]:
        path = self._folder and self._folder / "events.jsonl"
        return list(parse_events(read_content(path), path)) if path and path.is_file() else []


def _in_a_line(event: Entry) -> str:
    asked, rejected = len(event.get("sampled", ())), event.get("rejected", {})
    line = f"Round {event['round']}: {asked - len(rejected)} of {asked} nodes"
    line += f", rejected {', '.join(f'{node} ({why})' for node, why in rejected.items())}" if rejected else ""
    if "dropped" in event:
        return f"{line}; dropped, the model stays as it was: {event['dropped']}"
    return line + ("" if event.get("used", True) else "; not used, there was no quorum")


def _planned(folder: Path) -> int:
    """The planned rounds of a run; 0 if its folder is being made or does not have them."""
    try:
        return read_folder_document(folder / "run.json", RunDocument)["settings"]["rounds"]
    except DataError:
        return 0
