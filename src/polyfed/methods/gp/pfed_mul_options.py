"""The options of pFed-Mul: their meaning, their checks, and what follows from them alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from polyfed.errors import ConfigError, nearest
from polyfed.gp import GROUPS
from polyfed.gp.hyperprior import HyperPrior
from polyfed.gp.kernels import KernelLike, texts_of
from polyfed.gp.likelihoods.logistic import BOUNDS
from polyfed.gp.prior import MEANS
from polyfed.methods.base import Method
from polyfed.methods.gp.feature_learning import PROJECTION, STARTS, FeatureLearning
from polyfed.methods.gp.holdout import HOLDOUT
from polyfed.methods.gp.model import ModelConfig
from polyfed.methods.gp.optimiser import LEAST, Adam, Halving, checked_betas, rates_of
from polyfed.methods.gp.server_step import ServerStep
from polyfed.methods.gp.theta_prior import hyperprior_of
from polyfed.methods.options import check_choice, check_number, check_numbers, check_table, frozen_tree
from polyfed.modelling.sparsity import Sparsity

MOST_LATENTS = 1000  # far more than anyone has tasks; scales of latents would leave what a number can hold
MOST_DRAWS = 1000  # every prediction is made as often
# The paper's (tab:ablation): N shares the network, K the kernels too, W the mixing weights too, A all.
SCHEMES = {"N": GROUPS[:1], "K": GROUPS[:2], "W": GROUPS[:3], "A": GROUPS}


@dataclass(frozen=True)
class PFedMulOptions(Method):
    """What a user may choose of pFed-Mul.

    Args:
        n_latents: latent functions that the tasks share; None for one for each task, and at least two.
        kernel: of all latents, or one for each: a name, an expression such as "rbf + periodic", or a kernel (gp/kernels).
        per_dimension: a length-scale for each feature.
        projection: width of a linear projection that each latent learns of the features (a deep kernel over features of a
            network that is kept as it is); None for kernels that see the features themselves.
        projection_start: `random`, or `moments`: towards what predicts the labels, which takes round 1
            (methods/gp/feature_learning.py); None for `moments` where the server learns projections by their gradient
            and there is no network below them.
        network: `package.module:factory` of a network between inputs and projections (or kernels), learned with the rest but
            for what the factory froze. It runs in float32, each input by itself: batch norms keep their statistics and never
            use those of a batch.
        network_per_latent: each latent has such a network of its own (and sees, or projects, its features alone).
        chunk: inputs of a client that go through the network at once, to save memory; the gradient is the same, as the E-step
            and the kernels see all of the client and only the network works in parts (gp/projection.py). None for all.
        mean: prior mean of the outputs, `zero` as in the paper or `linear`: f_i(x) = μ_i(x) + Σ_b W[i, b] g_b(x) with
            μ(x) = Vᵀx̃ + c, where x̃ are the inputs or the features of the network. V and c belong to the group `features`.
            None for `linear` where the server learns projections by their gradient and there is no network below them (with
            few labels the task with the smaller gradients is lost without it: docs/images.md), and for `zero` elsewhere.
        weight_decay: of the parameters of networks, projections and means, apart from the gradient (AdamW); kernels, mixing
            weights and noise never decay.
        holdout: share of a client's inputs whose labels the features never see: noise, kernels and mixing weights are learned
            from them, and they show the server when the features begin to memorise (methods/gp/feature_learning.py); None for a
            third where features are learned in mode `gradient`, and none elsewhere.
        bound: `polya-gamma` or `gaussian`.
        scheme: N, K, W, A or a list of groups: what the server learns; the rest is personal.
        mode: `gradient` or `average`.
        weighting: `uniform` (each client counts once) or `samples`.
        mf_steps: mean-field steps of an E-step, from where the last round ended.
        local_steps: M-steps of a client in a round (in mode `gradient` on its personal groups alone).
        learning_rate: of Adam, a hundredth of it for a network; or a dictionary with one for each group, and for `projection`
            (and prior mean).
        optimiser: of the server in mode `gradient`: `adam`, or `quasi-newton` (methods/gp/optimiser.py), which needs about half
            as many rounds where the same clients take part in each, and is Adam where they do not; not for features.
        betas: of Adam, how long it remembers gradients and their squares.
        halve_every: the number of passes after which rates are halved again (rounds, where all take part in each), once
            `halve_after` are over, down to a twentieth of what they were; None for rates that stay.
        halve_after: see `halve_every`.
        theta_prior: `none`, as in the paper, or `weak`: a prior of kernels, mixing weights and noise (gp/hyperprior.py), added
            once at the server, and for personal groups by each client (MAP); or a dictionary with those of its standard
            deviations that are to be others. Shared groups need mode `gradient` for it.
        theta_draws: number of draws, of what the server learned of kernels, mixing weights and noise, over which predictions
            are averaged, so that intervals know how sure it is of them (methods/gp/theta_draws.py); the last round finds out
            how sure, which takes two gradients for each of their numbers. 0 for the best values alone.
        client_noise: each client has a noise level of its own for regression, drawn to the others' as far as these are alike
            (gp/noise_pool.py); needs mode `gradient` and a scheme that shares the noise.
        proximal: pull of personal parameters to the values that all clients started from.
        inducing: inducing inputs of each client, or "auto" for as many as its data ask for; None for the exact posterior,
            and for "auto" at a client whose exact posterior memory does not hold.
        inducing_method: how they are chosen.
        join_steps: steps in which a client that joins later learns its personal groups.
        tolerance: an E-step ends before `mf_steps` when the bound moves by less than this many nats.
        initial: parameter name → initial value, instead of the one guessed.
    """

    n_latents: int | None = None
    kernel: KernelLike | Sequence[KernelLike] = "rbf"
    per_dimension: bool = False
    projection: int | None = None
    projection_start: str | None = None
    network: str | None = None
    network_per_latent: bool = False
    chunk: int | None = None
    mean: str | None = None
    weight_decay: float = 0.0
    holdout: float | None = None
    bound: str = "polya-gamma"
    scheme: str | Sequence[str] = "A"
    mode: str = "gradient"
    weighting: str = "uniform"
    mf_steps: int = 2
    local_steps: int = 1
    learning_rate: float | Mapping[str, float] = 0.1
    optimiser: str = "adam"
    betas: Sequence[float] = (0.9, 0.999)
    halve_every: float | None = None
    halve_after: float = 10.0
    theta_prior: str | Mapping[str, float] = "none"
    theta_draws: int = 0
    client_noise: bool = False
    proximal: float = 0.0
    inducing: int | str | None = None
    inducing_method: str = "greedy"
    join_steps: int = 50
    tolerance: float = 1e-6
    initial: Mapping[str, object] = field(default_factory=dict)

    @property
    def takes_weights(self) -> bool:
        return True

    def __post_init__(self) -> None:
        check_table("initial", self.initial)
        check_choice("mode", self.mode, ("gradient", "average"))
        check_choice("weighting", self.weighting, ("uniform", "samples"))
        check_choice("bound", self.bound, list(BOUNDS))
        check_choice("mean", self._mean, MEANS)
        check_choice("projection_start", self.projection_start or STARTS[0], STARTS)
        if self.projection_start == "moments" and not self._may_seek:
            raise ConfigError(
                "projection_start is 'moments', and the server learns no projection by its gradient",
                remedy="set projection, share it, and use mode 'gradient'; or leave projection_start out",
            )
        kernels = texts_of(self.kernel)
        object.__setattr__(self, "kernel", kernels)  # as run folders keep it
        check_numbers(self, "projection", "chunk", "mf_steps", "local_steps", whole=True, least=1, optional=True)
        if (n_latents := self.n_latents if isinstance(kernels, str) else len(kernels)) is not None:
            check_number("n_latents", n_latents, whole=True, least=1, most=MOST_LATENTS)
        check_numbers(self, "join_steps", whole=True, least=0)
        check_numbers(self, "proximal", "weight_decay", least=0)
        if self.network is None and (self.network_per_latent or self.chunk is not None):
            option = "network_per_latent" if self.network_per_latent else "chunk"
            raise ConfigError(f"{option} is set, and there is no network", remedy=f"set network, or leave {option} out")
        check_choice("optimiser", self.optimiser, ("adam", "quasi-newton"))
        if self.optimiser == "quasi-newton" and (self.mode != "gradient" or self._makes_features):
            reason = "features are learned" if self._makes_features else f"mode is {self.mode!r}"
            raise ConfigError(
                f"optimiser is 'quasi-newton', and {reason}",
                remedy="leave optimiser out, or use mode 'gradient' without projection, network and mean",
            )
        self._adam  # noqa: B018 (its rates are checked)
        if self.client_noise and (self.mode != "gradient" or "noise" not in self._shared):
            reason = f"mode is {self.mode!r}" if self.mode != "gradient" else "the noise is not shared"
            remedy = "use mode 'gradient' and scheme 'A', or leave client_noise out"
            raise ConfigError(f"client_noise is set, and {reason}", remedy=remedy)
        if self._hyper is not None and self.mode == "average" and self._shared:
            what = "theta_prior with mode 'average': clients would add it as often as they are many"
            raise ConfigError(what, remedy="use mode 'gradient', or leave theta_prior out")
        check_numbers(self, "theta_draws", whole=True, least=0, most=MOST_DRAWS)
        if self.theta_draws and (reason := self._why_not_drawn()):
            raise ConfigError(f"theta_draws is {self.theta_draws}, and {reason}", remedy="leave theta_draws out")
        check_numbers(self, "holdout", least=0, below=1, optional=True)
        if self.holdout and not self._may_hold_out:
            raise ConfigError(
                f"holdout is {self.holdout:g}, and the server learns no features by their gradient",
                remedy="set projection or network, share them, and use mode 'gradient'; or leave holdout out",
            )
        if not isinstance(kernels, str) and len(kernels) != (n := self._n_latents or len(kernels)):
            raise ConfigError(f"{len(kernels)} kernels for {n} latents", remedy="give one kernel, or one for each")
        if self._shared == ("features",) and not self._makes_features:
            raise ConfigError(
                f"scheme {self.scheme!r} shares the features alone, and nothing makes any",
                remedy="set projection, network or mean, choose 'K', 'W' or 'A', or the method 'local' to share nothing",
            )
        self._model_config()

    def _why_not_drawn(self) -> str | None:
        """Why there is no Θ whose uncertainty the server could find, if there is none."""
        if self.mode != "gradient":
            return f"mode is {self.mode!r}, in which the server sees no gradient"
        if not set(self._shared) - {"features"}:
            return "the server learns neither kernels nor mixing weights nor noise"
        if self._makes_features:
            return "features are learned, of which there are too many numbers"
        if self._shares:
            return "clients share functions, of which as much would have to be known at every draw"
        return "each client has a noise level of its own" if self.client_noise else None

    @property
    def _shares(self) -> bool:
        """Whether clients have functions in common."""
        return False

    @property
    def _n_latents(self) -> int | None:
        return self.n_latents

    @property
    def _makes_features(self) -> bool:
        return self.projection is not None or self.network is not None or self._mean != "zero"

    @property
    def _mean(self) -> str:
        return ("linear" if self._may_seek and self.network is None else "zero") if self.mean is None else self.mean

    @property
    def _may_hold_out(self) -> bool:
        return self._makes_features and "features" in self._shared and self.mode == "gradient"

    @property
    def _may_seek(self) -> bool:
        return self.projection is not None and "features" in self._shared and self.mode == "gradient"

    @property
    def _feature_learning(self) -> FeatureLearning:
        share = (HOLDOUT if self._may_hold_out else 0.0) if self.holdout is None else self.holdout
        # Below a network that learns too, validation images spoke neither for it nor against it.
        wants = self.projection_start == "moments" or (self.projection_start is None and self.network is None)
        return FeatureLearning(share, seeks=wants and self._may_seek and PROJECTION not in self.initial)

    @property
    def _shared(self) -> tuple[str, ...]:
        return shared_groups(self.scheme)

    def _model_config(self, made: type[ModelConfig] = ModelConfig) -> ModelConfig:
        kernels = texts_of(self.kernel)
        if isinstance(kernels, str) and self._n_latents is not None:
            kernels = (kernels,) * self._n_latents
        sparsity = Sparsity(self.inducing, self.inducing_method, 1e-3, seed=0)
        features = self.projection, self.network, self.network_per_latent, self.chunk, self._mean
        return made(kernels, self.per_dimension, self.bound, sparsity, frozen_tree(self.initial), *features)

    @property
    def _adam(self) -> Adam:
        beta1, beta2 = checked_betas(self.betas)
        check_numbers(self, "halve_after", least=0)
        check_numbers(self, "halve_every", above=0, optional=True)
        schedule = None if self.halve_every is None else Halving(self.halve_every, self.halve_after, LEAST)
        return Adam(self._rates(), {"features": self.weight_decay}, beta1=beta1, beta2=beta2, schedule=schedule)

    def _rates(self) -> dict[str, float]:
        # The weights of a network are many and small; those of projections are scaled for a step like any other.
        return rates_of(self.learning_rate, network=1.0 if self.network is None else 0.01)

    @property
    def _server_step(self) -> ServerStep:
        return ServerStep(self._adam, self.optimiser == "quasi-newton", moves_noise=not self.client_noise)

    @property
    def _hyper(self) -> HyperPrior | None:
        return hyperprior_of(self.theta_prior)


def shared_groups(scheme: str | Iterable[str]) -> tuple[str, ...]:
    """The groups that the server learns: of N, K, W, A, one group's name, or any set of groups (an empty one shares nothing).

    >>> shared_groups("K"), shared_groups(["mixing"])
    (('features', 'kernels'), ('mixing',))
    """
    wanted = list(SCHEMES.get(scheme, [scheme]) if isinstance(scheme, str) else scheme)
    for group in wanted:
        if group not in GROUPS:
            raise ConfigError(f"scheme {group!r} is unknown", remedy=nearest(group, [*SCHEMES, *GROUPS]))
    return tuple(group for group in GROUPS if group in wanted)
