"""Methods whose network begins at maps that a frozen part has made: every method that takes a network takes one of these."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from federations import START, run_rounds
from polyfed.data import Federation, Split
from polyfed.data.images.generated import sketch
from polyfed.methods import METHODS
from polyfed.nets import vision

pytestmark = pytest.mark.skipif(
    not (find_spec("torchvision") and find_spec("PIL")), reason="torchvision (the extra vision) is not installed"
)

NETWORK = "polyfed.nets.vision:resnet18-layer3?from=layer2&cut=layer3&weights=random"
NAMES = ("ann", "bob")


@pytest.fixture(scope="module")
def study():
    """Two clients with the maps of eight made-up images each; the maps stay as they are, targets are scaled."""
    shown = [sketch(i, seed=0) for i in range(16)]
    pixels = torch.from_numpy(np.stack([one.pixels for one in shown])).permute(0, 3, 1, 2) / 255
    net = vision.backbone("resnet18-layer3", size=32, cut="layer2", weights="random")
    with torch.no_grad():
        maps = net(pixels).numpy()
    labels = {"disc": [one.is_disc for one in shown], "x": [one.x for one in shown]}
    parts = {name: slice(8 * i, 8 * i + 8) for i, name in enumerate(NAMES)}
    clients = {name: (maps[at], {task: y[at] for task, y in labels.items()}) for name, at in parts.items()}
    tasks = {"disc": "binary", "x": "regression"}
    made = Federation.from_clients(clients, tasks, scaling="targets", split=Split(test=0.0)).prepare(0)
    np.testing.assert_array_equal(made.clients["bob"].train.x, maps[8:])
    assert abs(sum(made.clients[name].train.labels["x"][1].sum() for name in NAMES)) < 1e-9
    return made


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedavg", {"local_epochs": 1, "learning_rate": 0.01}),
        ("pfedgp", {"local_epochs": 1, "learning_rate": 0.01}),
        ("pfed-mul", {"projection": 2, "chunk": 3}),
        ("pfed-st", {"projection": 2, "scheme": "N", "weight_decay": 0.01}),
    ],
)
def test_the_stages_after_the_maps_are_learned(name, options, study):
    made, data = METHODS[name](network=NETWORK, **options), {c: parts.train for c, parts in study.clients.items()}
    start = made.init(study.spec, START)
    end, states, _ = run_rounds(made, study.spec, data, rounds=1)
    stages = [key for key in start if "stages.layer3" in key and key.endswith("conv1.weight")]
    assert stages
    assert not any("layer2" in key for key in start)
    for key in stages:
        assert float((end[key] - start[key]).abs().max()) > 0
    read = made.predictor(end, states["ann"], data["ann"])(data["ann"].x)
    assert np.isfinite(read["x"].mean).all()
    assert ((read["disc"].proba >= 0) & (read["disc"].proba <= 1)).all()
