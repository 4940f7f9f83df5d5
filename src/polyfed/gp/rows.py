"""A client's observations as rows: for any kind of task, a row is an input, a mixing pattern and a site.

Row j sits at input x[at_j] and sees the outputs through A_j, so that f_j = (A_j W) · g(x_j). A missing label is a row
that does not exist; a task without labels is a block without rows. Several clients are stacked by padding with rows that
no block knows: their h stays zero, and a row with h = 0 changes nothing.

A prior mean is known here and nowhere else in inference: f_j = μ_j + f̃_j with μ_j = A_j · μ(x_j), and all that others see
is f̃, whose prior has mean zero. A site exp(r f − ½ h f²) of f is one of f̃ with r − h μ in place of r.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp.blocks import spans
from polyfed.gp.likelihoods import Likelihood
from polyfed.gp.prior import Prior

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.layout import Layout


@dataclass(frozen=True)
class Block:
    """The data of one task.

    Attributes:
        y: coded labels, one entry for each datum.
        rows: (data, rows of each datum), positions in a flat vector over all rows (of all clients).
        owner: (data,) the client of each datum; None if there is but one.
        weight: (data,) how often each datum counts: ℓ, h and r are multiplied by it; None for once each.
    """

    task: str
    likelihood: Likelihood
    y: Tensor
    rows: Tensor
    owner: Tensor | None = None
    weight: Tensor | None = None

    def of(self, per_row: Tensor) -> Tensor:
        """This block's part of a vector over all rows, (data, rows of each datum)."""
        return per_row.reshape(-1)[self.rows]

    def noise(self, prior: Prior) -> Tensor | None:
        """σ² of each datum's client, as likelihoods take it."""
        noise = prior.noise_of(self.task)
        return noise if noise is None or noise.dim() == 0 else noise[self.owner][:, None]

    @property
    def times(self) -> Tensor | float:
        """By what ℓ of each datum, (data,) or one number for all, is multiplied: tempering, and its weight."""
        power = self.likelihood.power
        return power if self.weight is None else power * self.weight

    def per_client(self, per_datum: Tensor, shape: torch.Size) -> Tensor:
        """Sum over the data of each client."""
        if self.owner is None:
            return per_datum.sum()
        return per_datum.new_zeros(shape).index_add(0, self.owner, per_datum)


