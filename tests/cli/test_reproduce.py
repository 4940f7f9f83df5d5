"""`polyfed reproduce`: every preset in its quick form, what it writes, going on, and what goes wrong."""

from __future__ import annotations

import base64
import io
import json
import statistics
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import polyfed.engine.run as engine
from polyfed.cli.documents import ReproduceDocument

SMALL = ["--methods", "fedavg,pfed-mul", "--rounds", "1", "--quiet"]
OF_IMAGES = {"table1": SMALL, "convergence": SMALL, "calibration": SMALL, "ood": [*SMALL, "--seeds", "0"]}
OF_IMAGES["mean"] = OF_IMAGES["ablation"] = ["--rounds", "1", "--seeds", "0", "--quiet"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLYFED_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def pillow():
    pytest.importorskip("PIL", reason="images are opened by Pillow")


def last_scores(folder: Path, task: str, metric: str) -> float:
    """The mean over the clients in the last evaluation of a run, read from its events and nothing else."""
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    found = [e for e in lines if e["event"] == "evaluation" and e["part"] == "test" and e["model"] == "personal"]
    return statistics.fmean(of_client[task][metric] for of_client in found[-1]["clients"].values())


def rows_of(markdown: str) -> dict[str, list[str]]:
    """Row → cells, of the first table."""
    lines = markdown[markdown.index("| method") :].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in [cells[0], *cells[2:]]}


def test_the_synthetic_study(polyfed, place):
    done = polyfed("reproduce", "synthetic", "--quick", "--quiet", "--json")
    assert done.code == 0, done.err
    document = ReproduceDocument.model_validate_json(done.out)
    assert len(document.cells) == 2 * 2
    folder = place / document.folder
    rows = rows_of((folder / "results.md").read_text())
    # The truth and the posterior are in results.json of each run; the numbers are worked out here once more.
    for method in ("pfed-mul", "pfed-st"):
        of_seeds = []
        for seed in (0, 1):
            run = json.loads((folder / f"runs/synthetic-5-clients/{method}-{seed}/results.json").read_text())
            errors = [
                statistics.fmean((m - t) ** 2 for m, t in zip(c["regression"]["mean"], c["regression"]["truth"], strict=True))
                for c in run["latents"].values()
            ]  # fmt: skip
            assert len(errors) == 5
            of_seeds.append(statistics.fmean(errors))
        told = f"{statistics.fmean(of_seeds):.3f} ± {statistics.stdev(of_seeds):.3f}"
        assert rows[method][rows["method"].index("regression MSE")].startswith(told)
    assert [(claim.holds, claim.of) for claim in document.claims] == [(2, 2), (2, 2)]
    assert len(document.pictures) == 4
    for picture in document.pictures:
        drawn = json.loads((place / picture).read_text())
        assert {"truth", "posterior mean"} <= {trace.get("name") for trace in drawn["data"]}
        assert "--" not in json.dumps(drawn)  # no colour that only the page knows
    page = (folder / "report.html").read_text()
    assert "pfed-st" in page
    assert "Differences to the publication" in page


