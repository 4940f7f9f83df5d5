"""Puts this folder on the path, so that the tests of methods share their toys (method_toys.py) in any import mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
