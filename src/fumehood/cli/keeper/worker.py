"""A worker: a process that does the runs of one client after another, in its own warm cells.

For the time of a run it is what the client is: the client's standard streams, current folder, environment and file mode
mask are its own. So `cli/task` and everything below it do here what they do in a process of the client's.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import anyio

from fumehood.audit import location
from fumehood.audit.log import close_all_but
from fumehood.backends.native.prestart import Prestart
from fumehood.cli import entry
from fumehood.cli.interruption import Interruption
from fumehood.cli.keeper.request import Request
from fumehood.cli.policy_paths import paths_in
from fumehood.cli.task import Task, perform, read_task
from fumehood.errors import FumehoodError
from fumehood.guest.contract import wire
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox

_PR_SET_PDEATHSIG = 1
_WARM_ALONE = ("docker", "gvisor", "microvm")
# Files that are others for each process that opens them.
_OWN_TO_PROCESSES = ("/proc/", "/dev/")
_PATH_MAX = 4096


def main(channel: socket.socket, resident: int, *, is_warm: bool) -> NoReturn:
    """The whole life of a worker, which ends with the channel and with the resident."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    Interruption()  # a signal that comes when the run is over just now must not end the process
    if os.getppid() == resident:
        if is_warm:
            anyio.run(_warm_up)
        _serve(channel, Prestart())
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    os._exit(0)


async def _warm_up() -> None:
    """A cell for a run without a policy; nothing is recorded, because nothing was asked for."""
    with suppress(FumehoodError):
        async with AsyncSandbox(Policy(), audit=False) as box:
            await box.run("pass")


def _serve(channel: socket.socket, prestart: Prestart) -> None:
    while True:
        message, descriptors = wire.receive(channel)
        if message is None:
            return
        if message != {"do": "run"}:
            continue  # the client went away before it was answered
        try:
            answer = _perform_request(channel, Request.read(descriptors), prestart)
        except (ValueError, OSError) as error:
            answer = {"no": f"the request cannot be read: {error}"}
        finally:
            wire.close_all(descriptors)  # before the answer: who reads the output waits for its end
        wire.send(channel, answer)


def _perform_request(channel: socket.socket, request: Request, prestart: Prestart) -> wire.Message:
    """The last answer to the client."""
    with _client_process_state(request):
        task = _read_task(request.arguments)
        if reason := _reason_against(task, request.arguments):
            return {"no": reason}
        interruption = Interruption()
        wire.send(channel, {"ready": True})
        if wire.receive(channel)[0] != {"do": "go"}:
            return {"no": "the client did not say go"}
        with _standard_streams(request.streams):
            # A mistake is made once more, now that the client sees what is said about it.
            code = entry.explained(lambda: perform(task or read_task(request.arguments), prestart, interruption))
            return {"exit": entry.flush(code)}


def _read_task(arguments: list[str]) -> Task | None:
    """None when there is a mistake in the command line or the policy."""
    try:
        return read_task(arguments)
    except (SystemExit, FumehoodError):
        return None


def _reason_against(task: Task | None, arguments: list[str]) -> str | None:
    """Why the client has to do it itself; None if it does not."""
    if task and task.chosen.learn:
        return "--learn"
    if task and task.chosen.sync_back:
        return "--sync-back asks at the client's terminal"
    if task and task.policy.approvals:
        return "an approval is asked for at the client's terminal"
    if task and task.policy.backend in _WARM_ALONE:
        return "containers and machines are warm without a keeper"
    if any(map(_is_own_to_process, paths_in(task.policy) if task else ())):
        return "the policy names a file that is another one for each process"
    if any(_is_own_to_process(part) for word in arguments for part in (word, word.partition("=")[2])):
        return "a file that is another one for each process"
    return None


def _is_own_to_process(path: str) -> bool:
    """Whether it may be a file such as /dev/stdin or /proc/self/fd/3, by itself or through a link."""
    can_be_path = "\0" not in path and len(path) < _PATH_MAX
    return can_be_path and os.path.realpath(path).startswith(_OWN_TO_PROCESSES)


@contextmanager
def _client_process_state(request: Request) -> Iterator[None]:
    """The client's folder, environment and mask are the process's."""
    os.fchdir(request.folder)
    os.environb.clear()
    os.environb.update(request.environment)
    os.umask(request.mask)
    entry.show_dangers()
    with suppress(FumehoodError):  # a mistake in a variable, which the run is told
        close_all_but(location.find_folder(os.environ))
    try:
        yield
    finally:
        os.umask(0o077)
        os.environb.clear()
        os.chdir("/")


@contextmanager
def _standard_streams(streams: tuple[int, int, int]) -> Iterator[None]:
    """The client's streams are the process's, with a buffer in which nothing is left of the client before."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    try:
        yield
    finally:
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.close(null)
        sys.stdout.close()  # what could not be written goes nowhere
