"""A gateway for each test, with names that lead where the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from unit.egress.places import Box, Open, Trusted, Upstream


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def upstream(stack: ExitStack) -> Callable[..., Upstream]:
    """Start a server on loopback that does something with each connection."""
    return lambda serve, **options: stack.enter_context(Upstream(serve, **options))


@pytest.fixture
def open_box(stack: ExitStack) -> Open:
    """Open a way out: rules, and where names lead; `private` rules unless said otherwise, since all is on loopback."""
    return lambda *rules, **options: stack.enter_context(Box(*rules, **options))


@pytest.fixture(scope="session")
def trusted() -> Trusted:
    return Trusted()
