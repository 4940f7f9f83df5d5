"""Presets are what the paper did: sizes, methods and published figures, against numbers copied from its tables by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyfed.errors import UsageError
from polyfed.experiments.building import build_method
from polyfed.experiments.config import Config
from polyfed.paper.presets import Choices, blocks, known_presets, read_preset
from polyfed.paper.records import published

METHODS = {"fedavg", "fedper", "scaffold", "pfedme", "fedpac", "pfedgp", "pfedvem", "pfed-st", "pfed-mul"}
FOLDERS = Choices(folders={"celeba": Path("celeba"), "dogcat": Path("dogcat")})


def test_the_sizes_of_the_federations():
    sizes = [(one.shots, one.clients, one.sample) for one in read_preset("table1").settings]
    assert sizes == [(10, 20, 18), (20, 15, 12), (50, 10, 8)]
    for name in ("calibration", "ood", "convergence", "ablation"):
        assert [(one.shots, one.clients) for one in read_preset(name).settings] == [(50, 10)]
    rounds = {name: read_preset(name).base["run"]["rounds"] for name in known_presets()}
    assert rounds == {
        "ablation": 70, "calibration": 70, "convergence": 10, "mean": 70, "ood": 70, "synthetic": 20, "table1": 70,
    }  # fmt: skip


def test_every_published_figure_is_there():
    table = published("table1")
    for data in ("celeba", "dogcat"):
        for setting in ("10x20", "20x15", "50x10"):
            for method in METHODS:
                accuracy, mse = (table.figure(data, setting, method, metric) for metric in ("accuracy", "mse"))
                assert 0.76 < accuracy < 0.99
                assert (mse is None) == (method in ("fedpac", "pfedgp", "pfedvem"))
    assert table.figure("celeba", "20x15", "fedper", "mse") == 0.328
    assert table.figure("dogcat", "10x20", "pfed-st", "accuracy") == pytest.approx(0.9683)
    ablation = published("ablation")
    ours = {
        f"backbone {name}" for name in ("efficientnet-lite2", "efficientnet-lite0", "mobilenet-v2", "resnet18-layer3")
    }
    for variant in read_preset("ablation").variants:
        figure = ablation.figure("celeba", "50x10", variant.title, "mse")
        assert (figure is None) == (variant.title in ours or variant.group == "learning")
        assert figure is None or figure < 0.5
    assert ablation.figure("dogcat", "50x10", "kernel laplace", "mse") == 0.485
    assert ablation.figure("celeba", "50x10", "backbone regnet-y-1.6gf", "accuracy") == pytest.approx(0.89)


def test_what_is_published_as_a_picture_has_a_claim_about_a_method_that_is_played():
    for name in ("synthetic", "calibration", "convergence", "ood"):
        completed = {*read_preset(name).methods, "*"}
        for claim in published(name).claims:
            assert claim.better in completed
            assert claim.than in completed or isinstance(claim.than, float)


@pytest.mark.parametrize("name", known_presets())
@pytest.mark.parametrize("quick", [False, True])
def test_every_method_takes_the_options_of_every_preset(name, quick):
    choices = Choices(folders=FOLDERS.folders, quick=quick)
    made = blocks(choices.of(read_preset(name)), choices, name)
    assert made
    for block in made:
        for method in block.config.compare.methods:
            options = block.config.compare.options.get(method, {})
            config = Config.model_validate({"data": {}, "method": {"name": method, **options}})
            assert build_method(config, name).name == method


def test_seeds_change_the_data_and_variants_the_method():
    made = blocks(read_preset("ablation"), FOLDERS, "ablation")
    assert len(made) == 2 * 20 * 3
    assert {block.config.data.options["seed"] for block in made} == {0, 1, 2}
    of = {block.variant.title: block.config for block in made}
    assert of["scheme K"].compare.options["pfed-mul"]["scheme"] == "K"
    assert of["kernel cauchy"].compare.options["pfed-mul"]["kernel"] == "cauchy"
    assert of["learning random start"].compare.options["pfed-mul"]["projection_start"] == "random"
    assert of["backbone efficientnet-b2"].data.images.backbone == "efficientnet-b2"
    assert of["scheme A"] == of["kernel rbf"] == of["backbone efficientnet-lite2"] == of["learning with holdout"]
    assert {block.usual.model_dump_json() for block in made} >= {of["scheme A"].model_dump_json()}  # completed once


def test_what_a_user_chooses():
    chosen = Choices(seeds=[7], methods=["pfed-st"], rounds=2).of(read_preset("synthetic"))
    assert (chosen.seeds, chosen.methods, chosen.base["run"]["rounds"]) == ([7], ["pfed-st"], 2)
    backbone = Choices(folders=FOLDERS.folders, images={"backbone": "mobilenet-v2"}, quick=True)
    images = blocks(backbone.of(read_preset("table1")), backbone, "table1")[0].config.data.images
    assert (images.backbone, images.cut, images.size) == ("mobilenet-v2", None, None)


def test_an_unknown_preset():
    with pytest.raises(UsageError, match="preset 'convergance' is not known; did you mean 'convergence'"):
        read_preset("convergance")