@pytest.mark.parametrize("preset", OF_IMAGES)
def test_presets_of_images(preset, polyfed, place, pillow):
    done = polyfed("reproduce", preset, "--quick", *OF_IMAGES[preset], "--json", "--out", "made")
    assert done.code == 0, done.err
    document = ReproduceDocument.model_validate_json(done.out)
    assert document.model_dump(mode="json") == json.loads((place / "made/results.json").read_text())
    assert document.figures
    assert document.pictures
    assert all(figure.published is None for figure in document.figures)  # other sizes than the published ones
    assert any("made up" in difference for difference in document.differences)
    text = (place / "made/results.md").read_text()
    assert "polyfed reproduce" in text
    assert f"{document.machine.cores} cores" in text
    assert f"torch {document.versions['torch']}" in text
    metrics = {figure.metric for figure in document.figures}
    assert metrics == {
        "table1": {"mse", "accuracy"}, "ablation": {"mse", "accuracy"}, "mean": {"mse", "accuracy"},
        "convergence": {"accuracy"},
        "calibration": {"ece", "brier", "nll"}, "ood": {"auroc", "fpr95"},
    }[preset]  # fmt: skip
    if preset == "table1":
        row = rows_of(text)["pfed-mul"]
        values = [last_scores(place / f"made/runs/celeba-6x4/pfed-mul-{s}", "Smiling", "accuracy") for s in (0, 1)]
        told = f"{100 * statistics.fmean(values):.2f} ± {100 * statistics.stdev(values):.2f}"
        assert row[rows_of(text)["method"].index("6x4 accuracy %")].startswith(told)
    if preset == "ood":
        cases = {figure.case for figure in document.figures if figure.row == "fedavg"}
        assert cases == {"masked, entropy", "blurred, entropy"}
        assert len({figure.case for figure in document.figures if figure.row == "pfed-mul"}) == 6
        assert "**celeba, masked**" in text
        assert rows_of(text)["method"][:2] == ["entropy AUROC", "entropy FPR95"]
        strips = [picture for picture in document.pictures if Path(picture).name.startswith("strip-")]
        assert [Path(strip).stem for strip in strips] == ["strip-celeba-12x3-pfed-mul", "strip-dogcat-12x3-pfed-mul"]
    if preset == "ablation":
        folders = {cell.variant: cell.folder for cell in document.cells}
        assert folders["scheme A"] == folders["kernel rbf"] != folders["scheme N"]


def test_the_strip_of_spoilt_images(polyfed, place, pillow):
    """Twelve test images, two of them masked: what is drawn is seen in the pictures, and what the model says of them."""
    from PIL import Image

    import polyfed as library
    from polyfed.data.images import celeba

    argv = ["reproduce", "ood", "--quick", "--methods", "pfed-mul", "--rounds", "2", "--seeds", "0", "--quiet"]
    assert polyfed(*argv, "--out", "made").code == 0
    drawn = json.loads((place / "made/pictures/strip-celeba-12x3-pfed-mul.json").read_text())
    low, high, mean, stars = drawn["data"]
    pictures = []
    for shown in drawn["layout"]["images"]:
        content = base64.b64decode(shown["source"].removeprefix("data:image/jpeg;base64,"))
        pictures.append(np.asarray(Image.open(io.BytesIO(content)).convert("L")))
    middle = [picture[10:-10, 10:-10].mean() for picture in pictures]
    black = [i + 1 for i, shade in enumerate(middle) if shade < 3]
    assert len(pictures) == 12
    assert len(black) == 2
    assert stars["x"] == black

    run = library.load(place / "made/runs/celeba-12x3/pfed-mul-0")
    client = run.members.names[0]
    images = celeba(place / "made/images/celeba", shots=12, n_clients=3, n_test=40, seed=0)
    names = [path.name for path in images.of(client, "Smiling", test=True)[0]]
    said = run.client(client).predictor(run.prepared.clients[client].test.x)["Smiling"]
    for at, name in enumerate(mean["text"]):
        row = names.index(name)
        same = mean["y"][at] == pytest.approx(said.latent_mean[row], rel=1e-4)
        assert same == (at + 1 not in black)  # a mask changes what is believed, and nothing else does
        if same:
            width = high["y"][at] - low["y"][at]
            assert width == pytest.approx(2 * 1.96 * said.latent_std[row], rel=1e-3)


