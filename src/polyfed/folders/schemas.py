"""What the JSON of a run folder may be, file by file. Unknown keys are let pass: a newer version may have more to say."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from polyfed.kinds import KINDS

LARGEST = 1e300  # beyond it sums overflow; `tidy` writes such numbers as null


Kind = Annotated[str, AfterValidator(lambda kind: KINDS[kind].name), Field(json_schema_extra={"enum": list(KINDS)})]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
Name = Annotated[str, Field(min_length=1)]


class Part(BaseModel):
    """Of any document: what JSON has is what is wanted, and nothing is made to fit."""

    model_config = ConfigDict(strict=True, extra="ignore")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if what := self.wrong():
            raise ValueError(what)
        return self

    def wrong(self) -> str | None:
        """What is not as it must be, beyond what the types of the fields say."""


class Sealed(Part):
    """A document of its own, of this version."""

    format: Literal[3]


# ---- run.json, prepared.json -------------------------------------------------------------------------------------------
class SettingsPart(Part):
    rounds: Count
    seed: Annotated[int, Field(ge=0)]
    sample: int | FiniteFloat | None = None


class RunDocument(Sealed):
    """`run.json`; the values of options and of further settings are checked by those who use them."""

    method: Name
    options: dict[str, Any]
    settings: SettingsPart
    pools_data: bool = False
    versions: dict[str, str] = {}
    command: list[str] | None = None


class ColumnPart(Part):
    name: str
    kind: Literal["number", "text"]
    gaps: bool
    categories: list[str]
    transform: Literal["", "log", "rank"] = ""
    values: list[Number] | None = None
    ranks: list[Annotated[float, Field(gt=0, lt=1)]] | None = None

    def wrong(self) -> str | None:
        if (self.transform == "rank") != (self.values is not None and self.ranks is not None):
            return "a column with ranks has values and the rank of each, and no other has"
        if self.kind == "text" and self.transform:
            return "a text is transformed"
        values, ranks = self.values or [], self.ranks or []
        if self.transform == "rank" and (not ranks or len(values) != len(ranks)):
            return "not one rank for each value"
        if any(a >= b for column in (values, ranks) for a, b in pairwise(column)):
            return "values or ranks that do not rise"
        return None


class CodecPart(Part):
    task: dict[str, Any]  # `Task` checks it
    classes: Annotated[list[str | bool | int | FiniteFloat], Field(min_length=2)] | None
    shift: Number
    scale: Positive


class AgreedPart(Part):
    """What came of round 0."""

    columns: Annotated[list[ColumnPart], Field(min_length=1)]
    mean: list[Number]
    scale: list[Positive]
    codecs: Annotated[list[CodecPart], Field(min_length=1)]

    def wrong(self) -> str | None:
        numbers = sum(column.kind == "number" for column in self.columns)
        if not len(self.mean) == len(self.scale) == numbers:
            return f"{numbers} columns of numbers, {len(self.mean)} means and {len(self.scale)} scales"
        return None


class Round0Part(Part):
    limits: dict[str, Any]  # `Limits` checks them
    labels: dict[str, dict[str, Count]]
    rejected: dict[str, str]
    unknown: dict[str, dict[str, Count]]


class PreparedPart(Part):
    scaling: Literal["federated", "local", "targets", "none"]
    agreed: AgreedPart
    clients: list[Name]
    members: list[Name]
    units: list[list[Annotated[list[Number], Field(min_length=2, max_length=2)]]] | None  # shift and scale
    round0_bytes: list[Count]
    truth: list[Name] | None
    round0: Round0Part

    def wrong(self) -> str | None:
        n = len(self.clients)
        if len(set(self.clients)) < n or len(self.round0_bytes) != n:
            return "a client is there twice, or round0_bytes has not one entry for each"
        if set(self.clients) - set(self.members):
            return "a client that is no member"
        if (self.scaling == "local") != (self.units is not None) or (self.units is not None and len(self.units) != n):
            return "units are those of clients that scale their own data, one entry for each"
        if self.units is not None and any(len(of_client) != len(self.agreed.codecs) for of_client in self.units):
            return "units have one entry for each task"
        if any(scale <= 0 for of_client in self.units or () for _, scale in of_client):
            return "a unit is not above 0"
        return None


class PreparedDocument(Sealed):
    """`prepared.json`, with the digest of `prepared.safetensors`."""

    sha256: Sha256
    prepared: PreparedPart


class LateClientsDocument(Sealed):
    """`late_clients.json`, with the digest of its arrays, which are in a file that is named after it."""

    sha256: Sha256
    names: list[Name]
    prepared: PreparedPart

    def wrong(self) -> str | None:
        return None if self.names == self.prepared.clients else "names and study.clients differ"


# ---- checkpoints/ ----------------------------------------------------------------------------------------------------
class CheckpointDocument(Sealed):
    """`checkpoints/000012.json`, with the digests of its arrays and of the events until then."""

    round: Count
    clients: list[Name]
    events_size: Count
    events_sha256: Sha256
    sha256: Sha256


# ---- of studies on Flower --------------------------------------------------------------------------------------------
class FlowerDocument(Sealed):
    """`flower.json` of a server: the name of the study, and the versions of the nodes by Flower's number of each."""

    study: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,64}$")]
    nodes: dict[str, dict[str, str]] = {}


class NodeDocument(Sealed):
    """What says that the client with a file has begun a study."""

    client: Name
    digest_of_data: Sha256


# ---- a client's model in one file ------------------------------------------------------------------------------------
class ModelDocument(Sealed):
    """What stands beside the arrays of an exported model, with their digest; `study` is of its client alone."""

    sha256: Sha256
    method: Name
    options: dict[str, Any]
    client: Name
    round: Count
    has_state: bool
    prepared: PreparedPart

    def wrong(self) -> str | None:
        return None if self.prepared.clients == [self.client] else "the study is not of the client alone"


# ---- events.jsonl, timing.jsonl, .lock -------------------------------------------------------------------------------

Scores = dict[str, dict[str, Number | None]]  # task → metric → value


class AnyEvent(Part):
    event: str


class StartEvent(AnyEvent):
    tasks: dict[str, Kind]
    clients: list[str] = []
    bytes_up: Count = 0


class RoundEvent(AnyEvent):
    round: Count
    sampled: list[str]
    rejected: dict[str, str]
    used: bool
    bytes_down: Count
    bytes_up: Count
    metrics: dict[str, dict[str, Number | None]]


class EvaluationEvent(AnyEvent):
    round: Count
    part: Literal["test", "validation"]
    model: Literal["personal", "global"]
    clients: dict[str, Scores]


EVENTS: dict[str, type[AnyEvent]] = {"start": StartEvent, "round": RoundEvent, "evaluation": EvaluationEvent}


class TimingEntry(Part):
    time: FiniteFloat = 0.0
    round: Count = 0
    seconds: Annotated[float, Field(ge=0, le=1e12)] | None = None
    evaluation_seconds: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    warning: str = ""


class Owner(Part):
    pid: Annotated[int, Field(gt=0, lt=2**31)]
    host: str
    since: str
