"""What each command prints with --json, as models; `polyfed schema COMMAND` prints the JSON schema of one."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from polyfed.cli.output import by_command


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Pooled(_Document):
    """A score over the clients: each counts once, and `std` is the standard deviation over them."""

    mean: float | None
    std: float | None
    clients: int


class RunDocument(_Document):
    """`polyfed run`: where the run is, what it cost, task → metric → score on the test rows; round → why it was dropped.

    `silent` clients had too few labels to take part in rounds, `rejected` ones sent nonsense in round 0 (client → why);
    `unknown` are labels of classes that no client named (client → task → how many), which are neither learned nor scored;
    `below` are those that would be left out on machines of their own (client → task → training labels).
    """

    command: Literal["run"] = "run"
    folder: str
    method: str
    options: dict[str, Any]
    seed: int
    rounds: int
    clients: list[str]
    untrained: list[str]
    silent: list[str]
    rejected: dict[str, str]
    unknown: dict[str, dict[str, int]]
    below: dict[str, dict[str, int]]
    tasks: dict[str, str]
    scores: dict[str, dict[str, Pooled]]
    rejected_updates: int
    dropped: dict[str, str]
    bytes_up: int
    bytes_down: int
    seconds: float
    report: str | None


class UnseenDocument(_Document):
    """A text column whose rows hold categories that training did not know; the most frequent ones by name."""

    rows: int
    categories: list[str]


class PredictDocument(_Document):
    """`polyfed predict`: column → one value for each row (null if they went to a file), task → metric → score.

    `scores` are of rows that the model was not trained on, `training_scores` of the others (`trained_on` many); of several
    `clients` (client → rows) they are means, and `client_scores` has those of each. `far` rows are unlike all training rows.
    """

    command: Literal["predict"] = "predict"
    run: str
    client: str | None
    clients: dict[str, int]
    rows: int
    level: float
    tasks: dict[str, str]
    columns: list[str]
    out: str | None
    predictions: dict[str, list[Any]] | None
    scores: dict[str, dict[str, float | None]]
    training_scores: dict[str, dict[str, float | None]]
    client_scores: dict[str, dict[str, dict[str, float | None]]]
    trained_on: int
    far: int
    unseen: dict[str, UnseenDocument]


class JoinDocument(_Document):
    """`polyfed join`: the new client, how many labels of each task it learned from, and scores of the rows it held out."""

    command: Literal["join"] = "join"
    run: str
    client: str
    rows: int
    labels: dict[str, int]
    updated: bool
    test_rows: int
    scores: dict[str, dict[str, float | None]]
    unseen: dict[str, UnseenDocument]


class CellDocument(_Document):
    """One run of a comparison; `options` are its values of a grid, and the table is of the runs that are chosen."""

    method: str
    seed: int
    options: dict[str, Any]
    chosen: bool
    folder: str
    error: str | None
    scores: dict[str, dict[str, float | None]]


class ScoreDocument(_Document):
    """One task of a method over its seeds; `std` is null for a single one. `baseline` is what guessing gets.

    `skill` is the median over clients and seeds. `rank` is by the mean; `best` is true where the method is also better in
    pairs over clients and seeds than every other.
    """

    mean: float | None
    std: float | None
    seeds: int
    rank: float
    best: bool
    baseline: float | None
    skill: float | None


class LineDocument(_Document):
    """A method in the table of a comparison; its mean rank is over clients, tasks and seeds. `pools_data`: no privacy."""

    scores: dict[str, ScoreDocument]
    rank: float | None
    pools_data: bool


class RankingDocument(_Document):
    """Ranks over blocks (client, task, seed): those that are nearer than `critical_difference` may differ by luck alone.

    `wins`: method → other method → share of the blocks in which it does better, ties counting half.
    """

    blocks: int
    critical_difference: float | None
    wins: dict[str, dict[str, float]]


class CombinationDocument(_Document):
    """One combination of a grid: its loss on the validation rows, over the seeds and with each; null: failed or endless."""

    options: dict[str, Any]
    loss: float | None
    by_seed: dict[int, float | None]


class TuningDocument(_Document):
    """The grid of a method, what its combinations came to, and which has the least loss; null if none has a finite one."""

    grid: dict[str, list[Any]]
    combinations: list[CombinationDocument]
    chosen: dict[str, Any] | None


class CompareDocument(_Document):
    """`polyfed compare`: all runs, method → how its options were chosen (if it has a grid), method → its line of the table."""

    command: Literal["compare", "demo"] = "compare"
    folder: str
    tasks: dict[str, str]
    metrics: dict[str, str]
    cells: list[CellDocument]
    tuning: dict[str, TuningDocument]
    table: dict[str, LineDocument]
    ranking: RankingDocument | None
    report: str | None


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


class ReportDocument(_Document):
    """`polyfed report`: which runs went into which file."""

    command: Literal["report"] = "report"
    runs: list[str]
    out: str


class WatchDocument(_Document):
    """`polyfed watch`: where the live page is; printed when it is there."""

    command: Literal["watch"] = "watch"
    run: str
    url: str


class ExportDocument(_Document):
    """`polyfed export`: what went where; `mlflow` is the id of the run there. Null is what was not asked for."""

    command: Literal["export"] = "export"
    run: str
    scores: str | None = None
    predictions: str | None = None
    model: str | None = None
    client: str | None = None
    mlflow: str | None = None
    tensorboard: str | None = None


class CheckDocument(_Document):
    """One thing that was looked at; what is optional may fail."""

    name: str
    ok: bool
    required: bool
    detail: str


class DoctorDocument(_Document):
    """`polyfed doctor`: whether all that is required is there."""

    command: Literal["doctor"] = "doctor"
    ok: bool
    checks: list[CheckDocument]


class OptionDocument(_Document):
    """An option of a method or of a data set."""

    name: str
    default: Any
    help: str


class EntryDocument(_Document):
    """A method or a data set."""

    name: str
    summary: str
    options: list[OptionDocument]


class MethodsDocument(_Document):
    """`polyfed methods`."""

    command: Literal["methods"] = "methods"
    methods: list[EntryDocument]


class DatasetsDocument(_Document):
    """`polyfed datasets`."""

    command: Literal["datasets"] = "datasets"
    datasets: list[EntryDocument]


class GuessDocument(_Document):
    """What one column was taken for."""

    column: str
    role: str
    why: str


class InitDocument(_Document):
    """`polyfed init`: the file that was written, and what was guessed."""

    command: Literal["init"] = "init"
    out: str
    client: str | None
    guesses: list[GuessDocument]
    remarks: list[str]


class NamesDocument(_Document):
    """`polyfed names`: what is listed → the names."""

    command: Literal["names"] = "names"
    names: dict[str, list[str]]


class DemoDocument(CompareDocument):
    """`polyfed demo`: as `compare`."""

    command: Literal["compare", "demo"] = "demo"


DOCUMENTS = by_command(__name__)
