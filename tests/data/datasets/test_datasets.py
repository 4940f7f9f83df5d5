"""The data sets that come with polyfed: their sizes, their laws, and what is said about wrong options."""

import sys

import numpy as np
import pytest
from scipy import stats

from polyfed.data import DATASETS, Split, load_dataset
from polyfed.data.datasets.synthetic import draw_functions
from polyfed.errors import ConfigError, MissingExtraError


def rejection(kind, name, **options):
    with pytest.raises(kind) as caught:
        load_dataset(name, **options)
    return str(caught.value)


@pytest.mark.parametrize("name", DATASETS)
def test_every_data_set_can_be_prepared(name):
    study = load_dataset(name).prepare(0)
    for parts in study.clients.values():
        assert np.isfinite(parts.train.x).all()
        assert parts.train.n_labels > 0
        assert parts.test.n_labels > 0


def test_wrong_names_and_options():
    assert rejection(ConfigError, "pinguins") == (
        "data set 'pinguins' is not known; did you mean 'penguins'? known are 'penguins', 'phone_health', 'synthetic'."
    )
    assert rejection(ConfigError, "phone_health", clients=3) == (
        "data set 'phone_health' has no option 'clients'; did you mean 'n_clients'? "
        "known are 'n_clients', 'rows', 'seed', 'missing'."
    )
    assert rejection(ConfigError, "penguins", seed=3) == (
        "data set 'penguins' has no option 'seed'; known are 'labelled', 'draw'."
    )
    assert rejection(ConfigError, "synthetic", n_clients=0) == (
        "synthetic: n_clients=0 is not a whole number that will do; give 1 or more."
    )
    assert rejection(ConfigError, "synthetic", noise=-0.1) == (
        "synthetic: noise=-0.1 is out of range; give at least 0 and less than inf."
    )
    assert rejection(ConfigError, "phone_health", missing=1.0) == (
        "phone_health: missing=1.0 is out of range; give at least 0 and less than 1."
    )


def test_few_labelled_penguins():
    study = load_dataset("penguins", labelled=5).prepare(0)
    known = {name: parts.train.counts() for name, parts in study.clients.items()}
    assert known["Torgersen 2009"] == {"body_mass_g": 0, "sex": 0, "species": 0}
    assert known["Dream 2008"] == {"body_mass_g": 5, "sex": 0, "species": 5}
    assert known["Biscoe 2007"] == {"body_mass_g": 5, "sex": 5, "species": 5}
    # All birds are there, and those that are not for training are all for testing.
    assert sum(len(parts.train.x) + len(parts.test.x) for parts in study.clients.values()) == 333
    assert all(set(parts.test.counts().values()) == {len(parts.test.x)} for parts in study.clients.values())
    other = load_dataset("penguins", labelled=5, draw=1).prepare(0)
    assert not np.array_equal(other.clients["Biscoe 2007"].train.x, study.clients["Biscoe 2007"].train.x)
    assert rejection(ConfigError, "penguins", labelled=0) == (
        "data set 'penguins': labelled=0 is not a whole number that will do; give 1 or more."
    )


# Synthetic


def test_synthetic_sizes():
    fed = load_dataset("synthetic").with_options(scaling="none")
    assert fed.names == tuple(f"client {i}" for i in range(1, 6))
    study = fed.prepare(0)
    for parts in study.clients.values():
        assert parts.train.counts() == parts.test.counts() == {"regression": 50, "classification": 100}
        assert len(parts.train.x) == len(parts.test.x) == 150  # the tasks are at different inputs
        assert set(parts.train.labels["classification"][1]) == {-1.0, 1.0}
        assert parts.train.x.min() >= 0
        assert parts.train.x.max() <= 100
    grid = study.truth["client 3"]["x"]
    assert (grid[0, 0], grid[1, 0], grid[-1, 0], len(grid)) == (0.0, 0.5, 100.0, 201)


def test_the_truth_is_what_was_observed():
    fed = load_dataset("synthetic", n_clients=4, n_regression=400, n_binary=1000).with_options(scaling="none")
    residuals, logits, hits = [], [], []
    for name, parts in fed.prepare(0).clients.items():
        truth = fed.truth[name]

        def at(x, task, truth=truth):
            return np.interp(x, truth["x"][:, 0], truth[task])

        rows, y = parts.train.labels["regression"]
        residuals.append(y - at(parts.train.x[rows, 0], "regression"))
        rows, label = parts.train.labels["classification"]
        logits.append(at(parts.train.x[rows, 0], "classification"))
        hits.append(label > 0)
    residuals, logits, hits = map(np.concatenate, (residuals, logits, hits))
    # 1600 normal residuals: the variance is known to 3.5 %, and five times that is no accident.
    assert residuals.var() == pytest.approx(0.1, rel=0.18)
    p = 1 / (1 + np.exp(-logits))
    assert abs((hits - p).sum()) < 5 * np.sqrt((p * (1 - p)).sum())
    # Labels follow f, not merely its average: (y - p) is uncorrelated with f.
    assert abs(((hits - p) * logits).sum()) < 5 * np.sqrt((p * (1 - p) * logits**2).sum())


