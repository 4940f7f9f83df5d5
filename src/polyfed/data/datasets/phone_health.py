"""Made-up phones that guess heart rate, movement and steps from the hour, the accelerometer and the thermometer.

Two hidden functions of the situation, exertion and arousal, move all three targets; every phone draws its own from one
prior. Owners forget to wear the watch (labels are missing), thermometers fail (features are), and some phones have
no sensor at all for one of the tasks.

>>> fed = phone_health(n_clients=8, rows=30)
>>> [task.kind for task in fed.tasks], len(fed)
(['regression', 'binary', 'count'], 8)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polyfed.data.features.matrix import reject_unless_between, reject_unless_whole
from polyfed.data.federation import Federation
from polyfed.data.task import Task
from polyfed.seeds import Stream

if TYPE_CHECKING:
    import pandas as pd


TASKS = (Task("regression"), Task("classification", "binary", classes=(-1, 1)))
PHONE_TASKS = (
    Task("heart_rate", "regression"),  # beats per minute
    Task("moving", "binary", classes=(False, True)),
    Task("steps", "count"),  # in ten minutes
)
# What exertion and arousal do to each target: to the heart, to the odds of moving, to the logarithm of steps.
MIXING = np.array([[0.8, 0.6], [1.6, 0.4], [0.9, 0.2]])


def phone_health(n_clients: int = 20, rows: int = 60, seed: int = 0, missing: float = 0.2) -> Federation:
    """Phones with `rows` moments each, of which each label is missing with probability `missing`."""
    reject_unless_whole("phone_health", 1, n_clients=n_clients, rows=rows)
    reject_unless_whole("phone_health", 0, seed=seed)
    reject_unless_between("phone_health", 0.0, 1.0, missing=missing)
    clients = {}
    for i in range(n_clients):
        phone = _phone(rows, missing, Stream(seed, "phone_health", round=i).numpy())
        if i % 4 == 3:  # every fourth phone lacks one of the sensors
            del phone[1][PHONE_TASKS[i // 4 % len(PHONE_TASKS)].name]
        clients[f"phone {i + 1:0{len(str(n_clients))}d}"] = phone
    return Federation.from_clients(clients, PHONE_TASKS)


def _phone(rows: int, missing: float, rng: np.random.Generator) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    import pandas as pd

    hour = rng.uniform(6.0, 23.0, rows)
    angle = 2 * np.pi * hour / 24
    busy = 0.5 * np.cos(angle - 2 * np.pi * rng.normal(15.0, 2.0) / 24)  # each owner has a best hour
    log_energy = busy + rng.normal(0.0, 0.8, rows)
    temperature = rng.normal(19.0, 2.0) - 4 * np.cos(angle) + rng.normal(0.0, 1.5, rows)
    situation = np.column_stack([np.sin(angle), np.cos(angle), log_energy, (temperature - 19) / 5])
    exertion = log_energy + _smooth_function(situation, rng)
    arousal = _smooth_function(situation, rng)
    f = np.column_stack([exertion, arousal]) @ MIXING.T

    heart_rate = rng.normal(72.0, 6.0) + 10 * f[:, 0] + rng.normal(0.0, 3.0, rows)
    moving = rng.random(rows) < 1 / (1 + np.exp(-f[:, 1]))
    rate = np.exp(np.clip(3.5 + rng.normal(0.0, 0.3) + f[:, 2], None, 7.5))  # nobody runs more than 1800 in ten minutes
    steps = rng.poisson(rng.gamma(5.0, rate / 5.0))  # negative binomial: phones lie in pockets and in bags
    labels: dict[str, np.ndarray] = {
        "heart_rate": np.clip(heart_rate, 40.0, 200.0).round(1),
        "moving": moving.astype(object),
        "steps": steps.astype(np.float64),
    }
    for y in labels.values():
        y[rng.random(rows) < missing] = None
    X = pd.DataFrame(
        {
            "hour_sin": np.sin(angle),
            "hour_cos": np.cos(angle),
            "acceleration": np.exp(log_energy),  # m/s², root mean square
            "temperature": np.where(rng.random(rows) < missing / 4, np.nan, temperature.round(1)),  # °C
        }
    )
    return X, labels


def _smooth_function(x: np.ndarray, rng: np.random.Generator, n_waves: int = 100) -> np.ndarray:
    """A draw from a GP with an RBF kernel of length-scale 1.5 and variance 1, as a sum of random waves."""
    directions = rng.standard_normal((x.shape[1], n_waves)) / 1.5
    waves = np.cos(x @ directions + rng.uniform(0.0, 2 * np.pi, n_waves))
    return waves @ rng.standard_normal(n_waves) * np.sqrt(2.0 / n_waves)
