"""pFed-St against numbers by hand, and against pFed-Mul with a W that keeps the tasks apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from federations import KINDS, START, federation, one_round
from method_toys import client_of, spec_of
from polyfed.engine.rounds import FederationState, run_round
from polyfed.engine.settings import Settings
from polyfed.methods import PFedMul, PFedSt

FIXED = {"mixing": 1e-300}  # steps that change no double: W stays as it is


@pytest.mark.parametrize(("w", "k"), [((0.9, 0.1), 0.82), ((0.6, 0.4), 0.52)])
def test_one_label_by_hand(w, k):
    """Two latents with the same kernel are one of variance k = w₁² + w₂². A label 2 at 0, with noise 1 − k:

    at 0 mean 2k and variance k − k²; at distance 1 mean 2k e^−½ and variance k − k² e^−1. A round then finds the noise
    E(y − f)² = (2 − 2k)² + k − k²; for k = 0.82 that is 0.1296 + 0.1476 = 0.2772.
    """
    data = {"ann": client_of([0.0], [2.0])}
    same = {f"kernels.{b}.{name}": 0.0 for b in (0, 1) for name in ("log_phi1", "log_amplitude")}
    made = PFedSt(n_latents=2, initial={**same, "mixing.y": [list(w)], "noise.y": np.log(1 - k)})
    server, states = made.init(spec_of(data), START), {"ann": made.start(data["ann"], START)}
    read = made.predictor(server, states["ann"], data["ann"])(np.array([[0.0], [1.0]]))["y"]
    near = np.array([1.0, np.exp(-0.5)])
    np.testing.assert_allclose(read.mean, 2 * k * near, rtol=1e-5)
    np.testing.assert_allclose(read.latent_std**2, k - (k * near) ** 2, rtol=1e-4)
    after, _ = one_round(made, server, states, data)
    noise = float(after["0/pooled/noise.y"].exp())
    assert noise == pytest.approx((2 - 2 * k) ** 2 + k - k**2, rel=1e-4)
    if k == 0.82:
        assert noise == pytest.approx(0.2772, abs=1e-4)


def apart(server):
    """The server's state of pFed-St with the parameters of a pFed-Mul that has one latent for each task."""
    found = {}
    for i, task in enumerate(KINDS):
        for name, v in server.items():
            kind, _, rest = name.partition("/")
            if kind in ("theta", "pooled"):
                group, _, own = rest.partition(".")
                if group == "kernels" and own.startswith(f"{i}."):
                    found[f"{i}/{kind}/kernels.0.{own.partition('.')[2]}"] = v
                elif own == task:
                    found[f"{i}/{kind}/{rest}"] = v[:, i : i + 1] if group == "mixing" else v
    return found


@pytest.mark.parametrize("mode", ["gradient", "average"])
def test_a_block_diagonal_w_is_one_process_for_each_task(mode):
    """Three rounds with W = diag(0.8, −1.2, 0.5) held fixed: the same kernels, noise and predictions; not with a full W."""
    spec, data = federation(3, whole=True)
    initial = {f"kernels.{b}.log_phi1": -0.5 + 0.4 * b for b in range(3)}
    options = {"mode": mode, "learning_rate": FIXED | {"kernels": 0.1, "noise": 0.1}, "tolerance": 0.0}
    for other, same in ((0.0, True), (0.3, False)):
        W = np.diag([0.8, -1.2, 0.5]) + other * (1 - np.eye(3))
        rows = {f"mixing.{task}": W[[i]].tolist() for i, task in enumerate(KINDS)}
        whole, single = PFedMul(n_latents=3, initial=initial | rows, **options), PFedSt(n_latents=1, **options)
        servers = [whole.init(spec, START), single.init(spec, START)]
        assert apart(servers[0]).keys() <= servers[1].keys()
        servers[1] |= apart(servers[0])
        states = [{name: made.start(mine, START) for name, mine in data.items()} for made in (whole, single)]
        for r in (1, 2, 3):
            servers = [
                one_round(made, server, own, data, round=r)[0]
                for made, server, own in zip((whole, single), servers, states, strict=True)
            ]
        away = [
            float((servers[1][n] - v).abs().max())
            for n, v in apart(servers[0]).items()
            if "kernels" in n or "noise" in n
        ]
        assert len(away) == 8  # two of each kernel, two noises
        assert (max(away) < 1e-8) is same
        moved = servers[0]["theta/kernels.0.log_phi1"] + 0.5
        assert abs(float(moved)) > 0.01
        x = np.random.default_rng(5).uniform(-2, 2, (6, 2))
        both = [
            made.predictor(server, own["client 1"], data["client 1"])(x)
            for made, server, own in zip((whole, single), servers, states, strict=True)
        ]
        for task in KINDS:
            close = [
                np.allclose(*(getattr(p[task], f) for p in both), atol=1e-6) for f in ("latent_mean", "latent_std")
            ]
            assert all(close) is same


def test_a_task_that_nobody_has_stays_as_it_is():
    spec, data = federation(2, whole=True)
    only = {name: mine.only("binary") for name, mine in data.items()}
    lacking = {name: type(mine)(mine.x, only[name].labels, mine.codecs) for name, mine in data.items()}
    made = PFedSt()
    server, states = made.init(spec, START), {name: made.start(mine, START) for name, mine in lacking.items()}
    after, _ = one_round(made, server, states, lacking)
    i = KINDS.index("binary")
    assert all(torch.equal(after[n], v) for n, v in server.items() if not n.startswith(f"{i}/"))
    assert any(not torch.equal(after[n], v) for n, v in server.items() if n.startswith(f"{i}/theta/"))


def test_a_client_all_of_whose_tasks_fail_is_rejected_alone():
    spec, data = federation(3, whole=True)
    data["client 1"] = replace(data["client 1"], x=data["client 1"].x[:0])  # labels of rows that are not there
    made = PFedSt()
    progress = FederationState(0, made.init(spec, START), {})
    progress, event = run_round(made, progress, data, Settings())
    assert list(event["rejected"]) == ["client 1"]
    assert event["used"]
