"""What a release says of itself agrees: version, citation, changelog, lock, floors."""

from __future__ import annotations

import re
import runpy
import tomllib

import pages

import polyfed

PROJECT = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(name: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([\w.]+)", (pages.ROOT / name).read_text(encoding="utf-8"), re.M)
    return {package.lower().replace("_", "-"): version for package, version in found}


def test_the_version_is_the_same_everywhere():
    citation = (pages.ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.M) == [polyfed.__version__]
    changelog = (pages.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", changelog, re.M)[0] == polyfed.__version__


def test_the_lock_has_the_pinned_versions_each_with_its_hash():
    text = (pages.ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked, pinned = pins("requirements.lock"), pins("constraints.txt")
    assert {name: version for name, version in locked.items() if name in pinned} == {
        name: pinned[name] for name in locked if name in pinned
    }
    assert text.count("--hash=sha256:") == len(locked)
    assert "://" not in text
    direct = {re.split(r"[<>=\[]", line)[0] for line in PROJECT["dependencies"]}
    assert direct <= set(locked)


def test_every_dependency_of_polyfed_has_a_floor_below_its_pin():
    floors = runpy.run_path(str(pages.ROOT / ".ci" / "minimum.py"))["floors"](PROJECT)
    pinned = pins("constraints.txt")

    def parts(version: str) -> list[int]:
        return [int(part) for part in version.split(".")]

    oldest = dict(line.split("==") for line in floors)
    assert {re.split(r"[<>=\[]", line)[0] for line in PROJECT["dependencies"]} <= set(oldest)
    assert [name for name, floor in oldest.items() if parts(floor) > parts(pinned[name])] == []
