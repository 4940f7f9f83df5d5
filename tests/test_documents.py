"""What the documents show is what happens: the example of the README and the demo are run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_the_demo_prints_what_the_readme_shows():
    pytest.importorskip("palmerpenguins", reason="the demo's data is the package palmerpenguins")
    done = subprocess.run([sys.executable, "examples/penguins.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    readme = (ROOT / "README.md").read_text()

    def words(text: str) -> list[str]:
        return [re.sub(r"\d", "0", word) for word in text.split()]  # digits may differ between machines

    shown = next(block for block in re.findall(r"```text\n(.*?)```", readme, re.S) if "penguins" in block)
    assert words(shown) == words(done.stdout)


def examples(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.S)


def test_the_first_example_of_the_readme_runs():
    scope: dict = {}
    exec(examples("README.md")[0], scope)  # the reader would paste it too
    p = scope["p"]
    assert p["sick"].label.tolist() == ["yes", "no"]
    assert abs(p["pulse"].mean[0] - 80) < 3


def test_the_federation_of_the_readme_prints_what_it_shows(capsys):
    exec(examples("README.md")[1], {})
    shown = next(
        block for block in re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.S) if "phone" in block
    )
    printed = capsys.readouterr().out.split()
    assert [word for word in printed if not re.search(r"\d", word)] == [
        w for w in shown.split() if not re.search(r"\d", w)
    ]
    for a, b in zip(printed, shown.split(), strict=True):
        if re.fullmatch(r"[\d.]+", a):
            assert float(a) == pytest.approx(float(b), rel=0.05)


def test_the_example_of_the_federation_page_runs(capsys):
    scope: dict = {}
    exec(examples("docs/federation.md")[0], scope)
    assert "mean" in capsys.readouterr().out
    assert scope["run"].progress.round == 10


def test_the_skeleton_of_a_method_runs_and_keeps_to_the_contract(monkeypatch):
    from polyfed import methods

    scope: dict = {}
    for code in examples("docs/methods.md"):
        exec(code, scope)
    assert scope["run"].progress.round == 3

    class Entry:
        name, value = "mean-label", "my_package.mean_label:MeanLabel"

        def load(self):
            return scope["MeanLabel"]

    monkeypatch.setattr(methods, "entry_points", lambda group: [Entry()])
    assert methods.method("mean-label", rate=0.5).rate == 0.5
    with pytest.raises(methods.ConfigError, match="method 'mean-labels' is unknown; did you mean 'mean-label'"):
        methods.method("mean-labels")


@pytest.mark.parametrize(
    "label",
    ["equ:mf_local_q1", "equ:mf_local_q2", "equ:predict", "elbo-r", "optimial sigma", "proof:mf_inducing", "equ:agg"],
)
def test_the_labels_of_the_paper_stand_in_the_code(label):
    found = [path for path in (ROOT / "src").rglob("*.py") if label in path.read_text()]
    assert found


def test_the_links_of_the_documents_lead_somewhere():
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_path_that_the_documents_name_exists():
    for document in (ROOT / "docs").glob("*.md"):
        for path in re.findall(
            r"`((?:gp|data|estimators|predictions|methods|engine|metrics)/[\w/]+\.py)`", document.read_text()
        ):
            assert (ROOT / "src/polyfed" / path).is_file(), f"{document.name} names {path}"
