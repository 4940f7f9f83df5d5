"""What sharing functions costs: a round of pfed-hier over one of pFed-Mul, and the memory of a large federation."""

from __future__ import annotations

import multiprocessing
import resource
from dataclasses import replace

from polyfed.engine.rounds import FederationState, common, run_round
from polyfed.engine.settings import Settings
from polyfed.gp.knowledge import width_of
from polyfed.methods import Method, PFedHier, PFedMul

from .engine import federation
from .floors import shared_floor, shared_operations
from .harness import Line, Spread, Target, take_turns

POINTS = 64


def shared_round(*, n_clients: int = 200, n_rows: int = 100, dims: int = 8, repeats: int) -> list[Line]:
    """A round of the engine: pfed-hier at its defaults and with 64 points, over pFed-Mul's defaults and its own latents."""
    spec, data = federation(n_clients, n_rows, dims)
    shared = PFedHier()
    model = shared.model(next(iter(data.values())))
    alike = {"bound": shared.bound, "per_dimension": True, "kernel": model.prior.kernels}
    pairs = {
        "pfed-hier over pfed-mul": (shared, PFedMul()),
        "pfed-hier over pfed-mul with its latents": (shared, PFedMul(n_latents=model.prior.n_latents, **alike)),
        f"pfed-hier, {POINTS} points, over the same": (
            replace(shared, n_points=POINTS),
            PFedMul(n_latents=model.prior.n_latents, **alike),
        ),
    }
    lines = []
    for name, (ours, theirs) in pairs.items():
        turns = take_turns(_rounds(ours, spec, data), _rounds(theirs, spec, data), repeats=repeats, warm_ups=1)
        note = f"{1000 * turns.seconds.median / n_clients:.1f} ms a client, N={n_rows}, D={dims}"
        lines.append(Line(name, turns.ratio, target=Target("≤", 2.0), note=note))
    lines += _floor(pairs[f"pfed-hier, {POINTS} points, over the same"], spec, data, repeats)
    return lines


def _floor(pair: tuple[PFedHier, PFedMul], spec, data, repeats: int) -> list[Line]:
    """What LAPACK alone takes for the algebra of shared latents: no round can add less than that to one of pFed-Mul."""
    ours, theirs = pair
    client = next(iter(data.values()))
    model, n_rows = ours.model(client), client.n_labels
    n_shared = model.prior.n_latents - ours.n_personal
    width = width_of(model.prior, n_shared, POINTS)
    curved = (width - width_of(model.prior, n_shared, 0)) // POINTS
    floor = shared_floor(len(data), n_rows, width, POINTS, curved)
    if floor is None:
        return []
    turns = take_turns(floor, _rounds(theirs, spec, data), repeats=repeats, warm_ups=1)
    work = shared_operations(n_rows, width, POINTS, curved)
    rate = work * len(data) / turns.seconds.median
    note = f"{work / 1e6:.0f} MFLOP a client at {rate / 1e9:.0f} GFLOP/s, added to the round of pfed-mul"
    more = Spread(*(1.0 + each for each in (turns.ratio.median, turns.ratio.low, turns.ratio.high)))
    return [Line("pfed-hier over the same, by LAPACK alone", more, note=note)]


def _rounds(method: Method, spec, data):
    settings = Settings()
    progress = FederationState(0, method.init(spec, common(0)), {})
    progress, _ = run_round(method, progress, data, settings)  # from now on every client starts warm

    def run() -> None:
        run_round(method, progress, data, settings)

    return run


def shared_memory(*, n_clients: int = 10_000, n_rows: int = 100, dims: int = 8) -> list[Line]:
    """Two rounds of pfed-hier with all clients, in a process of their own: the most memory it had at once."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        peak = pool.apply(_peak, (n_clients, n_rows, dims))
    name = f"pfed-hier, {n_clients:,} clients, N={n_rows}, memory"
    return [
        Line(name, Spread.of([peak]), unit="GB", target=Target("≤", 4.0), note="data, states and updates of a round")
    ]


def _peak(n_clients: int, n_rows: int, dims: int) -> float:
    """GB."""
    spec, data = federation(n_clients, n_rows, dims)
    _rounds(PFedHier(), spec, data)()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
