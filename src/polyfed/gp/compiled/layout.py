"""Rows as compiled loops take them: where each client's rows lie, and for each of its tasks who answers for its data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyfed.gp.compiled.sites import WIDTH
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows


@dataclass(frozen=True)
class Layout:
    """The layout of one client or of a stack; made once, as rows never change.

    Attributes:
        arrays: row_ends, places, n_fixed, part_ends, parts, powers, codes and options, as `solve_clients` takes them.
        tasks: by their place in the noise.
    """

    arrays: tuple[np.ndarray, ...]
    tasks: tuple[str, ...]
    n_clients: int

    @classmethod
    def of(cls, rows: Rows) -> Layout | None:
        """None if some likelihood has no compiled form."""
        forms = [block.likelihood.compiled(block.y) for block in rows.blocks]
        known = [form for form in forms if form is not None]
        if len(known) < len(forms):
            return None
        N, C = len(rows), int(rows.batch_shape[0]) if rows.batch_shape else 1
        lies = [block.rows.numpy() for block in rows.blocks]
        flat = np.sort(np.concatenate([each.reshape(-1) for each in lies])) if lies else np.zeros(0, np.int64)
        owner, places = np.divmod(flat, max(N, 1))
        row_ends = np.searchsorted(owner, np.arange(C + 1))
        fixed = np.bincount(owner[places < rows.n_fixed], minlength=C)
        codes = [np.ascontiguousarray(form.codes.numpy().reshape(len(form.codes), -1), np.float64) for form in known]
        first_code = np.cumsum([0, *(each.size for each in codes)])
        first_option = np.cumsum([0, *(len(form.options) for form in known)])
        lines, powers = [], []
        for b, (block, form) in enumerate(zip(rows.blocks, known, strict=True)):
            # The data of a client lie side by side.
            owner = np.zeros(len(block.y)) if block.owner is None else block.owner.numpy()
            ends = np.searchsorted(owner, np.arange(C + 1))
            count = np.diff(ends)
            who = np.flatnonzero(count)
            start = ends[who]
            line = np.zeros((len(who), WIDTH + 1), np.int64)
            line[:, 0] = first_code[b] + start * codes[b].shape[1]
            line[:, 1], line[:, 2] = lies[b].shape[1], count[who]
            line[:, 3] = np.searchsorted(flat, lies[b][start, 0]) - row_ends[who]
            line[:, 4], line[:, 5], line[:, 6] = first_option[b], form.site, form.bound
            line[:, 7], line[:, WIDTH] = b * C + who, who
            lines.append(line)
            powers.append(np.full(len(who), block.likelihood.power))
        table = np.concatenate([np.zeros((0, WIDTH + 1), np.int64), *lines])
        order = np.argsort(table[:, WIDTH], kind="stable")
        part_ends = np.searchsorted(table[order, WIDTH], np.arange(C + 1))
        arrays = (
            *(each.astype(np.intp) for each in (row_ends, places, fixed, part_ends)),
            np.ascontiguousarray(table[order, :WIDTH]),
            np.concatenate([np.zeros(0), *powers])[order],
            np.concatenate([*(each.reshape(-1) for each in codes), np.zeros(1)]),
            np.array([*(number for form in known for number in form.options), 0.0]),
        )
        return cls(arrays, tuple(block.task for block in rows.blocks), C)

    def noise(self, prior: Prior) -> np.ndarray:
        """The noise of each task and client; one where a task has none, which is never used."""
        noise = np.ones((len(self.tasks), self.n_clients))
        for b, task in enumerate(self.tasks):
            value = prior.noise_of(task)
            if value is not None:
                noise[b] = value.detach().numpy()
        return noise.reshape(-1)


def contiguous(tensor: Tensor) -> np.ndarray:
    """The numbers of a tensor, row by row."""
    return np.ascontiguousarray(tensor.detach().to(torch.float64).numpy())
