"""Settings that all tests share."""

from hypothesis import settings

import fuzzing  # noqa: F401 (profiles)
import shape_checks
from command_line import home, polyfed  # noqa: F401 (fixtures)

settings.load_profile("same")
shape_checks.install()
