"""Labels kept apart from the features: who learns from what, and when the features stop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from federations import START, codecs_of, federation, run_rounds
from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError
from polyfed.methods import PFedMul
from polyfed.methods.checks import check_method
from polyfed.methods.gp.holdout import held_out_inputs, split
from polyfed.methods.messages import ClientUpdate, strip_prefix

KINDS = ("regression", "binary")


def client():
    spec, data = federation(3, kinds=KINDS, whole=True)
    return spec, data["client 2"]


def with_other_labels(data, where):
    """The same client with other labels of the regression task at some inputs."""
    at, y = data.labels["regression"]
    return replace(data, labels={**data.labels, "regression": (at, np.where(where[at], y + 1.5, y))})


def answer(made, server, state, data):
    return made.local(state, made.broadcast(server, "client"), data, START)[1]


def test_the_share_is_that_of_every_task():
    _, data = client()
    for share in (0.2, 1 / 3, 0.5):
        kept = held_out_inputs(data, share, np.random.default_rng(3)).numpy()
        assert abs(kept.sum() - share * len(data.x)) <= 1
    seen, held = split(data, torch.from_numpy(kept))
    assert seen.n_labels + held.n_labels == data.n_labels
    for task, (at, y) in held.labels.items():
        place = np.flatnonzero(kept)[at]  # where its inputs are in the whole
        np.testing.assert_array_equal(held.x[at], data.x[place])
        whole = dict(zip(*data.labels[task], strict=True))
        assert [whole[p] for p in place] == y.tolist()
    assert split(data, torch.from_numpy(kept))[0] is seen


def test_features_and_all_else_learn_from_different_labels():
    spec, data = client()
    made = PFedMul(projection=2, tolerance=1e-12, mf_steps=500)
    server, state = made.init(spec, START), made.start(data, START)
    kept = state["held_out"].numpy()
    usual = answer(made, server, state, data)
    from_kept, from_seen = (answer(made, server, state, with_other_labels(data, where)) for where in (kept, ~kept))
    for name, gradient in usual.arrays.items():
        serves = "kept" if name.startswith("held_out/") or not name.startswith(("features.", "direction/")) else "seen"
        same, other = (from_seen, from_kept) if serves == "kept" else (from_kept, from_seen)
        torch.testing.assert_close(gradient, same.arrays[name], rtol=1e-6, atol=1e-9)
        assert not torch.allclose(gradient, other.arrays[name], rtol=1e-3)
    assert usual.pooled["noise.regression"] == from_seen.pooled["noise.regression"]
    assert usual.pooled["noise.regression"][0] != from_kept.pooled["noise.regression"][0]


def test_each_gradient_is_that_of_a_client_with_that_part_alone():
    spec, data = client()
    made, plain = (
        PFedMul(projection=2, projection_start="random", tolerance=1e-12, mf_steps=500, holdout=h) for h in (None, 0.0)
    )
    server, state = made.init(spec, START), made.start(data, START)
    sent = answer(made, server, state, data)
    of_seen, of_kept = (
        answer(plain, server, plain.start(mine, START), mine) for mine in split(data, state["held_out"])
    )
    for name, gradient in of_kept.arrays.items():
        if name.startswith("features."):
            torch.testing.assert_close(sent.arrays[f"held_out/{name}"], gradient)
            gradient = of_seen.arrays[name]
        torch.testing.assert_close(sent.arrays[name], gradient)
    assert sent.metrics["bound"] == pytest.approx(of_seen.metrics["bound"] + of_kept.metrics["bound"])


def test_the_server_takes_the_part_of_a_step_that_both_parts_ask_for():
    spec, _ = client()
    made, plain = (PFedMul(projection=1, projection_start="random", mean="zero", holdout=h) for h in (None, 0.0))
    server, whole = made.init(spec, START), plain.init(spec, START)
    server["agreement/features"] = torch.tensor(0.05, dtype=torch.float64)
    gradient = {name: torch.ones_like(value) for name, value in strip_prefix(server, "theta").items()}
    projection = gradient["features.projection"]  # (2, 2): two inputs, a dimension for each of two latents
    asked = torch.tensor([[1.0, 1.0], [1.0, -0.6]], dtype=torch.float64)
    cosine = 2.4 / (2.0 * np.sqrt(3.36))
    assert projection.shape == asked.shape
    noise = {name: (torch.ones(()), torch.ones(())) for name in strip_prefix(server, "pooled")}
    counts = dict.fromkeys(KINDS, 5)

    def after(method, state, sign):
        arrays = gradient | ({"held_out/features.projection": sign * asked} if method is made else {})
        return method.aggregate(state, {"client": ClientUpdate(arrays, noise, 10.0, counts, {"bound": 0.0})})

    for sign, trusted in ((-1, 0.0), (1, 1.0), (0.0, 0.35)):
        moved = after(made, server, sign)
        so_far = 0.7 * 0.05 + 0.3 * np.sign(sign) * cosine
        assert float(moved["agreement/features"]) == pytest.approx(so_far)
        name = "theta/features.projection"
        step = after(plain, whole, 0)[name] - whole[name]
        torch.testing.assert_close(moved[name] - server[name], trusted * step)  # 0.35 = 0.035 / 0.1
        torch.testing.assert_close(moved["theta/mixing.binary"], after(plain, whole, 0)["theta/mixing.binary"])


def test_predictions_use_all_labels():
    spec, data = client()
    made, plain = PFedMul(projection=2), PFedMul(projection=2, holdout=0.0)
    server = made.init(spec, START)
    x = data.x[:5] + 0.1
    ours = made.predictor(server, made.start(data, START), data)(x)
    theirs = plain.predictor(server, plain.start(data, START), data)(x)
    np.testing.assert_array_equal(ours["regression"].mean, theirs["regression"].mean)


def test_noise_is_not_learned_by_heart():
    """Labels that have nothing to do with thirty inputs: their variance is one, and all of it is noise."""
    rng = np.random.default_rng(0)
    codecs = codecs_of(("regression",))
    data = {
        f"client {i}": ClientData(rng.standard_normal((15, 30)), {"regression": (np.arange(15), y)}, codecs)
        for i, y in enumerate(rng.standard_normal((4, 15)))
    }
    spec = FederationSpec(tuple(c.task for c in codecs.values()), 30, tuple(data), codecs)
    found = {}
    for holdout in (0.0, 1 / 3):
        server, _, _ = run_rounds(PFedMul(projection=4, holdout=holdout), spec, data, rounds=60)
        found[holdout] = float(server["pooled/noise.regression"].exp())
    assert found[0.0] < 0.1
    assert 0.5 < found[1 / 3] < 2.0


@pytest.mark.parametrize("options", [{"scheme": "N"}, {"holdout": 0.6, "weighting": "samples"}], ids=str)
def test_the_contract_holds(options):
    check_method(PFedMul(projection=2, **options))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"projection": 2, "holdout": 1.0}, "holdout is 1.0; give a number from 0 up and below 1."),
        ({"holdout": 0.3}, "holdout is 0.3, and the server learns no features by their gradient; set projection"),
        ({"projection": 2, "mode": "average", "holdout": 0.3}, "and use mode 'gradient'; or leave holdout out"),
        ({"projection": 2, "scheme": ["kernels"], "holdout": 0.3}, "set projection or network, share them"),
    ],
)
def test_where_it_has_no_meaning_it_is_rejected(options, text):
    with pytest.raises(ConfigError) as error:
        PFedMul(**options)
    assert text in str(error.value)


def test_without_a_gradient_of_features_nothing_is_kept_apart():
    _, data = client()
    for options in ({}, {"projection": 2, "mode": "average"}, {"projection": 2, "scheme": ["mixing"]}):
        assert "held_out" not in PFedMul(**options).start(data, START)
