"""The registry of kinds, and the kind that CONTRIBUTING adds to it: from a class to a run, its report and its predictions."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import polyfed as pf
from polyfed.data import LabelCodec
from polyfed.errors import ConfigError
from polyfed.gp import likelihood_for
from polyfed.kinds import KINDS, METRICS, Kind, LabelForm, own_kinds
from polyfed.methods.supervised import supervision_of
from polyfed.predictions import Prediction
from polyfed.report import write_report

EXAMPLE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture
def poisson(monkeypatch):
    """The example of CONTRIBUTING, run as it stands; the kind is forgotten afterwards."""
    if not EXAMPLE.exists():
        pytest.skip("CONTRIBUTING.md is not part of this installation")
    (code,) = re.findall(r"```python\n(.*?)```", EXAMPLE.read_text(encoding="utf-8"), re.S)
    monkeypatch.setitem(KINDS, "poisson", None)
    del KINDS["poisson"]
    exec(compile(code, "CONTRIBUTING.md", "exec"), {})
    return KINDS["poisson"]


def counts(n=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 1))
    return x, rng.poisson(4 * np.exp(1.2 * np.sin(2 * x[:, 0]))).astype(float)


# ---- the registry -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_every_part_of_a_kind_is_where_its_entry_says(name):
    kind = KINDS[name]
    assert issubclass(kind.part("prediction"), Prediction)
    assert type(likelihood_for(name)) is kind.part("likelihood")
    assert callable(kind.part("supervision").losses)
    assert kind.guess is None or callable(kind.part("guess"))


def test_own_kinds_are_chosen_by_form():
    assert own_kinds(LabelForm.NUMBER, LabelForm.PAIR) == ("regression", "robust", "proportion")
    assert set(METRICS) == set(LabelForm)


def test_a_name_is_taken_once():
    with pytest.raises(ConfigError, match=r"there is a kind 'count' already; give the new one another name\."):
        pf.add_kind(Kind("count", "that are counts", LabelForm.COUNT, None, None))


def test_a_package_that_cannot_be_imported_does_not_take_others_with_it(monkeypatch):
    class Entry:
        name, value = "broken", "nowhere:KIND"

        def load(self):
            raise ImportError("no such package")

    monkeypatch.setattr("polyfed.plugins.entry_points", lambda group: [Entry()])
    with (
        pytest.warns(UserWarning, match="kind 'broken' of 'nowhere:KIND' cannot be loaded"),
        pytest.raises(ConfigError, match="kind 'brokn' is not known"),
    ):
        KINDS["brokn"]


def test_a_kind_of_another_package_is_found(monkeypatch):
    mine = Kind("gamma", "that are durations", LabelForm.NUMBER, None, None)

    class Entry:
        name = "gamma"

        def load(self):
            return mine

    monkeypatch.setitem(KINDS, "gamma", mine)
    del KINDS["gamma"]
    monkeypatch.setattr("polyfed.plugins.entry_points", lambda group: [Entry()])
    assert pf.Task("wait", "gamma").form is LabelForm.NUMBER


# ---- the example --------------------------------------------------------------------------------------------------------


def test_its_bound_is_the_expectation_by_quadrature_and_its_site_the_derivative(poisson):
    likelihood = poisson.part("likelihood")(typical=2.0)
    y, m, v = (
        torch.tensor(values, dtype=torch.float64) for values in ([0.0, 3.0, 9.0], [-1.0, 0.2, 1.5], [0.3, 1.0, 0.1])
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    f = m[:, None].numpy() + np.sqrt(v[:, None].numpy()) * nodes
    expected = stats.poisson.logpmf(y[:, None].numpy(), 2.0 * np.exp(f)) @ weights / weights.sum()
    m, v = m[:, None].requires_grad_(), v[:, None].requires_grad_()
    bound = likelihood.local_bound(y, m, v, None)
    np.testing.assert_allclose(bound.detach(), expected, rtol=1e-9)
    dm, dv = torch.autograd.grad(bound.sum(), (m, v))
    h, r = likelihood.site(y, m, v, None)
    torch.testing.assert_close(h, -2 * dv)
    torch.testing.assert_close(r, dm + h * m)


def test_one_machine_learns_it(poisson):
    x, y = counts()
    gp = pf.MultiTaskGP({"calls": "poisson"}, n_latents=1).fit({"calls": (x, y)})
    assert gp.converged
    new = np.linspace(-1.5, 1.5, 7)[:, None]
    said = gp.predict(new)["calls"]
    assert type(said) is poisson.part("prediction")
    np.testing.assert_allclose(np.log(said.mean), np.log(4) + 1.2 * np.sin(2 * new[:, 0]), atol=0.5)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    rates = np.exp(said.latent_mean[:, None] + said.latent_std[:, None] * nodes)
    expected = stats.poisson.pmf(4, rates) @ weights / weights.sum()
    np.testing.assert_allclose(said.log_density(np.full(7, 4.0)), np.log(expected), rtol=1e-6)


@pytest.mark.parametrize("method", ["pfed-mul", "fedavg", "fed3r"])
def test_a_federation_learns_it(poisson, method, tmp_path):
    clients = {name: {"calls": counts(40, seed)} for seed, name in enumerate(("basel", "bern", "thun"))}
    federation = pf.Federation.from_clients(clients, {"calls": "poisson"}, split=pf.Split(test=0.25))
    run = pf.simulate(method, federation, rounds=5, seed=0)
    scores = run.summary(metrics="all")["calls"]
    assert set(scores.columns) >= {"rmse", "nlpd", "deviance", "coverage", "skill"}
    assert np.isfinite(scores["nlpd"]).all()
    if method == "pfed-mul":
        assert scores["skill"].mean() > 0.2
        run.save(tmp_path / "run")
        again = pf.load(tmp_path / "run")
        new = np.array([[0.5]])
        said, loaded = (r.client("bern").predict(new)["calls"].mean for r in (run, again))
        np.testing.assert_array_equal(said, loaded)
        page = write_report([tmp_path / "run"], tmp_path / "report.html")
        assert "calls" in page.read_text(encoding="utf-8")


def test_networks_minimise_minus_the_log_probability(poisson):
    codec = LabelCodec(pf.Task("calls", "poisson"), None, 0.0, 2.0)
    f, y = torch.tensor([[0.3], [-0.2]], dtype=torch.float64), torch.tensor([4.0, 0.0], dtype=torch.float64)
    loss = supervision_of(codec).losses(f, y, codec)
    np.testing.assert_allclose(loss, -stats.poisson.logpmf(y.numpy(), 2.0 * np.exp(f[:, 0].numpy())), rtol=1e-9)


def test_methods_that_read_other_libraries_say_that_they_do_not_serve_it(poisson):
    clients = {name: {"calls": counts(20, seed)} for seed, name in enumerate(("basel", "bern"))}
    federation = pf.Federation.from_clients(clients, {"calls": "poisson"})
    with pytest.raises(ConfigError, match=r"sklearn-rf-local.*poisson"):
        pf.simulate("sklearn-rf-local", federation, rounds=1)
