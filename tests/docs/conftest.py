"""Modules that these tests share: pages.py, and what builds the site."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import pages  # noqa: F401
