"""A client's epoch in the form of the authors' published code (paper/pfed_mul_published.py), over ours.

One pass over all labels of a client as one batch, with two mean-field steps and one step of Θ on both sides. Theirs goes
through the posterior by autograd, one client after the other. It is our own writing of what they publish, not their program.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from polyfed.data import PreparedFederation
from polyfed.data.datasets import load_dataset
from polyfed.engine.rounds import common
from polyfed.methods import Job, Method, PFedMul
from polyfed.paper.pfed_mul_published import PFedMulPublished
from polyfed.seeds import Stream

from .floors import STEPS
from .harness import Line, take_turns


def against_published(*, n_clients: int = 10, repeats: int) -> list[Line]:
    """The paper's synthetic task: one client alone, and several that ours solves together."""
    prepared = load_dataset("synthetic", n_clients=n_clients).prepare(0)
    ours = PFedMul(mode="average", local_steps=1, mf_steps=STEPS)
    theirs = PFedMulPublished(mode="average", local_steps=1, mf_steps=STEPS, batch=10**6)
    lines = []
    for n in (1, n_clients):
        turns = take_turns(_epochs(theirs, prepared, n), _epochs(ours, prepared, n), repeats=repeats)
        who = "one client alone" if n == 1 else f"{n} clients in a batch"
        note = f"{1000 * median(turns.b):.1f} ms; theirs as we write it, at full batch"
        lines.append(Line(f"epoch of the published code over ours, {who}", turns.ratio, note=note))
    return lines


def _epochs(method: Method, prepared: PreparedFederation, n: int) -> Callable[[], None]:
    server = method.init(prepared.spec, common(0))
    jobs = []
    for client in list(prepared.clients)[:n]:
        data = prepared.shared(client)
        state, message = method.start(data, common(0)), method.broadcast(server, client)
        jobs.append(Job(client, state, message, data, Stream(0, "local", 1, client)))

    def run() -> None:
        for outcome in method.local_many(jobs):
            assert not isinstance(outcome, Exception), outcome

    return run