def test_latent_functions_have_the_papers_covariance():
    x = np.array([0.0, 5.0, 15.0])
    draws = np.stack([draw_functions(x, np.random.default_rng(seed)) for seed in range(4000)])
    for b, (phi0, phi1) in enumerate([(1.0, 0.02), (2.0, 0.01)]):
        expected = phi0 * np.exp(-phi1 / 2 * np.array([0.0, 25.0, 225.0]))
        found = (draws[:, :1, b] * draws[:, :, b]).mean(axis=0)
        # A product of two normals of variance phi0 has standard deviation at most √2 phi0.
        np.testing.assert_allclose(found, expected, atol=5 * 1.42 * phi0 / np.sqrt(4000))
    assert abs((draws[:, 0, 0] * draws[:, 0, 1]).mean()) < 5 * np.sqrt(2.0 / 4000)


def test_tasks_are_mixed_as_in_the_paper():
    sizes = {"n_regression": 1, "n_binary": 1, "test_regression": 0, "test_binary": 0}
    truth = load_dataset("synthetic", n_clients=300, **sizes).truth.values()
    far_apart = [0, 100, 200]  # x = 0, 50, 100: nearly independent draws
    f = np.concatenate([np.column_stack([t["regression"], t["classification"]])[far_apart] for t in truth])
    # W diag(1, 2) Wᵀ with W = [[.6, .4], [.4, .6]]; 900 products with a standard deviation of at most √2 · 0.88.
    expected = [[0.68, 0.72], [0.72, 0.88]]
    np.testing.assert_allclose(f.T @ f / len(f), expected, atol=5 * 1.25 / 30)


def test_clients_do_not_depend_on_how_many_there_are():
    few, many = load_dataset("synthetic", n_clients=2), load_dataset("synthetic", n_clients=5)
    assert few.truth["client 2"]["regression"].tobytes() == many.truth["client 2"]["regression"].tobytes()
    assert few.truth["client 1"]["regression"][0] != few.truth["client 2"]["regression"][0]
    other = load_dataset("synthetic", n_clients=2, seed=1)
    assert other.truth["client 2"]["regression"][0] != few.truth["client 2"]["regression"][0]


def test_synthetic_without_test_rows_is_split_as_usual():
    fed = load_dataset("synthetic", n_clients=2, test_regression=0, test_binary=0)
    parts = fed.with_options(split=Split(test=0.2)).prepare(0).clients["client 1"]
    assert parts.test.counts() == {"regression": 10, "classification": 20}


# Penguins


def test_penguins():
    fed = load_dataset("penguins")
    islands = ("Biscoe", "Dream", "Torgersen")
    assert fed.names == tuple(f"{island} {year}" for island in islands for year in (2007, 2008, 2009))
    assert sum(map(len, fed.raw.values())) == 333
    study = fed.prepare(0)
    assert study.encoders["Dream 2008"].names == ("bill_length_mm", "bill_depth_mm", "flipper_length_mm")
    assert study.spec.tasks[1].classes == ("female", "male")
    # Gentoo penguins live on Biscoe alone.
    gentoo = {name for name, parts in study.clients.items() if 2.0 in parts.train.labels["species"][1]}
    assert gentoo == {"Biscoe 2007", "Biscoe 2008", "Biscoe 2009"}


def test_penguins_without_their_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "palmerpenguins", None)
    assert rejection(MissingExtraError, "penguins") == (
        "data set 'penguins': the data lies in the package palmerpenguins, which is not installed; "
        "pip install 'polyfed[demo]'."
    )


# Phones


def labels_of(fed, task):
    return [raw.labels[task] for raw in fed.raw.values() if task in raw.labels]


def test_phones_have_realistic_gaps_and_units():
    fed = load_dataset("phone_health", n_clients=60, rows=100)
    assert len(fed) == 60
    assert [len(labels_of(fed, task)) for task in ("heart_rate", "moving", "steps")] == [55, 55, 55]
    for task in ("heart_rate", "moving", "steps"):
        share = np.mean([len(labels.at) / 100 for labels in labels_of(fed, task)])
        assert share == pytest.approx(0.8, abs=0.03)
    rate = np.concatenate([labels.values for labels in labels_of(fed, "heart_rate")])
    assert 60 < rate.mean() < 85
    assert rate.min() >= 40
    steps = np.concatenate([labels.values for labels in labels_of(fed, "steps")])
    assert steps.min() >= 0
    assert 20 < steps.mean() < 400
    assert fed.prepare(0).encoders["phone 01"].names[-1] == "temperature is missing"


def test_the_targets_of_a_phone_go_together():
    fed = load_dataset("phone_health", n_clients=3, rows=400, missing=0.0)
    for raw in fed.raw.values():
        steps = raw.labels["steps"].values
        moving = np.array(raw.labels["moving"].vocabulary)[raw.labels["moving"].values]
        assert stats.spearmanr(raw.labels["heart_rate"].values, steps)[0] > 0.3
        assert steps[moving].mean() > 1.3 * steps[~moving].mean()


def test_a_federation_of_phones_is_the_same_every_time():
    one, two = (load_dataset("phone_health", n_clients=3, rows=20, seed=4).prepare(0).arrays() for _ in range(2))
    assert all(one[name].tobytes() == two[name].tobytes() for name in one)
