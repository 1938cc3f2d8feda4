"""What there is to say about the tests of one framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import ModuleType

BACKENDS = ("native", "docker")


@dataclass(frozen=True)
class Difference:
    """A test that cannot pass, and what its failure must say."""

    pattern: str
    reason: str
    backends: tuple[str, ...] = BACKENDS


@dataclass(frozen=True)
class Suite:
    distribution: str
    folder: str
    """Of the unpacked archive, without the release."""
    files: tuple[str, ...]
    """Below `tests`."""
    concerns: str
    """A pattern: a test is about an executor if it is found in the test's name, fixtures and source."""
    substitute: Callable[[ModuleType, str, ExitStack], None]
    """Puts our classes into a module of tests, for a backend; what a test leaves open closes with the stack."""
    differences: Mapping[str, Difference] = field(default_factory=dict[str, Difference])
    """By the test's name, with its file's if more have that name: `test_user_defined_functions::test_x`."""
    not_applicable: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tests of what only exists in the framework's own class, and why."""
    prepare: Callable[[str], None] = lambda backend: None
    """Before the tests are imported."""
