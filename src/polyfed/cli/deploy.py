"""`polyfed deploy`: the same studies on many machines, with Flower between them; and for those who look after a deployment,
who is there, is all well, new keys, keys that count no more."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyfed.cli.arguments import AllowCode, AsJson, Names, argument, option, reject_no_run
from polyfed.cli.options import split_names
from polyfed.cli.output import emit, note, say, show_table
from polyfed.counting import in_bytes
from polyfed.errors import PolyfedError, UsageError

if TYPE_CHECKING:
    from polyfed.cli.deploy_documents import DeployStatusDocument
    from polyfed.flower.deploy.layout import Deployment

WATCH = 10.0  # seconds between two looks, each of which starts a program of Flower twice
Folder = Annotated[Path, argument("Folder of the deployment.", "DIR")]
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
    place = runs.new_folder(deployment, name, out)
    _run_all(deployment, "deploy run", json, place, study=text, nodes=nodes, timeout=timeout, wait=wait)


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
    place = str(of.absolute())
    _run_all(deployment, "deploy resume", json, place, study=text, nodes=nodes, timeout=timeout, wait=wait)


def status(
    folder: Folder,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every few seconds, until Ctrl-C.")] = False,
    json: AsJson = False,
) -> None:
    """List the nodes, who is online, the runs, and how far each is."""
    from polyfed import __version__
    from polyfed.cli.deploy_documents import DeployStatusDocument, NodeDocument, PreparedDocument, SubmittedDocument
    from polyfed.flower.deploy.layout import read_deployment
    from polyfed.flower.deploy.runs import nodes_of, runs_of, studies_of

    if watch and json:
        raise UsageError("--watch does not end, and --json prints one document", remedy="choose one of them")
    deployment, say_more = read_deployment(folder), None if watch else note
    while True:
        document = DeployStatusDocument(
            server=deployment.address,
            version=__version__,
            nodes=[NodeDocument(**values) for values in nodes_of(deployment, say_more)],
            runs=[SubmittedDocument(**values) for values in runs_of(deployment, say_more)],
            studies=[PreparedDocument(**values) for values in studies_of(deployment)],
        )
        emit(document) if json else _show(document)
        if not watch:
            return
        time.sleep(WATCH)


def doctor(
    folder: Annotated[Path, argument("Folder of the deployment, or of a node.", "DIR")], json: AsJson = False
) -> None:
    """Check this machine: certificates and their days, clocks, the port, versions, keys, room on the disk."""
    from polyfed.cli.deploy_documents import DeployCheckDocument, DeployDoctorDocument
    from polyfed.flower.deploy import checkup, layout

    if (folder / "node.toml").is_file():
        found = checkup.check_node(layout.read_node(folder))
    else:
        found = checkup.check_server(layout.read_deployment(folder))
    checks = [DeployCheckDocument(**check._asdict()) for check in found]
    failed = [check for check in checks if not check.ok]
    if json:
        emit(DeployDoctorDocument(ok=not failed, checks=checks))
    else:
        rows = [[check.name, "ok" if check.ok else "NOT WELL", check.detail] for check in checks]
        show_table(str(folder), ["what", "state", "detail"], rows, left=3)
    if failed:
        raise PolyfedError(f"{failed[0].name} is not as it must be: {failed[0].detail.rstrip('.')}")


def renew(
    folder: Folder,
    days: Annotated[int, option("How long the certificate is valid.", "N", min=1)] = 365,
    node: Annotated[str | None, option("Make a new key for this node instead.", "NAME")] = None,
) -> None:
    """Make a new certificate for the server, or with --node a new key for a node. Studies go on."""
    from polyfed.flower.deploy import layout, making, server

    deployment = layout.read_deployment(folder)
    if node is None:
        making.renew(deployment, days)
        say(f"{deployment.certificate} is valid for {days} days; a server that is up takes it when no run is going on")
        return
    making.check_is_node(deployment, node)
    _reject_absent(deployment)
    path = making.renew_key(deployment, node)
    server.unregister(deployment, node, note)
    server.register(deployment, note)
    say(f"The old key of {node} counts no more; {path} goes to its machine, in place of the one there")


def revoke(folder: Folder, name: Annotated[str, argument("Name of the node.", "NAME")]) -> None:
    """Make the server forget a node: whoever has its key is rejected from now on."""
    from polyfed.flower.deploy import layout, making, server

    deployment = layout.read_deployment(folder)
    making.check_is_node(deployment, name)
    _reject_absent(deployment)
    known = server.unregister(deployment, name, note)
    making.remove_node(deployment, name)
    say(f"{name} is no node any more" + ("" if known else "; the server had not registered its key"))


COMMANDS = {f.__name__: f for f in (init, add, server, node, run, resume, status, doctor, renew, revoke)}


def _report_made(made: Deployment, names: tuple[str, ...], command: str, json: bool) -> None:
    from polyfed.cli.deploy_documents import DEPLOY_DOCUMENTS

    folders = {name: str(made.node(name)) for name in names}
    if json:
        found = {"folder": str(made.root), "host": made.host, "port": made.port, "nodes": folders}
        return emit(DEPLOY_DOCUMENTS[command].model_validate(found))
    say(f"{made.root} is the deployment of {made.host}, port {made.port}")
    for name, path in folders.items():
        say(f"{path} goes to the machine of {name}")


def _run_all(deployment: Deployment, command: str, json: bool, folder: str, **given: str | float | None) -> None:
    """Submit a run, follow it, report how it ended; a run that failed is an error."""
    from polyfed.cli.deploy_documents import DEPLOY_DOCUMENTS
    from polyfed.flower.deploy import runs

    began, nodes = time.monotonic(), given["nodes"] or len(deployment.nodes) or None
    config = given | {"folder": folder, "nodes": nodes}
    number = runs.submit(deployment, {key: value for key, value in config.items() if value is not None}, note)
    status, reason = runs.follow(deployment, number, Path(folder) if deployment.is_server else None, note)
    seconds = round(time.monotonic() - began, 1)
    if json:
        ended = {"run": number, "folder": folder, "status": status, "completed": reason is None, "seconds": seconds}
        emit(DEPLOY_DOCUMENTS[command].model_validate(ended | {"reason": reason or None}))
    elif reason is None:
        say(f"Run {number} is completed, {seconds:.0f} s. It is in {folder} on the server")
    if reason is not None:
        remedy = f"see flwr log {number}; go on with polyfed deploy resume {deployment.root} {folder}"
        raise PolyfedError(f"run {number} ended as {status}: {reason.rstrip('.')}", remedy=remedy)


def _reject_absent(deployment: Deployment) -> None:
    """Which keys count is in the server's database: only the server can change it."""
    from polyfed.flower.deploy import commands, server

    commands.await_restart(deployment)
    if not server.answers(deployment):
        what = f"the server does not answer at {deployment.address}, and it alone can make a key invalid"
        raise UsageError(what, remedy=f"start it with polyfed deploy server {deployment.root}")


def _show(document: DeployStatusDocument) -> None:
    rows = [
        [n.name or "?", n.state, n.since, n.versions.get("polyfed"), n.versions.get("flwr"), n.number]
        for n in document.nodes
    ]
    title = f"Nodes of {document.server}, which has polyfed {document.version}"
    show_table(title, ["node", "state", "since", "polyfed", "flwr", "number"], rows, left=6)
    if document.runs:
        rows = [[r.number, r.status, r.began, f"{r.seconds:.0f} s", in_bytes(r.bytes)] for r in document.runs]
        show_table("Runs", ["run", "status", "began", "time", "traffic"], rows, left=4)
    if document.studies:
        rows = []
        for study in document.studies:
            ago = "" if study.seconds_ago is None else f"{study.seconds_ago:.0f} s ago"
            rows.append([study.folder, f"{study.round} of {study.rounds}", ago, ", ".join(study.late)])
        show_table("Studies in runs/", ["folder", "round", "last", "without an answer in it"], rows, left=4)
