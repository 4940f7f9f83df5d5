"""`polyfed deploy`: the same studies on many machines, with Flower between them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyfed.cli.arguments import AllowCode, AsJson, Names, argument, option, reject_no_run
from polyfed.cli.deploy_operations import OPERATIONS, Folder
from polyfed.cli.options import split_names
from polyfed.cli.output import emit, note, say
from polyfed.errors import PolyfedError, UsageError

if TYPE_CHECKING:
    from polyfed.flower.deploy.layout import Deployment

Rounds = Annotated[int | None, option("Number of rounds.", "N", min=1)]
Nodes = Annotated[int | None, option("Nodes to wait for; all if not given.", "N", min=1)]
Timeout = Annotated[float | None, option("Seconds for one phase of a round.", "S", min=1)]
Log = Annotated[Path | None, option("Write to this file, which rotates, and not to stderr.", "FILE")]
Wait = Annotated[float | None, option("Seconds to wait for the nodes.", "S", min=1)]


def init(
    folder: Folder,
    host: Annotated[str, option("Name or address by which the nodes reach the server.", "HOST")],
    nodes: Annotated[Names, option("Names of the nodes.", "A,B")] = None,
    port: Annotated[int, option("Port of the server.", min=1, max=65535)] = 8000,
    bind: Annotated[str | None, option("Address to listen at; all of the machine's if not given.", "ADDRESS")] = None,
    days: Annotated[int, option("How long the server's certificate is valid.", "N")] = 365,
    json: AsJson = False,
) -> None:
    """Make certificates, keys, scripts and an app: a folder for the server, and one for each node."""
    from polyfed.flower.deploy.making import make_deployment

    made = make_deployment(folder, host, split_names(nodes) or [], port=port, bind=bind, days=days)
    _report_made(made, made.nodes, "deploy init", json)
    if not json:
        say(f"Which file goes where, and which must never leave: {folder / 'README.md'}")


def add(folder: Folder, name: Annotated[str, argument("Name of the new node.", "NAME")], json: AsJson = False) -> None:
    """Make the folder of one more node; a server that is up learns its key at once."""
    from polyfed.flower.deploy import commands, layout, making, server

    grown = making.add_node(layout.read_deployment(folder), name)
    commands.await_restart(grown)
    if server.answers(grown):
        server.register(grown, note)
        note(f"Node {name} is registered")
    else:
        note(f"The server does not answer at {grown.address}: it will register {name} when it is started")
    _report_made(grown, (name,), "deploy add", json)


def server(folder: Folder, log: Log = None) -> None:
    """Start the server, register its nodes and look after it, until Ctrl-C or SIGTERM."""
    from polyfed.flower.deploy import layout, processes, server

    server.serve(layout.read_deployment(folder), note if log is None else processes.rotating(log))


def node(
    folder: Annotated[Path, argument("Folder of the node.", "DIR")],
    data: Annotated[Path | None, option("Table of the node, CSV or Parquet.", "FILE")] = None,
    client: Annotated[str | None, option("Name of the client; that of the node if not given.")] = None,
    state: Annotated[
        Path | None, option("Folder for what only this node knows; DIR/state if not given.", "DIR")
    ] = None,
    superlink: Annotated[str | None, option("The server, if not the one in node.toml.", "HOST:PORT")] = None,
    allow_code: AllowCode = None,
    no_retry: Annotated[
        bool, typer.Option("--no-retry", help="End when the node ends by itself, instead of trying again.")
    ] = False,
    stock: Annotated[
        bool, typer.Option("--stock", help="Start Flower's own SuperNode, which starts a process for each message.")
    ] = False,
    log: Log = None,
) -> None:
    """Start a node on the machine with its data and look after it, until Ctrl-C or SIGTERM."""
    from polyfed.flower.deploy import layout, node, processes

    found = node.prepare(layout.read_node(folder), data, client, state, superlink, allow_code or ())
    node.supervise(found, note if log is None else processes.rotating(log), retry=not no_retry, stock=stock)


def run(
    folder: Folder,
    study: Annotated[Path, argument("The study (TOML), without a source.", "STUDY")],
    nodes: Nodes = None,
    rounds: Rounds = None,
    timeout: Timeout = None,
    wait: Wait = None,
    out: Annotated[
        Path | None, typer.Option("--folder", help="Folder of the run on the server.", metavar="DIR")
    ] = None,
    json: AsJson = False,
) -> None:
    """Run a study on the nodes and follow it until it ends."""
    from polyfed.flower.deploy import layout, runs

    deployment, (text, name) = layout.read_deployment(folder), runs.read_prepared(study, rounds)
    config: dict[str, Any] = {"study": text, "folder": runs.new_folder(deployment, name, out)}
    config |= {"nodes": nodes, "timeout": timeout, "wait": wait}
    _run_all(deployment, config, "deploy run", json)


def resume(
    folder: Folder,
    of: Annotated[Path, argument("Folder of the run, on the server.", "RUN")],
    nodes: Nodes = None,
    rounds: Rounds = None,
    timeout: Timeout = None,
    wait: Wait = None,
    json: AsJson = False,
) -> None:
    """Go on with a run that was cut off, or make it longer."""
    from polyfed.cli.run import planned
    from polyfed.flower.deploy import layout, runs

    deployment = layout.read_deployment(folder)
    if not deployment.is_server:
        raise UsageError("the folder of the run is on the server", where=of, remedy="give this command there")
    reject_no_run(of)
    wanted, completed = planned(of, rounds)
    if completed >= wanted:
        what = f"{completed} rounds are completed already"
        raise UsageError(what, where=of, remedy=f"to go on give --rounds with a number above {completed}")
    text, _ = runs.read_prepared(of / "config.toml", wanted)
    config = {"study": text, "folder": str(of.absolute()), "nodes": nodes, "timeout": timeout, "wait": wait}
    _run_all(deployment, config, "deploy resume", json)


COMMANDS = {f.__name__: f for f in (init, add, server, node, run, resume)} | OPERATIONS


def _report_made(made: Deployment, names: tuple[str, ...], command: str, json: bool) -> None:
    from polyfed.cli.deploy_documents import DEPLOY_DOCUMENTS

    folders = {name: str(made.node(name)) for name in names}
    if json:
        document: Any = DEPLOY_DOCUMENTS[command]
        emit(document(folder=str(made.root), host=made.host, port=made.port, nodes=folders))
        return
    say(f"{made.root} is the deployment of {made.host}, port {made.port}")
    for name, path in folders.items():
        say(f"{path} goes to the machine of {name}")


def _run_all(deployment: Deployment, config: dict[str, Any], command: str, json: bool) -> None:
    """Submit a run, follow it, report how it ended; a run that failed is an error."""
    from polyfed.cli.deploy_documents import DEPLOY_DOCUMENTS
    from polyfed.flower.deploy import runs

    began, folder = time.monotonic(), config["folder"]
    config = config | {"nodes": config["nodes"] or len(deployment.nodes) or None}
    number = runs.submit(deployment, {key: value for key, value in config.items() if value is not None}, note)
    status, reason = runs.follow(deployment, number, Path(folder) if deployment.is_server else None, note)
    seconds = round(time.monotonic() - began, 1)
    if json:
        document: Any = DEPLOY_DOCUMENTS[command]
        ended = {"run": number, "folder": folder, "status": status, "completed": reason is None, "seconds": seconds}
        emit(document(**ended, reason=reason or None))
    elif reason is None:
        say(f"Run {number} is completed, {seconds:.0f} s. It is in {folder} on the server")
    if reason is not None:
        remedy = f"see flwr log {number}; go on with polyfed deploy resume {deployment.root} {folder}"
        raise PolyfedError(f"run {number} ended as {status}: {reason.rstrip('.')}", remedy=remedy)
