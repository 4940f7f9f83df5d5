"""Runs a method on a federation in this process: rounds, the server's door, evaluation, checkpoints, resume.

Reading order: `rounds` (one round is a function), `validation` (what the server rejects), `robust` and `aggregation` (what it
makes of the rest), `run`, `simulate`; then `events`, `checkpoints`, `storage` (what is on disk).
"""

from polyfed.engine.model_file import load_model
from polyfed.engine.run import ClientModel, Run
from polyfed.engine.settings import Settings
from polyfed.engine.simulate import load, simulate

__all__ = ["ClientModel", "Run", "Settings", "load", "load_model", "simulate"]
