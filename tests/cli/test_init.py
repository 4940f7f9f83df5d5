"""`polyfed init`: settings from a table."""

from __future__ import annotations

import tomllib


def test_init_writes_settings_that_run(polyfed, home):
    done = polyfed("init", "hospitals.csv", "--out", "study.toml")
    assert done.code == 0
    assert "named like one, 3 different values" in done.out
    config = tomllib.loads((home / "study.toml").read_text())
    assert config["data"]["client"] == "ward"
    assert config["data"]["tasks"] == {"binary": ["sick"], "count": ["visits"]}
    assert polyfed("run", "study.toml", "--rounds", "1", "--no-report").code == 0