def test_presets_share_the_runs_they_have_in_common(polyfed, place, pillow, monkeypatch):
    from polyfed.data.images import make_images

    for name in ("celeba", "dogcat"):
        make_images(place / "data" / name, 200, layout=name)
    argv = ["--quick", *SMALL, "--seeds", "0", "--data-dir", "data", "--runs", "together", "--json"]
    first = polyfed("reproduce", "table1", *argv, "--out", "table")
    assert first.code == 0, first.err
    monkeypatch.setattr(engine, "run_round", lambda *_, **__: pytest.fail("a run was completed again"))
    again = polyfed("reproduce", "calibration", *argv, "--out", "calibrated")
    assert again.code == 0, again.err
    cells = [{cell.folder for cell in ReproduceDocument.model_validate_json(done.out).cells} for done in (first, again)]
    assert cells[1] < cells[0]
    assert (place / "together/celeba-12x3/pfed-mul-0/run.json").is_file()


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("torchvision"), reason="torchvision (the extra vision) is not installed")
def test_trained_networks(polyfed, place, pillow, monkeypatch):
    """The version of table1 whose networks are trained, with random weights and tiny images."""
    from polyfed.data.images import make_images
    from polyfed.paper import presets

    for name in ("celeba", "dogcat"):
        make_images(place / "data" / name, 60, layout=name)
    made = presets.Preset.made
    small = presets.Setting(name="5x3", shots=5, clients=3)
    random = {"data": {"images": {"weights": "random", "size": 32}, "options": {"n_test": 8}}}

    def tiny(self, version):
        options = {m: {**o, "network": f"{o['network']}&weights=random".replace("grid=3", "grid=1")}
                   for m, o in version.base["compare"]["options"].items()}  # fmt: skip
        base = presets.merged(version.base, {**random, "compare": {"options": options}})
        return made(self, version.model_copy(update={"base": base, "settings": [small], "rounds": 1, "seeds": [0]}))

    monkeypatch.setattr(presets.Preset, "made", tiny)
    done = polyfed("reproduce", "table1", "--trained", "--data-dir", "data", "--quiet", "--json", "--out", "made")
    assert done.code == 0, done.err
    document = ReproduceDocument.model_validate_json(done.out)
    assert {figure.row for figure in document.figures} == {"fedavg", "pfedgp", "pfed-st", "pfed-mul"}
    assert not any("is frozen: of Dogcat" in difference for difference in document.differences)


def test_squared_errors_of_celeba_are_in_standard_deviations(polyfed, place, pillow):
    argv = [
        "reproduce",
        "table1",
        "--quick",
        "--methods",
        "fedavg",
        "--rounds",
        "1",
        "--seeds",
        "0",
        "--quiet",
        "--json",
    ]
    document = json.loads(polyfed(*argv, "--out", "made").out)
    told = next(
        f["mean"] for f in document["figures"] if (f["data"], f["setting"], f["metric"]) == ("celeba", "12x3", "mse")
    )
    folder = place / "made/runs/celeba-12x3/fedavg-0"
    # In pixels, over the variance of all clients' training labels: those of the images that the run was given.
    from polyfed.data.images import celeba

    images = celeba(place / "made/images/celeba", shots=12, n_clients=3, n_test=40, seed=0)
    labels = [y for client in images.names for y in images.of(client, "rightmouth_x")[1].tolist()]
    assert len(labels) == 36
    assert told == pytest.approx(last_scores(folder, "rightmouth_x", "mse") / statistics.pvariance(labels), rel=1e-9)


def test_the_same_command_goes_on(polyfed, place, monkeypatch):
    original, calls = engine.run_round, []

    def run_round(*arguments):
        calls.append(True)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(engine, "run_round", run_round)
    argv = ["reproduce", "synthetic", "--quick", "--rounds", "2", "--seeds", "0", "--out", "made", "--quiet"]
    done = polyfed(*argv)
    assert (done.code, done.err) == (130, "error: made: stopped; the same command goes on with what is left.\n")
    assert not (place / "made/results.json").exists()
    assert polyfed(*argv).code == 0
    assert len(calls) == 3 + 2
    assert polyfed(*argv).code == 0
    assert len(calls) == 3 + 2
    done = polyfed(*argv[:-3], "--rounds", "3", "--out", "made", "--quiet")  # longer, in the same folder
    assert done.code == 0, done.err
    assert len(calls) == 3 + 2 + 2


def test_runs_on_images_go_on_and_are_not_mixed_up(polyfed, place, pillow):
    argv = ["reproduce", "calibration", "--quick", "--methods", "pfed-mul", "--seeds", "0", "--quiet", "--out", "made"]
    assert polyfed(*argv, "--rounds", "1").code == 0
    done = polyfed(*argv, "--rounds", "2", "--json")
    assert done.code == 0, done.err
    log = (place / "made/runs/celeba-12x3/pfed-mul-0/run.log").read_text()
    assert [log.count(f"round {i}: 3 clients") for i in (1, 2)] == [1, 1]
    done = polyfed(*argv, "--backbone", "torch.nn:Identity")
    assert done.code == 2
    assert "the run there differs in images; choose another folder with --out" in done.err


