"""`%%console` in a cell: shell commands with their whole output in one piece; a command that fails ends the build."""

from __future__ import annotations

import os
import subprocess

COLOURS = ("FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE")  # set by the kernel; a page is no terminal


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
