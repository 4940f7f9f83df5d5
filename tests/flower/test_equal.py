"""A study gives the same numbers in this process and on Flower."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest

import polyfed as pf
from flower_runs import (
    NAMES,
    assert_same_events,
    assert_same_predictions,
    assert_same_server,
    in_process,
    new_rows,
    on_grid,
    on_node,
    study,
)
from polyfed.cli import main
from polyfed.errors import UsageError
from polyfed.methods import known_methods, method

METHODS = known_methods()

FAST = {  # options that make rounds short
    "pfedme": {"local_steps": 3},
    "fedpac": {"local_epochs": 1},
    "pfedvem": {"head_steps": 2, "local_epochs": 1},
    "sklearn-rf-local": {"trees": 3},
}
FEDERATED = [name for name in METHODS if not method(name).pools_data]
NEW = new_rows()


def compare(config, tables, place):
    reference, server_run = in_process(config, tables), on_grid(config, tables, place)
    assert_same_server(reference.federation_state.server, server_run.federation_state.server)
    assert_same_events(reference.events, server_run.events)
    for name in NAMES:
        assert_same_predictions(on_node(place, server_run, name), reference, name, NEW)
    return reference, server_run


@pytest.mark.parametrize("name", FEDERATED)
def test_every_method_gives_the_same_numbers(name, tables, tmp_path):
    compare(study(name, **FAST.get(name, {})), tables, tmp_path)


@pytest.mark.parametrize("sample", [None, 2])
def test_shared_functions_of_wide_inputs_through_all_their_stages(sample, tables, tmp_path):
    compare(study("pfed-hier", rounds=5, sample=sample, wide=0, passes=1, linear_rounds=2), tables, tmp_path)


@pytest.mark.parametrize(
    "options", [{"scheme": "K"}, {"mode": "average", "local_steps": 2}, {"sample": 2, "seed": 3}, {"theta_draws": 3}]
)
def test_personal_parameters_server_modes_and_sampling(options, tables, tmp_path):
    compare(study(rounds=4, **options), tables, tmp_path)


@pytest.mark.parametrize(
    "data", [{"scaling": "local"}, {"scaling": "targets"}, {"scaling": "none"}, {"validation": 0.2}]
)
def test_scaling_and_splits(data, tables, tmp_path):
    compare(study(data=data, rounds=2), tables, tmp_path)


def test_a_run_that_stopped_goes_on_as_if_it_had_not(tables, tmp_path):
    config = study(rounds=5, scheme="K")
    on_grid(study(rounds=2, scheme="K"), tables, tmp_path)
    server_run = on_grid(config, tables, tmp_path)  # another Grid, as after a restart: only files remain
    reference = in_process(config, tables)
    assert_same_server(reference.federation_state.server, server_run.federation_state.server)
    for name in NAMES:
        assert_same_predictions(on_node(tmp_path, server_run, name), reference, name, NEW)


def test_the_server_keeps_no_data(tables, tmp_path):
    server_run = on_grid(study(), tables, tmp_path)
    assert server_run.prepared.clients == {}
    assert server_run.clients == []
    with pytest.raises(UsageError, match="the data of client 'bern' are on its own machine"):
        server_run.client("bern")
    late = server_run.join("zug", pd.read_csv(tables / "bern.csv"))  # but the prior that all share is there
    assert late.predict(NEW)["height"].mean.shape == (3,)


def test_commands_on_the_folders_of_server_and_node(tables, tmp_path, capsys):
    on_grid(study(rounds=2), tables, tmp_path)
    (node,) = (tmp_path / "state" / "basel").glob("*/client-basel")
    server, new = tmp_path / "server", tmp_path / "new.csv"
    NEW.to_csv(new, index=False)
    assert main(["predict", str(node), str(new), "--json"]) == 0
    assert main(["report", str(node)]) == 0
    assert main(["report", str(server)]) == 0
    capsys.readouterr()
    assert main(["predict", str(server), str(new)]) == 2
    assert "are on their own machines; predict there" in capsys.readouterr().err
    assert main(["run", "--resume", str(server), "--rounds", "9"]) == 2
    assert "completed on many machines; go on with polyfed deploy resume" in capsys.readouterr().err


def commanded(tables):
    """The study as a command, without its rounds and its place."""
    return ["run", "--data", str(tables), "--regression", "height", "--binary", "high", "--no-report"]


def test_the_simulation_of_the_command_line(tables, tmp_path, capsys):
    """From one folder of tables to a run folder like any other, and the same numbers as without Flower."""
    common = [*commanded(tables), "--rounds", "3", "--set", 'method.scheme="K"', "--quiet"]
    assert main([*common, "--engine", "flower-sim", "--out", str(tmp_path / "a")]) == 0
    assert main([*common, "--out", str(tmp_path / "b")]) == 0
    one, other = pf.load(tmp_path / "a"), pf.load(tmp_path / "b")
    assert_same_server(one.federation_state.server, other.federation_state.server)
    assert_same_events(one.events, other.events)
    for name in NAMES:
        assert_same_predictions(one, other, name, NEW)
        assert_same_server(one.federation_state.clients[name], other.federation_state.clients[name])
    capsys.readouterr()
    assert main(["run", "--resume", str(tmp_path / "a"), "--rounds", "5", "--no-report", "--quiet"]) == 0
    assert main([*common, "--engine", "flowr", "--out", str(tmp_path / "c")]) == 2
    assert "engine 'flowr' is not known; did you mean" in capsys.readouterr().err


def test_a_simulation_that_was_cut_off_goes_on(tables, tmp_path, monkeypatch, capsys):
    from polyfed.flower import strategy

    common = [*commanded(tables), "--rounds", "4", "--quiet", "--engine", "flower-sim"]
    count = strategy.PolyfedStrategy._count

    def stopped(self, used):
        count(self, used)
        if self.run.federation_state.round == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(strategy.PolyfedStrategy, "_count", stopped)
    assert main([*common, "--out", str(tmp_path / "a")]) == 130
    assert f"go on with: polyfed run --resume {tmp_path / 'a'} --engine flower-sim" in capsys.readouterr().err
    monkeypatch.setattr(strategy.PolyfedStrategy, "_count", count)
    resume = ["run", "--resume", str(tmp_path / "a"), "--engine", "flower-sim", "--no-report", "--quiet"]
    assert main([*resume, "--rounds", "1"]) == 2
    assert "2 rounds are completed already; to go on give --rounds with a number above 2" in capsys.readouterr().err
    assert main(resume) == 0
    assert main([*common, "--out", str(tmp_path / "b")]) == 0
    one, other = pf.load(tmp_path / "a"), pf.load(tmp_path / "b")
    assert_same_server(one.federation_state.server, other.federation_state.server, tolerance=0.0)
    assert one.events == other.events


def test_without_ray_the_other_simulation_says_what_to_install(tables, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    common = [*commanded(tables), "--engine", "flower-ray"]
    assert main([*common, "--out", str(tmp_path / "a")]) == 6
    assert "Ray is not installed; pip install 'flwr[simulation]'" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_rays_simulation_gives_the_same_numbers(tables, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'flwr[simulation]'")
    command = [sys.executable, "-m", "polyfed", "run", "--data", tables, "--regression", "height", "--binary", "high"]
    command += ["--rounds", "2", "--engine", "flower-ray", "--out", tmp_path / "a", "--no-report", "--quiet"]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)  # Ray's processes end with it
    other = in_process(study(rounds=2, evaluate_every=5, data={"test": 0.2}), tables)
    assert_same_server(pf.load(tmp_path / "a").federation_state.server, other.federation_state.server)


@pytest.mark.parametrize(
    "command", [["run", "--dataset", "synthetic", "--engine", "flower-sim"], ["deploy", "status", "."]]
)
def test_without_flower_the_commands_say_what_to_install(command, tmp_path):
    """In a process of its own, in which Flower cannot be imported."""
    code = "import sys; sys.modules['flwr'] = None; from polyfed.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 6, done.stderr
    assert "pip install 'polyfed[flower]'" in done.stderr
    assert list(tmp_path.iterdir()) == []