@pytest.mark.slow
def test_processes_share_out_the_runs(polyfed, place):
    argv = ["reproduce", "synthetic", "--quick", "--rounds", "1", "--seeds", "0", "--quiet", "--json"]
    one, two = (json.loads(polyfed(*argv, "--jobs", jobs, "--out", f"with-{jobs}").out) for jobs in ("1", "2"))
    assert one["figures"] == two["figures"]


def test_a_run_that_fails_does_not_stop_the_others(polyfed, place, monkeypatch):
    original = engine.run_round

    def run_round(method, *rest):
        if method.name == "pfed-st":
            raise ArithmeticError("it broke")
        return original(method, *rest)

    monkeypatch.setattr(engine, "run_round", run_round)
    done = polyfed("reproduce", "synthetic", "--quick", "--rounds", "1", "--seeds", "0", "--quiet", "--json")
    assert done.code == 1
    assert "1 of 2 runs failed, the first with:" in done.err
    document = ReproduceDocument.model_validate_json(done.out)
    assert {figure.row for figure in document.figures} == {"pfed-mul"}
    assert "ArithmeticError: it broke" in next(cell.error for cell in document.cells if cell.error)
    assert "Runs that failed:" in (place / document.markdown).read_text()
    assert [(claim.holds, claim.of) for claim in document.claims] == [(0, 0), (0, 0)]


def test_a_backbone_without_weights_does_not_stop_the_others(polyfed, place, pillow, monkeypatch):
    from polyfed.paper import presets

    two = [
        presets.Variant(group="backbone", name="none", backbone="polyfed.nowhere:net"),
        presets.Variant(group="scheme", name="K", options={"scheme": "K"}),
    ]
    made = presets.Preset.made
    change = {"variants": two, "data": ["celeba"]}
    monkeypatch.setattr(presets.Preset, "made", lambda self, version: made(self, version).model_copy(update=change))
    done = polyfed("reproduce", "ablation", "--quick", "--rounds", "1", "--seeds", "0,1", "--quiet", "--json")
    assert done.code == 1
    assert "2 of 4 runs failed" in done.err
    document = ReproduceDocument.model_validate_json(done.out)
    assert {figure.row for figure in document.figures} == {"scheme K"}
    assert all("polyfed.nowhere:net" in cell.error for cell in document.cells if cell.variant == "backbone none")


@pytest.mark.parametrize(
    ("argv", "code", "sentence"),
    [
        ("tabel1", 2, "preset 'tabel1' is not known; did you mean 'table1'? known are 'ablation', "),
        ("synthetic --backbone resnet18", 2, "preset 'synthetic' has no images; leave --data-dir, --backbone and"),
        ("table1 --quick --trained", 2, "--quick has no trained networks; leave one of the two out"),
        ("synthetic --trained", 2, "preset 'synthetic' has no version with trained networks; try table1"),
        ("synthetic --methods pfed-mull", 3, "method 'pfed-mull' is unknown; did you mean 'pfed-mul'?"),
        ("synthetic --seeds one", 2, "--seeds: 'one' is no seed; give whole numbers"),
    ],
)
def test_what_makes_no_sense(argv, code, sentence, polyfed, place):
    done = polyfed("reproduce", *argv.split())
    assert (done.code, done.out) == (code, "")
    assert sentence in done.err
    assert not (place / "runs").exists()


def test_no_images(polyfed, place, pillow):
    done = polyfed("reproduce", "table1")
    assert (done.code, done.err) == (
        4,
        "error: preset 'table1': there is no folder of images; put celeba/ and dogcat/ into one folder and name it with "
        "--data-dir, or try --quick, which makes images up.\n",
    )
    (place / "celeba").mkdir()
    done = polyfed("reproduce", "table1", "--data-dir", ".")
    assert "error: .: there is no folder dogcat/ in it; put celeba/ and dogcat/" in done.err
    (place / "dogcat").mkdir()
    done = polyfed("reproduce", "table1", "--data-dir", ".")
    assert done.code == 4
    assert "celeba" in done.err


def test_without_pillow(polyfed, place, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    done = polyfed("reproduce", "table1", "--quick")
    assert (done.code, done.err) == (
        6, "error: images need Pillow, which is not installed; pip install 'polyfed[vision]'.\n",
    )  # fmt: skip
