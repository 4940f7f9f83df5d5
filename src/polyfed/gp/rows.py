"""A client's observations as rows: whatever the kind of task, a row is an input, a mixing pattern and a site.

Row j sits at input x[at_j] and sees the outputs through A_j, so that f_j = (A_j W) · g(x_j). A missing label is a row
that does not exist; a task without labels is a block without rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from polyfed.gp.likelihoods import Likelihood
from polyfed.gp.prior import Prior


@dataclass(frozen=True)
class Block:
    """The rows of one task: `shape` = (data, rows of each datum), contiguous from `start`."""

    task: str
    likelihood: Likelihood
    y: Tensor
    start: int
    shape: tuple[int, int]

    @property
    def stop(self) -> int:
        return self.start + self.shape[0] * self.shape[1]

    def of(self, per_row: Tensor) -> Tensor:
        """This block's part of a vector over all rows, (data, rows of each datum)."""
        return per_row[self.start : self.stop].reshape(self.shape)


@dataclass(frozen=True)
class Rows:
    """All observations of one client.

    Attributes:
        x: (U, D) inputs; several rows may share one.
        at: (N,) the input of each row.
        A: (N, T) the outputs that a row sees, by the order of the prior's outputs.
        blocks: the tasks, in the order of the rows.
    """

    x: Tensor
    at: Tensor
    A: Tensor
    blocks: tuple[Block, ...]

    @classmethod
    def of(
        cls,
        x: Tensor,
        observations: Mapping[str, tuple[Tensor, Tensor]],
        likelihoods: Mapping[str, Likelihood],
    ) -> Rows:
        """From inputs and task → (positions in x, coded labels). `likelihoods` names all outputs, in order.

        >>> from polyfed.gp.likelihoods import Gaussian, OneVsEach
        >>> x = torch.zeros(3, 1, dtype=torch.float64)
        >>> seen = {"stage": (torch.tensor([0, 2]), torch.tensor([1.0, 0.0]))}
        >>> rows = Rows.of(x, seen, {"pulse": Gaussian(), "stage": OneVsEach(3)})
        >>> rows.A[:2]  # class 1 against 0 and against 2; the first output is the pulse's
        tensor([[ 0., -1.,  1.,  0.],
                [ 0.,  0.,  1., -1.]], dtype=torch.float64)
        """
        n_outputs = sum(likelihood.n_outputs for likelihood in likelihoods.values())
        at, A, blocks = (
            [torch.zeros(0, dtype=torch.int64)],
            [torch.zeros(0, n_outputs, dtype=torch.float64)],
            [],
        )
        first_output = start = 0
        for task, likelihood in likelihoods.items():
            outputs = slice(first_output, first_output + likelihood.n_outputs)
            first_output = outputs.stop
            if task not in observations or not len(observations[task][0]):
                continue
            positions, y = observations[task]
            pattern = likelihood.pattern(y)
            wide = torch.zeros(*pattern.shape[:2], n_outputs, dtype=torch.float64)
            wide[:, :, outputs] = pattern
            block = Block(task, likelihood, y, start, (pattern.shape[0], pattern.shape[1]))
            at.append(positions.repeat_interleave(block.shape[1]))
            A.append(wide.reshape(-1, n_outputs))
            blocks.append(block)
            start = block.stop
        return cls(x, torch.cat(at), torch.cat(A), tuple(blocks))

    def __len__(self) -> int:
        return self.at.shape[0]

    def sites(self, prior: Prior, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """(h, r) of all rows, given the marginals of q(f)."""
        h, r = torch.empty_like(m), torch.empty_like(m)
        with torch.no_grad():
            for block in self.blocks:
                noise = prior.noise_of(block.task)
                h_block, r_block = block.likelihood.site(block.y, block.of(m), block.of(v), noise)
                h[block.start : block.stop] = block.likelihood.power * h_block.reshape(-1)
                r[block.start : block.stop] = block.likelihood.power * r_block.reshape(-1)
        return h, r

    def local_bound(self, prior: Prior, m: Tensor, v: Tensor) -> Tensor:
        """Σ ℓ over all data; differentiable in the noise parameters."""
        total = m.new_zeros(())
        for block in self.blocks:
            noise = prior.noise_of(block.task)
            local = block.likelihood.local_bound(block.y, block.of(m), block.of(v), noise)
            total = total + block.likelihood.power * local.sum()
        return total

    def task_of(self, row: int) -> str:
        """The task to which a row belongs."""
        return next(block.task for block in self.blocks if row < block.stop)
