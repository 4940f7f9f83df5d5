"""pfed-hier: clients share functions with what is known of them, and not a prior alone.

A method of polyfed's own: pFed-Mul (doi:10.1145/3690624.3709341) with latents of two kinds (gp/knowledge.py): shared ones,
each one function for all clients, and personal ones. The server holds Θ as before, and beside it the sums of all clients'
evidence of the shared functions, (Ω − I, η). In a round

* a client takes its own evidence of its last turn out of the sums, so that what is left is what the *others* know;
* under that prior it runs the E-step and sends the gradient of its bound and its sums of noise, as in pFed-Mul;
* its labels now give new evidence of the shared functions: it keeps that, and sends the *change* since its last turn;
* the server adds the changes.

So the server has nothing by client, and a client that is not asked or whose update is rejected has simply not changed. A client
without labels predicts from the shared functions. Without shared latents all of this is pFed-Mul, bit for bit.

Points that fill the space of the inputs, which these shared functions go through, fill no space of a thousand features. Beyond
`wide` of these, shared functions are those of principal components (methods/gp/wide/weight_space.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError, DataError
from polyfed.gp import GROUPS, Evidence, Knowledge
from polyfed.gp.kernels import KERNELS
from polyfed.gp.knowledge import KnowledgeOf, width_of
from polyfed.gp.whitened import normal_points
from polyfed.methods.base import ClientResult, Job, Method, Predictor
from polyfed.methods.gp.evidence_limits import NOT_A_PRECISION, ROUNDING, Limits, checked, limits_of
from polyfed.methods.gp.model import GPModel, ModelConfig
from polyfed.methods.gp.pfed_mul import PFedMul
from polyfed.methods.gp.states import Broadcast, ClientColumns, SentEvidence, Served, Server
from polyfed.methods.gp.wide.weight_space import WeightSpace
from polyfed.methods.gp.wide.weight_states import is_wide
from polyfed.methods.messages import ClientUpdate, State
from polyfed.methods.options import check_numbers
from polyfed.methods.update_batch import Change, Columns
from polyfed.modelling.memory import holds
from polyfed.modelling.sparsity import PAPER
from polyfed.seeds import Stream

# Chosen on validation rows (bench/tables/tried.md).
LEAST_PLANES, CURVED, MOST_POINTS = 3, 2, 64
PLANE = "affine"
MATRICES = 8  # of all features by all features, at once, on the server or at a client
WIDEST = 148  # features of all shared latents together: their triangle is a message of 88 kB
PLANES_WIDEST = WIDEST // 2  # of them for planes: with many inputs there are fewer planes, or none
# Options where inputs are wide.
OF_WIDE = {"wide", "n_personal", "bound", "damping", "mf_steps", "tolerance", "n_components", "passes", "linear_rounds"}


@dataclass(frozen=True)
class _Shared(ModelConfig):
    """Latents where only the kernel of curved ones is given: what is shared is mostly a plane, and the rest of it bends. What
    a client has for itself is a plane too, if there is more of it than one function."""

    n_personal: int = 2

    def latents(self, n_tasks: int, n_features: int) -> tuple[str, ...]:
        if not isinstance(self.kernels, str):
            return self.kernels
        n = max(LEAST_PLANES, n_tasks)
        planes = min(n, PLANES_WIDEST // KERNELS[PLANE].n_features(n_features, 0))
        shared = (PLANE,) * planes + (self.kernels,) * (n - planes + CURVED)
        own_plane = min(1, self.n_personal // 2)
        return shared + (PLANE,) * own_plane + (self.kernels,) * (self.n_personal - own_plane)


@dataclass(frozen=True)
class SharedFunctions(PFedMul):
    """Options as of `PFedMul`, but for the latents.

    Args:
        n_shared: latent functions that all clients have in common; they come first where there is a kernel for each. None for
            planes (kernel `affine`), one for each task and at least three, and two of `kernel`; where inputs are many, fewer
            planes and as many more of `kernel`.
        n_personal: latent functions that each client has for itself; where n_shared is None, the first of several is a plane.
        n_points: features of each shared latent; a linear one has as many as there are inputs. None for 64, or fewer where the
            evidence of that many latents would be a message of over 100 kB.
        damping: part of its new evidence that a client sends in a round; less than one where rounds do not settle.
        bound, per_dimension, learning_rate, betas, halve_every, theta_prior: as there, with other defaults.
    """

    name: ClassVar[str] = "pfed-hier"
    summary: ClassVar[str] = "functions that all clients share, with what is known of them, and a personal part"

    n_shared: int | None = None
    n_personal: int = 2
    n_points: int | None = None
    damping: float = 1.0
    bound: str = "gaussian"
    per_dimension: bool = True
    learning_rate: float | Mapping[str, float] = 0.3
    betas: Sequence[float] = (0.7, 0.95)
    halve_every: float | None = 5.0
    theta_prior: str | Mapping[str, float] = "weak"

    def __post_init__(self) -> None:
        check_numbers(self, "n_shared", whole=True, least=0, optional=True)
        check_numbers(self, "n_personal", whole=True, least=0)
        check_numbers(self, "n_points", whole=True, least=1, optional=True)
        check_numbers(self, "damping", above=0, most=1)
        if self._n_latents == 0:
            raise ConfigError("n_shared and n_personal are both 0: no latent is left", remedy="give at least one")
        if self.n_latents not in (None, self._n_latents):
            what = f"n_latents is {self.n_latents}, and shared and personal latents are counted apart"
            raise ConfigError(what, remedy="leave n_latents out, and give n_shared and n_personal")
        super().__post_init__()
        if self._shares and self.inducing_method == PAPER:
            what = f"inducing_method is {PAPER!r}, which has no place for shared functions"
            raise ConfigError(what, remedy="use another")
        if self._shares and self._makes_features:
            option = next((name for name in ("projection", "network") if getattr(self, name) is not None), "mean")
            what = f"{option} is set, and shared functions are functions of the features themselves"
            raise ConfigError(what, remedy=f"leave {option} out, or use the method 'pfed-mul'")

    @property
    def personalises(self) -> bool:
        return self._shares or super().personalises

    @property
    def _shares(self) -> bool:
        return self.n_shared != 0

    @property
    def _n_latents(self) -> int | None:
        return None if self.n_shared is None else self.n_shared + self.n_personal

    def _model_config(self, made: type[ModelConfig] = _Shared) -> ModelConfig:
        return replace(super()._model_config(made), n_personal=self.n_personal)

    def _n_shared(self, model: GPModel) -> int:
        return model.prior.n_latents - self.n_personal

    def _n_points(self, model: GPModel, n_shared: int) -> int:
        """As many as leave the evidence of all shared latents a message of less than 100 kB."""
        curved = sum(kernel.features is None for kernel in model.prior.kernels[:n_shared])
        free = (WIDEST - width_of(model.prior, n_shared, 0)) // max(1, curved)
        return max(1, min(MOST_POINTS, free)) if self.n_points is None else self.n_points

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        server = super().init(spec, stream)
        if not self._shares:
            return server
        model = self._model_config().model(spec.codecs, spec.n_features)
        n_shared = self._n_shared(model)
        n_points = self._n_points(model, n_shared)
        width = width_of(model.prior, n_shared, n_points)
        if not holds(MATRICES * 8.0 * width**2):
            what = f"{n_shared} shared latents have {width:,} features, and memory does not hold their precision"
            raise ConfigError(what, remedy="set fewer n_points or n_shared")
        is_whole = self.mode == "gradient" and set(GROUPS[1:]) <= set(self._shared)  # else Θ of a client is its own
        points, limits = normal_points(n_points, spec.n_features), limits_of(model) if is_whole else {}
        return server | Server(sums=Evidence.none(width), points=points, limits=limits).to_arrays()

    def template(self, server: State) -> ClientUpdate:
        form = super().template(server)
        form.arrays.update(_form(Served.from_arrays(server)))
        return form

    def is_evidence(self, name: str) -> bool:
        return bool(SentEvidence.field_of(name)) or super().is_evidence(name)

    def objection(self, server: State, update: ClientUpdate) -> str | None:
        return self.objections(server, [update])[0]

    def objections(self, server: State, updates: Sequence[ClientUpdate]) -> list[str | None]:
        known, reasons = Server.from_arrays(server), dict[int, str | None]()
        if known.sums is None:
            return [None] * len(updates)
        n_shared = sum(name.endswith(".log_amplitude") for name in known.values) - self.n_personal
        limits = Limits.under(known.values, n_shared, known.limits)
        for places, arrays in Columns(updates).pieces(*_form(known)):
            change, who = Evidence(*arrays), places.tolist()
            too_much = limits.too_much([updates[i].counts for i in who], change)
            positive = (known.sums + change).is_positive(ROUNDING)
            for i, reason, sound in zip(who, too_much, positive.tolist(), strict=True):
                reasons[i] = reason or (None if sound else NOT_A_PRECISION)
        return [reasons[i] for i in range(len(updates))]

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        after, sums = super().aggregate(server, updates), Served.from_arrays(server).sums
        if sums is None:
            return after
        columns = Columns([updates[client] for client in sorted(updates)])
        sums = sums + Evidence(*(columns.total(name) for name in _form(Served(sums=sums))))
        return after | Served(sums=checked(sums)).to_arrays()

    def _knowledge(self, model: GPModel, own: Evidence | None, received: Broadcast) -> KnowledgeOf | None:
        points, sums = received.points, received.sums
        if own is None or sums is None or points is None:
            return None
        self._check_inputs(model, points)

        def of_some(chosen: Tensor) -> Knowledge:
            everyone = torch.equal(chosen, torch.arange(len(sums.shift)))
            others = sums - own if everyone else sums[chosen] - own[chosen]
            return Knowledge(points[0], self._n_shared(model), others)

        return of_some

    def _evidence(
        self, own: Evidence | None, found: Evidence | None, together: bool
    ) -> tuple[Evidence | None, Mapping[str, Tensor | Change]]:
        if own is None or found is None:
            return None, {}
        kept = found if self.damping == 1.0 else own + (found - own) * self.damping
        # Where states stay stacked, both are there anyhow.
        change = {name: Change(value, own.arrays[name]) for name, value in kept.arrays.items()}
        sent = change if together else {name: each[:] for name, each in change.items()}
        return kept, SentEvidence(sent).to_arrays()

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        """With no state at all, the shared functions alone: the sums may hold this client's labels already."""
        model, known, own = self.model(data), Served.from_arrays(server), ClientColumns.from_arrays(state or {})
        if known.sums is None or known.points is None:
            return super().predictor(server, state, data)
        self._check_inputs(model, known.points)
        sums = known.sums if own.evidence is None else known.sums - own.evidence
        others = Knowledge(known.points, self._n_shared(model), sums).checked()
        seen = data if state is not None else ClientData(data.x, {}, data.codecs)
        return model.predict({**known.values, **own.personal}, seen, others)

    def untrained(self, data: ClientData) -> State | None:
        return {} if self._shares else super().untrained(data)  # its labels are in no sum: the model may see them

    def _check_inputs(self, model: GPModel, points: Tensor) -> None:
        if points.shape[-1] != model.prior.dims:
            what = f"{model.prior.dims} features, and the shared functions have {points.shape[-1]}"
            raise DataError(what, where="the client's inputs", remedy="give the columns that the federation agreed on")


