"""Compiled forms of likelihoods: site and local bound over the data of one task, to be called by their addresses."""

from __future__ import annotations

from polyfed.gp.compiled.likelihoods.form import Form

__all__ = ["Form"]
