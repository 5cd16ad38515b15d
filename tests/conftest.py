"""What every test has: hypothesis profiles, and a stack dump when the process dies."""

from __future__ import annotations

import faulthandler
import os

from hypothesis import HealthCheck, settings

# pytest enables this for its own process; a child process of a test inherits the variable.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")
faulthandler.enable()

# No deadline: speed is never asserted in a test. The blob makes an example of CI reproducible here:
# paste the printed @reproduce_failure line above the test.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile(
    "ci",
    parent=settings.get_profile("default"),
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
settings.register_profile("thorough", parent=settings.get_profile("ci"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))
