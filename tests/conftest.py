"""Settings that all tests share."""

from hypothesis import settings

import shape_checks
from command_line import home, polyfed  # noqa: F401 (fixtures)

# The same examples at every run: a build that was green stays green. A busy machine is not a failure either.
settings.register_profile("house", derandomize=True, deadline=None)
settings.load_profile("house")

shape_checks.install()
