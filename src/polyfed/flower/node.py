"""One client of a study on its own machine: what it does for each kind of message, and what it keeps.

    <state>/<study>/<client>/            a run folder like any other, of this client alone: predict, report, watch
        states/checkpoints/000007.*      its state after round 7, which counts once the server says that round 7 did

A new state never replaces the one before it: the server's next message names the round whose update it used last, and the
client goes on from the state of that round. So it does not matter who dies when, or which of the two remembers less.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from polyfed.data import ClientData, Encoder, FederationSpec, Study
from polyfed.data.coding import code_parts
from polyfed.engine import storage
from polyfed.engine.checkpoints import Checkpoints
from polyfed.engine.evaluation import evaluate
from polyfed.engine.events import read_lines, tidy
from polyfed.engine.members import Members
from polyfed.engine.rounds import Progress, common
from polyfed.engine.run import Run
from polyfed.engine.settings import Settings
from polyfed.errors import DataError
from polyfed.estimators.threads import threads_for
from polyfed.experiments.building import digest
from polyfed.files import write_whole
from polyfed.flower.brief import Brief
from polyfed.flower.own_data import OwnData, file_of, own_data
from polyfed.methods import Method, State
from polyfed.seeds import Stream

KEPT_STATES = 4  # a server may fall back by as many rounds as it keeps checkpoints, and one more is under way


def describe(brief: Brief, node: Mapping[str, Any]) -> dict[str, Any]:
    """Who it is, and in round 0 what it tells of its data."""
    own = own_data(brief.settings.data, brief.seed, node)
    told: dict[str, Any] = {"client": own.name, "labels": own.has_labels}
    return told if brief.agreed is not None else {**told, "description": own.description().to_dict()}


def train(brief: Brief, node: Mapping[str, Any], sent: State) -> tuple[dict[str, Any], State]:
    """A round: the update that leaves, while the next state stays."""
    me = Member.of(brief, node)
    state, lost = me.state(brief.accepted)
    with threads_for(len(me.data.x)):
        if state is None:
            state = me.method.start(me.data, common(brief.seed))
        new, update = me.method.local(state, sent, me.data, Stream(brief.seed, "local", brief.round, me.name))
    me.states.write(Progress(brief.round, {}, {me.name: new}), 0)
    return {"client": me.name, "lost": lost}, update.wire()


def evaluate_here(brief: Brief, node: Mapping[str, Any], portion: State) -> dict[str, Any]:
    """Scores of this client's validation and test rows. The model stays here, ready for use."""
    me = Member.of(brief, node)
    state, lost = me.state(brief.accepted)
    progress = Progress(brief.round, portion, {} if state is None else {me.name: state})
    with threads_for(len(me.data.x)):
        events = [tidy(event) for event in evaluate(me.method, progress, Members.of(me.method, me.study))]
        me.publish(progress, events, last=brief.round >= brief.rounds)
    scores = [
        {key: event[key] for key in ("part", "model")} | {"scores": event["clients"][me.name]} for event in events
    ]
    return {"client": me.name, "lost": lost, "scores": scores}


@dataclass(frozen=True, eq=False)
class Member:
    """This client in this study."""

    name: str
    folder: Path
    study: Study
    method: Method
    settings: Settings

    @classmethod
    def of(cls, brief: Brief, node: Mapping[str, Any]) -> Member:
        """As it was when the study began; it begins here if it has not."""
        method, settings = brief.method(), Settings(rounds=brief.rounds, seed=brief.seed)
        if node.get("data") and (known := _known(brief, node)):
            name, folder = known
        else:
            own = own_data(brief.settings.data, brief.seed, node)
            name, folder = own.name, folder_of(brief, node, own.name)
            if not (folder / "run.json").is_file():
                _begin(brief, folder, own, method, settings)
            if own.digest is not None:
                write_whole(_mark(brief, node), json.dumps({"client": name, "digest": own.digest}).encode())
        return cls(name, folder, storage.read_study(folder), method, settings)

    @property
    def data(self) -> ClientData:
        return self.study.clients[self.name].train

    @property
    def states(self) -> Checkpoints:
        return Checkpoints(self.folder / "states", KEPT_STATES)

    def state(self, accepted: int) -> tuple[State | None, bool]:
        """The state after the last round whose update was used, and whether it is lost. Later ones are thrown away."""
        states = self.states
        states.forget_after(accepted)
        if accepted == 0:
            return None, False
        try:
            return dict(states.read(accepted)[0].clients[self.name]), False
        except DataError:
            return None, True

    def publish(self, progress: Progress, events: list[dict[str, Any]], *, last: bool) -> None:
        """The model of a round in the run folder, in place of any of that round or later: a server may repeat itself."""
        Checkpoints(self.folder).forget_after(progress.round)
        before = read_lines(self.folder / "events.jsonl")
        run = Run(self.method, self.study, self.settings, progress=progress, folder=self.folder)
        run.log.rewrite([event for event in before if event.get("round", 0) < progress.round])
        run.record(progress, events)
        if last:
            run.write_results(self.folder)


def state_root(brief: Brief, node: Mapping[str, Any]) -> Path:
    """Where the states of all studies are kept."""
    if brief.nodes is not None:
        return Path(brief.nodes)
    return Path(str(node["state"])) if node.get("state") else file_of(node).resolve().parent / "polyfed-state"


def folder_of(brief: Brief, node: Mapping[str, Any], name: str) -> Path:
    written = quote(name, safe="")
    if len(written) > 120:  # more than file systems like
        written = f"{written[:100]}-{_short_digest(name)}"
    return state_root(brief, node) / brief.study / f"client-{written}"


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _mark(brief: Brief, node: Mapping[str, Any]) -> Path:
    """What says that the client with this file has begun the study: nodes on one machine may share a folder."""
    return state_root(brief, node) / brief.study / f"node-{_short_digest(str(file_of(node).resolve()))}.json"


def _known(brief: Brief, node: Mapping[str, Any]) -> tuple[str, Path] | None:
    """Its name and folder, if this node has begun the study already; then its file must be what it was."""
    path = _mark(brief, node)
    if not path.is_file():
        return None
    described = json.loads(path.read_bytes())
    if digest(file_of(node)) != described["digest"]:
        raise DataError(
            "has changed since the study began", where=str(node["data"]), remedy="restore it, or begin a new study"
        )
    return described["client"], folder_of(brief, node, described["client"])


def _begin(brief: Brief, folder: Path, own: OwnData, method: Method, settings: Settings) -> None:
    """Code the data as agreed and make the run folder; `run.json` is written last, so half of it is begun anew."""
    agreed = brief.agreement()
    shared = Encoder.of(agreed)
    parts, encoder = code_parts(own.name, own.raw, own.division, agreed, shared, local=own.scaling == "local")
    spec = FederationSpec(agreed.tasks, len(shared.names), brief.members, agreed.codecs)
    size = own.description().n_bytes
    study = Study(spec, {own.name: parts}, {own.name: encoder}, own.scaling, agreed, {own.name: size})
    shutil.rmtree(folder, ignore_errors=True)
    run = Run(method, study, settings, progress=Progress(0, {}, {}))
    storage.create(run, folder)
