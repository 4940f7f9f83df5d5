"""What starts a server or a node on its machine: scripts, systemd units, and the page that says which file goes where."""

from __future__ import annotations

from polyfed.flower.deploy.layout import Deployment, address


def server_files() -> dict[str, str]:
    """Name → text, for the folder of the server."""
    return {"start.sh": _SERVER_SCRIPT, "polyfed-server.service": _SERVER_UNIT}


def node_files(name: str) -> dict[str, str]:
    """Name → text, for the folder of a node."""
    return {"start.sh": _NODE_SCRIPT, f"polyfed-node-{name}.service": _NODE_UNIT.replace("NODE", name)}


def readme(deployment: Deployment) -> str:
    """Which file goes to which machine, and which must never leave."""
    return _README.format(
        address=address(deployment.host, deployment.port),
        port=deployment.port,
        rows="\n".join(f"| `nodes/{name}/` | the machine of {name} | {_KEY} |" for name in deployment.nodes),
        node=deployment.nodes[0] if deployment.nodes else "basel",
    )


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
_SERVER_UNIT = """\
# To /etc/systemd/system, after correcting the three lines with paths and the user.
[Unit]
Description=polyfed server
After=network-online.target
Wants=network-online.target

[Service]
User=polyfed
Environment=POLYFED=/opt/polyfed/bin/polyfed
WorkingDirectory=/srv/polyfed
ExecStart=/bin/sh /srv/polyfed/server/start.sh
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

_NODE_UNIT = """\
# To /etc/systemd/system, after correcting the three lines with paths and the user. node.toml may name the data.
[Unit]
Description=polyfed node NODE
After=network-online.target
Wants=network-online.target

[Service]
User=polyfed
Environment=POLYFED=/opt/polyfed/bin/polyfed
WorkingDirectory=/srv/polyfed/NODE
ExecStart=/bin/sh /srv/polyfed/NODE/start.sh
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
