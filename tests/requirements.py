"""What a test needs from the machine. Use it as `from requirements import require`."""

from __future__ import annotations

import os

import pytest


def require(condition: object, reason: str) -> None:
    """Skip the test when the machine lacks what it needs; where CI=true nothing may be missing, so it fails."""
    if condition:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"missing on a CI machine: {reason}", pytrace=False)
    pytest.skip(reason)
