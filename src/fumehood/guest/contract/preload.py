"""Modules that ordinary scripts use: an interpreter imports them before it is known what it will run."""

from __future__ import annotations

USUAL_MODULES = (
    "collections", "contextlib", "copy", "csv", "dataclasses", "datetime", "enum", "functools", "itertools", "json",
    "linecache", "math", "operator", "os", "pathlib", "random", "re", "string", "subprocess", "tempfile", "threading",
    "time", "traceback", "types", "typing", "uuid", "warnings",
)  # fmt: skip
ASK_THE_MACHINE = ("uuid",)
"""Those that remember something of the machine when they are imported, such as its name: imported inside only."""
ASK_NOTHING = ("platform", "_uuid")
"""What those import and what takes most of their time; it asks nothing before it is used, and need not be there."""
