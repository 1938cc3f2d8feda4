"""A project in a sandbox: its files go in, and with --sync-back what the program changed goes back, after a yes."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from fumehood.backends.languages import find_language
from fumehood.characters import one_line
from fumehood.cli.output import GREEN, RED, YELLOW, paint, say
from fumehood.cli.project.difference import Differences, Shown
from fumehood.cli.project.folder import ProjectFolder
from fumehood.cli.project.write_back import (
    ConflictError,
    ExecutedFolders,
    ProjectChange,
    check,
    is_compiled_python,
    reason_against,
    write,
)
from fumehood.errors import UsageError
from fumehood.host.folder_tree import FolderTree
from fumehood.policy import Policy, format_size
from fumehood.policy.filesystem import Outputs
from fumehood.policy.paths import WORKSPACE
from fumehood.results import RunResult
from fumehood.sandbox.files.tree_copy import TreeChanges

if TYPE_CHECKING:
    from fumehood.cli.program import ProgramSource
    from fumehood.cli.run import Arguments
    from fumehood.sandbox.async_sandbox import AsyncSandbox
    from fumehood.sandbox.request import RunOptions

_MOST_NOTES = 10
_MOST_BYTES_BACK = 256 * 1024 * 1024
_NOT_NAMED = "filesystem.outputs of the policy does not name it"


class ProjectCopy:
    """`Inputs` of a run. With `yes`, changes are written back without a question."""

    def __init__(self, folder: str, policy: Policy, *, sync_back: bool, yes: bool, quiet: bool) -> None:
        self._policy, self._outputs = policy, Outputs(policy.filesystem.outputs)
        self._sync_back, self._yes, self._quiet = sync_back, yes, quiet
        self._path = os.path.realpath(folder)
        with self._opened() as tree:
            project = ProjectFolder(tree, policy)
            project.scan()
        self._entries = project.entries
        self._tell_some(project.notes)

    def _opened(self) -> FolderTree:
        try:
            return FolderTree(self._path)
        except OSError as error:
            raise UsageError(f"--project {self._path!r} cannot be read: {error.strerror or error}") from error

    def options_for(self, file: str | None, *, is_compiled: bool) -> RunOptions:
        """Where the program lies and starts in the sandbox: where it does on the host, if that is in the project."""
        options: RunOptions = {"cwd": self._place_of(os.getcwd()) or WORKSPACE}
        place = self._place_of(file) if file else None
        if place and not is_compiled and place.removeprefix(f"{WORKSPACE}/") in {entry.path for entry in self._entries}:
            options["name"] = place
        return options

    def _place_of(self, path: str) -> str | None:
        """Where something of the host's is in the sandbox; None if it is not in the project."""
        below = os.path.relpath(os.path.realpath(path), self._path)
        if below == ".":
            return WORKSPACE
        return None if below == ".." or below.startswith("../") else f"{WORKSPACE}/{below}"

    async def put_into(self, box: AsyncSandbox) -> None:
        self._copy = box.files.copy_of_tree()
        with self._opened() as tree:
            await self._copy.put(tree, self._entries)

    async def take_back(self, box: AsyncSandbox, result: RunResult) -> None:
        if not self._sync_back:
            return
        changes = await self._copy.changes()
        with self._opened() as tree:
            taken = await self._choose(box, changes, ExecutedFolders(tree))
            if not taken:
                self._tell("the program changed no file that may be written back")
            elif await self._is_agreed(tree, result, taken):
                await self._write(tree, taken)

    async def _choose(self, box: AsyncSandbox, changes: TreeChanges, executed: ExecutedFolders) -> list[ProjectChange]:
        """What may be written back, with its content. What may not is listed."""
        refused = {skipped.path: skipped.reason for skipped in changes.odd}
        for path in (*changes.written, *changes.deleted):
            reason = reason_against(path, is_asked=not self._yes) or executed.reason_against(path)
            if reason or not self._outputs.match(path):
                refused[path] = reason or _NOT_NAMED
        written = {path: size for path, size in sorted(changes.written.items()) if path not in refused}
        self._check_amount(written, [path for path in changes.deleted if path not in refused])
        # No more than was counted: threads of a session go on, and may let a file grow meanwhile.
        taken = [
            ProjectChange(path, self._copy.digests.get(path), await box.files.read(path, max_bytes=max(size, 1)))
            for path, size in written.items()
        ]
        taken += [
            ProjectChange(path, self._copy.digests[path], None) for path in changes.deleted if path not in refused
        ]
        told = {path: reason for path, reason in sorted(refused.items()) if not is_compiled_python(path)}
        self._tell_some([f"not written back: {one_line(path)}: {reason}" for path, reason in told.items()])
        return [change for change in taken if not change.is_nothing()]

    def _check_amount(self, written: dict[str, int], deleted: list[str]) -> None:
        """With too much, nothing is taken."""
        limits = self._policy.resources
        if len(written) + len(deleted) > limits.artifacts:
            raise UsageError(
                f"--sync-back: the program changed more than {limits.artifacts} files; raise resources.artifacts"
            )
        most = min(limits.artifacts_size, _MOST_BYTES_BACK)
        if sum(written.values()) > most:
            raise UsageError(f"--sync-back: what the program changed has more than {format_size(most)}; use --out")

    async def _is_agreed(self, tree: FolderTree, result: RunResult, taken: list[ProjectChange]) -> bool:
        if not self._quiet or not self._yes:
            self._show(tree, taken)
        if self._yes:
            if not result.ok:
                say("nothing was written back: the program failed, and --yes is for programs that do not")
            return result.ok
        if not os.isatty(2):
            say("nothing was written back: there is no terminal to ask at; --yes writes without asking")
            return False
        from fumehood.tools.approvals.terminal import ask_yes

        failed = "" if result.ok else "The program failed. "
        agreed = await ask_yes(f"{failed}Write these changes to {one_line(self._path)}?")
        if not agreed:
            say("nothing was written back")
        return bool(agreed)

    def _show(self, tree: FolderTree, taken: list[ProjectChange]) -> None:
        """On standard error, which is the terminal where the question is asked."""
        differences = Differences()
        for change in taken:
            for text, colour in _picture(tree, change, differences):
                with suppress(OSError):
                    os.write(2, f"{paint(text, colour, 2)}\n".encode("utf-8", "backslashreplace"))

    async def _write(self, tree: FolderTree, taken: list[ProjectChange]) -> None:
        conflicts: list[str] = []
        for change in taken:
            try:
                check(tree, change)
                target = os.path.join(self._path, change.path)
                await self._copy.record(change.path, change.content, target)
                write(tree, change)
            except ConflictError as error:
                conflicts.append(f"{one_line(change.path)}: {error}")
        self._tell(f"files written back to {one_line(self._path)}: {len(taken) - len(conflicts)}")
        if conflicts:
            raise UsageError("\n".join(f"not written back: {each}" for each in conflicts))

    def _tell_some(self, lines: list[str]) -> None:
        for line in lines[:_MOST_NOTES]:
            self._tell(line)
        if len(lines) > _MOST_NOTES:
            self._tell(f"... and {len(lines) - _MOST_NOTES} more")

    def _tell(self, line: str) -> None:
        if not self._quiet:
            say(line)


def _picture(tree: FolderTree, change: ProjectChange, differences: Differences) -> list[Shown]:
    name = one_line(change.path)
    try:
        before = check(tree, change)
    except ConflictError as error:
        return [(f"conflict {name}: {error}", YELLOW)]
    if change.content is None:
        return [(f"deleted  {name}", RED)]
    if before is None:
        return [(f"added    {name}", GREEN), *differences.lines(None, change.content)]
    return [(f"changed  {name}", YELLOW), *differences.lines(before, change.content)]


def open_project(
    chosen: Arguments, policy: Policy, program: ProgramSource, options: RunOptions
) -> tuple[ProjectCopy, RunOptions]:
    """The project of a command line, and the options of its run."""
    assert chosen.project is not None
    if policy.approvals:
        raise UsageError("--project: the policy asks for approvals, and who approves would not see the project's files")
    copy = ProjectCopy(chosen.project, policy, sync_back=chosen.sync_back, yes=chosen.yes, quiet=chosen.quiet)
    if chosen.session:
        return copy, options
    is_compiled = find_language(program.language).toolchain is not None
    return copy, options | copy.options_for(chosen.file if program.name else None, is_compiled=is_compiled)
