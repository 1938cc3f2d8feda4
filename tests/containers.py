"""Containers that tests share one after the other: starting one takes as long as twenty runs in it.

Each process that tests keeps a few open, of the policies that were used last; each test finds an empty workspace and no
process. A test that fails names those that had its container before.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar

import engine
import machines
import pytest

from fumehood import AsyncSandbox, FumehoodError, Policy

AnySandbox = TypeVar("AnySandbox")
LendSandbox = Callable[..., AbstractAsyncContextManager[AsyncSandbox]]

MOST_OPEN = 6
# The empty policy's, of each backend: most tests use it, and none closes it for those that few use.
ALWAYS_KEPT = 2
MOST_NAMED = 5
EMPTY = ("find", "/workspace", "-mindepth", "1", "-delete")


class OpenContainers(Generic[AnySandbox]):
    """Sandboxes that are open and in no test's use, by the digest of their policy; the one used last is the last."""

    def __init__(self) -> None:
        self._idle: OrderedDict[str, AnySandbox] = OrderedDict()
        self._uses: Counter[str] = Counter()
        self._tests: dict[str, list[str]] = {}
        """Which tests had the container of a policy, first to last."""

    def take(self, policy: Policy, item: pytest.Item) -> AnySandbox | None:
        sandbox = self._idle.pop(policy.digest, None)
        self._uses[policy.digest] += 1
        tests = self._tests.setdefault(policy.digest, [])
        if sandbox is None:
            tests.clear()
        item.add_report_section("setup", "container", f"was used before by {tests[-MOST_NAMED:] or 'no test'}")
        tests.append(item.nodeid)
        return sandbox

    def is_wanted(self, policy: Policy) -> bool:
        """Other backends open a sandbox in milliseconds."""
        return policy.backend in (*engine.BACKENDS, machines.BACKEND) and policy.digest not in self._idle

    def put_back(self, policy: Policy, sandbox: AnySandbox) -> list[AnySandbox]:
        """Returns which to close for it."""
        self._idle[policy.digest] = sandbox
        if len(self._idle) <= MOST_OPEN:
            return []
        kept = {digest for digest, _ in self._uses.most_common(ALWAYS_KEPT)}
        oldest = next(digest for digest in self._idle if digest not in kept)
        return [self._idle.pop(oldest)]

    def take_all(self) -> list[AnySandbox]:
        idle, self._idle = list(self._idle.values()), OrderedDict()
        return idle


@asynccontextmanager
async def open_containers() -> AsyncIterator[OpenContainers[AsyncSandbox]]:
    containers = OpenContainers[AsyncSandbox]()
    try:
        yield containers
    finally:
        for sandbox in containers.take_all():
            await sandbox.__aexit__(None, None, None)


def without_spares(monkeypatch: pytest.MonkeyPatch) -> None:
    """No container is started for a next sandbox: tests open few of one kind. The pool has tests of its own."""
    monkeypatch.setattr("fumehood.backends.relay.pool.SPARE_SECONDS", 0.0)


@asynccontextmanager
async def lent(
    containers: OpenContainers[AsyncSandbox], policy: Policy, item: pytest.Item
) -> AsyncIterator[AsyncSandbox]:
    """A sandbox with an empty workspace: one that is open, or a new one. It is kept if nothing of the test is left."""
    sandbox = containers.take(policy, item) or await AsyncSandbox(policy).__aenter__()
    unwanted = [sandbox]
    try:
        yield sandbox
        if containers.is_wanted(policy) and await _is_emptied(sandbox):
            unwanted = containers.put_back(policy, sandbox)
    finally:
        for each in unwanted:
            await each.__aexit__(None, None, None)


async def _is_emptied(sandbox: AsyncSandbox) -> bool:
    """Not one that the test has closed, lost or filled with what cannot be removed."""
    try:
        # Most tests leave nothing, and to look costs a tenth of a run.
        return not await sandbox.files.list() or (await sandbox.run(argv=EMPTY)).ok
    except FumehoodError:
        return False
