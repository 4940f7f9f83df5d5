"""Reads what pip would install (`pip install --dry-run --report`) and prints it with versions and hashes.

`make lock` writes requirements.lock: polyfed with its demo on Linux x86-64 and Python 3.11, every file known by its SHA-256.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def locked(report: dict[str, Any]) -> list[str]:
    """name==version with the hash of the file, in the order of names; polyfed itself is what they are for."""
    lines = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        if name == "polyfed":
            continue
        if "+" in version:
            raise SystemExit(f"{name} {version} is a local build, which the index does not have; ask the index alone")
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name.lower().replace('_', '-')}=={version} \\\n    --hash=sha256:{digest}")
    return sorted(lines)


if __name__ == "__main__":
    head = (
        "# Linux x86-64, Python 3.11; made by `make lock`. First pip install --require-hashes -r requirements.lock,\n"
    )
    head += "# then pip install --no-deps polyfed.\n"
    sys.stdout.write(head + "\n".join(locked(json.load(sys.stdin))) + "\n")
