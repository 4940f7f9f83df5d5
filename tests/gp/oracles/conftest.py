"""Puts this folder on the path, so that the oracles share their modules (oracle_*.py) in any import mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
