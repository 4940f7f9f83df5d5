"""One client of a study on its own machine: what it does for each kind of message, and what it keeps.

    <state>/<study>/<client>/            a run folder like any other, of this client alone: predict, report, watch
        states/checkpoints/000007.*      its state after round 7, which counts once the server says that round 7 did

A new state never replaces the one before it: the server's next message names the round whose update it used last, and the
client goes on from the state of that round. So it does not matter who dies when, or which of the two remembers less.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from polyfed.data import ClientData, Encoder, FederationSpec, PreparedFederation, Round0
from polyfed.data.schema.coding import code_parts, n_unknown
from polyfed.engine import storage
from polyfed.engine.checkpoints import Checkpoints
from polyfed.engine.evaluation import evaluate
from polyfed.engine.events import Event, tidy
from polyfed.engine.members import Members
from polyfed.engine.rounds import FederationState, common
from polyfed.engine.run import Run
from polyfed.engine.settings import Settings
from polyfed.errors import DataError, UsageError
from polyfed.experiments.building import digest
from polyfed.flower import versions
from polyfed.flower.own_config import OwnConfig, OwnData, own_data
from polyfed.flower.round_context import Note, RoundContext
from polyfed.folders.documents import read_document, write_document
from polyfed.folders.lines import read_events
from polyfed.folders.lock import owned
from polyfed.folders.schemas import NodeDocument
from polyfed.methods import Method, State
from polyfed.modelling.threads import threads_for
from polyfed.seeds import Stream

KEPT_STATES = 4  # a server may fall back by as many rounds as it keeps checkpoints, and one more is under way


def describe(context: RoundContext, own: OwnConfig, _: State) -> tuple[Note, State]:
    """The name of the client and its versions, and in round 0 a summary of its data."""
    mine = own_data(context.config.data, context.seed, own)
    summary = {} if context.agreed is not None else {"summary": mine.summary().to_dict()}
    return {"client": mine.name, "versions": versions.mine(), **summary}, {}


def train(context: RoundContext, own: OwnConfig, sent: State) -> tuple[Note, State]:
    """Train for a round: the update is sent, the new state stays here."""
    me = Member.of(context, own)
    data = me.prepared.shared(me.name)
    if not data.n_labels:  # whoever asks
        limit = me.prepared.round0.limits.min_rows
        what = f"client {me.name!r} has fewer than {limit} training labels of every task and sends no update"
        raise UsageError(what, remedy="its owner may lower min_rows in the node's own file")
    with owned(me.folder), threads_for(len(data.x)):
        state, lost = me.state(context.accepted)
        if lost and me.method.needs_last_state:
            raise UsageError(
                f"client {me.name!r} has lost its state of round {context.accepted}, and what it sent until then stays: "
                "sent anew, it would be counted twice",
                remedy="restore the node's state folder from a copy; else it gets the shared model, until a new study begins",
            )
        if state is None:
            state = me.method.start(data, common(context.seed))
        new, update = me.method.local(state, sent, data, Stream(context.seed, "local", context.round, me.name))
        me.states.write(FederationState(context.round, {}, {me.name: new}))
    return {"client": me.name, "lost": lost}, update.wire()


def evaluate_here(context: RoundContext, own: OwnConfig, prediction_state: State) -> tuple[Note, State]:
    """Scores of this client's validation and test rows, as far as its limits allow. The model stays here, ready for use."""
    me = Member.of(context, own)
    with owned(me.folder), threads_for(len(me.data.x)):
        state, lost = me.state(context.accepted)
        federation_state = FederationState(context.round, prediction_state, {} if state is None else {me.name: state})
        members = Members.of(me.method, me.prepared, context.seed)
        events = [tidy(event) for event in evaluate(federation_state, members)]
        me.publish(federation_state, events, last=context.round >= context.rounds)
    scores = [{"part": e["part"], "model": e["model"], "scores": me.shareable_scores(e)} for e in events]
    return {"client": me.name, "lost": lost, "scores": scores}, {}


