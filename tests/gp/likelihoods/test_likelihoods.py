"""What likelihoods say beside their sites: the best noise, values at the edges, and errors."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch

from polyfed.errors import ConfigError
from polyfed.gp import likelihood_for
from polyfed.gp.likelihoods import (
    Bernoulli,
    Binomial,
    Gaussian,
    LogisticSoftmax,
    NegativeBinomial,
    OneVsEach,
    StudentT,
)
from polyfed.gp.likelihoods.logistic import log_2cosh_half, pg_mean
from polyfed.gp.likelihoods.logistic_softmax import LEFT_OVER
from problems import KINDS, labels, likelihood, normal


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


# ---- Pólya-Gamma ---------------------------------------------------------------------------------------------


def test_pg_mean_is_smooth_where_it_changes_formula():
    c = torch.tensor([0.0, 1e-8, 1e-4, 0.0099999, 0.01, 0.0100001, 0.5, 30.0, 1e4, 1e9], dtype=torch.float64)
    with mpmath.workdps(40):
        exact = [0.25] + [float(mpmath.tanh(mpmath.mpf(t) / 2) / (2 * mpmath.mpf(t))) for t in c[1:].tolist()]
    assert pg_mean(c).tolist() == pytest.approx(exact, rel=1e-14)


def test_log_2cosh_half_does_not_overflow():
    c = torch.tensor([0.0, 1.0, 50.0, 1e4, 1e300], dtype=torch.float64)
    with mpmath.workdps(40):
        exact = [float(t / 2 + mpmath.log1p(mpmath.exp(-mpmath.mpf(t)))) for t in c.tolist()]
    assert log_2cosh_half(c).tolist() == pytest.approx(exact, rel=1e-14)


# ---- the noise -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [Gaussian(), StudentT(dof=3.0)])
def test_the_pooled_noise_is_where_the_local_bound_is_flat(of):
    rng = np.random.default_rng(0)
    y, m, v = normal(rng, 20), normal(rng, 20, 1), normal(rng, 20, 1).exp()
    sigma2 = torch.tensor(1.0, dtype=torch.float64)
    for _ in range(200):  # robust regression takes q(τ) at the noise before: a fixed point
        sigma2 = of.best_noise(y, m, v, sigma2).mean()
    log_sigma2 = sigma2.log().requires_grad_()
    of.local_bound(y, m, v, log_sigma2.exp()).sum().backward()
    assert log_sigma2.grad.item() == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("gaussian", "student-t")])
def test_the_other_kinds_have_no_closed_form(kind):
    of = likelihood(kind)
    y = labels(of, 2, np.random.default_rng(0))
    zero = torch.zeros(of.pattern(y).shape[:2], dtype=torch.float64)
    assert of.best_noise(y, zero, zero + 1.0, torch.tensor(1.0)) is None


# ---- values --------------------------------------------------------------------------------------------------


def test_without_variance_the_gaussian_bound_is_the_likelihood_itself():
    m, none = column(-2.0, 0.0, 3.0), column(0.0, 0.0, 0.0)
    bernoulli = Bernoulli(bound="gaussian").local_bound(torch.tensor([1.0, -1.0, 1.0]).double(), m, none, None)
    expected = torch.nn.functional.logsigmoid(torch.tensor([-2.0, 0.0, 3.0]).double())
    torch.testing.assert_close(bernoulli, expected)
    k_of_n = torch.tensor([[0.0, 4.0], [2.0, 4.0], [4.0, 4.0]], dtype=torch.float64)
    binomial = Binomial(bound="gaussian").local_bound(k_of_n, m, none, None)
    exact = torch.distributions.Binomial(4, logits=m[:, 0]).log_prob(k_of_n[:, 0])
    torch.testing.assert_close(binomial, exact)


@pytest.mark.parametrize("typical", [None, 7.0])
def test_counts_have_the_mean_they_promise(typical):
    rho = torch.tensor(2.5, dtype=torch.float64)
    f = torch.tensor([-0.5, 0.0, 1.0], dtype=torch.float64)
    mean = (rho if typical is None else typical) * f.exp()
    y = torch.tensor([0.0, 3.0, 12.0], dtype=torch.float64)
    exact = torch.distributions.NegativeBinomial(rho, logits=(mean / rho).log()).log_prob(y)
    of = NegativeBinomial(typical=typical, bound="gaussian")
    none = torch.zeros(3, 1, dtype=torch.float64)
    torch.testing.assert_close(of.local_bound(y, f[:, None], none, rho), exact)
    said = of.readout(f[:, None], none[:, :, None], rho)
    torch.testing.assert_close((said["log_typical"] + f).exp(), mean)
    assert said["dispersion"].item() == 2.5


def test_without_variance_robust_regression_is_the_student_density():
    y, m = torch.tensor([0.0, 5.0], dtype=torch.float64), column(0.3, -1.0)
    sigma2 = torch.tensor(0.49, dtype=torch.float64)
    exact = torch.distributions.StudentT(3.0, m[:, 0], sigma2.sqrt()).log_prob(y)
    torch.testing.assert_close(StudentT(dof=3.0).local_bound(y, m, torch.zeros_like(m), sigma2), exact)


def mp_logistic_softmax(y: int, m: list[float], v: list[float]) -> float:
    """Its local bound with 50 digits: λ and n summed out together leave 1 / Σ (1 − ε)."""
    with mpmath.workdps(50):
        phi = [mpmath.mpf(t) for t in m]
        c = [mpmath.sqrt(f * f + mpmath.mpf(t)) for f, t in zip(phi, v, strict=True)]
        cosh = [t / 2 + mpmath.log1p(mpmath.exp(-t)) for t in c]
        rate = sum(1 - mpmath.exp(-f / 2 - t) for f, t in zip(phi, cosh, strict=True))
        return float(phi[y] / 2 - cosh[y] - mpmath.log(rate + LEFT_OVER))


@pytest.mark.parametrize("level", [5.0, 0.0, -3.0, -10.0, -30.0, -1000.0])
@pytest.mark.parametrize(("variance", "digits"), [(1.0, 1e-9), (1e-3, 1e-9), (1e-8, 1e-6)])
def test_logistic_softmax_keeps_its_digits_when_all_classes_are_unlikely(level, variance, digits):
    m, v = [level, level - 0.5, level + 0.3], [variance, 2.0 * variance, 0.5 * variance]
    got = LogisticSoftmax(3).local_bound(torch.zeros(1), column(*m).mT, column(*v).mT, None)
    assert got.item() == pytest.approx(mp_logistic_softmax(0, m, v), rel=digits)


# ---- by name -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("regression", {}, Gaussian),
        ("robust", {"dof": 7.0}, StudentT),
        ("binary", {}, Bernoulli),
        ("proportion", {}, Binomial),
        ("count", {"typical": 3.0}, NegativeBinomial),
        ("multiclass", {"n_classes": 4}, OneVsEach),
        ("multiclass", {"n_classes": 4, "likelihood": "one-vs-each"}, OneVsEach),
        ("multiclass", {"n_classes": 4, "likelihood": "logistic-softmax"}, LogisticSoftmax),
    ],
)
def test_each_kind_has_its_likelihood(kind, options, expected):
    of = likelihood_for(kind, power=0.5, **options)
    assert type(of) is expected
    assert of.power == 0.5
    assert of.n_outputs == options.get("n_classes", 1)
    assert getattr(of, "dof", 7.0) == 7.0
    assert getattr(of, "typical", 3.0) == 3.0


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: likelihood_for("bianry"),
            "kind 'bianry' is not known; did you mean 'binary'? known are 'regression', ",
        ),
        (
            lambda: likelihood_for("multiclass", likelihood="softmax"),
            "likelihood 'softmax' of kind 'multiclass' is not known; did you mean 'logistic-softmax'? known are 'one-vs-each',",
        ),
        (
            lambda: likelihood_for("binary", bound="gausian"),
            "bound 'gausian' is unknown; did you mean 'gaussian'? known are 'polya-gamma', 'gaussian'.",
        ),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(call, text):
    with pytest.raises(ConfigError) as caught:
        call()
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_site_is_more_precise_than_its_likelihood_says(kind, bound):
    of = likelihood(kind, bound=bound)
    rng = np.random.default_rng(0)
    y = labels(of, 400, rng)
    shape = of.pattern(y).shape[:2]
    m, v = normal(rng, *shape), torch.as_tensor(rng.exponential(0.3, shape))
    m[:40], v[:40] = 0.0, 1e-9  # where logistic sites are largest
    m[40:80], v[40:80] = (y[40:80, None] if y.dim() == 1 else 0.0), 1e-9  # and where robust ones are
    noise = torch.tensor(0.3, dtype=torch.float64) if of.initial_noise is not None else None
    h, _ = of.site(y, m, v, noise)
    most = of.most_precise / (1.0 if noise is None else float(noise))
    assert float(h.max()) <= most * (1 + 1e-9)
    if most < float("inf"):
        assert float(h.max()) > 0.999 * most  # and no smaller number would do
