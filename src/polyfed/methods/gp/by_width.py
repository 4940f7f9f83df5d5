"""pfed-hier as users know it: it looks at how wide the inputs are, and does what is right for them.

Points that fill the space of the inputs, which the shared functions of methods/gp/pfed_hier.py go through, fill no space of a
thousand features. Beyond `wide` of these, shared functions are those of principal components (methods/gp/wide/weight_space.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError
from polyfed.methods.base import ClientResult, Job, Method, Outlook, Predictor
from polyfed.methods.gp import pfed_hier
from polyfed.methods.gp.wide.weight_space import WeightSpace
from polyfed.methods.gp.wide.weight_states import is_wide
from polyfed.methods.messages import ClientUpdate, State
from polyfed.methods.options import check_number
from polyfed.seeds import Stream

COMMON = ("bound", "damping", "mf_steps", "tolerance", "n_components", "passes", "linear_rounds")


@dataclass(frozen=True)
class PFedHier(pfed_hier.PFedHier):
    """Options as there, and where there are more than `wide` features only these, `bound`, `damping`, `mf_steps` and
    `n_personal`.

    Args:
        wide: so many features are still seen as they are; shared functions of more are functions of their principal components.
        n_components: at the most; None for 384, or fewer where their evidence would be a message of over 3 MB.
        passes: rounds in which the components are found.
        linear_rounds: rounds after these in which the shared functions are linear in the components; then they are bent.
    """

    wide: int = 128
    n_components: int | None = None
    passes: int = 4
    linear_rounds: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("wide", self.wide, whole=True, least=0)
        if self.n_components is not None:
            check_number("n_components", self.n_components, whole=True, least=1)
        check_number("passes", self.passes, whole=True, least=1)
        check_number("linear_rounds", self.linear_rounds, whole=True, least=1)

    # ---- which of the two -----------------------------------------------------------------------------------

    @property
    def _weights(self) -> WeightSpace:
        options = {name: getattr(self, name) for name in COMMON}
        return WeightSpace(**options) if self.n_personal else WeightSpace(**options, personal_start=0.0)

    def _of(self, server: State) -> Method:
        return self._weights if is_wide(server) else super()  # pyright: ignore[reportReturnType]

    def _at(self, data: ClientData | FederationSpec) -> Method:
        wide = self._shares and data.n_features > self.wide
        return self._weights if wide else super()  # pyright: ignore[reportReturnType]

    def _check_options(self, n_features: int) -> None:
        """Options that the weight space does not have would be ignored in silence."""
        for field in fields(self):
            given = getattr(self, field.name)
            default = pfed_hier.PFedHier.__dataclass_fields__.get(field.name, field)
            usual = {} if field.name == "initial" else default.default
            if field.name not in (*COMMON, "wide", "n_personal") and given != usual:
                raise ConfigError(
                    f"{field.name} is {given!r}, and of {n_features:,} features the principal components are used, "
                    "which know no such option",
                    remedy=f"leave {field.name} out, set wide = {n_features}, or use the method 'pfed-mul'",
                )

    # ---- the contract ---------------------------------------------------------------------------------------

    @property
    def needs_last_state(self) -> bool:
        return self._shares

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        chosen = self._at(spec)
        if isinstance(chosen, WeightSpace):
            self._check_options(spec.n_features)
        return chosen.init(spec, stream)

    def start(self, data: ClientData, stream: Stream) -> State:
        return self._at(data).start(data, stream)

    def untrained(self, data: ClientData) -> State | None:
        return self._at(data).untrained(data)

    def begin_round(self, server: State, rounds_left: int) -> State:
        return self._of(server).begin_round(server, rounds_left)

    def broadcast(self, server: State, client: str) -> State:
        return self._of(server).broadcast(server, client)

    def broadcasts(self, server: State, clients: Sequence[str]) -> list[State]:
        if is_wide(server):
            return self._weights.broadcasts(server, clients)
        return [super().broadcast(server, "")] * len(clients)

    def prediction_state(self, server: State, client: str) -> State:
        return self._of(server).prediction_state(server, client)

    def template(self, server: State) -> ClientUpdate:
        return self._of(server).template(server)

    def is_evidence(self, name: str) -> bool:
        return super().is_evidence(name) or self._weights.is_evidence(name)

    def counted_tasks(self, server: State, name: str) -> Sequence[str] | None:
        return self._of(server).counted_tasks(server, name)

    def objection(self, server: State, update: ClientUpdate) -> str | None:
        return self._of(server).objection(server, update)

    def objections(self, server: State, updates: Sequence[ClientUpdate]) -> list[str | None]:
        return self._of(server).objections(server, updates)

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        return self._of(server).aggregate(server, updates)

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        return self._at(data).local(state, message, data, stream)

    def local_many(self, jobs: Sequence[Job]) -> list[ClientResult]:
        return self._at(jobs[0].data).local_many(jobs) if jobs else []

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        return self._of(server).predictor(server, state, data)

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        return self._of(server).join(server, data, stream)

    def outlook(self, server: State, state: State | None, data: ClientData) -> Outlook:
        return self._of(server).outlook(server, state, data)

    def explain(self, server: State, data: ClientData) -> dict[str, Any]:
        return self._of(server).explain(server, data)
