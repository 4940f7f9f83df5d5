"""What costs nothing, and the skill of a model against it: by hand, and against scikit-learn's dummies."""

import numpy as np
import pytest
from sklearn import metrics as oracle
from sklearn.dummy import DummyClassifier, DummyRegressor

from polyfed.metrics import Guess, class_auroc, is_score, r2, score
from polyfed.predictions import BinaryPrediction, ProportionPrediction, RegressionPrediction

RNG = np.random.default_rng(0)


def test_the_guess_of_a_number_is_that_of_a_dummy():
    train, y, mean = RNG.normal(size=30), RNG.normal(size=20), RNG.normal(size=20)
    dummy = DummyRegressor().fit(np.zeros((30, 1)), train).predict(np.zeros((20, 1)))
    found = score("regression", RegressionPrediction(mean, 1.0, 1.0), y, guess=Guess.of("regression", train))
    assert found["baseline"] == pytest.approx(oracle.root_mean_squared_error(y, dummy))
    # scikit-learn's d2 with the training mean as the reference: 1 - error / error of the dummy
    errors = [oracle.mean_squared_error(y, predicted) for predicted in (mean, dummy)]
    assert found["skill"] == pytest.approx(1 - errors[0] / errors[1])
    assert found["r2"] == pytest.approx(oracle.r2_score(y, mean))


def test_the_guess_of_a_class_is_the_most_frequent_one():
    train, y = [0, 1, 1, 2, 1], [0, 1, 1, 2]
    dummy = DummyClassifier(strategy="most_frequent").fit(np.zeros((5, 1)), train).predict(np.zeros((4, 1)))
    assert Guess.of("multiclass", train, n_classes=3).headline(y) == oracle.accuracy_score(y, dummy) == 0.5


def test_the_skill_of_classes_is_that_of_brier():
    # Two noes and a yes, and one more observation that both share: p = (1 + ½) / 4 = 0.375 of yes.
    guess = Guess.of("binary", [0, 0, 1], n_classes=2)
    found = score("binary", BinaryPrediction([0.9, 0.2], ("no", "yes"), np.zeros(2), 1.0), ["yes", "no"], guess=guess)
    model, guessed = (0.1**2 + 0.2**2) / 2, ((1 - 0.375) ** 2 + 0.375**2) / 2
    assert found["skill"] == pytest.approx(1 - model / guessed)
    assert found["baseline"] == 0.5


def test_a_rate_is_guessed_from_all_trials():
    guess = Guess.of("proportion", [[1, 2], [1, 8]])
    prediction = ProportionPrediction([0.0, 0.0], 0.0, [0.5, 0.5])
    found = score("proportion", prediction, [[1, 2], [0, 3]], guess=guess)
    assert found["baseline"] == pytest.approx(np.sqrt((0.3**2 + 0.2**2) / 2))  # 2 of 10
    assert found["skill"] == pytest.approx(1 - 0.25 / (0.3**2 + 0.2**2))


def test_who_has_no_label_guesses_what_was_agreed_or_nothing():
    assert Guess.of("regression", []) is None
    assert Guess.of("regression", [], agreed=70.0).headline([70.0, 72.0]) == pytest.approx(np.sqrt(2))
    assert Guess.of("multiclass", [], n_classes=4).value.tolist() == [0.25] * 4


def test_what_the_labels_do_not_define_is_left_out():
    sure = BinaryPrediction([0.9, 0.8], ("no", "yes"), np.zeros(2), 1.0)
    assert "auroc" not in score("binary", sure, ["yes", "yes"])
    constant = score("regression", RegressionPrediction([1.0, 2.0], 1.0, 1.0), [3.0, 3.0], guess=Guess(3.0))
    assert constant["baseline"] == 0.0
    assert not {"r2", "skill"} & set(constant)
    assert r2([1.0], [1.0]) is None


def test_an_endless_error_is_no_exception():
    assert Guess(0.0).skill({"rmse": 1e200}, [0.0, 1.0]) == -np.inf


@pytest.mark.parametrize("n_classes", [2, 4])
def test_auroc_is_that_of_scikit_learn(n_classes):
    proba = RNG.dirichlet(np.ones(n_classes), 200).round(2)  # with ties
    proba /= proba.sum(axis=1, keepdims=True)
    y = RNG.integers(0, n_classes, 200)
    expected = oracle.roc_auc_score(y, proba[:, 1] if n_classes == 2 else proba, multi_class="ovr")
    assert class_auroc(proba, y) == pytest.approx(expected)
    if n_classes == 2:
        assert class_auroc(proba[:, 1], y) == pytest.approx(expected)


def test_the_names_that_may_be_told():
    assert all(is_score("binary", name) for name in ("auroc", "skill", "baseline"))
    assert not is_score("binary", "rmse")