@dataclass(frozen=True, eq=False)
class Member:
    name: str
    folder: Path
    prepared: PreparedFederation
    method: Method
    settings: Settings

    @classmethod
    def of(cls, context: RoundContext, own: OwnConfig) -> Member:
        """As it was when the study began; it begins here if it has not."""
        method, settings = context.method(own.allowed), Settings(rounds=context.rounds, seed=context.seed)
        if own.data is not None and (known := _known(context, own)):
            name, folder = known
        else:
            mine = own_data(context.config.data, context.seed, own)
            name, folder = mine.name, folder_of(own.state, context.study, mine.name)
            if not (folder / "run.json").is_file():
                _begin(context, folder, mine, method, settings)
            if mine.digest is not None:
                write_document(_mark(context, own), {"client": name, "digest_of_data": mine.digest})
        study = storage.read_prepared(folder)
        # Its owner may have become more careful since.
        round0 = replace(study.round0, limits=study.round0.limits.at_least(own.limits))
        return cls(name, folder, replace(study, round0=round0), method, settings)

    @property
    def data(self) -> ClientData:
        return self.prepared.clients[self.name].train

    def shareable_scores(self, event: Event) -> dict[str, object]:
        """The scores of an event that the server may know: none of a silent client, and none of few labels."""
        limits, parts = self.prepared.round0.limits, self.prepared.clients[self.name]
        if not self.prepared.shared(self.name).n_labels and self.data.n_labels:
            return {}
        trained, counts = self.data.counts(), getattr(parts, event["part"]).counts()
        return {
            task: scores
            for task, scores in event["clients"][self.name].items()
            if counts[task] >= limits.min_count and (trained[task] == 0 or trained[task] >= limits.min_rows)
        }

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

    def publish(self, federation_state: FederationState, events: list[Event], *, last: bool) -> None:
        """The model of a round in the run folder, in place of any of that round or later: a server may repeat itself."""
        before = read_events(self.folder)
        Checkpoints(self.folder).forget_after(federation_state.round - 1)  # killed now, it leaves the round before
        run = Run(self.method, self.prepared, self.settings, federation_state=federation_state, folder=self.folder)
        run.log.rewrite([event for event in before if event.get("round", 0) < federation_state.round])
        run.record(federation_state, events)
        if last:
            run.write_results(self.folder)


def folder_of(state: Path, study: str, name: str) -> Path:
    """The folder of a client in a study: below the one that its own config names, whatever client and study are called."""
    written = quote(name, safe="")
    if len(written) > 120:  # more than file systems like
        written = f"{written[:100]}-{_short_digest(name)}"
    return state / study / f"client-{written}"


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _mark(context: RoundContext, own: OwnConfig) -> Path:
    """What says that the client with this file has begun the study: nodes on one machine may share a folder."""
    return own.state / context.study / f"node-{_short_digest(str(own.file.resolve()))}.json"


def _known(context: RoundContext, own: OwnConfig) -> tuple[str, Path] | None:
    """Its name and folder, if this node has begun the study already; then its file must be what it was."""
    path = _mark(context, own)
    if not path.is_file():
        return None
    described = read_document(path, NodeDocument, "remove it to begin the study anew here")
    if digest(own.file) != described["digest_of_data"]:
        what = "has changed since the study began"
        raise DataError(what, where=str(own.data), remedy="restore it, or begin a new study")
    return described["client"], folder_of(own.state, context.study, described["client"])


def _begin(context: RoundContext, folder: Path, mine: OwnData, method: Method, settings: Settings) -> None:
    """Code the data as agreed and make the run folder; `run.json` is written last, so half of it is begun anew."""
    agreed, name, summary = context.agreement(), mine.name, mine.summary()
    shared = Encoder.of(agreed)
    parts, encoder = code_parts(name, mine.raw, mine.division, agreed, shared, local=mine.scaling == "local")
    spec = FederationSpec(agreed.tasks, len(shared.names), context.members, agreed.codecs)
    lost = n_unknown(mine.raw, mine.division, agreed.codecs)
    round0 = Round0(mine.limits, {name: dict(summary.labels)}, unknown={name: lost} if lost else {})
    sizes = {name: summary.n_bytes}
    study = PreparedFederation(spec, {name: parts}, {name: encoder}, mine.scaling, agreed, sizes, round0=round0)
    shutil.rmtree(folder, ignore_errors=True)
    storage.create(Run(method, study, settings, federation_state=FederationState(0, {}, {})), folder)
