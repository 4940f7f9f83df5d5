"""Distances to the optimum of Θ: the objective belongs to its gradient, and no round is better than the optimum."""

import pytest

from federations import START, federation
from polyfed.methods import PFedHier, PFedMul
from polyfed.methods.messages import strip_prefix


@pytest.mark.parametrize(
    "made",
    [PFedHier(n_shared=2, n_personal=1, n_points=8), PFedMul(theta_prior="weak"), PFedMul()],
    ids=["shared", "prior", "plain"],
)
def test_the_gradient_that_clients_send_is_that_of_the_objective(made):
    """The value comes from bounds and log partitions, the gradient from the clients: differences of one are the other."""
    from bench.rounds import Objective

    spec, data = federation(3, kinds=("regression", "binary"))
    objective, server = Objective(made, data), made.init(spec, START)
    _, slopes = objective(server)
    names = [*strip_prefix(server, "theta"), *strip_prefix(server, "pooled")]
    for name in names:
        key, step = f"theta/{name}" if f"theta/{name}" in server else f"pooled/{name}", 1e-3
        up, down = (objective({**server, key: server[key] + sign * step})[0] for sign in (1, -1))
        assert (up - down) / (2 * step) == pytest.approx(float(slopes[name].sum()), abs=2e-5), name


def test_without_labels_that_a_prior_hears_of_the_objective_is_the_mean_bound():
    from bench.rounds import Objective

    spec, data = federation(3, kinds=("regression",))
    made = PFedMul(mf_steps=200)
    server = made.init(spec, START)
    bounds = [
        made.local(made.start(mine, START), made.broadcast(server, name), mine, START)[1].metrics["bound"]
        for name, mine in data.items()
    ]
    assert Objective(made, data)(server)[0] == pytest.approx(sum(bounds) / 3, abs=1e-9)


def test_rounds_until_it_is_close_for_good():
    from bench.rounds import rounds_needed

    assert rounds_needed([1.0, 0.05, 0.2, 0.1, 0.0]) == 3
    assert rounds_needed([0.0, 0.0]) == 0
    assert rounds_needed([1.0, 0.5]) is None


def test_the_command_prints_a_line_for_each_method(monkeypatch, capsys):
    from bench import rounds
    from polyfed.data.datasets.synthetic import synthetic

    small = synthetic(n_clients=2, n_regression=6, n_binary=6, test_regression=1, test_binary=1)
    monkeypatch.setitem(rounds.DATA, "small", lambda: small)
    monkeypatch.setattr(rounds.best_of, "__defaults__", (2,))
    rounds.main(["--data", "small", "--rounds", "2", "--methods", 'pfed-mul;pfed-mul:optimiser="quasi-newton"'])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "| data | method | 0 rounds | 2 rounds | rounds to 0.1 |"
    for line, method in zip(lines[3:], ("`pfed-mul`", '`pfed-mul:optimiser="quasi-newton"`'), strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[:2] == ["small", method]
        assert all(float(cell) >= 0 for cell in cells[2:4])
