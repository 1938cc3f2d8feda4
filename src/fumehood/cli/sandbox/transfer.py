"""`hood sandbox cp`: files into a named sandbox, and out of it as far as its policy lets them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import anyio

from fumehood.characters import neutralise
from fumehood.cli import exitcodes
from fumehood.cli.interruption import Interruption, StoppedBySignalError
from fumehood.cli.output import say
from fumehood.cli.place import NamedSandboxUse, named_sandbox
from fumehood.errors import UsageError
from fumehood.policy import format_size
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.sandbox.files.entries import FileKind, Transfer

if TYPE_CHECKING:
    from fumehood.cli.sandbox import Arguments

_INSIDE = re.compile(r"([a-z0-9][a-z0-9._-]*):(.*)", re.DOTALL)
_MOST_SHOWN = 20


class Copy(NamedTuple):
    """One copy: `inside` is the path in the sandbox, `local` the one on the host."""

    name: str
    inside: str
    local: str
    goes_in: bool


def copy(chosen: Arguments) -> int:
    asked, interruption = plan_copy(chosen.source, chosen.target), Interruption()

    async def work() -> Transfer:
        with anyio.CancelScope() as scope, interruption.cancelling(scope):
            # Nothing runs there that would have to be approved.
            box = named_sandbox(NamedSandboxUse(asked.name, wait=chosen.wait), gated=True, progress=say)
            async with box:
                return await _copy_in(box, asked) if asked.goes_in else await _copy_out(box, asked)
        raise StoppedBySignalError(interruption.signal or 0)

    try:
        _tell(anyio.run(work))
    except StoppedBySignalError as error:
        say(f"{error}; the sandbox is as it was before")
        return exitcodes.for_signal(error.signal)
    return 0


def plan_copy(source: str, target: str) -> Copy:
    """`NAME:path` is in a sandbox; a path of the host's with such a beginning is written `./NAME:path`."""
    if "-" in (source, target):
        raise UsageError(
            "`hood sandbox cp` does not use standard input and output: `hood sandbox export NAME -` writes an archive, "
            "`hood sandbox import - NAME` reads one, and ./- is a file of that name"
        )
    from_inside, to_inside = _INSIDE.fullmatch(source), _INSIDE.fullmatch(target)
    if from_inside and to_inside:
        raise UsageError("both are in a sandbox; copy to a folder of the host's first")
    if to_inside:
        return Copy(to_inside[1], to_inside[2], source, True)
    if from_inside:
        return Copy(from_inside[1], from_inside[2], target, False)
    raise UsageError("neither is in a sandbox: write one as NAME:path, such as `hood sandbox cp data.csv work:in/`")


async def _copy_in(box: AsyncSandbox, asked: Copy) -> Transfer:
    """As with `cp`, what goes to a folder that is there goes into it."""
    inside = asked.inside
    try:
        is_folder = (await box.files.stat(inside, follow=True)).kind is FileKind.FOLDER
    except UsageError:
        is_folder = False
    return await box.files.upload(asked.local, f"{inside}/" if is_folder and inside else inside)


async def _copy_out(box: AsyncSandbox, asked: Copy) -> Transfer:
    return await box.files.download(asked.inside, asked.local)


def _tell(done: Transfer) -> None:
    print(f"{done.files} {'file' if done.files == 1 else 'files'}, {format_size(done.bytes)}")
    for skipped in done.skipped[:_MOST_SHOWN]:
        say(f"not copied: {neutralise(skipped.path)}: {skipped.reason}")
    if done.skipped_count > _MOST_SHOWN:
        say(f"not copied: {done.skipped_count - _MOST_SHOWN} more")
