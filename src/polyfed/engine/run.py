"""A run of a federated method on the clients' data: its rounds, its scores, the clients' models, its folder.

A round is what it is in Flower: the server sends its state to the clients of the round, they train, and it aggregates their
updates (`run_round`); every few rounds all clients evaluate (`evaluate`). In a folder, every completed round is a checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from polyfed.data import PreparedFederation
from polyfed.engine import storage, tables
from polyfed.engine.checkpoints import Checkpoints, state_errors
from polyfed.engine.evaluation import evaluate
from polyfed.engine.events import Event, EventLog, OnEvent, ignore, tidy
from polyfed.engine.members import Members
from polyfed.engine.outlook import Forecast, forecast, report_sparse
from polyfed.engine.results import results
from polyfed.engine.rounds import FederationState, common, run_round
from polyfed.engine.settings import Settings
from polyfed.engine.stopping import best_round
from polyfed.errors import ConfigError, DataError, Interrupted, UnknownNameError, UsageError, nearest
from polyfed.folders.documents import write_document
from polyfed.folders.lock import owned
from polyfed.methods import Method, State
from polyfed.methods.base import Predictor
from polyfed.methods.messages import PREPARING
from polyfed.modelling.threads import threads_for
from polyfed.predictions import Predictions
from polyfed.seeds import Stream


class ClientModel:
    """One client's model, ready to predict: what the server learned, the client's own part and its own data."""

    def __init__(self, name: str, predictor: Predictor, encode: Callable[[object], np.ndarray]) -> None:
        self.name, self.predictor, self._encode = name, predictor, encode  # the predictor takes encoded features

    def predict(self, X: object) -> Predictions:
        """Predictive distributions of every task, those without labels at this client included."""
        return self.predictor(self._encode(X))

    def __repr__(self) -> str:
        return f"ClientModel({self.name!r})"


class Run:
    """A federation that was trained for some rounds. `simulate` and `load` make one.

    It holds the method and its options, the clients' prepared data, the settings of the engine, and what the rounds made of
    them: the state of the server and of each client (`federation_state`), and an event for all that happened (`log`).
    """

    def __init__(
        self,
        method: Method,
        prepared: PreparedFederation,
        settings: Settings,
        *,
        federation_state: FederationState | None = None,
        log: EventLog | None = None,
        folder: Path | None = None,
    ) -> None:
        self.method, self.prepared, self.settings, self.folder = method, prepared, settings, folder
        self.members = Members.of(method, prepared, settings.seed)
        if federation_state is None:
            federation_state = FederationState(0, method.init(prepared.spec, common(settings.seed)), {})
        self.federation_state = federation_state
        self.log = log or EventLog(folder)
        self.command: list[str] | None = None  # the command line that began it, if one did
        self.late_clients: PreparedFederation | None = None  # those that joined later
        self.late_states: dict[str, State] = {}
        self.new_late_clients: dict[str, bool] = {}  # not on disk yet → whether it replaces what is there
        self.late_trouble: DataError | None = None  # why those on disk cannot be read
        self.troubles: list[str] = []  # what was found damaged and could be done without
        self._models: dict[str, ClientModel] = {}

    # ---- rounds -------------------------------------------------------------------------------------------

    def resume(self, rounds: int | None = None, *, on_event: OnEvent | None = None) -> Run:
        """Train until this many rounds have been completed in all (by default as many as were asked for).

        A run in a folder goes on from what is there, and is the only one to write there meanwhile.
        """
        if self.folder is not None and not (self.folder / "run.json").is_file():
            raise DataError("there is no run in it any more", where=self.folder, remedy="save the run again")
        self._models = {}
        with owned(self.folder) if self.folder is not None else nullcontext():
            if self.folder is not None:
                storage.take_up(self)
            self.plan(rounds)
            self._check_training()
            self._run_rounds(on_event or ignore)
        return self

    def _run_rounds(self, on_event: OnEvent) -> None:
        """The rounds that are missing, then the results for reports."""
        largest = max(len(mine.x) for mine in self.members.training.values())
        stored = self.folder if self.federation_state.round > 0 else None  # the folder that states come from
        with threads_for(largest if self.settings.workers == 1 else 0):
            with state_errors(stored):
                ahead = forecast(self.method, self.federation_state, self.members, self.settings)
            while self.federation_state.round < self.settings.rounds and self.stopped is None:
                try:
                    self._run_next(on_event, ahead, stored)
                    if self.settings.evaluates(self.federation_state.round):
                        stored = None  # every state was used by now, also those of clients that were not drawn
                except KeyboardInterrupt:
                    # The round that was cut off has changed nothing, and the one before is stored already.
                    goes_on = f"polyfed.load({str(self.folder)!r}).resume()"
                    how = goes_on if self.folder else "give a folder to keep runs"
                    done = f"stopped after round {self.federation_state.round} of {self.settings.rounds}"
                    raise Interrupted(done, remedy=how) from None
            if self.stopped is not None:
                at = {"round": self.federation_state.round, "rounds": self.settings.rounds}
                on_event({"event": "stopped", **at, "best": self.stopped})
            if self.folder is not None:
                with state_errors(stored):
                    self.write_results(self.folder)

    def _run_next(self, on_event: OnEvent, ahead: Forecast, stored: Path | None) -> None:
        """The next round and, when it is time, the evaluation after it."""
        if reported := ahead.event(self.federation_state.round + 1, self.settings):
            on_event(reported)
        began = time.perf_counter()
        with state_errors(stored):
            state, event = run_round(self.method, self.federation_state, self.members.training, self.settings)
            completed, events = time.perf_counter(), [event]
            if self.settings.evaluates(state.round):
                events += evaluate(state, self.members, last=state.round == self.settings.rounds)
        seconds, evaluation_seconds = completed - began, time.perf_counter() - completed
        ahead.learn(seconds, evaluation_seconds if len(events) > 1 else None)
        self.record(state, events, on_event, seconds=seconds, evaluation_seconds=evaluation_seconds)

    def record(
        self, federation_state: FederationState, events: Sequence[Event], on_event: OnEvent = ignore, **seconds: float
    ) -> None:
        """Keep a completed round (of this engine or of Flower): events and checkpoint are on disk before it counts."""
        for event in events:
            self.log.add(event)
        if self.folder is not None:
            Checkpoints(self.folder, self.settings.keep).write(federation_state, self.log.size, self.log.sha256)
        self.federation_state = federation_state
        self.log.add_timing(round=federation_state.round, **{what: round(value, 4) for what, value in seconds.items()})
        for event in events:
            on_event(event)

    @property
    def stopped(self) -> int | None:
        """The best round of a run that has learned enough before its last one (`stop`); None for others."""
        if self.federation_state.round >= self.settings.rounds:
            return None
        kinds = {task.name: task.kind for task in self.prepared.spec.tasks}
        return best_round(self.events, kinds, self.settings)

    def _check_training(self) -> None:
        """There must be something to learn from, and with `stop` something that can end it, but no last round that must be."""
        if not any(mine.n_labels for mine in self.members.training.values()):
            raise DataError("no client has a training label", where="the federation", remedy="give some labels")
        if self.settings.stop == "none":
            return
        if self.method.needs_last_round:
            what = f"stop is {self.settings.stop!r}, and theta_draws are found in the last round, which would not come"
            raise ConfigError(what, remedy="leave stop out, or set theta_draws = 0")
        known = {"bound", PREPARING} & self.method.template(self.federation_state.server).metrics.keys()
        watched = any(self.members.part(name, "validation").n_labels for name in self.members.names)
        if not known and not watched:
            nothing = f"no client has validation rows and {self.method.name} sends no bound"
            remedy = "use Split(validation=0.1), or leave stop out"
            raise DataError(f"stop is {self.settings.stop!r}, {nothing}", where="the federation", remedy=remedy)

    def plan(self, rounds: int | None) -> None:
        """Change the number of rounds in all, if another one than before is asked for."""
        if rounds is not None and rounds != self.settings.rounds:
            self.settings = replace(self.settings, rounds=rounds)
            if self.folder is not None:
                storage.write_summary(self, self.folder)

    def write_results(self, folder: Path) -> None:
        """`results.json`, all that a report shows beside the events."""
        write_document(folder / "results.json", tidy(results(self)))

    # ---- scores -------------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        return self.log.events

    @property
    def history(self) -> pd.DataFrame:
        """Every score of every client in every evaluation, one in a row."""
        return tables.history(self.events)

    @property
    def rounds(self) -> pd.DataFrame:
        """What each round cost and how it went: clients, bytes, bounds."""
        return tables.rounds(self.events)

    def summary(
        self,
        metrics: str | Sequence[str] = "headline",
        *,
        part: str = "test",
        model: str = "personal",
        at: str | int = "last",
    ) -> pd.DataFrame:
        """Scores of each client and task; `averages` takes the same arguments.

        Args:
            metrics: "headline", "all", or names such as ["rmse", "nlpd"].
            part: "test" or "validation".
            model: "personal" (what a client uses) or "global" (what the server alone would give it).
            at: "last", "best" by the validation rows, or a round.
        """
        kinds = {task.name: task.kind for task in self.prepared.spec.tasks}
        return tables.summary(self.events, kinds, metrics=metrics, part=part, model=model, at=at)

    def averages(self, *arguments: Any, **options: Any) -> pd.DataFrame:
        """The mean over the clients of a `summary` with these arguments, its spread, and over how many clients."""
        return tables.averages(self.summary(*arguments, **options))

    # ---- clients --------------------------------------------------------------------------------------------

    @property
    def clients(self) -> list[str]:
        return [*self.members.names, *self.late_states]

    @property
    def untrained(self) -> list[str]:
        """Members whose updates counted in no round: the personal part of their models is as it was initialised."""
        trainer, silent = self.members.trainer, set(self.members.silent)
        return [n for n in self.members.names if trainer[n] not in self.federation_state.clients and n not in silent]

    @property
    def silent(self) -> list[str]:
        """Members that send nothing and train nothing, for they have too few labels; they predict as late clients do."""
        return sorted({*self.prepared.round0.silent, *self.members.silent})

    def client(self, name: str) -> ClientModel:
        """The model of a client."""
        if name not in self._models:
            with state_errors(self.folder):
                predictor, prepared = self._predictor(name)
            predict = state_errors(self.folder)(predictor)
            self._models[name] = ClientModel(name, predict, lambda X: prepared.encode(name, X))
        return self._models[name]

    def _predictor(self, name: str) -> tuple[Predictor, PreparedFederation]:
        """The predictor of a client, and the prepared federation that encodes its rows."""
        if name in self.members.trainer:
            return self.members.predictor(self.federation_state, name), self.prepared
        if self.late_clients is not None and name in self.late_states:
            own, state = self.late_clients.clients[name].train, self.late_states[name]
            return self.members.late_client(self.federation_state, state, own), self.late_clients
        if name in self.prepared.spec.clients:
            what = f"the data of client {name!r} are on its own machine"
            remedy = "predict there, with the run in the node's state folder"
            raise UsageError(what, where=self.folder or "this run", remedy=remedy)
        if self.late_trouble is not None:  # it may be one of those
            raise self.late_trouble
        raise UnknownNameError(f"client {name!r} is unknown", remedy=nearest(name, self.clients))

    def join(self, name: str, data: object, *, test: float = 0.0, update: bool = False) -> ClientModel:
        """Add a client without a round: its model is the shared prior and its own data (in any form that `from_clients` takes).

        A share of its rows can be kept for testing. With `update`, one that joined before has these data from now on.
        """
        if name in self.members.names or (name in self.late_states and not update):
            other = "choose another name" if name in self.members.names else "choose another name, or update it"
            raise DataError(f"client {name!r} is there already", where="join", remedy=other)
        if self.late_trouble is not None:
            raise self.late_trouble
        if update and name not in self.late_states:
            what, remedy = f"client {name!r} has not joined yet", "let it join without an update"
            raise UsageError(what, where="join", remedy=remedy)
        late_clients = self.prepared.with_late_client(name, data, self.late_clients, test=test, seed=self.settings.seed)
        own = self.members.with_everyone(late_clients.clients[name].train)
        stream = Stream(self.settings.seed, "join", client=name)
        with state_errors(self.folder):
            report_sparse({name: self.method.outlook(self.federation_state.server, None, own)}, {name: own})
            self.late_states[name] = self.method.join(self.federation_state.server, own, stream)
        self.late_clients = late_clients
        self.new_late_clients[name] = update
        self._models.pop(name, None)
        return self.client(name)

    def save(self, folder: str | Path) -> Path:
        """Write the run to a folder. It holds the clients' training data: keep it as private as these."""
        return storage.save(self, Path(folder))

    def __repr__(self) -> str:
        n = len(self.members.names)
        return f"Run({self.method.name!r}, {n} clients, round {self.federation_state.round} of {self.settings.rounds})"
