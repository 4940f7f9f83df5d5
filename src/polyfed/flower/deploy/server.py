"""The server: Flower's SuperLink with TLS and keys of nodes, looked after until it ends."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import time
import urllib.error
import urllib.request
from http.client import HTTPResponse
from pathlib import Path

from polyfed.errors import Interrupted, PolyfedError
from polyfed.files import write_whole
from polyfed.flower.deploy.certificates import check_server_certificate
from polyfed.flower.deploy.commands import Note, ask, environment, program, shown
from polyfed.flower.deploy.layout import Deployment, read_deployment
from polyfed.flower.deploy.processes import Program, Signals
from polyfed.flower.versions import of_nodes

TIMEOUT = 90.0  # seconds until it answers; two or three on a machine that does little else
SOON = 30  # days before the certificate ends
LOOK = 15.0  # seconds between two looks whether a new certificate can be taken: each starts a program of Flower


def serve(deployment: Deployment, note: Note) -> None:
    """Run the server in the foreground until a signal comes; an error if it ends by itself."""
    with Signals() as signals:
        try:
            # A SuperLink reads its certificate once, so after `renew` it is restarted, as soon as no run is under way.
            while _serve_until_renewed(deployment, signals, note):
                note("The certificate is new: the server is restarted with it")
                deployment = read_deployment(deployment.root)  # nodes may have been added and revoked since
        except PolyfedError:
            if signals.received is None:  # else it is because of the signal, which Ctrl-C sends to flwr too
                raise
        finally:
            deployment.restarting.unlink(missing_ok=True)
    note("The server has ended; runs that were going on can be resumed: polyfed deploy resume")
    if signals.received == signal.SIGINT:
        raise Interrupted("interrupted")


def _serve_until_renewed(deployment: Deployment, signals: Signals, note: Note) -> bool:
    """Whether the server ended because there is a new certificate; otherwise a signal came."""
    renew = f"polyfed deploy renew {deployment.root}"
    days = check_server_certificate(deployment, renew=f"make one with {renew}")
    note(f"The certificate is valid for {days} days" + (f"; renew it soon: {renew}" if days < SOON else ""))
    reject_port_in_use(deployment.bind, deployment.port)
    command = [
        program("flower-superlink"),
        *("--ssl-ca-certfile", str(deployment.authority)),
        *("--ssl-certfile", str(deployment.certificate)),
        *("--ssl-keyfile", str(deployment.key)),
        *("--host", deployment.bind, "--port", str(deployment.port)),
        *("--database", str(deployment.database)),  # keeps which nodes are registered
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",  # it would fetch another torch for each run
    ]
    note(shown(command, deployment.flower_home))
    certificate = deployment.certificate.read_bytes()
    link = Program(
        command,
        environment(deployment.flower_home),
        deployment.server,
        # Each node asks every three seconds whether there is work, and Flower writes a line about it each time.
        lambda line: None if "[uvicorn.access]" in line and line.endswith(" 200") else note(line),
    )
    try:
        if _is_up(link, deployment, signals):
            deployment.restarting.unlink(missing_ok=True)
            note(f"The server answers at {deployment.address}")
            for name in register(deployment, note):
                note(f"Node {name} is registered")
            note(f"Ready for {len(deployment.nodes)} nodes: {', '.join(deployment.nodes)} (Ctrl-C ends the server)")
        looked = time.monotonic()
        while link.code is None and not signals.sleep(0.5):
            if time.monotonic() - looked > LOOK:
                looked = time.monotonic()
                if _can_take_renewed(deployment, certificate):
                    deployment.restarting.touch()
                    return True
        if signals.received is None:
            said = [line for line in link.said if line.strip()]
            what = f"the server ended by itself with code {link.code}; its last words: {said[-1] if said else 'none'}"
            raise PolyfedError(what.rstrip("."), remedy="its log above says more")
        return False
    finally:
        link.stop()


def _can_take_renewed(deployment: Deployment, certificate: bytes) -> bool:
    """Whether there is another certificate than this, fit for use, and no run that a restart would cut off."""
    try:
        if deployment.certificate.read_bytes() == certificate:
            return False
        check_server_certificate(deployment, renew="")
        return all(str(run["status"]).startswith("finished") for run in ask(deployment, "list")["runs"])
    except (OSError, PolyfedError):  # it is being written, or the server is busy: the next look is soon
        return False


def register(deployment: Deployment, note: Note) -> list[str]:
    """Register the keys of nodes that the server does not know yet; their names."""
    # Flower forgets names, so which node has which number is kept beside the database.
    known = {node["node-id"] for node in ask(deployment, "supernode", "list")["nodes"]}
    numbers = {name: number for name, number in node_numbers(deployment).items() if number in known}
    new = []
    for name in deployment.nodes:
        if name in numbers:
            continue
        key = str(deployment.public_key(name))
        try:
            answer = ask(deployment, "supernode", "register", key, "--name", name, note=note)
        except PolyfedError as error:
            if "already in use" in str(error):  # registered, but by another hand: it works, without its name
                continue
            raise
        numbers[name] = str(answer["node-id"])
        new.append(name)
        write_whole(deployment.numbers, json.dumps(numbers, indent=2).encode())
    return new


def unregister(deployment: Deployment, name: str, note: Note) -> bool:
    """Remove a node's key from the server, which then answers no request of that node; whether it was registered."""
    numbers = node_numbers(deployment)
    if name not in numbers:
        return False
    try:
        ask(deployment, "supernode", "unregister", numbers[name], note=note)
    except PolyfedError as error:
        if "not found" not in str(error).lower():  # somebody else did it
            raise
    del numbers[name]
    write_whole(deployment.numbers, json.dumps(numbers, indent=2).encode())
    return True


def node_numbers(deployment: Deployment) -> dict[str, str]:
    """Name → Flower's number of the node, for those that were registered."""
    try:
        return dict(json.loads(deployment.numbers.read_bytes()))
    except (OSError, ValueError):
        return {}


def versions_of(deployment: Deployment) -> dict[str, dict[str, str]]:
    """Flower's number of a node → the versions that it reported to the last study of this folder."""
    return of_nodes(deployment.root / "runs") if deployment.is_server else {}


def reject_port_in_use(host: str, port: int) -> None:
    """An error if another program listens there: Flower would start, fail late, and report little."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the server will do: old connections do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            what = f"port {port} of {host} cannot be used: {error.strerror}"
            remedy = "end the program that uses it, or change port in deploy.toml and superlink in every node.toml"
            raise PolyfedError(what, remedy=remedy) from None


def _is_up(link: Program, deployment: Deployment, signals: Signals) -> bool:
    """Wait until the server answers; False if a signal came or it has ended."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        if link.code is not None or signals.received is not None:
            return False
        if answers(deployment):
            return True
        signals.sleep(0.3)
    raise PolyfedError(f"the server did not answer at {deployment.address} within {TIMEOUT:.0f} seconds")


def answers(deployment: Deployment) -> bool:
    try:
        with get(deployment.address, "health", deployment.authority):
            return True
    except (OSError, ValueError):
        return False


def get(address: str, page: str, authority: Path) -> HTTPResponse | urllib.error.HTTPError:
    """What a server answers, if only to say no; OSError or ValueError if it does not, or is not trusted."""
    trust = ssl.create_default_context(cafile=str(authority) if authority.is_file() else None)
    try:
        return urllib.request.urlopen(f"https://{address}/{page}", timeout=5, context=trust)
    except urllib.error.HTTPError as error:
        return error
