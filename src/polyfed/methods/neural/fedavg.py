"""FedAvg: every client trains the same network for some epochs, the server averages the changes.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, arXiv:1602.05629, algorithm 1: x ← x + Σ_i (n_i / Σ n) (y_i − x), the average in its delta form, so
that what nobody changes stays equal to the bit.

`fedavg-ft` tunes the averaged network on a client's own rows before it predicts (Yu, Bagdasaryan, Shmatikov, 2020,
arXiv:2002.04758). Why so plain a step is hard to beat: Collins, Hassani, Mokhtari, Shakkottai: "FedAvg with Fine Tuning:
Local Updates Lead to Representation Learning", NeurIPS 2022, arXiv:2205.13692. They tune the head, as is the default here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from polyfed.methods.neural.finetuning import FineTuned


@dataclass(frozen=True)
class FedAvg(FineTuned):
    """Options as of `FineTuned`; without `finetune_epochs` all clients have the same model."""

    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "one network for all clients, averaged"


@dataclass(frozen=True)
class FedAvgFT(FedAvg):
    """FedAvg whose head each client tunes on its own rows; options as of `FedAvg`."""

    name: ClassVar[str] = "fedavg-ft"
    summary: ClassVar[str] = "one network for all clients, averaged; its head tuned on each client's rows"

    finetune_epochs: int = 5
    finetune_part: str = "head"
