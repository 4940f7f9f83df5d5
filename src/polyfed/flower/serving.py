"""The server of a study: round 0, or the folder of a run that stopped, then rounds until the last."""

from __future__ import annotations

import json
import logging
import tomllib
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from polyfed.data import ClientSummary, Encoder, FederationSpec, PreparedFederation, Round0, agree
from polyfed.data.schema.vetting import vet
from polyfed.engine import storage
from polyfed.engine.events import Event, EventLog, OnEvent, ignore
from polyfed.engine.run import Run
from polyfed.engine.settings import Settings
from polyfed.engine.simulate import load, start_event
from polyfed.errors import ConfigError, DataError, PolyfedError, UsageError
from polyfed.experiments.building import build_method, build_settings
from polyfed.experiments.config import Config
from polyfed.experiments.reading import check
from polyfed.experiments.running import logging_to
from polyfed.experiments.toml_text import to_toml
from polyfed.flower.roster import Roster
from polyfed.flower.round_context import WHERE, RoundContext, chosen_scaling, chosen_tasks
from polyfed.flower.strategy import PolyfedStrategy, Timeouts
from polyfed.folders import making
from polyfed.folders.documents import read_document, write_document
from polyfed.folders.lock import owned
from polyfed.folders.schemas import FlowerDocument
from polyfed.folders.writing import write
from polyfed.methods import Method

log = logging.getLogger("flwr")


@dataclass(frozen=True)
class ServeConfig:
    config: Config  # the settings of the study
    folder: Path  # of the run; what is there already goes on
    timeouts: Timeouts = field(default_factory=Timeouts)  # how long, and for whom

    @classmethod
    def from_run_config(cls, given: Mapping[str, object]) -> ServeConfig:
        """From the run config of a Flower app."""
        for key in ("study", "folder"):
            if not given.get(key):
                raise ConfigError(f"{key} is empty", where="run config", remedy="give it with flwr run --run-config")
        try:
            config = check(tomllib.loads(str(given["study"])), WHERE)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"is not TOML ({error})", where=WHERE, remedy="correct it") from None
        usual = asdict(Timeouts())
        known = {name: type(usual[name])(given[name]) for name in usual if given.get(name) is not None}
        return cls(config, Path(str(given["folder"])), Timeouts(**known))


def serve(grid: Grid, serve_config: ServeConfig, on_event: OnEvent = ignore) -> Run:
    """Run the study to its last round; an error if not one of its rounds counted."""
    method, settings = build_method(serve_config.config, WHERE), build_settings(serve_config.config, WHERE)
    if method.pools_data:
        what = f"method {method.name!r} puts all data in one place"
        raise ConfigError(what, where=WHERE, remedy="choose one that does not")
    folder, timeout = serve_config.folder, serve_config.timeouts.timeout
    with owned(folder), ExitStack() as stack:
        roster = Roster(grid, timeout)
        begun = (folder / "run.json").is_file()
        run, context = (_resumed if begun else _begun)(serve_config, method, settings, roster)
        roster.labels.update(run.prepared.round0.labels)
        write = stack.enter_context(logging_to(folder, ["flower"]))

        def report(event: Event) -> None:
            write(event)
            on_event(event)

        completed = run.federation_state.round
        if completed >= run.settings.rounds:
            what = f"{completed} rounds are completed already"
            raise UsageError(what, where=folder, remedy=f"to go on give --rounds with a number above {completed}")
        strategy = PolyfedStrategy(run, context, roster, serve_config.timeouts, report)
        strategy.start(grid, ArrayRecord(), num_rounds=run.settings.rounds - completed, timeout=timeout)
        if not strategy.n_used:
            remedy = "the rejected clients in events.jsonl say why; then resume with more rounds"
            raise PolyfedError("not one round counted", where=folder, remedy=remedy)
        run.write_results(folder)
    return run


