"""`python -m polyfed` is the command line."""

import sys

from polyfed.cli import main

if __name__ == "__main__":
    sys.exit(main())
