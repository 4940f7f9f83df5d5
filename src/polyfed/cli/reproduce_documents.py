"""What `polyfed reproduce` prints with --json."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ExperimentCell(_Document):
    """One run of an experiment; runs that are equal under two variants share a folder."""

    data: str
    setting: str
    variant: str
    method: str
    seed: int
    folder: str
    error: str | None


class FigureDocument(_Document):
    """One number of an experiment: over its seeds, its rank among the rows, and what was published; accuracies are shares."""

    data: str
    setting: str
    group: str
    row: str
    method: str
    task: str
    metric: str
    case: str
    round: int | None
    mean: float | None
    std: float | None
    seeds: int
    rank: float | None
    published: float | None


class ClaimDocument(_Document):
    """What a picture of the publication says: in how many of the cases that were looked at it is so here."""

    text: str
    holds: int
    of: int


class MachineDocument(_Document):
    """How large the machine is."""

    cores: int
    memory_gb: float | None


class ReproduceDocument(_Document):
    """`polyfed reproduce`: numbers beside the published ones, how they differ in origin, and where the files are."""

    command: Literal["reproduce"] = "reproduce"
    preset: str
    title: str
    folder: str
    quick: bool
    invoked: str
    seconds: float
    machine: MachineDocument
    versions: dict[str, str]
    differences: list[str]
    cells: list[ExperimentCell]
    source: str
    figures: list[FigureDocument]
    claims: list[ClaimDocument]
    markdown: str
    report: str
    pictures: list[str]
