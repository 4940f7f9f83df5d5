"""One small run with a late-joining client, made once; tests get a copy that they may spoil."""

from __future__ import annotations

import shutil

import pytest

import polyfed as pf
from federations import make_federation
from folder_files import NEW_CLIENT


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folders") / "made"
    run = pf.simulate("pfed-mul", make_federation(), rounds=3, seed=0, scheme="K", evaluate_every=1, folder=folder)
    run.join("late", NEW_CLIENT)
    run.save(folder)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "run")
