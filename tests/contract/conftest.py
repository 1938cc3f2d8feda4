"""Fixtures of the contract: every test runs once for each backend, through the public API alone.

A backend joins by being added to BACKENDS; no test may ask which one it runs on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fumehood import Policy, SyncSandbox

BACKENDS = ["native"]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make_policy(backend: str) -> Callable[..., Policy]:
    """A policy for the backend under test, from sections given as mappings."""

    def make(**sections: object) -> Policy:
        return Policy(backend=backend, **sections)

    return make


@pytest.fixture
def open_box(make_policy: Callable[..., Policy]) -> Iterator[Callable[..., SyncSandbox]]:
    """Opens sandboxes and closes them after the test."""
    with ExitStack() as stack:

        def open_one(**sections: object) -> SyncSandbox:
            return stack.enter_context(SyncSandbox(make_policy(**sections)))

        yield open_one


@pytest.fixture
def box(open_box: Callable[..., SyncSandbox]) -> SyncSandbox:
    """An open sandbox that denies everything."""
    return open_box()
