"""The program uv, which installs packages: where it is on this machine."""

from __future__ import annotations

import os
import sys


def find_uv() -> str | None:
    """Its path; None where it is not installed."""
    # Where installers put it. uv's own search reads the configuration of this Python first: 20 ms of every cold start.
    beside = os.path.join(os.path.dirname(sys.executable or ""), "uv")
    if os.path.isabs(beside) and os.access(beside, os.X_OK):  # never from the current folder
        return beside
    try:
        import uv

        return uv.find_uv_bin()
    except (ImportError, FileNotFoundError):
        return None
