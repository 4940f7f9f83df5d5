"""All methods keep to the contract; methods that break it are found out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from polyfed.methods import FedAvg, PFedMul, known_methods, method
from polyfed.methods.checks import CHECKS, CheckFailed, check_method
from polyfed.methods.messages import with_prefix

METHODS = known_methods()

FEW_TREES = {
    "sklearn-hgb-pooled": {"iterations": 5},
    "catboost-pooled": {"iterations": 5},
    "sklearn-rf-local": {"trees": 3},
}
OPTIONS = [(name, FEW_TREES.get(name, {})) for name in METHODS]
OPTIONS += [(name, {"task_mode": "separate"}) for name in METHODS if hasattr(METHODS[name], "task_mode")]
OPTIONS += [("pfed-mul", {"scheme": "K"}), ("pfed-mul", {"mode": "average"}), ("pfed-st", {"scheme": "W"})]
OPTIONS += [("pfed-mul", {"projection": 2, "scheme": "N"}), ("pfed-st", {"projection": 2})]
OPTIONS += [("fed3r", {"own_penalty": 1.0, "random_features": 20})]
OPTIONS += [("scaffold", {"option": "I"}), ("fedper", {"head_init": "own"}), ("fedavg", {"finetune_epochs": 1})]


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=[f"{n}{o or ''}" for n, o in OPTIONS])
@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_every_method_keeps_to_the_contract(name, options, check):
    check(method(name, **options))


# ---- methods that do not -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SendsInputs(PFedMul):
    name: ClassVar[str] = "sends inputs"

    def local(self, state, message, data, stream):
        state, update = super().local(state, message, data, stream)
        name = next(iter(update.arrays))
        leak = update.arrays[name].clone()
        leak.reshape(-1)[0] = float(data.x[0, 0])
        return state, type(update)(
            {**update.arrays, name: leak}, update.pooled, update.weight, update.counts, update.metrics
        )

    def local_many(self, jobs):
        return [self.local(job.state, job.message, job.data, job.stream) for job in jobs]


@dataclass(frozen=True)
class UsesTheGlobalGenerator(FedAvg):
    name: ClassVar[str] = "global generator"

    def init(self, spec, stream):
        server = super().init(spec, stream)
        return {name: v + torch.randn(()).double() if "bias" in name else v for name, v in server.items()}


@dataclass(frozen=True)
class ChangesInPlace(FedAvg):
    name: ClassVar[str] = "in place"

    def aggregate(self, server, updates):
        for name, value in server.items():
            if "bias" in name:
                value.add_(1.0)
        return super().aggregate(server, updates)


@dataclass(frozen=True)
class ForgetsItsState(FedAvg):
    name: ClassVar[str] = "forgets"

    def start(self, data, stream):
        return super().start(data, stream) | {"memory": torch.ones(2)}

    def local(self, state, message, data, stream):
        return {}, super().local(state, message, data, stream)[1]


@dataclass(frozen=True)
class DependsOnOrder(FedAvg):
    name: ClassVar[str] = "order"

    def aggregate(self, server, updates):
        first = next(iter(updates.values()))
        return server | with_prefix("theta", {n: server[f"theta/{n}"] + v for n, v in first.arrays.items()})


@dataclass(frozen=True)
class SendsMore(PFedMul):
    name: ClassVar[str] = "sends more"

    def local_many(self, jobs):
        sent = []
        for state, update in super().local_many(jobs):
            arrays = {**update.arrays, "extra": torch.zeros(update.counts["pulse"])}
            sent.append((state, type(update)(arrays, update.pooled, update.weight, update.counts, update.metrics)))
        return sent


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (SendsInputs, "sends inputs or targets"),
        (UsesTheGlobalGenerator, "a global generator is used"),
        (ChangesInPlace, "the server's state is changed in place"),
        (ForgetsItsState, "loses"),
        (DependsOnOrder, "depends on the order of the clients"),
        (SendsMore, "differs from the template in"),
    ],
)
def test_a_method_that_breaks_a_promise_is_found_out(made, text):
    with pytest.raises(CheckFailed, match=text):
        check_method(made())
