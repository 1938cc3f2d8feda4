"""The program uv, which installs packages: where it is on this machine."""

from __future__ import annotations


def find_uv() -> str | None:
    """Its path; None where it is not installed."""
    try:
        import uv

        return uv.find_uv_bin()
    except (ImportError, FileNotFoundError):
        return None