@dataclass(frozen=True)
class Rows:
    """All observations of one client, or of several with a leading dimension.

    Attributes:
        x: (..., U, D) inputs; several rows may share one.
        at: (..., N) the input of each row.
        A: (..., N, T) the outputs that a row sees, by the order of the prior's outputs.
        blocks: the tasks that have labels.
        n_fixed: the first `n_fixed` rows belong to likelihoods whose sites never change.
        mu: (..., N) the prior mean of each row, with its graph; None for zero.
        kept: what others made of these rows, for any mean, and would make again.
    """

    x: Tensor
    at: Tensor
    A: Tensor
    blocks: tuple[Block, ...]
    n_fixed: int = 0
    mu: Tensor | None = None
    kept: dict[str, Layout | None] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        x: Tensor,
        observations: Mapping[str, tuple[Tensor, Tensor]],
        likelihoods: Mapping[str, Likelihood],
        weights: Mapping[str, Tensor] | None = None,
    ) -> Rows:
        """From inputs and task → (positions in x, coded labels). `likelihoods` names all outputs, in order; `weights` of
        some tasks say how often each label counts: a label of weight 2 is the same label twice.

        >>> from polyfed.gp.likelihoods import Gaussian, OneVsEach
        >>> x = torch.zeros(3, 1, dtype=torch.float64)
        >>> seen = {"stage": (torch.tensor([0, 2]), torch.tensor([1.0, 0.0]))}
        >>> rows = Rows.of(x, seen, {"pulse": Gaussian(), "stage": OneVsEach(3)})
        >>> rows.A[:2]  # class 1 against 0 and against 2; the first output is the pulse's
        tensor([[ 0., -1.,  1.,  0.],
                [ 0.,  0.,  1., -1.]], dtype=torch.float64)
        """
        T = sum(likelihood.n_outputs for likelihood in likelihoods.values())
        at, A, blocks = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, T, dtype=torch.float64)], []
        outputs_of = dict(zip(likelihoods, spans([each.n_outputs for each in likelihoods.values()]), strict=True))
        n_rows = n_fixed = 0
        for task, likelihood in sorted(likelihoods.items(), key=lambda item: not item[1].fixed_site):
            if task not in observations or not len(observations[task][0]):
                continue
            positions, y = observations[task]
            pattern = likelihood.pattern(y)
            n, R, _ = pattern.shape
            wide = torch.zeros(n, R, T, dtype=torch.float64)
            wide[:, :, outputs_of[task]] = pattern
            at.append(positions.repeat_interleave(R))
            A.append(wide.reshape(n * R, T))
            lies, weight = torch.arange(n_rows, n_rows + n * R).reshape(n, R), (weights or {}).get(task)
            blocks.append(Block(task, likelihood, y, lies, weight=weight))
            n_rows += n * R
            n_fixed = n_rows if likelihood.fixed_site else n_fixed
        x, all_at = _in_order_of_rows(x, torch.cat(at))
        return cls(x, all_at, torch.cat(A), tuple(blocks), n_fixed)

    @classmethod
    def stack(cls, clients: Sequence[Rows]) -> Rows:
        """Several clients as one, padded so that their rows lie at `places(clients)`."""
        spots, (F, N) = places(clients), _stacked_size(clients)
        C, first = len(clients), clients[0]
        own = all(rows.x.shape[0] == len(rows) and bool((rows.at == torch.arange(len(rows))).all()) for rows in clients)
        U = N if own else max(rows.x.shape[0] for rows in clients)
        x = first.x.new_zeros(C, U, first.x.shape[1])
        at = torch.arange(N).expand(C, N) if own else first.at.new_zeros(C, N)
        A = first.A.new_zeros(C, N, first.A.shape[1])
        parts: dict[str, list[tuple[Block, int]]] = {}
        for c, (rows, spot) in enumerate(zip(clients, spots, strict=True)):
            A[c, spot] = rows.A
            if own:  # inputs are padded as rows are, so that each row still has an input of its own
                x[c, spot] = rows.x
            else:
                x[c, : rows.x.shape[0]], at[c, spot] = rows.x, rows.at
            for block in rows.blocks:
                parts.setdefault(block.task, []).append((block, c))
        blocks = tuple(
            Block(
                task,
                pairs[0][0].likelihood,
                torch.cat([block.y for block, _ in pairs]),
                torch.cat([spots[c][block.rows] + c * N for block, c in pairs]),
                torch.cat([torch.full((len(block.y),), c) for block, c in pairs]),
                _joined_weights([block for block, _ in pairs]),
            )
            for task, pairs in parts.items()
        )
        return cls(x, at, A, blocks, F)

    def __len__(self) -> int:
        return self.at.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        """Empty for one client."""
        return self.at.shape[:-1]

    @property
    def is_weighted(self) -> bool:
        """Whether some data count more than others."""
        return any(block.weight is not None for block in self.blocks)

    def around(self, mu: Tensor | None) -> Rows:
        """These rows with a prior mean, given that of all outputs at x (..., U, T); None for zero.

        >>> from polyfed.gp.likelihoods import OneVsEach
        >>> x, seen = torch.zeros(1, 1), {"stage": (torch.tensor([0]), torch.tensor([1.0]))}
        >>> Rows.of(x, seen, {"stage": OneVsEach(3)}).around(torch.tensor([[1.0, 5.0, 7.0]])).mu  # 5 - 1 and 5 - 7
        tensor([ 4., -2.], dtype=torch.float64)
        """
        if mu is None:
            return self
        return replace(self, mu=(self.A * torch.take_along_dim(mu, self.at[..., None], -2)).sum(-1))

    def shifted(self, by: Tensor) -> Rows:
        """These rows with their prior mean shifted by (..., N)."""
        return replace(self, mu=by if self.mu is None else self.mu + by)

    def sites(
        self, prior: Prior, m: Float[Tensor, "*batch N"], v: Float[Tensor, "*batch N"]
    ) -> tuple[Float[Tensor, "*batch N"], Float[Tensor, "*batch N"]]:
        """(h, r) of all rows, given the marginals of q(f̃)."""
        h, r = m.new_zeros(m.numel()), m.new_zeros(m.numel())
        with torch.no_grad():
            for block, data in self._data(prior, m, v):
                h_block, r_block = block.likelihood.site(*data)
                times = block.times[:, None] if isinstance(block.times, Tensor) else block.times
                h[block.rows], r[block.rows] = times * h_block, times * r_block
            h, r = h.reshape(m.shape), r.reshape(m.shape)
            return h, r if self.mu is None else r - h * self.mu

    def as_f(self, marginals: tuple[Tensor, Tensor], *, back: bool = False) -> tuple[Tensor, Tensor]:
        """Marginals of f, given those of f̃ (or `back`): what one E-step leaves to the next, whose mean may be another."""
        if self.mu is None:
            return marginals
        m, v = marginals
        return (m - self.mu.detach() if back else m + self.mu.detach()), v

    def _data(
        self, prior: Prior, m: Tensor, v: Tensor
    ) -> Iterator[tuple[Block, tuple[Tensor, Tensor, Tensor, Tensor | None]]]:
        """The blocks, and what their likelihoods are given: y, marginals of f from those of f̃, and noise."""
        f_mean = m if self.mu is None else m + self.mu
        for block in self.blocks:
            yield block, (block.y, block.of(f_mean), block.of(v), block.noise(prior))

    def local_bound(
        self, prior: Prior, m: Float[Tensor, "*batch N"], v: Float[Tensor, "*batch N"]
    ) -> Float[Tensor, "*batch"]:
        """Σ ℓ over all data of each client, given the marginals of q(f̃); differentiable in noise and prior mean."""
        total = m.new_zeros(self.batch_shape)
        for block, data in self._data(prior, m, v):
            total = total + block.per_client(block.times * block.likelihood.local_bound(*data), self.batch_shape)
        return total

    def noise_statistics(self, prior: Prior, m: Tensor, v: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Task → (sum, count) of each client, whose ratio is the best noise given q(f̃)."""
        statistics = {}
        with torch.no_grad():
            for block, data in self._data(prior, m, v):
                best = block.likelihood.best_noise(*data)
                if best is not None:
                    counted = torch.ones_like(best) if block.weight is None else block.weight
                    total, count = (block.per_client(each, self.batch_shape) for each in (counted * best, counted))
                    statistics[block.task] = (total, count)
        return statistics

    def task_of(self, row: int) -> str:
        """The task to which a row belongs, by its position in a flat vector over all rows."""
        return next((block.task for block in self.blocks if bool((block.rows == row).any())), "none")


def _joined_weights(blocks: Sequence[Block]) -> Tensor | None:
    """The weights of the data of several clients; None if all count once."""
    if all(block.weight is None for block in blocks):
        return None
    return torch.cat([torch.ones(len(b.y), dtype=torch.float64) if b.weight is None else b.weight for b in blocks])


def _in_order_of_rows(x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Without inputs that no row is at: a client may have many, and all pairs of inputs count. Where each input has one row,
    they are in the order of the rows: nothing need be gathered then, in any step."""
    used, place = at.unique(return_inverse=True)
    if len(used) and not 0 <= int(used[0]) <= int(used[-1]) < len(x):  # compiled code would read what is not its own
        raise IndexError(f"a label is at input {int(used[-1])}, and there are {len(x)}")
    if len(used) < len(x):
        x, at = x[used], place
    order = torch.arange(len(at))
    if len(x) != len(at) or not torch.equal(at.sort().values, order):
        return x, at
    return (x, at) if torch.equal(at, order) else (x[at], order)


def places(clients: Sequence[Rows]) -> list[Tensor]:
    """Where the rows of each client lie in their stack: those with fixed sites first, then the others, each padded."""
    F, _ = _stacked_size(clients)
    return [torch.cat([torch.arange(rows.n_fixed), torch.arange(F, F + len(rows) - rows.n_fixed)]) for rows in clients]


def _stacked_size(clients: Sequence[Rows]) -> tuple[int, int]:
    """The number of rows with fixed sites in a stack, and of all its rows."""
    F = max(rows.n_fixed for rows in clients)
    return F, F + max(len(rows) - rows.n_fixed for rows in clients)
