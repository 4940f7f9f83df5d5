"""The command line. Commands import what they need when they run: `polyfed --help` waits for no library.

>>> main(["run", "--data", "nowhere.csv", "--client", "ward", "--binary", "sick"])  # "error: nowhere.csv: ..." on stderr
4
"""

from polyfed.cli.main import main

__all__ = ["main"]
