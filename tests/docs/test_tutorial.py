"""The tutorial: its commands are run, one after the other, and print what the page shows but for digits.

With POLYFED_WRITE=1 what they print is written into the page instead.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
TABLES = [Path(os.environ.get("POLYFED_DATA", "nowhere")) / "tables", ROOT.parent / "shared" / "data" / "tables"]
BLOCK = re.compile(r"```console\n(.*?)```\n\n```text\n(.*?)```", re.S)


def words(text: str) -> list[str]:
    """Without what differs between processors: digits, marks of the best, warnings, and the lines of tables."""
    text = re.sub(r"^warning: .*\n|\*", "", text, flags=re.M)
    return [re.sub(r"[\d.]+", "0", word) for word in re.sub(r"[━─┏┓┡┩┗┛└┘┳╇┴├┤┼]+", " ", text).split()]


@pytest.mark.slow
def test_the_commands_print_what_the_page_shows(tmp_path):
    folder = next((folder for folder in TABLES if (folder / "mpls_stops.csv.gz").is_file()), None)
    if folder is None:
        pytest.skip("the tables of the tutorial are not beside the project, nor in POLYFED_DATA")
    for name in ("nmes1988.csv", "covid_testing.csv", "mpls_stops.csv.gz"):
        shutil.copy(folder / name, tmp_path)

    def printed(block: re.Match[str]) -> str:
        said = ""
        for command in re.findall(r"^\$ (.*)$", block[1], re.M):
            line = re.sub(r"^polyfed", f"{sys.executable} -m polyfed", command)
            done = subprocess.run(
                line, shell=True, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            assert "Traceback" not in done.stdout
            assert (done.returncode != 0) == (re.search("^error: ", done.stdout, re.M) is not None), done.stdout
            # The first run after an installation compiles, and says where it keeps what it made.
            # A busy machine is slow enough for lines about how long it takes.
            said += re.sub(
                r"^compiling the inner loop.*\n|^\S+: .* rounds? .*(seconds|minutes).*\n", "", done.stdout, flags=re.M
            )
        return f"```console\n{block[1]}```\n\n```text\n{said}```"

    text = PAGE.read_text()
    made = BLOCK.sub(printed, text)
    if os.environ.get("POLYFED_WRITE"):
        PAGE.write_text(made)
        return
    shown = [block[1] for block in BLOCK.findall(text)]
    assert all(block.strip() for block in shown), "the page has not been written yet"
    for old, new in zip(BLOCK.findall(text), BLOCK.findall(made), strict=True):
        assert words(old[1]) == words(new[1]), old[0]
