"""The benchmarks are no part of the package: their tests find them in the clone."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
