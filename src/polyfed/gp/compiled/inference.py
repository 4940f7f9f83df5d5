"""The E-step of an exact model in compiled code, and what torch needs to go on from there: q(f), bound and gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from threading import local
from typing import TYPE_CHECKING

import numpy as np
import torch
from threadpoolctl import LibController, ThreadpoolController
from torch import Tensor

from polyfed.gp.compiled import likelihoods  # noqa: F401 (compiled with the rest, not when they are first asked for)
from polyfed.gp.compiled.clients import CONVERGED, FAILED, STEPS, solve_clients
from polyfed.gp.compiled.layout import Layout, contiguous
from polyfed.gp.compiled.metrics import METRICS, SCALES, columns_of_inputs, lower_distances
from polyfed.gp.compiled.profiles import ADDRESSES, EXPONENTIAL
from polyfed.gp.compiled.shared import positive
from polyfed.gp.compiled.shared_knowledge import SharedKnowledge
from polyfed.gp.kernels import Kernel, MetricKernel
from polyfed.gp.knowledge import Evidence, not_a_precision
from polyfed.gp.linalg import Gaussian, not_positive_definite
from polyfed.gp.lmc import Distances
from polyfed.gp.rows import Rows

if TYPE_CHECKING:
    from polyfed.gp.exact import ExactModel


@dataclass
class Solution:
    """What compiled inference found, in the shapes of the model: of one client, or of a batch. It answers as a
    `linalg.Gaussian` if asked for more."""

    model: ExactModel = field(repr=False)
    m: Tensor
    v: Tensor
    h: Tensor
    r: Tensor
    alpha: Tensor
    minus_kl: Tensor
    history: Tensor  # (steps, ...)
    converged: bool
    by: dict[str, Tensor] = field(default_factory=dict)  # the derivatives of logZ that were asked for
    evidence: Evidence | None = None  # of shared latents, if they were

    @cached_property
    def whole(self) -> Gaussian:
        """As torch finds it from the sites alone, and as it would after they were stored."""
        return self.model.solve(self.h, self.r)

    @property
    def L(self) -> Tensor:
        return self.whole.L

    @property
    def B_inv(self) -> Tensor:
        return self.whole.B_inv

    @property
    def logz(self) -> Tensor:
        return self.minus_kl + (self.r * self.m - 0.5 * self.h * self.second_moment).sum(-1)

    @property
    def second_moment(self) -> Tensor:
        return self.m.square() + self.v

    @property
    def slope(self) -> Callable[[], Tensor] | None:
        """What adds nothing but the gradient of logZ in Θ; None if that was not asked for."""
        return self._slope if self.by else None

    def _slope(self) -> Tensor:
        model = self.model
        of = (model.K,) if "K" in self.by or model.latents is None else (model.a, *model.latents[1:])
        return LogZ.apply(self.minus_kl, list(self.by.values()), *of)  # pyright: ignore[reportReturnType]


def is_known(kernel: Kernel) -> bool:
    """Whether there is compiled code for this kernel."""
    return isinstance(kernel, MetricKernel) and kernel.metric in METRICS and kernel.profile in ADDRESSES


def layout_of(rows: Rows) -> Layout | None:
    """The layout of these rows, made when it is first asked for."""
    if "layout" not in rows.kept:
        rows.kept["layout"] = Layout.of(rows)
    return rows.kept["layout"]


def solve_model(
    model: ExactModel,
    layout: Layout,
    start: tuple[Tensor, Tensor] | None,
    of_f: bool,
    tolerance: float,
    max_steps: int,
    accelerate: bool,
    wanted: bool,
) -> Solution:
    """As `infer`, with the derivatives of logZ if they are `wanted`: in K if the model holds it, else in a, φ₀ and φ₁."""
    prior = model.prior
    # A covariance that was asked for is the one to use, and torch makes that of kernels that have no compiled form.
    latents = None if "K" in vars(model) or not all(map(is_known, prior.kernels)) else model.latents
    sent = None if latents is None else SharedKnowledge.of(model)
    if sent is None and model.knowledge is not None:
        latents = None  # torch makes what is received
    rows = model.rows if sent is None else model.plain
    C, N, B = layout.n_clients, len(rows), prior.n_latents
    shared = (sent or SharedKnowledge.nothing()).arrays
    if latents is None:
        given = contiguous(model.K).reshape(C, N, N)
        U, at, numbers = 0, np.zeros((0, 0), np.intp), tuple(np.zeros((0,) * n) for n in (3, 3, 2, 3))
        addresses = np.zeros((7, 0), np.intp)
    else:
        given, U = np.zeros((0, 0, 0)), rows.x.shape[-2]
        at = np.ascontiguousarray(rows.at.reshape(C, N).numpy().astype(np.intp, copy=False))
        a = np.ascontiguousarray(model.a.detach().reshape(C, N, B).numpy().transpose(0, 2, 1))
        x = latents[0].kept(columns_of_inputs, columns_of_inputs)
        numbers = (x, a, _per_client(latents[1], C, 1), _per_client(latents[2], C, 2))
        addresses = _addresses(prior.kernels, *latents)
    unknown = torch.full((C, N), torch.nan, dtype=torch.float64)
    m, v = (np.array(each.detach().numpy(), np.float64).reshape(C, N) for each in start or (unknown, unknown))
    h, r, alpha = np.zeros((C, N)), np.zeros((C, N)), np.zeros((C, N))
    history, minus_kl, ends = np.empty((C, max(max_steps, 1))), np.empty(C), np.zeros((C, 3), np.intp)
    by_latents, by_matrix = wanted and latents is not None, wanted and latents is None
    G = np.zeros((C, N, N) if by_matrix else (0, 0, 0))
    g_a = np.zeros((C, B, N) if by_latents else (0, 0, 0))
    g_amplitude = np.zeros((C, B) if by_latents else (0, 0))
    g_phi1 = np.zeros(numbers[-1].shape if by_latents else (0, 0, 0))
    mu = np.zeros((C, N)) if rows.mu is None else contiguous(rows.mu).reshape(C, N)
    means, (triangle, shift) = np.zeros((C, N)), (np.zeros_like(each if wanted else each[:0]) for each in shared[-2:])
    # Many small clients: a second thread of LAPACK would only wait for the first.
    with _threads_of_lapack(1 if C > 1 else torch.get_num_threads()):
        _solve(
            0, C, *layout.arrays, layout.noise(prior), mu, float(tolerance), int(max_steps), accelerate, given,
            addresses[0], U, *addresses[1:], at, *numbers,
            m, v, h, r, alpha, history, minus_kl, ends,
            wanted, G, g_a, g_amplitude, g_phi1,
            *shared, of_f, means, triangle, shift,
        )  # fmt: skip
    if ends[:, FAILED].any():
        client = int(ends[:, FAILED].nonzero()[0][0])
        row = int(ends[client, FAILED]) - 1
        raise model.named(not_positive_definite(row, client)) if row >= 0 else not_a_precision(0, client)
    shape = rows.batch_shape

    def shaped(array: np.ndarray, *inner: int) -> Tensor:
        return torch.from_numpy(array).reshape((*shape, *inner))

    by = {"K": shaped(G, N, N)} if by_matrix else {}
    if by_latents:
        of_phi1 = shaped(g_phi1, *g_phi1.shape[1:])
        by = {"a": shaped(g_a, B, N).mT, "amplitude": shaped(g_amplitude, B), "phi1": of_phi1}
    said = None
    if sent is not None:
        model.rows = rows.shifted(shaped(means, N))
        said = Evidence(shaped(triangle, triangle.shape[1]), shaped(shift, shift.shape[1])) if wanted else None
    # A client that was done earlier stays where it was.
    last = np.minimum(np.arange(int(ends[:, STEPS].max(initial=1)))[:, None], np.maximum(ends[:, STEPS], 1) - 1)
    return Solution(
        model,
        *(shaped(each, N) for each in (m, v, h, r, alpha)),
        minus_kl=shaped(minus_kl),
        history=torch.from_numpy(np.take_along_axis(history.T, last, 0)).reshape(-1, *shape),
        converged=bool(ends[:, CONVERGED].all()),
        by=by,
        evidence=said,
    )


class _Space(local):
    """What one thread works in, kept from call to call: fresh pages would take a large client a third of its time."""

    numbers = np.empty(0)
    most = 2**23  # kept; 64 MB


_space = _Space()


def _solve(*arguments: object) -> None:
    needed = solve_clients(_space.numbers, *arguments)
    if needed > 0:
        numbers = np.empty(needed)
        solve_clients(numbers, *arguments)
        if needed <= _space.most:
            _space.numbers = numbers


def are_positive(triangles: Tensor, rounding: float) -> Tensor:
    """`Evidence.is_positive` of many."""
    found = np.zeros(triangles.shape[:-1], np.bool_)
    with _threads_of_lapack(1):
        positive(contiguous(triangles).reshape(-1, triangles.shape[-1]), rounding, found.reshape(-1))
    return torch.from_numpy(found)


@cache
def _blas() -> list[LibController]:
    return ThreadpoolController().select(internal_api="openblas").lib_controllers


@contextmanager
def _threads_of_lapack(n: int) -> Iterator[None]:
    before = [library.get_num_threads() for library in _blas()]
    try:
        for library in _blas():
            library.set_num_threads(n)
        yield
    finally:
        for library, threads in zip(_blas(), before, strict=True):
            library.set_num_threads(threads)


def _addresses(kernels: Sequence[Kernel], distances: Distances, amplitude: Tensor, phi1: Tensor) -> np.ndarray:
    """For each latent the distances of its inputs (0 where φ₁ is one for each dimension), its profile and slope, what makes t
    of scaled inputs and its derivative (0 where distances are given), the first latent that is the same function, and whether
    its slope looks at t."""
    lines = []
    for b, kernel in enumerate(kernels):
        assert isinstance(kernel, MetricKernel)
        scales = (0, 0)
        first = b if kernel.has_length_scale else kernels.index(kernel)
        if kernel.has_length_scale and phi1.shape[-1] > 1:
            scales = SCALES[kernel.metric]
        at = 0 if scales[0] else distances.kept(lower_distances, kernel.metric).ctypes.data
        of_profile = ADDRESSES[kernel.profile]
        lines.append((at, *of_profile, *scales, first, of_profile != EXPONENTIAL))
    return np.ascontiguousarray(np.array(lines, np.intp).T)


def _per_client(value: Tensor, C: int, inner: int) -> np.ndarray:
    """(C, ...) of what is one for all clients, or one for each; its last `inner` dimensions are its own."""
    return contiguous(value.detach().expand(C, *value.shape[-inner:]))


class LogZ(torch.autograd.Function):
    """Zero, with the derivative of logZ in what it is given."""

    @staticmethod
    def forward(ctx, like: Tensor, by: list[Tensor], *of: Tensor) -> Tensor:
        ctx.by, ctx.shapes = by, [each.shape for each in of]
        return torch.zeros_like(like)

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grad_outputs
        scaled = [grad.reshape(*grad.shape, *(1,) * (each.dim() - grad.dim())) * each for each in ctx.by]
        return None, None, *(each.sum_to_size(shape) for each, shape in zip(scaled, ctx.shapes, strict=True))
