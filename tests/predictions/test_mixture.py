"""Mixtures of predictions against samples of the mixture, and against their own definition where that is a formula."""

import numpy as np
import pytest
from scipy import integrate, special, stats

from polyfed.predictions import (
    BinaryPrediction,
    CountPrediction,
    MulticlassPrediction,
    Predictions,
    ProportionPrediction,
    RegressionPrediction,
    RobustPrediction,
)
from polyfed.predictions.mixture import mixed, mixture

M, S = np.array([[0.3, -1.0], [1.2, -0.4], [0.1, 2.0]]), np.array([[0.5, 0.1], [0.2, 0.3], [0.7, 0.05]])


def parts_of(kind):
    made = {
        "regression": lambda m, s, i: RegressionPrediction(m, s, 0.2 + 0.3 * i),
        "robust": lambda m, s, i: RobustPrediction(m, s, 0.2 + 0.1 * i, 4.0 + i),
        "count": lambda m, s, i: CountPrediction(m + 1, s, 2.0 + i),
        "proportion": lambda m, s, i: ProportionPrediction(m, s, _rate(m, s)),
    }[kind]
    return [made(m, s, i) for i, (m, s) in enumerate(zip(M, S, strict=True))]


def _rate(m, s):
    z, w = np.polynomial.hermite_e.hermegauss(60)
    return special.expit(m[:, None] + s[:, None] * z) @ w / w.sum()


def samples(part, n, rng):
    f = part.latent_mean[:, None] + part.latent_std[:, None] * rng.standard_normal((len(part), n))
    if isinstance(part, RegressionPrediction):
        return f + part.noise_std[:, None] * rng.standard_normal(f.shape)
    if isinstance(part, RobustPrediction):
        return f + part.scale[:, None] * rng.standard_t(part.dof[:, None], f.shape)
    if isinstance(part, CountPrediction):
        rate, rho = np.exp(f), part.dispersion[:, None]
        return rng.poisson(rate * rng.gamma(rho, 1 / rho, f.shape)).astype(float)
    return special.expit(f)


@pytest.mark.parametrize("kind", ["regression", "robust", "count", "proportion"])
def test_moments_and_quantiles_are_those_of_samples_of_all_parts_together(kind):
    parts, rng, n = parts_of(kind), np.random.default_rng(0), 60_000
    both = mixture(parts)
    assert isinstance(both, type(parts[0]))
    drawn = np.concatenate([samples(part, n, rng) for part in parts], axis=1)
    error = drawn.std(axis=1) / np.sqrt(drawn.shape[1])
    assert (np.abs(both.mean - drawn.mean(axis=1)) < 5 * error).all()
    np.testing.assert_allclose(both.std, drawn.std(axis=1), rtol=0.05)
    for q in (0.025, 0.3, 0.5, 0.9, 0.975):
        at = both.quantile(q)
        share = (drawn <= at[:, None] + 1e-12).mean(axis=1)
        if kind == "count":
            assert (share > q - 0.005).all()
            assert ((drawn < at[:, None]).mean(axis=1) < q + 0.005).all()
            assert (at == np.floor(at)).all()
        else:
            np.testing.assert_allclose(share, q, atol=0.006)
            np.testing.assert_allclose(both.cdf(at), q, atol=1e-9)
    assert both.columns().keys() == parts[0].columns().keys()
    np.testing.assert_allclose(both.latent_mean, np.mean([part.latent_mean for part in parts], axis=0))
    np.testing.assert_allclose(
        both.latent_std**2, (S**2).mean(axis=0) + np.var([part.latent_mean for part in parts], axis=0)
    )


@pytest.mark.parametrize("kind", ["regression", "robust"])
def test_densities_are_averaged_and_integrate_to_the_distribution(kind):
    parts = parts_of(kind)
    both, at = mixture(parts).take([0]), np.linspace(-6, 7, 4001)
    density = np.exp([float(both.log_density([y])[0]) for y in at[::40]])
    expected = np.mean([[np.exp(part.take([0]).log_density([y])[0]) for y in at[::40]] for part in parts], axis=0)
    np.testing.assert_allclose(density, expected, rtol=1e-12)
    within = integrate.simpson(density, x=at[::40])
    np.testing.assert_allclose(within, (both.cdf([7.0]) - both.cdf([-6.0]))[0], atol=2e-3)


def test_the_cdf_of_each_kind_is_that_of_scipy():
    regression, robust, count, rate = (parts_of(k)[0] for k in ("regression", "robust", "count", "proportion"))
    y = np.array([0.1, 0.7])
    np.testing.assert_allclose(regression.cdf(y), stats.norm(regression.mean, regression.std).cdf(y), rtol=1e-12)
    np.testing.assert_allclose(rate.cdf(y), stats.norm(rate.latent_mean, rate.latent_std).cdf(special.logit(y)))
    for part in (robust, count, regression, rate):
        for q in (0.2, 0.9):
            exact = part.cdf(part.quantile(q))
            assert (exact >= q - 1e-9).all() if part is count else np.allclose(exact, q, atol=1e-9)
    assert count.cdf([-1.0, -0.5]).tolist() == [0.0, 0.0]
    assert (count.cdf([3.0, 3.0]) == count.cdf([3.9, 3.9])).all()


def test_class_probabilities_are_averaged():
    parts = [BinaryPrediction([p, 0.5], ("no", "yes"), [f, 0.0], [0.5, 1.0]) for p, f in ((0.9, 2.0), (0.5, 0.0))]
    both = mixed([Predictions({"sick": part}) for part in parts])["sick"]
    np.testing.assert_allclose(both.proba, [0.7, 0.5])
    np.testing.assert_allclose(both.log_density(["no", "yes"]), np.log([0.3, 0.5]))
    assert both.label.tolist() == ["yes", "yes"]
    assert both.latent_std[0] == np.hypot(0.5, 1.0)
    _, lower, _ = both.band()
    np.testing.assert_allclose(lower[:, 0], special.expit(both.latent_mean - 1.96 * both.latent_std))

    three = [MulticlassPrediction([p], (1, 2, 3), np.zeros((1, 3)), 1.0) for p in ([0.8, 0.1, 0.1], [0.0, 0.1, 0.9])]
    both = mixture(three)
    np.testing.assert_allclose(both.class_proba, [[0.4, 0.1, 0.5]])
    assert both.label.tolist() == [3]
    np.testing.assert_allclose(both.log_density([1]), np.log([0.4]))


def test_parts_that_agree_are_any_one_of_them():
    for kind in ("regression", "robust", "count", "proportion"):
        part = parts_of(kind)[1]
        both = mixture([part, part, part])
        for q in (0.05, 0.5, 0.95):
            np.testing.assert_allclose(both.quantile(q), part.quantile(q), rtol=1e-9)
        np.testing.assert_allclose(both.mean, part.mean)
        np.testing.assert_allclose(both.std, part.std)
        bands = both.band(), part.band()
        np.testing.assert_allclose(bands[0][1], bands[1][1])
    alone = Predictions({"pulse": part})
    assert mixed([alone]) is alone
