"""What the commands of `polyfed deploy` print with --json."""

from __future__ import annotations

from typing import Literal

from polyfed.cli.documents import _Document
from polyfed.cli.output import by_command


class DeployInitDocument(_Document):
    """`polyfed deploy init` and `add`: the folder, and the folder of each node that was made now."""

    command: Literal["deploy init", "deploy add"] = "deploy init"
    folder: str
    host: str
    port: int
    nodes: dict[str, str]


class DeployAddDocument(DeployInitDocument):
    """`polyfed deploy add`: as `deploy init`."""

    command: Literal["deploy init", "deploy add"] = "deploy add"


class DeployRunDocument(_Document):
    """`polyfed deploy run`: where the run is on the server, and how it ended; `reason` is null if it was completed."""

    command: Literal["deploy run", "deploy resume"] = "deploy run"
    run: str
    folder: str
    status: str
    completed: bool
    reason: str | None
    seconds: float


class DeployResumeDocument(DeployRunDocument):
    """`polyfed deploy resume`: as `deploy run`."""

    command: Literal["deploy run", "deploy resume"] = "deploy resume"


class NodeDocument(_Document):
    """A node; `name` is null if another hand registered it, `number` if it is not registered. `versions` of polyfed and flwr
    are those that it reported to a study in `runs`; empty if it reported none."""

    name: str | None
    number: str | None
    state: str
    since: str | None
    versions: dict[str, str]


class SubmittedDocument(_Document):
    """A run that the server knows; `bytes` went over the net for it, both ways."""

    number: str
    status: str
    began: str
    seconds: float
    bytes: int


class PreparedDocument(_Document):
    """A folder of a run on the server: how far it is, when its last round was, and whose answer that one lacked."""

    folder: str
    round: int
    rounds: int
    seconds_ago: float | None
    late: list[str]


class DeployStatusDocument(_Document):
    """`polyfed deploy status`; `version` is that of polyfed here, `studies` are those that the server keeps in `runs`."""

    command: Literal["deploy status"] = "deploy status"
    server: str
    version: str
    nodes: list[NodeDocument]
    runs: list[SubmittedDocument]
    studies: list[PreparedDocument]


class DeployCheckDocument(_Document):
    """One thing that was looked at; `detail` is its figure, or what to do."""

    name: str
    ok: bool
    detail: str


class DeployDoctorDocument(_Document):
    """`polyfed deploy doctor`."""

    command: Literal["deploy doctor"] = "deploy doctor"
    ok: bool
    checks: list[DeployCheckDocument]


DEPLOY_DOCUMENTS = by_command(__name__)
