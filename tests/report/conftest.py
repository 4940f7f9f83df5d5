"""Puts this folder on the path, so that tests share run_folders.py in any import mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