def _form(server: Served) -> State:
    """The evidence of an update, as the server expects it."""
    return {} if server.sums is None else SentEvidence(server.sums.arrays).to_arrays()


def _by_server(name: str) -> Any:
    """The method of this name of the one of the two ways to which the server's state, its first argument, belongs."""

    def chosen(self: PFedHier, server: State, *rest: object) -> object:
        return getattr(self._of(server), name)(server, *rest)

    return chosen


@dataclass(frozen=True)
class PFedHier(SharedFunctions):
    """Options as there, and where there are more than `wide` features only these, `bound`, `damping`, `mf_steps` and
    `n_personal`.

    Args:
        wide: features that are seen as they are, at the most; shared functions of more are functions of their principal
            components.
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
        check_numbers(self, "wide", whole=True, least=0)
        check_numbers(self, "n_components", whole=True, least=1, optional=True)
        check_numbers(self, "passes", "linear_rounds", whole=True, least=1)

    def _of(self, server: State) -> Method:
        return WeightSpace(self) if is_wide(server) else super()  # pyright: ignore[reportReturnType]

    def _at(self, data: ClientData | FederationSpec) -> Method:
        wide = self._shares and data.n_features > self.wide
        return WeightSpace(self) if wide else super()  # pyright: ignore[reportReturnType]

    def _check_options(self, n_features: int) -> None:
        """Options that the weight space does not have would be ignored in silence."""
        for field in fields(self):
            given = getattr(self, field.name)
            default = SharedFunctions.__dataclass_fields__.get(field.name, field)
            usual = {} if field.name == "initial" else default.default
            if field.name not in OF_WIDE and given != usual:
                raise ConfigError(
                    f"{field.name} is {given!r}, and of {n_features:,} features the principal components are used, "
                    "which know no such option",
                    remedy=f"leave {field.name} out, set wide = {n_features}, or use the method 'pfed-mul'",
                )

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

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        return self._at(data).local(state, message, data, stream)

    def local_many(self, jobs: Sequence[Job]) -> list[ClientResult]:
        return self._at(jobs[0].data).local_many(jobs) if jobs else []

    def broadcasts(self, server: State, clients: Sequence[str]) -> list[State]:
        if is_wide(server):
            return WeightSpace(self).broadcasts(server, clients)
        return [super().broadcast(server, "")] * len(clients)

    def is_evidence(self, name: str) -> bool:
        return super().is_evidence(name) or WeightSpace(self).is_evidence(name)

    begin_round, broadcast = _by_server("begin_round"), _by_server("broadcast")
    prediction_state, template = _by_server("prediction_state"), _by_server("template")
    counted_tasks, aggregate = _by_server("counted_tasks"), _by_server("aggregate")
    objection, objections = _by_server("objection"), _by_server("objections")
    predictor, join = _by_server("predictor"), _by_server("join")
    outlook, explain = _by_server("outlook"), _by_server("explain")
