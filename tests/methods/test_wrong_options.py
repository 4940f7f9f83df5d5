"""Options that cannot work are rejected when a method is made or, where data are needed, before its first round."""

from __future__ import annotations

import pytest

from federations import START, federation
from polyfed.errors import ConfigError
from polyfed.methods import known_methods, method
from polyfed.methods.neural.shared_network import SharedNetwork

METHODS = known_methods()

NETWORKS = [name for name, made in METHODS.items() if issubclass(made, SharedNetwork)]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"learning_rate": -0.1}, "learning_rate is -0.1; give a number above 0."),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'; give a number above 0."),
        ({"learning_rate": float("nan")}, "learning_rate is nan; give a number above 0."),
        ({"server_rate": 0.0}, "server_rate is 0.0; give a number above 0."),  # β = 0: a server that never learns
        ({"momentum": -0.1}, "momentum is -0.1; give a number from 0 up."),
        ({"weight_decay": float("inf")}, "weight_decay is inf; give a number from 0 up."),
        ({"local_epochs": 0}, "local_epochs is 0; give a whole number from 1 up."),
        ({"batch_size": 2.5}, "batch_size is 2.5; give a whole number from 1 up."),
        ({"batch_size": True}, "batch_size is True; give a whole number from 1 up."),
        ({"hidden": (0,)}, "hidden is 0; give a whole number from 1 up."),
        ({"hidden": 64}, "hidden is 64; give the widths of the layers, such as [64, 32]."),
        ({"hidden": "64"}, "hidden is '64'; give the widths of the layers, such as [64, 32]."),
        ({"task_mode": "both"}, "task_mode 'both' is unknown"),
        ({"activation": "relo"}, "activation 'relo' is unknown; did you mean 'relu'?"),
        ({"bn_buffers": "mean"}, "bn_buffers 'mean' is unknown"),
        ({"weighting": "sample"}, "weighting 'sample' is unknown; did you mean 'samples'?"),
        ({"scheme": "N"}, "has no option 'scheme'"),
        ({"learning_rat": 0.1}, "has no option 'learning_rat'; did you mean 'learning_rate'?"),
    ],
)
def test_of_all_methods_with_networks(name, options, text):
    with pytest.raises(ConfigError) as error:
        method(name, **options)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("fedavg", {"finetune_epochs": -1}, "finetune_epochs is -1; give a whole number from 0 up."),
        ("fedper", {"n_personal_layers": 0}, "n_personal_layers is 0; give a whole number from 1 up."),  # an empty head
        ("fedper", {"head_init": "random"}, "head_init 'random' is unknown; known are 'shared', 'own'."),
        ("fedper", {"head_epochs": -1}, "head_epochs is -1; give a whole number from 0 up."),
        ("scaffold", {"momentum": 0.9}, "option 'II' with momentum=0.9"),
        ("scaffold", {"weight_decay": 0.1}, "option 'II' with weight_decay=0.1"),
        ("scaffold", {"weighting": "samples"}, "SCAFFOLD needs 'uniform'"),
        ("scaffold", {"option": "III"}, "option 'III' is unknown"),
        ("pfedme", {"penalty": -1.0}, "penalty is -1.0; give a number from 0 up."),
        ("pfedme", {"personal_rate": 0.0}, "personal_rate is 0.0; give a number above 0."),
        ("pfedme", {"inner_steps": 0}, "inner_steps is 0; give a whole number from 1 up."),
        ("pfedme", {"local_steps": 1.5}, "local_steps is 1.5; give a whole number from 1 up."),
        ("pfedme", {"momentum": 0.9}, "momentum is 0.9; leave it at 0: pFedMe's steps are plain."),
        ("fedavg-ft", {"finetune_part": "heads"}, "finetune_part 'heads' is unknown; did you mean 'head'?"),
        ("fedbabu", {"finetune_epochs": 0.5}, "finetune_epochs is 0.5; give a whole number from 0 up."),
        ("fedrod", {"join_epochs": -1}, "join_epochs is -1; give a whole number from 0 up."),
        ("ditto", {"penalty": -1}, "penalty is -1; give a number from 0 up."),
        ("ditto", {"personal_rate": 0.0}, "personal_rate is 0.0; give a number above 0."),
        ("ditto", {"personal_epochs": 0}, "personal_epochs is 0; give a whole number from 1 up."),
        ("ditto", {"join_epochs": 1.5}, "join_epochs is 1.5; give a whole number from 0 up."),
        ("ditto", {"penalty": 50.0}, "penalty 50 times personal_rate 0.05 is 2.5; steps diverge from 2 on"),
        ("fed3r", {"penalty": "cv"}, "penalty is 'cv'; give 'gcv' or a number above 0."),
        ("fed3r", {"penalty": 0.0}, "penalty is 0.0; give a number above 0."),
        ("fed3r", {"own_penalty": -2}, "own_penalty is -2; give a number above 0."),
        ("fed3r", {"random_features": 1.5}, "random_features is 1.5; give a whole number from 0 up."),
        ("fed3r", {"bandwidth": 0}, "bandwidth is 0; give a number above 0."),
        ("fed3r", {"min_labels": 0}, "min_labels is 0; give a whole number from 1 up."),
        ("fed3r", {"hidden": [3]}, "method 'fed3r' has no option 'hidden'"),
        ("pfed-st", {"scheme": "Q"}, "scheme 'Q' is unknown"),
        ("pfed-st", {"learning_rate": -0.1}, "learning_rate is -0.1; give a number above 0."),
        ("pfed-st", {"mf_steps": 0}, "mf_steps is 0; give a whole number from 1 up."),
        ("pfed-st", {"kernel": "rfb"}, "kernel 'rfb' is unknown; did you mean 'rbf'?"),
        ("pfed-stt", {}, "method 'pfed-stt' is unknown; did you mean 'pfed-st'?"),
    ],
)
def test_of_one_method(name, options, text):
    with pytest.raises(ConfigError) as error:
        method(name, **options)
    assert text in str(error.value)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("network", ["nowhere:thing", "nowhere", "math:sqrt"])
def test_a_network_that_is_not_there(name, network):
    spec, _ = federation(1)
    with pytest.raises(ConfigError, match=f"network '{network}'"):
        method(name, network=network).init(spec, START)
