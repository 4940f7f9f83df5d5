"""Names in a list and for the shell, defaults in the help, and clients in the order in which people count."""

from __future__ import annotations

import pytest

from polyfed.cli.app import command
from polyfed.cli.arguments import LISTS, completion, names_of
from polyfed.data import Split
from polyfed.experiments.config import CompareConfig, MethodConfig, RunConfig
from polyfed.methods import known_methods


def test_names_are_listed(polyfed):
    done = polyfed("names", "kernels")
    assert done.code == 0
    assert "matern52" in done.out
    assert "binary" not in done.out
    assert all(word in polyfed("names").out for word in ("matern52", "binary", "federated", "krum", "penguins"))


@pytest.mark.parametrize("what", LISTS)
def test_every_list_is_completed(what):
    names = names_of(what)
    assert completion(what)("") == names
    assert completion(what)(f"{names[0]},{names[-1][:2]}")[-1].startswith(f"{names[0]},{names[-1][:2]}")


def test_the_shell_completes_methods(monkeypatch, capfd):
    """As bash asks for it."""
    from polyfed.cli import main

    monkeypatch.setenv("_POLYFED_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "polyfed run --method fed")
    monkeypatch.setenv("COMP_CWORD", "3")
    main([])
    found = capfd.readouterr().out.split()
    assert found == [name for name in known_methods() if name.startswith("fed")]


def test_the_help_says_the_defaults():
    def help_of(name, option):
        return next(made.help for made in command().commands[name].params if made.name == option)

    assert help_of("run", "rounds") == f"Number of rounds ({RunConfig().rounds})."
    assert help_of("run", "method").startswith(f"Method ({MethodConfig().name})")
    assert help_of("run", "seed").endswith(f"({RunConfig().seed}).")
    assert help_of("compare", "methods").startswith(f"Methods ({','.join(CompareConfig().methods)})")
    assert help_of("run", "test_fraction").endswith(f"({Split().test}).")


def test_clients_are_sorted_as_people_count(polyfed, home):
    rows = "".join(f"{ward},{age},{age}\n" for ward in ("10", "9", "100") for age in range(30, 40))
    (home / "t.csv").write_text(f"ward,age,pulse\n{rows}")
    done = polyfed(
        "run", "--data", "t.csv", "--client", "ward", "--regression", "pulse", "--rounds", "1", "--no-report"
    )
    lines = [line.split("│")[1].strip() for line in done.out.splitlines() if line.startswith("│")]
    assert lines[:3] == ["9", "10", "100"]
