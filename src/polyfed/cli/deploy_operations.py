"""`polyfed deploy` for those who look after a deployment: who is there, is all well, new keys, keys that count no more."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyfed.cli.arguments import AsJson, argument, option
from polyfed.cli.output import emit, note, say, show_table
from polyfed.cli.progress import in_bytes
from polyfed.errors import PolyfedError, UsageError

if TYPE_CHECKING:
    from polyfed.cli.deploy_documents import DeployStatusDocument
    from polyfed.flower.deploy.commands import Note
    from polyfed.flower.deploy.layout import Deployment

Folder = Annotated[Path, argument("Folder of the deployment.", "DIR")]
WATCH = 10.0  # seconds between two looks, each of which starts a program of Flower twice


def status(
    folder: Folder,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every few seconds, until Ctrl-C.")] = False,
    json: AsJson = False,
) -> None:
    """List the nodes, who is online, the runs, and how far each is."""
    from polyfed.flower.deploy.layout import read_deployment

    if watch and json:
        raise UsageError("--watch does not end, and --json prints one document", remedy="choose one of them")
    deployment = read_deployment(folder)
    while True:
        document = _status(deployment, None if watch else note)
        if json:
            emit(document)
        else:
            _show(document)
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


OPERATIONS = {f.__name__: f for f in (status, doctor, renew, revoke)}


def _reject_absent(deployment: Deployment) -> None:
    """Which keys count is in the server's database: only the server can change it."""
    from polyfed.flower.deploy import commands, server

    commands.await_restart(deployment)
    if not server.answers(deployment):
        what = f"the server does not answer at {deployment.address}, and it alone can make a key invalid"
        raise UsageError(what, remedy=f"start it with polyfed deploy server {deployment.root}")


def _status(deployment: Deployment, show: Note | None) -> DeployStatusDocument:
    from polyfed import __version__
    from polyfed.cli.deploy_documents import DeployStatusDocument, NodeDocument, PreparedDocument, SubmittedDocument
    from polyfed.flower.deploy.runs import nodes_of, runs_of, studies_of

    return DeployStatusDocument(
        server=deployment.address,
        version=__version__,
        nodes=[NodeDocument(**values) for values in nodes_of(deployment, show)],
        runs=[SubmittedDocument(**values) for values in runs_of(deployment, show)],
        studies=[PreparedDocument(**values) for values in studies_of(deployment)],
    )


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
