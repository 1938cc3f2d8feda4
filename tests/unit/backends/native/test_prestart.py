"""Interpreters that were started before their cell was specified: the next cell uses them, or they are ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest

from fumehood.backends.native import cell_spec
from fumehood.backends.native.backend import NativeBackend
from fumehood.backends.native.cells import CellPool, PoolSizes
from fumehood.backends.native.host_facts import detect
from fumehood.backends.native.prestart import Prestart, PrestartedInterpreter, start_interpreter
from fumehood.errors import StepFailedError, UnenforceableError
from fumehood.guest.contract import wire
from fumehood.guest.contract.limits import PRESTART_SECONDS
from fumehood.policy import Policy, Resources
from fumehood.sandbox.output import record
from fumehood.sandbox.request import make_request

SELECTABLE_DESCRIPTORS = 1024


@pytest.mark.anyio
async def test_what_was_begun_ahead_becomes_the_next_cell() -> None:
    prestart, backend, policy = Prestart(), NativeBackend(), Policy()
    prestart.start()
    backend.use_prestart(prestart)
    (begun,) = prestart._early  # pyright: ignore[reportPrivateUsage]
    try:
        async with (
            backend.open(policy, None) as box,
            box.start(make_request(policy, "import os; print(os.getpid())", {})) as run,
        ):
            assert (await record(run)).stdout == b"2\n"
            assert begun.process.poll() is None
            assert not prestart._early  # pyright: ignore[reportPrivateUsage]
    finally:
        backend.close()
    assert begun.process.poll() is not None, "the cell was another process"


def test_one_that_nobody_wants_ends_at_once() -> None:
    prestart = Prestart()
    prestart.start()
    (begun,) = prestart._early  # pyright: ignore[reportPrivateUsage]
    prestart.abandon()
    assert begun.process.poll() is not None


def test_one_whose_host_hangs_up_ends_by_itself_and_in_peace() -> None:
    begun = start_interpreter()
    begun.control.close()
    assert begun.process.wait(30) == 0
    assert os.pread(begun.stderr, 100, 0) == b""
    os.close(begun.stderr)


def test_one_that_is_told_nonsense_says_so_and_ends() -> None:
    begun = start_interpreter()
    wire.send(begun.control, {"spec": 0})
    assert begun.process.wait(30) == 1
    assert b"IndexError" in os.pread(begun.stderr, 10_000, 0)
    begun.abandon()


class DyingPrestart(Prestart):
    def take(self) -> PrestartedInterpreter:
        self.take = super().take
        taken = super().take()
        taken.process.kill()
        return taken


@pytest.mark.anyio
async def test_one_that_dies_when_it_is_taken_is_a_clear_error_and_the_next_try_works() -> None:
    backend = NativeBackend()
    backend.use_prestart(DyingPrestart())
    try:
        with pytest.raises(StepFailedError, match="it ended before it was ready"):
            async with backend.open(Policy(), None):
                pass
        async with backend.open(Policy(), None):
            pass
    finally:
        backend.close()


def test_one_that_has_died_is_not_taken() -> None:
    prestart = Prestart()
    prestart.start()
    (begun,) = prestart._early  # pyright: ignore[reportPrivateUsage]
    begun.process.kill()
    begun.process.wait()
    taken = prestart.take()
    assert taken is not begun
    assert taken.process.poll() is None
    taken.abandon()


def test_one_that_may_end_by_itself_any_moment_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    prestart = Prestart()
    prestart.start()
    (begun,) = prestart._early  # pyright: ignore[reportPrivateUsage]
    old = begun.started + PRESTART_SECONDS - 5
    monkeypatch.setattr("fumehood.backends.native.prestart.time.monotonic", lambda: old)
    taken = prestart.take()
    assert taken is not begun
    assert begun.process.poll() is not None
    taken.abandon()


@pytest.mark.anyio
async def test_after_a_cell_there_is_one_for_the_next_policy_and_closing_ends_it() -> None:
    backend = NativeBackend()
    (early,) = [backend._pool.prestart._early]  # pyright: ignore[reportPrivateUsage]
    try:
        async with backend.open(Policy(), None):
            _wait_until_settled()
            (begun,) = early
        async with backend.open(Policy(resources=Resources(processes=20)), None):
            _wait_until_settled()
            (next_one,) = early
            assert begun.process.poll() is None, "it is the cell of the second policy now"
            assert next_one is not begun
    finally:
        backend.close()
    assert begun.process.poll() is not None
    assert next_one.process.poll() is not None


def _wait_until_settled() -> None:
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()


@pytest.mark.anyio
async def test_more_idle_cells_than_are_kept_end_without_a_caller_who_waits_for_it() -> None:
    backend = NativeBackend()
    cells = backend._pool._cells  # pyright: ignore[reportPrivateUsage]
    try:
        for processes in range(20, 27):
            async with backend.open(Policy(resources=Resources(processes=processes)), None):
                pass
        _wait_until_settled()
        assert len(cells) == 5, "four that are idle, and the newest"
    finally:
        backend.close()


@pytest.mark.anyio
async def test_a_pool_that_is_closed_at_once_starts_nothing_afterwards() -> None:
    backend = NativeBackend()
    async with backend.open(Policy(), None):
        pass
    backend.close()
    _wait_until_settled()
    assert not backend._pool.prestart._early  # pyright: ignore[reportPrivateUsage]


@pytest.mark.anyio
async def test_a_command_that_gave_its_own_gets_no_other() -> None:
    backend, prestart = NativeBackend(), Prestart()
    backend.use_prestart(prestart)
    try:
        async with backend.open(Policy(), None):
            _wait_until_settled()
            assert not prestart._early  # pyright: ignore[reportPrivateUsage]
    finally:
        backend.close()


def test_a_patient_one_begins_as_soon_as_it_is_needed() -> None:
    begun = start_interpreter(patience_seconds=60)
    begun.control.close()
    assert begun.process.wait(30) == 0
    os.close(begun.stderr)


def test_it_holds_nothing_of_its_hosts() -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    begun = start_interpreter()
    try:
        os.close(write)
        assert os.read(read, 1) == b"", "it keeps a descriptor that it was not given"
    finally:
        os.close(read)
        begun.abandon()


def test_beginning_one_waits_for_no_policy() -> None:
    code = "import sys, fumehood.cli.entry; sys.exit(sorted({'pydantic', 'anyio', 'yaml'} & set(sys.modules)) or 0)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.anyio
async def test_a_cell_that_was_started_early_is_the_one_that_a_sandbox_opens_in() -> None:
    prestart, backend, policy = Prestart(), NativeBackend(), Policy()
    prestart.start()
    backend.use_prestart(prestart)
    (begun,) = prestart._early  # pyright: ignore[reportPrivateUsage]
    backend.start_cell_early(policy)
    try:
        async with (
            backend.open(policy, None) as box,
            box.start(make_request(policy, "print(1)", {})) as run,
        ):
            assert (await record(run)).stdout == b"1\n"
            assert backend._pool._cells.keys() == {*backend._pool._starting}  # pyright: ignore[reportPrivateUsage]
            assert begun.process.poll() is None
    finally:
        backend.close()
    assert begun.process.poll() is not None, "the cell was another process"


def test_closing_waits_for_a_cell_that_is_being_started_and_ends_it() -> None:
    prestart, backend = Prestart(), NativeBackend()
    prestart.start()
    backend.use_prestart(prestart)
    (begun,) = prestart._early  # pyright: ignore[reportPrivateUsage]
    backend.start_cell_early(Policy())
    backend.close()
    assert begun.process.poll() is not None


@pytest.mark.anyio
async def test_an_early_cell_that_fails_is_started_again_when_a_sandbox_opens() -> None:
    backend = NativeBackend()
    backend.use_prestart(DyingPrestart())
    backend.start_cell_early(Policy())
    try:
        async with backend.open(Policy(), None):
            pass
    finally:
        backend.close()


@pytest.mark.parametrize(
    "policy",
    [
        Policy(network={"allow": [{"host": "a.example", "ports": [443]}]}),
        Policy(environment={"packages": ["idna"]}),
        Policy(filesystem={"mounts": [{"source": "/srv", "target": "/data"}]}),
    ],
    ids=["network", "packages", "mounts"],
)
def test_no_cell_is_started_early_if_it_depends_on_more_than_the_policy(policy: Policy) -> None:
    backend = NativeBackend()
    backend.start_cell_early(policy)
    assert not backend._pool._starting  # pyright: ignore[reportPrivateUsage]
    backend.close()


def test_no_cell_is_started_early_for_a_policy_that_cannot_be_enforced() -> None:
    backend, policy = NativeBackend(replace(detect(), hierarchies=())), Policy(strict=True)
    with pytest.raises(UnenforceableError):
        backend.check(policy)
    backend.start_cell_early(policy)
    backend.close()
    assert not backend._pool._starting  # pyright: ignore[reportPrivateUsage]


def test_a_process_keeps_as_many_ready_as_it_is_told() -> None:
    pool = CellPool(PoolSizes(interpreters=3))
    try:
        pool.prestart.renew()
        waiting = list(pool.prestart._early)  # pyright: ignore[reportPrivateUsage]
        assert len({each.process.pid for each in waiting}) == 3
        assert pool.prestart.take() in waiting
    finally:
        pool.close()
        for each in waiting:
            each.control.close()
            each.process.wait(30)


_SIZES = """
from fumehood import UsageError, run
from fumehood.backends.native.cells import PoolSizes
from fumehood.backends.selection import use_pool_sizes
use_pool_sizes(PoolSizes(idle_cells=0, interpreters=0))
print(run("print(42)").stdout, end="")
try:
    use_pool_sizes(PoolSizes())
except UsageError as error:
    print(error)
"""


def test_sizes_are_chosen_before_the_first_sandbox() -> None:
    done = subprocess.run([sys.executable, "-c", _SIZES], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "42\nuse_pool_sizes must be called once, before the first sandbox of this process\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has one uid")
def test_no_two_cells_have_the_same_uids(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = iter([7, 7, 7, 8])
    monkeypatch.setattr(cell_spec.secrets, "randbelow", lambda most: next(chosen))
    pool, facts = CellPool(), detect()
    try:
        cells = [pool.acquire(key, facts, partial(cell_spec.build_cell_spec, Policy(), facts)) for key in ("a", "b")]
        assert len({cell.sandbox_owner for cell in cells}) == 2
    finally:
        pool.close()


def test_a_process_with_thousands_of_descriptors_starts_cells() -> None:
    with ExitStack() as stack:
        for _ in range(SELECTABLE_DESCRIPTORS):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        pool, facts = CellPool(), detect()
        stack.callback(pool.close)
        cell = pool.acquire("a", facts, partial(cell_spec.build_cell_spec, Policy(), facts))
        assert not cell.is_lost()