def _begun(serve_config: ServeConfig, method: Method, settings: Settings, roster: Roster) -> tuple[Run, RoundContext]:
    """Round 0, and a folder for what follows."""
    data, folder = serve_config.config.data, serve_config.folder
    if settings.stop != "none":
        what = f"stop is {settings.stop!r}, and Flower runs the rounds that were planned"
        raise ConfigError(what, where=WHERE, remedy="leave stop out, and choose the number of rounds in one process")
    tasks, scaling = chosen_tasks(data), chosen_scaling(data)
    data.split()  # a wrong one is rejected before anybody is asked
    document = _document(serve_config.config, method)
    context = RoundContext(uuid.uuid4().hex, document, settings.seed, rounds=settings.rounds)
    reported, rejected = roster.gather(context, serve_config.timeouts.nodes, serve_config.timeouts.wait)
    summaries, unfit = vet(tasks, reported, scaling)
    roster.rejected |= {roster.node_of.pop(client) for client in unfit}
    rejected |= unfit
    _check_round0(summaries, rejected, settings)
    agreed = agree(tasks, summaries)
    members = tuple(sorted(summaries))
    spec = FederationSpec(agreed.tasks, len(Encoder.of(agreed).names), members, agreed.codecs)
    round0 = Round0(labels={name: dict(summaries[name].labels) for name in members}, rejected=rejected)
    sizes = {name: summary.n_bytes for name, summary in summaries.items()}
    study = PreparedFederation(spec, {}, {}, scaling, agreed, sizes, round0=round0)
    run = Run(method, study, settings, log=EventLog())
    run.log.add(start_event(run))
    making.begin(folder)
    write(folder / "config.toml", to_toml(_without_gaps(document)).encode())
    _keep_versions(folder, context.study, roster)
    storage.create(run, folder)
    return load(folder, method=method), replace(context, agreed=agreed.to_dict(), members=members)


def _check_round0(summaries: Mapping[str, ClientSummary], rejected: Mapping[str, str], settings: Settings) -> None:
    """Clients that are rejected are named, and the others go on if they are enough."""
    for client, reason in sorted(rejected.items()):
        log.warning("polyfed: round 0: rejected %s: %s", client, reason)
    if rejected and not settings.is_enough(len(summaries), len(summaries) + len(rejected)):
        client, reason = min(rejected.items())
        what = f"{len(rejected)} of {len(summaries) + len(rejected)} clients are rejected, so there is no quorum"
        raise DataError(f"{what}; {client}: {reason}", where="round 0", remedy="correct it there, or lower run.quorum")
    if silent := sorted(name for name, summary in summaries.items() if summary.is_silent):
        what = "polyfed: too few labels to take part in rounds, served as clients that join late: %s"
        log.info(what, ", ".join(silent))


def _resumed(serve_config: ServeConfig, method: Method, settings: Settings, roster: Roster) -> tuple[Run, RoundContext]:
    """A run that stopped: the same study, so that clients find their states again."""
    folder = serve_config.folder
    if not (folder / "flower.json").is_file():
        raise UsageError("the run there was not made on Flower", where=folder, remedy="go on with polyfed run --resume")
    storage.check_same(folder, method, settings)
    run = load(folder, method=method)
    storage.take_up(run)
    run.plan(settings.rounds)
    about = read_document(folder / "flower.json", FlowerDocument)
    document, members = _document(serve_config.config, method), run.prepared.spec.clients
    agreed = run.prepared.agreed.to_dict()
    context = RoundContext(about["study"], document, settings.seed, agreed, members, rounds=settings.rounds)
    _keep_versions(folder, about["study"], roster)
    here = roster.wait_for(context, len(members), serve_config.timeouts.wait)
    if absent := sorted(set(members) - here):
        log.warning("polyfed: going on without %s, not connected", ", ".join(absent))
    return run, context


def _keep_versions(folder: Path, study: str, roster: Roster) -> None:
    """Write down which versions the nodes have, now and whenever one reports them."""

    def write_down() -> None:
        reported = {str(node): found for node, found in sorted(roster.versions.items())}
        write_document(folder / "flower.json", {"study": study, "nodes": reported})

    roster.on_versions = write_down
    write_down()


def _document(config: Config, method: Method) -> dict[str, Any]:
    """The settings with the method's options filled in, as plain values."""
    options = json.loads(json.dumps(storage.options_of(method)))
    return config.model_dump(mode="json", exclude={"compare"}) | {"method": {"name": method.name, **options}}


def _without_gaps(value: Any) -> Any:
    """TOML has no word for nothing."""
    if isinstance(value, dict):
        return {key: _without_gaps(item) for key, item in value.items() if item is not None and item != {}}
    return [_without_gaps(item) for item in value] if isinstance(value, list) else value
