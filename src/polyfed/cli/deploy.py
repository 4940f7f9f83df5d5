"""`polyfed deploy`: the same studies on many machines, with Flower between them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyfed.cli.deploy_operations import OPERATIONS, AsJson, Folder
from polyfed.cli.folders import AllowCode, reject_no_run
from polyfed.cli.options import split_names
from polyfed.cli.output import emit, note, say
from polyfed.errors import PolyfedError, UsageError

if TYPE_CHECKING:
    from polyfed.flower.deploy.layout import Deployment

Rounds = Annotated[int | None, typer.Option(help="Number of rounds.", metavar="N", min=1)]
Nodes = Annotated[int | None, typer.Option(help="Nodes to wait for; all if not given.", metavar="N", min=1)]
Timeout = Annotated[float | None, typer.Option(help="Seconds for one phase of a round.", metavar="S", min=1)]
Log = Annotated[Path | None, typer.Option(help="Write to this file, which rotates, and not to stderr.", metavar="FILE")]
Wait = Annotated[float | None, typer.Option(help="Seconds to wait for the nodes.", metavar="S", min=1)]


def init(
    folder: Folder,
    host: Annotated[str, typer.Option(help="Name or address by which the nodes reach the server.", metavar="HOST")],
    nodes: Annotated[list[str] | None, typer.Option(help="Names of the nodes.", metavar="A,B")] = None,
    port: Annotated[int, typer.Option(help="Port of the server.", min=1, max=65535)] = 8000,
    bind: Annotated[
        str | None, typer.Option(help="Address to listen at; all of the machine's if not given.", metavar="ADDRESS")
    ] = None,
    days: Annotated[int, typer.Option(help="How long the server's certificate is valid.", metavar="N")] = 365,
    json: AsJson = False,
) -> None:
    """Make certificates, keys, scripts and an app: a folder for the server, and one for each node."""
    from polyfed.flower.deploy.making import make_deployment

    made = make_deployment(folder, host, split_names(nodes) or [], port=port, bind=bind, days=days)
    _report_made(made, made.nodes, "deploy init", json)
    if not json:
        say(f"Which file goes where, and which must never leave: {folder / 'README.md'}")


def add(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="Name of the new node.", metavar="NAME")],
    json: AsJson = False,
) -> None:
    """Make the folder of one more node; a server that is up learns its key at once."""
    from polyfed.flower.deploy.commands import await_restart
    from polyfed.flower.deploy.layout import read_deployment
    from polyfed.flower.deploy.making import add_node
    from polyfed.flower.deploy.server import answers, register

    grown = add_node(read_deployment(folder), name)
    await_restart(grown)
    if answers(grown):
        register(grown, note)
        note(f"Node {name} is registered")
    else:
        note(f"The server does not answer at {grown.address}: it will register {name} when it is started")
    _report_made(grown, (name,), "deploy add", json)


def server(folder: Folder, log: Log = None) -> None:
    """Start the server, register its nodes and look after it, until Ctrl-C or SIGTERM."""
    from polyfed.flower.deploy.layout import read_deployment
    from polyfed.flower.deploy.logs import rotating
    from polyfed.flower.deploy.server import serve

    serve(read_deployment(folder), note if log is None else rotating(log))


def node(
    folder: Annotated[Path, typer.Argument(help="Folder of the node.", metavar="DIR")],
    data: Annotated[Path | None, typer.Option(help="Table of the node, CSV or Parquet.", metavar="FILE")] = None,
    client: Annotated[str | None, typer.Option(help="Name of the client; that of the node if not given.")] = None,
    state: Annotated[
        Path | None, typer.Option(help="Folder for what only this node knows; DIR/state if not given.", metavar="DIR")
    ] = None,
    superlink: Annotated[
        str | None, typer.Option(help="The server, if not the one in node.toml.", metavar="HOST:PORT")
    ] = None,
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
    from polyfed.flower.deploy.layout import read_node
    from polyfed.flower.deploy.logs import rotating
    from polyfed.flower.deploy.node import prepare, supervise

    found = read_node(folder)
    work = prepare(found, data, client, state, superlink, allow_code or ())
    supervise(found, work, note if log is None else rotating(log), retry=not no_retry, stock=stock)


def run(
    folder: Folder,
    study: Annotated[Path, typer.Argument(help="The study (TOML), without a source.", metavar="STUDY")],
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
    from polyfed.flower.deploy.layout import read_deployment
    from polyfed.flower.deploy.runs import new_folder, read_prepared

    deployment, chosen = read_deployment(folder), read_prepared(study, rounds)
    config = {"study": chosen.text, "folder": new_folder(deployment, chosen, out)}
    _run_all(deployment, {**config, **_waiting_options(deployment, nodes, timeout, wait)}, "deploy run", json)


def resume(
    folder: Folder,
    of: Annotated[Path, typer.Argument(help="Folder of the run, on the server.", metavar="RUN")],
    nodes: Nodes = None,
    rounds: Rounds = None,
    timeout: Timeout = None,
    wait: Wait = None,
    json: AsJson = False,
) -> None:
    """Go on with a run that was cut off, or make it longer."""
    from polyfed.cli.run import planned
    from polyfed.flower.deploy.layout import read_deployment
    from polyfed.flower.deploy.runs import read_prepared

    deployment = read_deployment(folder)
    if not deployment.is_server:
        raise UsageError("the folder of the run is on the server", where=str(of), remedy="give this command there")
    reject_no_run(of)
    wanted, completed = planned(of, rounds)
    if completed >= wanted:
        raise UsageError(
            f"{completed} rounds are completed already",
            where=str(of),
            remedy=f"to go on give --rounds with a number above {completed}",
        )
    chosen = read_prepared(of / "config.toml", wanted)
    config = {"study": chosen.text, "folder": str(of.absolute())}
    _run_all(deployment, {**config, **_waiting_options(deployment, nodes, timeout, wait)}, "deploy resume", json)


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


def _waiting_options(
    deployment: Deployment, nodes: int | None, timeout: float | None, wait: float | None
) -> dict[str, Any]:
    given = {"nodes": nodes or len(deployment.nodes) or None, "timeout": timeout, "wait": wait}
    return {key: value for key, value in given.items() if value is not None}


def _run_all(deployment: Deployment, config: dict[str, Any], command: str, json: bool) -> None:
    """Submit a run, follow it, report how it ended; a run that failed is an error."""
    from polyfed.cli.deploy_documents import DEPLOY_DOCUMENTS
    from polyfed.flower.deploy.runs import follow, submit

    began, folder = time.monotonic(), config["folder"]
    seen = Path(folder) if deployment.is_server else None
    number = submit(deployment, config, note)
    end = follow(deployment, number, seen, note)
    seconds = round(time.monotonic() - began, 1)
    if json:
        document: Any = DEPLOY_DOCUMENTS[command]
        ended = {"run": number, "folder": folder, "status": end.status, "completed": end.completed, "seconds": seconds}
        emit(document(**ended, reason=end.reason or None))
    elif end.completed:
        say(f"Run {number} is completed, {seconds:.0f} s. It is in {folder} on the server")
    if not end.completed:
        remedy = f"see flwr log {number}; go on with polyfed deploy resume {deployment.root} {folder}"
        raise PolyfedError(f"run {number} ended as {end.status}: {end.reason.rstrip('.')}", remedy=remedy)
