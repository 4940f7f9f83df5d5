"""A run folder names its network: code that is not polyfed's own is run only by permission."""

import pytest
from torch import nn

import polyfed as pf
from federations import make_federation, my_networks
from polyfed.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    called = []

    def small(n_features):
        called.append(n_features)
        return nn.Sequential(nn.Linear(n_features, 3), nn.Tanh())

    my_networks(monkeypatch, small=small)
    pf.simulate("fedavg", make_federation(2), rounds=1, folder=tmp_path / "run", network="my_networks:small")
    from polyfed.methods.neural import shared_network

    shared_network._network.cache_clear()
    called.clear()
    yield tmp_path / "run", called
    shared_network._network.cache_clear()


def test_a_folder_does_not_run_its_code_unasked(folder, capsys):
    path, called = folder
    with pytest.raises(pf.ConfigError) as caught:
        pf.load(path)
    assert str(caught.value) == (
        f"{path}: network = 'my_networks:small' names code, which is not run unasked; allow it by this very name with "
        "--allow-code (on a node also as allow_code in node.toml), if you trust it."
    )
    for command in (["predict", str(path), "new.csv"], ["join", str(path), "new.csv", "--name", "zug"]):
        assert main(command) == 3
        assert "names code, which is not run unasked" in capsys.readouterr().err
    assert main(["run", "--resume", str(path), "--rounds", "2", "--allow-code", "os:system"]) == 3
    assert called == []


def test_it_does_by_that_very_name(folder, capsys):
    path, called = folder
    with pytest.raises(pf.ConfigError):
        pf.load(path, allow_code=["my_networks", "my_networks:", "my_networks:other"])
    run = pf.load(path, allow_code=["my_networks:small"])
    assert run.client("client 0").predict([[0.5, 0.5]])["height"].mean.shape == (1,)
    assert called
    argv = [
        "run",
        "--resume",
        str(path),
        "--rounds",
        "2",
        "--no-report",
        "--quiet",
        "--allow-code",
        "my_networks:small",
    ]
    assert main(argv) == 0
