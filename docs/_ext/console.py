"""`%%console` in a cell: shell commands with their whole output in one piece; a command that fails ends the build.

A reader sees the commands alone, as they are typed.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

COLOURS = ("FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE")  # set by the kernel; a page is no terminal
MARK = "%%console\n"


def console(line: str, cell: str) -> None:
    """Run the lines of a cell; what goes to stderr stands where a terminal would show it."""
    environment = {name: value for name, value in os.environ.items() if name not in COLOURS}
    done = subprocess.run(
        ["sh", "-e", "-c", cell], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    print(done.stdout, end="")  # noqa: T201
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}")


def load_ipython_extension(shell) -> None:
    shell.register_magic_function(console, "cell")


def _as_typed(app: Any, tree: Any) -> None:
    from docutils import nodes  # a kernel that runs cells needs no docutils

    for block in tree.findall(nodes.literal_block):
        if block.rawsource.startswith(MARK) or block.astext().startswith(MARK):
            typed = block.astext().removeprefix(MARK)
            block.rawsource = typed  # highlighted as code only where both are the same
            block["language"] = "sh"
            block[:] = [nodes.Text(typed)]


def setup(app: Any) -> dict[str, bool]:
    app.connect("doctree-read", _as_typed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
