"""pFed-Mul: clients with several tasks of different kinds learn the prior of one multi-output Gaussian process.

A round (equ:agg): the server sends the shared part of Θ; each client runs its E-step and either takes `local_steps`
steps of its own, whose result the server averages (mode `average`, as the paper's experiments do), or sends the gradient
of its bound, and the server takes one step on the average bound (mode `gradient`). Personal groups of Θ are learned on
the client and stay there. The noise of regression has a closed form that the server pools exactly over the clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError, nearest
from polyfed.estimators.sparsity import Sparsity
from polyfed.gp import GROUPS, group_of
from polyfed.gp.kernels import KERNELS
from polyfed.gp.likelihoods.logistic import BOUNDS
from polyfed.gp.prior import MEANS
from polyfed.methods.base import Job, Method, Outcome, Predictor
from polyfed.methods.client_stacks import mean_over, owners, stacked, unlabelled, warm
from polyfed.methods.gp_clients import LocalWork, solver_of
from polyfed.methods.gp_model import GPModel, Structure, clamped, prepared_rows
from polyfed.methods.holdout import HOLDOUT, MEMORY, agreement, judged_together, kept_apart, parted, shortened, trust
from polyfed.methods.messages import ClientUpdate, State, labelled, part
from polyfed.methods.optimiser import Adam
from polyfed.methods.options import check_choice, check_number, frozen_tree
from polyfed.methods.sharing import shared_groups
from polyfed.seeds import Stream

MODES = ("gradient", "average")
WEIGHTINGS = ("uniform", "samples")


@dataclass(frozen=True)
class PFedMul(Method):
    """Options of pFed-Mul.

    Args:
        n_latents: latent functions that the tasks share; None for one for each task, and at least two.
        kernel: of all latents, or one for each.
        per_dimension: a length-scale for each feature.
        projection: width of a linear projection that each latent learns of the features (a deep kernel over features of a
            network that is kept as it is); None for kernels that see the features themselves.
        network: `package.module:factory` of a network between inputs and projections (or kernels), learned with the rest but
            for what the factory froze. It runs in float32, each input by itself: batch norms keep their statistics and never
            use those of a batch.
        network_per_latent: each latent has such a network of its own (and sees, or projects, its features alone).
        chunk: inputs of a client that go through the network at once, to save memory; the gradient is the same, as the E-step
            and the kernels see all of the client and only the network works in parts (gp/feature_map.py). None for all.
        mean: prior mean of the outputs, `zero` as in the paper or `linear`: f_i(x) = μ_i(x) + Σ_b W[i, b] g_b(x) with
            μ(x) = Vᵀx̃ + c, where x̃ are the inputs or the features of the network. V and c belong to the group `features`.
        weight_decay: of the parameters of networks, projections and means, apart from the gradient (AdamW); kernels, mixing
            weights and noise never decay.
        holdout: share of a client's inputs whose labels the features never see: noise, kernels and mixing weights are learned
            from them, and they tell the server when the features begin to memorise (methods/holdout.py); None for a third
            where features are learned in mode `gradient`, and none elsewhere.
        bound: `polya-gamma` or `gaussian`.
        scheme: N, K, W, A or a list of groups: what the server learns; the rest is personal.
        mode: `gradient` or `average`.
        weighting: `uniform` (each client counts once) or `samples`.
        mf_steps: mean-field steps of an E-step, from where the last round ended.
        local_steps: M-steps of a client in a round (in mode `gradient` on its personal groups alone).
        learning_rate: of Adam, a hundredth of it for a network; or a dictionary with one for each group, and for `projection`
            (and prior mean).
        proximal: pull of personal parameters to the values that all clients started from.
        inducing: inducing inputs of each client; None for the exact posterior.
        inducing_method: how they are chosen.
        join_steps: steps in which a client that joins later learns its personal groups.
        tolerance: an E-step ends before `mf_steps` when the bound moves by less than this many nats.
        initial: parameter name → initial value, instead of the one guessed.
    """

    name: ClassVar[str] = "pfed-mul"
    summary: ClassVar[str] = "one Gaussian process over all tasks of a client, its prior learned by the federation"

    n_latents: int | None = None
    kernel: str | Sequence[str] = "rbf"
    per_dimension: bool = False
    projection: int | None = None
    network: str | None = None
    network_per_latent: bool = False
    chunk: int | None = None
    mean: str = "zero"
    weight_decay: float = 0.0
    holdout: float | None = None
    bound: str = "polya-gamma"
    scheme: str | Sequence[str] = "A"
    mode: str = "gradient"
    weighting: str = "uniform"
    mf_steps: int = 2
    local_steps: int = 1
    learning_rate: float | Mapping[str, float] = 0.1
    proximal: float = 0.0
    inducing: int | None = None
    inducing_method: str = "greedy"
    join_steps: int = 50
    tolerance: float = 1e-6
    initial: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_choice("weighting", self.weighting, WEIGHTINGS)
        check_choice("bound", self.bound, list(BOUNDS))
        check_choice("mean", self.mean, MEANS)
        for kernel in [self.kernel] if isinstance(self.kernel, str) else self.kernel:
            check_choice("kernel", kernel, list(KERNELS))
        for option in ("n_latents", "projection", "chunk", "mf_steps", "local_steps"):
            if getattr(self, option) is not None:
                check_number(option, getattr(self, option), whole=True, least=1)
        check_number("join_steps", self.join_steps, whole=True, least=0)
        for option in ("proximal", "weight_decay"):
            check_number(option, getattr(self, option), least=0)
        if self.network is None and (self.network_per_latent or self.chunk is not None):
            option = "network_per_latent" if self.network_per_latent else "chunk"
            raise ConfigError(f"{option} is set, and there is no network", remedy=f"set network, or leave {option} out")
        self._rates()
        if self.holdout is not None:
            check_number("holdout", self.holdout, least=0, below=1)
            if self.holdout and not self._may_hold_out:
                raise ConfigError(
                    f"holdout is {self.holdout:g}, and the server learns no features by their gradient",
                    remedy="set projection or network, share them, and use mode 'gradient'; or leave holdout out",
                )
        if not isinstance(self.kernel, str) and len(self.kernel) != (self.n_latents or len(self.kernel)):
            raise ConfigError(
                f"{len(self.kernel)} kernels for {self.n_latents} latents", remedy="give one kernel, or one for each"
            )
        if self._shared == ("features",) and not self._makes_features:
            raise ConfigError(
                f"scheme {self.scheme!r} shares the features alone, and nothing makes any",
                remedy="set projection, network or mean, choose 'K', 'W' or 'A', or the method 'local' to share nothing",
            )
        self._structure()

    @property
    def _makes_features(self) -> bool:
        return self.projection is not None or self.network is not None or self.mean != "zero"

    @property
    def _may_hold_out(self) -> bool:
        return self._makes_features and "features" in self._shared and self.mode == "gradient"

    @property
    def _share(self) -> float:
        """Of the inputs that are kept apart from the features."""
        return (HOLDOUT if self._may_hold_out else 0.0) if self.holdout is None else self.holdout

    @property
    def personalises(self) -> bool:
        own = GROUPS if self._makes_features else GROUPS[1:]  # without features, there is no more to share
        return not set(own) <= set(self._shared)

    # ---- the server ---------------------------------------------------------------------------------------

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        model = self._structure().model(spec.codecs, spec.n_features)
        values = model.initial_values(stream)
        shared = self._names(model, shared=True)
        server = {}
        for name, value in values.items():
            kind = "initial" if name not in shared else "pooled" if name in model.closed_form_noise else "theta"
            server[f"{kind}/{name}"] = value
        if self.mode == "gradient":
            server |= labelled("adam", Adam({}).start(part(server, "theta")))
        if self._share:
            together = judged_together(self._features(part(server, "theta")))
            server |= labelled("agreement", dict.fromkeys(together, torch.ones((), dtype=torch.float64)))
        return server

    def download(self, server: State, client: str) -> State:
        return {**part(server, "theta"), **part(server, "pooled")}

    def portion(self, server: State, client: str) -> State:
        return {name: value for name, value in server.items() if not name.startswith(("adam/", "agreement/"))}

    def template(self, server: State) -> ClientUpdate:
        nothing = torch.zeros((), dtype=torch.float64)
        tasks = [name.removeprefix("mixing.") for name in self._values(server) if group_of(name) == "mixing"]
        theta = part(server, "theta")
        return ClientUpdate(
            theta | labelled("kept", self._features(theta)),
            dict.fromkeys(part(server, "pooled"), (nothing, nothing)),
            counts=dict.fromkeys(tasks, 0),
            metrics={"bound": 0.0},
        )

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        theta, sent = part(server, "theta"), [updates[client] for client in sorted(updates)]
        weights = torch.tensor([1.0 if self.weighting == "uniform" else u.weight for u in sent], dtype=torch.float64)
        arrays = stacked([update.arrays for update in sent], list(theta))
        after = dict(server)
        # In mode gradient one step on the average bound (equ:agg); who lacks a task adds nothing to its rows.
        if self.mode == "gradient":
            gradient = {name: mean_over(value, weights) for name, value in arrays.items()}
            moved, memory = self._adam.step(theta, gradient, part(server, "adam"))
            after |= labelled("adam", memory)
            for label, features in judged_together(self._features(gradient)).items():
                kept = stacked([part(update.arrays, "kept") for update in sent], list(features))
                now = agreement(features, {name: mean_over(value, weights) for name, value in kept.items()})
                so_far = MEMORY * server[f"agreement/{label}"] + (1 - MEMORY) * now
                after[f"agreement/{label}"] = so_far
                moved = shortened(theta, moved, features, trust(so_far))
        else:  # a row of W or a noise is averaged over the clients that have that task
            moved = {
                name: theta[name] + mean_over(value, weights * owners(name, sent)) for name, value in arrays.items()
            }
        after |= labelled("theta", clamped(moved))
        for name, value in part(server, "pooled").items():  # optimial sigma, over the labels of all clients
            total, count = (torch.stack([update.pooled[name][i] for update in sent]).sum() for i in (0, 1))
            after |= labelled("pooled", clamped({name: (total / count).log() if count > 0 else value}))
        return after

    # ---- a client -----------------------------------------------------------------------------------------

    def start(self, data: ClientData, stream: Stream) -> State:
        model = self.model(data)
        values = model.initial_values(stream)
        personal = {name: values[name] for name in self._names(model, shared=False)}
        return self._fresh(model, personal) | self._kept(data, stream)

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        return self._together([Job("", state, message, data, stream)])[0]

    def local_many(self, jobs: Sequence[Job]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        alike: dict[int, list[int]] = {}
        for i, job in enumerate(jobs):  # one model for all, unless clients count in units of their own
            alike.setdefault(id(self.model(job.data)), []).append(i)
        for places in alike.values():
            group = [jobs[i] for i in places]
            try:
                done: list[Outcome] = list(self._together(group))
            except Exception:  # one of them broke down; alone, each answers for itself
                done = [self._attempt(job) for job in group]
            outcomes |= zip(places, done, strict=True)
        return [outcomes[i] for i in range(len(jobs))]

    def _together(self, jobs: Sequence[Job]) -> list[tuple[State, ClientUpdate]]:
        model = self.model(jobs[0].data)
        shared, personal = self._names(model, shared=True), self._names(model, shared=False)
        states = [job.state for job in jobs]
        parts = [parted(job.data, job.state["kept"]) if self._share else (job.data, job.data) for job in jobs]
        rows = [prepared_rows(kept, model.likelihoods) for _, kept in parts]
        before = stacked([job.message for job in jobs], shared) | unlabelled(states, "personal", personal)
        work = self._work(personal if self.mode == "gradient" else [*shared, *personal], self.local_steps)
        memory = unlabelled(states, "adam", list(part(states[0], "adam")))
        anchors = unlabelled(states, "anchor", list(part(states[0], "anchor")))
        after, memory, step = work.run(model, rows, before, memory, anchors, warm(states, "warm"))

        closed = model.closed_form_noise
        learned = [name for name in shared if name not in closed]
        sent = step.gradient if self.mode == "gradient" else {name: after[name] - before[name] for name in learned}
        steps = {"warm": step}
        if self._share:  # what is sent of the features comes from the labels that are not kept apart
            steps["seen"] = solver_of(model, [prepared_rows(seen, model.likelihoods) for seen, _ in parts]).step(
                model.prior.with_values(after),
                start=warm(states, "seen"),
                tolerance=self.tolerance,
                max_steps=self.mf_steps,
                groups=("features",),
            )
            sent = sent | steps["seen"].gradient | labelled("kept", self._features(step.gradient))
            learned = [*learned, *labelled("kept", self._features(step.gradient))]
        done, bounds = [], torch.stack([one.bound for one in steps.values()]).sum(0).tolist()
        nobody = torch.zeros(len(jobs), dtype=torch.float64)
        pooled = {
            name: step.noise.get(name.removeprefix("noise."), (nobody, nobody)) for name in shared if name in closed
        }
        for i, job in enumerate(jobs):
            state = {
                **{f"personal/{name}": after[name][i] for name in personal},
                **{f"adam/{name}": value[i] for name, value in memory.items()},
                **{n: value for n, value in job.state.items() if n == "kept" or n.startswith("anchor/")},
            }
            for name, one in steps.items():
                state |= dict(zip((f"{name}/m", f"{name}/v"), one.marginals_of(i), strict=True))
            counts = job.data.counts()
            update = ClientUpdate(
                {name: sent[name][i] for name in learned},
                {name: (total[i], count[i]) for name, (total, count) in pooled.items()},
                float(sum(counts.values())),
                counts,
                {"bound": bounds[i]},
            )
            done.append((state, update))
        return done

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        return self.model(data).predict({**self._values(server), **part(state or {}, "personal")}, data)

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        """Personal groups are learned in `join_steps` steps on the client's own data; shared ones stay as they are."""
        model = self.model(data)
        personal = self._names(model, shared=False)
        state = self._fresh(model, {name: self._values(server)[name] for name in personal}) | self._kept(data, stream)
        if not personal or not self.join_steps or not data.n_labels:
            return state
        work = self._work(personal, self.join_steps)
        values = {name: value[None] for name, value in self._values(server).items()}
        memory = {name: value[None] for name, value in Adam({}).start(part(state, "personal")).items()}
        anchors = {name: value[None] for name, value in part(state, "anchor").items()}
        after, _, _ = work.run(model, [prepared_rows(data, model.likelihoods)], values, memory, anchors, [None])
        return state | labelled("personal", {name: after[name][0] for name in personal})

    def explain(self, server: State, data: ClientData) -> dict[str, Any]:
        """Length-scales, noise and the correlation of the tasks, as far as they are shared."""
        model = self.model(data)
        return model.explain(self._values(server), self._shared, data.codecs)

    # ---- the parts of Θ -------------------------------------------------------------------------------------

    @property
    def _shared(self) -> tuple[str, ...]:
        return shared_groups(self.scheme)

    def _structure(self) -> Structure:
        kernels = self.kernel if isinstance(self.kernel, str) else tuple(self.kernel)
        if isinstance(kernels, str) and self.n_latents is not None:
            kernels = (kernels,) * self.n_latents
        sparsity = Sparsity(self.inducing, self.inducing_method, 1e-3, seed=0)
        return Structure(
            kernels,
            self.per_dimension,
            self.bound,
            sparsity,
            frozen_tree(self.initial),
            self.projection,
            self.network,
            self.network_per_latent,
            self.chunk,
            self.mean,
        )

    def model(self, data: ClientData) -> GPModel:
        """The Gaussian process of a client."""
        return self._structure().model(data.codecs, data.n_features)

    def _names(self, model: GPModel, *, shared: bool) -> list[str]:
        return [name for name in model.prior.parameters if (group_of(name) in self._shared) == shared]

    @property
    def _adam(self) -> Adam:
        return Adam(self._rates(), {"features": self.weight_decay})

    def _work(self, moving: Sequence[str], steps: int) -> LocalWork:
        return LocalWork(tuple(moving), GROUPS, self._adam, steps, self.mf_steps, self.tolerance, self.proximal)

    def _rates(self) -> dict[str, float]:
        given = self.learning_rate
        if not isinstance(given, Mapping):
            check_number("learning_rate", given, above=0)
            given = dict.fromkeys((*GROUPS[1:], "projection"), given) | {"features": given * self._slower}
        rates = dict(given)
        for group, rate in rates.items():
            if group not in (*GROUPS, "projection"):
                raise ConfigError(f"learning_rate names {group!r}", remedy=nearest(group, (*GROUPS, "projection")))
            check_number(f"learning_rate of {group}", rate, above=0)
        if "features" in rates:
            rates.setdefault("projection", rates["features"])
        usual = dict.fromkeys((*GROUPS, "projection"), 0.1) | {"features": 0.1 * self._slower}
        return usual | rates

    @property
    def _slower(self) -> float:
        """The weights of a network are many and small; those of projections are scaled for a step like any other."""
        return 0.01 if self.network is not None else 1.0

    def _fresh(self, model: GPModel, personal: State) -> State:
        """A client's state before its first round, with these personal values."""
        moving = personal
        if self.mode == "average":  # it moves the shared ones too, if only for a round at a time
            moving = model.prior.state()
        learned = {name: value for name, value in moving.items() if name not in model.closed_form_noise}
        anchors = personal if self.proximal > 0 else {}
        return labelled("personal", personal) | labelled("adam", Adam({}).start(learned)) | labelled("anchor", anchors)

    def _kept(self, data: ClientData, stream: Stream) -> State:
        """The inputs that a client keeps apart from the features, for good."""
        return (
            {"kept": kept_apart(data, self._share, replace(stream, purpose="holdout").numpy())} if self._share else {}
        )

    def _features(self, values: Mapping[str, Tensor]) -> State:
        """The parameters of features among these, if some labels are kept apart from them."""
        return {name: value for name, value in values.items() if self._share and group_of(name) == "features"}

    @staticmethod
    def _values(server: State) -> State:
        return {**part(server, "initial"), **part(server, "theta"), **part(server, "pooled")}
