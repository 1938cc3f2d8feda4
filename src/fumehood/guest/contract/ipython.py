"""The part of IPython that a session uses, where its environment has IPython."""

from __future__ import annotations

PACKAGE = "IPython"
# Imported by the cell ahead of time: without them the first session of a sandbox starts slowly.
PRELOAD = (
    *(f"{PACKAGE}.core.{name}" for name in ("interactiveshell", "application", "completerlib", "logger", "magics")),
    *("bdb", "hashlib", "pygments.formatters.terminal256"),
)
