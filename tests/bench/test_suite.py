"""The harness of the benchmarks computes what it says, and each benchmark runs; how fast is for `make bench` to say."""

import doctest
import json
import math

import pytest

NAMES = (
    "client",
    "batch",
    "federation",
    "growth",
    "idle",
    "engine",
    "threads",
    "preparation",
    "published",
    "gpytorch",
    "shared",
    "memory",
    "sparse",
    "fit",
)


class Clock:
    """Time passes only when someone works."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def work(self, durations):
        pending = iter(durations)

        def run():
            self.now += next(pending)

        return run


@pytest.fixture
def no_garbage(monkeypatch):
    """Of all that the other tests have left, there is much."""
    monkeypatch.setattr("gc.collect", lambda: 0)


@pytest.mark.usefixtures("no_garbage")
def test_turns_alternate_and_the_warm_ups_do_not_count():
    from bench.harness import take_turns

    order = []
    turns = take_turns(lambda: order.append("A"), lambda: order.append("B"), repeats=3, warm_ups=2)
    assert "".join(order) == "AB" * 5
    assert len(turns.a) == len(turns.b) == 3


@pytest.mark.usefixtures("no_garbage")
def test_the_ratio_is_the_median_of_the_ratios_of_neighbours():
    from bench.harness import take_turns

    clock = Clock()
    # The last turn is ten times slower on both sides, as on a machine that others use: its ratio is 2 as well.
    a = clock.work([99.0, 2.0, 3.0, 4.0, 2.0, 20.0])
    b = clock.work([1.0, 1.0, 1.0, 1.0, 1.0, 10.0])
    turns = take_turns(a, b, repeats=5, warm_ups=1, clock=clock)
    assert turns.a == (2.0, 3.0, 4.0, 2.0, 20.0)
    assert (turns.ratio.low, turns.ratio.median, turns.ratio.high) == (2.0, 2.0, 3.0)
    assert turns.seconds.median == 3.0


def test_quartiles_of_an_even_number_and_of_one():
    from bench.harness import Spread

    assert Spread.of([4.0, 1.0, 3.0, 2.0]) == Spread(median=2.5, low=1.75, high=3.25)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)


def test_the_examples_of_the_harness():
    from bench import harness

    assert doctest.testmod(harness) == (0, 1)


@pytest.mark.parametrize(
    ("kind", "figure", "met"), [("≤", 1.4, True), ("≤", 1.6, False), ("≥", 1.4, False), ("≥", 1.5, True)]
)
def test_a_target_is_met_from_its_own_side(kind, figure, met):
    from bench.harness import Line, Spread, Target

    line = Line("x", Spread(figure, figure, figure), target=Target(kind, 1.5))
    assert line.met is met
    assert ("yes" if met else "NO") in line.cells()


def test_a_line_without_target_has_no_verdict():
    from bench.harness import Line, Spread

    assert Line("x", Spread(2.0, 1.0, 3.0), unit="s").cells() == ("x", "2.00 s", "1.00 to 3.00", "", "", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::Warning")  # the rivals' own
def test_each_benchmark_runs_at_a_tiny_size(name):
    from bench.suite import BENCHMARKS

    benchmark = BENCHMARKS[name]
    for line in benchmark.run(**benchmark.tiny):
        assert math.isfinite(line.figure.median), line
        assert line.figure.low <= line.figure.median <= line.figure.high
        if line.unit != "nats":
            assert line.figure.median > 0


def test_no_benchmark_is_left_out_here():
    from bench.suite import BENCHMARKS

    assert tuple(BENCHMARKS) == NAMES


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
@pytest.mark.filterwarnings("ignore::Warning")
def test_the_rivals_bound_is_of_the_same_evidence(bound):
    """Before its first step q is the prior on both sides: no KL, and the same expected log likelihood, summed."""
    import torch
    from bench.problems import PaperTask
    from bench.rival import Ours, Rival

    from polyfed.gp import ExactModel

    task = PaperTask.draw(n_regression=5, n_binary=7, seed=3)
    bounds = Rival(task, torch.cat([task.x_regression, task.x_binary]), bound, rate=0.5).climb(40)
    model = ExactModel(task.prior(), task.rows(bound))
    prior_value = model.rows.local_bound(model.prior, *model.prior_marginals()).item()
    assert bounds[0] == pytest.approx(prior_value, abs=1e-3)  # gpytorch adds jitter, ours has no need of it
    assert max(bounds) < Ours(model.prior, model.rows).converge()  # its q factorises over the latents: a smaller family


def test_the_figures_are_written_as_json(monkeypatch, tmp_path, capsys):
    from bench.harness import Line, Spread, Target
    from bench.suite import Benchmark

    from bench import __main__ as command

    fake = Benchmark(lambda: [Line("x", Spread(2.0, 1.0, 3.0), target=Target("≤", 1.0))], {}, {}, {})
    monkeypatch.setattr(command, "BENCHMARKS", {"fake": fake})
    monkeypatch.setattr(command.torch, "set_num_threads", lambda n: None)  # the other tests have their own
    command.main(["--quick", "--only", "fake", "--json", str(tmp_path / "figures.json")])
    (line,) = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["lines"]
    assert line["figure"] == {"median": 2.0, "low": 1.0, "high": 3.0}
    assert line["met"] is False
    assert "NO" in capsys.readouterr().out


def test_what_leaks_and_what_does_not():
    """A row is read from the moments and from the update of a client that has no other; a node sends neither."""
    from bench import leaks
    from polyfed.data import DEPLOYED, OPEN

    for n in (1, 2):
        assert leaks.from_moments(n, OPEN) < 1e-12
    assert leaks.from_moments(10, DEPLOYED) > 0.05
    for name in leaks.LINEAR:
        assert leaks.from_update(name, 1, OPEN) < 1e-12
        assert leaks.from_update(name, 10, DEPLOYED) > 0.3
        assert all(leaks.from_update(name, n, DEPLOYED) is None for n in (1, 2, 9))
    assert all(leaks.from_moments(n, DEPLOYED) is None for n in (1, 2, 9))
    assert leaks.from_evidence(1, OPEN) < 1e-12
    assert leaks.from_evidence(10, DEPLOYED) > 0.3
    assert leaks.from_evidence(9, DEPLOYED) is None
    assert [leaks.evidence_rank(n) for n in (1, 5)] == [1, 5]
    assert leaks.membership(10, DEPLOYED) == 1.0
    assert leaks.membership(9, DEPLOYED) is None
    surgeons = ["a"] * 5 + ["b"] * 4 + ["c"] * 6
    assert (leaks.names_told(surgeons, OPEN), leaks.names_told(surgeons, DEPLOYED)) == (3, 2)
    assert leaks.names_told([str(i) + "x" for i in range(4000)], OPEN) == 0


def test_large_tables_are_the_same_for_the_same_seed():
    from bench.large import SIZES, Size

    table = Size(3, 20).table()
    assert len(table) == 60
    assert table["site"].value_counts().tolist() == [20, 20, 20]
    assert table.equals(Size(3, 20).table())
    assert not table.equals(Size(3, 20).table(seed=1))
    assert 0.1 < table["alarm"].mean() < 0.9
    assert SIZES["twelve"].n_clients * SIZES["twelve"].n_rows == 105_192
