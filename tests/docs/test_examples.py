"""What the documents show is what happens: their examples and the demo are run."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLOW = re.compile("^compiling|rounds? after|will take")  # what only a slow machine, or the first run, has to say


def words(text: str) -> list[str]:
    """Words without their digits, and without the lines of tables, whose widths follow the digits."""
    return [re.sub(r"[\d.]+", "0", word) for word in re.sub(r"[━─┏┓┡┩┗┛└┘┳╇┴]+", " ", text).split()]


def shown(document: str, holds: str) -> str:
    blocks = re.findall(r"```text\n(.*?)```", (ROOT / document).read_text(), re.S)
    return next(block for block in blocks if holds in block)


def test_the_demo_prints_what_the_readme_shows(tmp_path):
    pytest.importorskip("palmerpenguins", reason="the demo's data is the package palmerpenguins")
    done = subprocess.run(
        [sys.executable, "-m", "polyfed", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr
    printed = [line for line in (done.stderr + done.stdout).splitlines() if not SLOW.search(line)]
    assert words(shown("README.md", "penguins")) == words("\n".join(printed))
    assert (tmp_path / "runs" / "demo" / "report.html").is_file()


@pytest.mark.slow
def test_the_example_of_one_machine_runs():
    pytest.importorskip("palmerpenguins", reason="its data is the package palmerpenguins")
    done = subprocess.run([sys.executable, "examples/penguins.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "On all 273" in done.stdout


@pytest.mark.slow
def test_the_commands_of_the_readme_run_as_they_stand(tmp_path):
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    commands = [line for block in blocks for line in block.splitlines() if line.startswith("polyfed ")]
    assert [command.split()[1] for command in commands] == ["demo", "examples", "run", "predict", "compare"]
    for command in commands[1:]:  # the demo has a test of its own
        arguments = [sys.executable, "-m", *shlex.split(command, comments=True)]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    assert (tmp_path / "runs" / "comparison" / "report.html").stat().st_size > 100_000
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 9


HEADLINE = {
    "`pfed-hier`, the default": "pfed-hier",
    "CatBoost": "catboost-pooled",
    "linear models": "sklearn-linear-pooled",
    "pFed-Mul (KDD 2025)": "pfed-mul",
    "FedAvg": "fedavg",
    "a Gaussian process at each site": "local",
}


def test_the_headline_has_the_figures_of_the_results():
    rows = re.findall(r"^\| \**(.+?)\** \|.*\| \**([\d.]+ ± [\d.]+)\** \|$", (ROOT / "README.md").read_text(), re.M)
    assert [name for name, _ in rows] == list(HEADLINE)
    few = re.split(r"^## ", (ROOT / "docs/results/tables.md").read_text(), flags=re.M)[1]
    measured = dict(re.findall(r"^\| `([\w-]+)` \| \d+ \| ([\d.]+ ± [\d.]+) \|", few, re.M))
    assert {HEADLINE[name]: rank for name, rank in rows} == {name: measured[name] for name in HEADLINE.values()}


def examples(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.S)


def test_the_example_of_the_readme_runs(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (code,) = examples("README.md")
    scope: dict = {}
    exec(code, scope)  # the reader would paste it too
    assert "std" in capsys.readouterr().out
    lower, upper = scope["p"]["pulse"].interval(0.95)
    assert 100 < lower[0] < upper[0] < 180
    assert 0 < scope["p"]["sick"].proba[0] < 1


def test_the_example_of_the_federation_page_runs(capsys):
    scope: dict = {}
    exec(examples("docs/federation.md")[0], scope)
    assert "mean" in capsys.readouterr().out
    assert scope["run"].federation_state.round == 10


def test_the_skeleton_of_a_method_runs_and_keeps_to_the_contract(monkeypatch):
    from polyfed import methods

    scope: dict = {}
    for code in examples("docs/methods.md"):
        exec(code, scope)
    assert scope["run"].federation_state.round == 3

    class Entry:
        name, value = "mean-label", "my_package.mean_label:MeanLabel"

        def load(self):
            return scope["MeanLabel"]

    monkeypatch.setattr("polyfed.plugins.entry_points", lambda group: [Entry()])
    assert methods.method("mean-label", rate=0.5).rate == 0.5
    with pytest.raises(methods.ConfigError, match="method 'mean-labels' is unknown; did you mean 'mean-label'"):
        methods.method("mean-labels")


def test_the_kernels_of_the_how_to_learn_a_rhythm_and_go_into_a_run(capsys, monkeypatch, tmp_path):
    import numpy as np
    from sklearn.gaussian_process.kernels import RationalQuadratic

    import polyfed
    from polyfed.gp.kernels import KERNELS, registry

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(registry, "KERNELS", dict(KERNELS))
    scope: dict = {}
    for code in examples("docs/howto/add-a-kernel.md"):
        exec(code, scope)
    mean, period = (float(line.split("[")[1].split("]")[0]) for line in capsys.readouterr().out.splitlines())
    assert mean == pytest.approx(np.sin(2 * np.pi * 120 / 24) + 0.02 * 120, abs=0.3)
    assert period == pytest.approx(24.0, rel=0.01)

    x = scope["np"].random.default_rng(1).normal(size=(7, 2))
    one = {name: scope["daily"].prior.W.new_full((1,), value) for name, value in (("phi1", 0.25), ("alpha", 0.7))}
    tensor = scope["daily"].prior.W.new_tensor(x)
    np.testing.assert_allclose(scope["mixed"](tensor, tensor, one), RationalQuadratic(2.0, 0.7)(x), atol=1e-13)

    run = scope["run"]
    again = polyfed.load(run.save(tmp_path / "run"))
    assert again.method.kernel == "rational-quadratic + rbf"
    monkeypatch.setattr(registry, "KERNELS", dict(KERNELS))  # another process, which does not know it
    with pytest.raises(polyfed.ConfigError, match="kernel 'rational-quadratic' is unknown"):
        polyfed.load(tmp_path / "run")
