"""The tool that shows which files have changed in the sandbox since the last look.

For a model that has started a process in the background, or does not know what a command has written. Names of files
are shown, not their contents.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated
from weakref import WeakKeyDictionary

from pydantic import Field

from fumehood.characters import one_line
from fumehood.errors import UsageError
from fumehood.guest.contract.limits import MOST_CHANGES
from fumehood.sandbox.files.entries import ChangeKind
from fumehood.tools.result import LongText, ToolOutput
from fumehood.tools.tool import MOST_WAIT_SECONDS, Arguments, Risk, Tool, ToolContext

if TYPE_CHECKING:
    from fumehood.sandbox.files.entries import FileChange
    from fumehood.sandbox.files.watch import AsyncWatch
    from fumehood.sandbox.interface import AnySandbox

MOST_FOLDERS = 4
_MOST_SHOWN = 200


class ChangedFilesArguments(Arguments):
    path: Annotated[str, Field(description="A folder, with all that is below it; the workspace by default.")] = ""
    wait: Annotated[
        float, Field(ge=0, le=MOST_WAIT_SECONDS, description="Seconds to wait for a change; returns sooner if any.")
    ] = 0


class _Watches:
    """One for each folder; a sandbox that is gone takes them with it."""

    def __init__(self) -> None:
        self._watches: WeakKeyDictionary[AnySandbox, dict[str, AsyncWatch]] = WeakKeyDictionary()

    async def look(self, context: ToolContext, given: ChangedFilesArguments) -> ToolOutput:
        watches = self._watches.setdefault(context.sandbox, {})
        watch, name = watches.get(given.path), one_line(given.path) or "the workspace"
        if watch is None or watch.is_closed:
            await _make_room(watches)
            watch = context.sandbox.watch(given.path)
            await watch.begin()
            watches[given.path] = watch
            if not given.wait:
                return ToolOutput(f"Changes in {name} are noted from now on; call this again to see them.")
        changes = await watch.poll(given.wait)
        if not changes:
            return ToolOutput(f"Nothing has changed in {name} since the last look.")
        more = ""
        if any(change.kind is ChangeKind.DELETED and change.path == watch.place for change in changes):
            await watch.close()
            more = f" {name} itself is gone, and is not watched any more."
        elif len(changes) >= MOST_CHANGES:
            more = " There may be more: call this again to see them."
        counted = Counter(change.kind for change in changes)
        summary = ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
        return ToolOutput((f"In {name}: {summary}.{more}\n", LongText("\n".join(_lines(changes)), trimmed=True)))


async def _make_room(watches: dict[str, AsyncWatch]) -> None:
    """UsageError if there is none for another watch: each takes a process of the sandbox."""
    for path in [path for path, watch in watches.items() if watch.is_closed]:
        del watches[path]
    if len(watches) >= MOST_FOLDERS:
        raise UsageError(f"{MOST_FOLDERS} folders are watched, which is the most: {', '.join(map(repr, watches))}")


def _lines(changes: list[FileChange]) -> list[str]:
    lines = [_line(change) for change in changes[:_MOST_SHOWN]]
    return [*lines, f"... and {len(changes) - _MOST_SHOWN} more"] if len(changes) > _MOST_SHOWN else lines


def _line(change: FileChange) -> str:
    source = f" (was {one_line(change.old_path)})" if change.old_path else ""
    return f"{change.kind} {one_line(change.path)}{source}"


def change_tools() -> tuple[Tool, ...]:
    """The tool to see which files have changed, for one agent or one connection."""
    return (
        Tool(
            "changed_files",
            "See which files of a folder were created, modified, deleted or renamed since the last call for that "
            "folder. The first call begins to note changes.",
            ChangedFilesArguments,
            Risk.LOW,
            _Watches().look,
            parallel=False,
        ),
    )
