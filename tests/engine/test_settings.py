"""Who takes part, and what is rejected beforehand."""

from __future__ import annotations

import pytest

from polyfed.engine import Settings
from polyfed.errors import ConfigError

NAMES = [f"client {i}" for i in range(10)]


def test_everyone_takes_part_unless_some_are_sampled():
    assert Settings().participants(NAMES[::-1], 1) == sorted(NAMES)
    assert len(Settings(sample=4).participants(NAMES, 1)) == 4
    assert len(Settings(sample=0.25).participants(NAMES, 1)) == 3  # rounded up
    assert len(Settings(sample=1.0).participants(NAMES, 1)) == 10


def test_sampling_is_without_replacement_by_seed_and_round_alone():
    settings = Settings(sample=4, seed=3)
    drawn = [tuple(settings.participants(NAMES, r)) for r in range(200)]
    assert all(len(set(names)) == 4 for names in drawn)
    assert drawn == [tuple(settings.participants(NAMES[::-1], r)) for r in range(200)]
    assert len(set(drawn)) > 100
    assert drawn != [tuple(Settings(sample=4, seed=4).participants(NAMES, r)) for r in range(200)]
    counts = [sum(name in names for names in drawn) for name in NAMES]
    assert all(50 < count < 110 for count in counts)  # 80 ± 4.3 standard deviations of 6.9


def test_quorum():
    half = Settings(quorum=0.5)
    assert [half.is_enough(n, 5) for n in range(6)] == [False, False, False, True, True, True]
    assert [Settings(quorum=0.0).is_enough(n, 5) for n in (0, 1)] == [False, True]


def test_evaluations():
    assert [r for r in range(13) if Settings(rounds=12, evaluate_every=5).evaluates(r)] == [5, 10, 12]
    assert [r for r in range(13) if Settings(rounds=12, evaluate_every=0).evaluates(r)] == [12]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rounds": -1}, "rounds is -1; give a whole number from 0 up."),
        ({"rounds": 2.5}, "rounds is 2.5; give a whole number from 0 up."),
        ({"seed": "x"}, "seed is 'x'; give a whole number from 0 up."),
        ({"sample": 0}, "sample is 0; give a whole number above 0."),
        ({"sample": 1.5}, "sample is 1.5; give a whole number, or a share from 0 to 1 such as 0.5."),
        ({"quorum": 2}, "quorum is 2; give a share from 0 to 1."),
        ({"workers": 0}, "workers is 0; give a whole number from 1 up."),
        ({"max_norm": 0}, "max_norm is 0; give a number above 0."),
    ],
)
def test_bad_settings(options, text):
    with pytest.raises(ConfigError) as error:
        Settings(**options)
    assert str(error.value) == text


def test_more_clients_than_there_are():
    with pytest.raises(ConfigError, match="sample is 11, but 10 clients have training labels; give at most 10"):
        Settings(sample=11).participants(NAMES, 1)
