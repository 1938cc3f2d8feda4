"""The verbs that make, copy, export and remove named sandboxes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter
from typing import TYPE_CHECKING

from fumehood.cli import overrides
from fumehood.cli.output import say
from fumehood.cli.sandbox.listing import described
from fumehood.errors import FumehoodError, UsageError
from fumehood.policy import Policy
from fumehood.remote.place import named_sandboxes
from fumehood.snapshots import NamedSandbox

if TYPE_CHECKING:
    from fumehood.cli.sandbox import Arguments
    from fumehood.sandbox.archive import WritableArchive

_ARCHIVES = (".tar", ".tar.gz", ".tgz")


def create(chosen: Arguments) -> int:
    policy, begin = overrides.load_policy(chosen), chosen.begin
    if begin is None:
        _tell(named_sandboxes().create_empty(chosen.name, policy))
    elif begin == "-" or "/" in begin or begin.endswith(_ARCHIVES):
        _create_from_archive(chosen.name, begin, policy)
    else:
        _tell(named_sandboxes().create_from_snapshot(chosen.name, policy, begin))
    return 0


def read(chosen: Arguments) -> int:
    _create_from_archive(chosen.name, chosen.archive, overrides.load_policy(chosen))
    return 0


def _create_from_archive(name: str, archive: str, policy: Policy) -> None:
    with _opened(archive) as stream:
        _tell(named_sandboxes().create_from_archive(name, policy, stream, os.path.basename(archive)))


@contextmanager
def _opened(archive: str) -> Iterator[BufferedReader]:
    try:
        with open(0 if archive == "-" else archive, "rb", closefd=archive != "-") as stream:
            yield stream
    except OSError as error:
        raise UsageError(f"{archive!r} cannot be read: {error.strerror}") from error


def snapshot(chosen: Arguments) -> int:
    print(named_sandboxes().snapshot(chosen.name, chosen.snapshot_name).id)
    return 0


def fork(chosen: Arguments) -> int:
    for record in named_sandboxes().fork(chosen.name, chosen.names):
        _tell(record)
    return 0


def export(chosen: Arguments) -> int:
    target = chosen.archive
    if target == "-" and os.isatty(1):
        raise UsageError("an archive cannot be shown on a terminal; name a file, or use `-` in a pipe")

    def write(archive: WritableArchive) -> None:
        if target == "-":
            archive.write(sys.stdout.buffer)
        else:
            _write_new(archive, target)

    absolute = target if target == "-" else os.path.abspath(target)
    for path in named_sandboxes().export(chosen.name, absolute, write, everything=chosen.all):
        say(f"not exported: {path!r} is a link that leads out")
    return 0


def _write_new(archive: WritableArchive, target: str) -> None:
    """Never over anything; nothing is left of an archive that is not complete."""
    try:
        with open(target, "xb") as file:
            _write_whole(archive, file)
    except OSError as error:
        raise UsageError(f"{target!r} cannot be made: {error.strerror}") from error


def _write_whole(archive: WritableArchive, file: BufferedWriter) -> None:
    try:
        archive.write(file)
        file.flush()
    except BaseException:
        os.unlink(file.name)
        raise


def remove(chosen: Arguments) -> int:
    """All that can be; the first error is the one that is shown last."""
    named, failed = named_sandboxes(), list[FumehoodError]()
    for name in chosen.names:
        try:
            (named.remove_snapshot if chosen.snapshot else named.remove)(name)
            print(name)
        except UsageError as error:
            failed.append(error)
    for error in failed[1:]:
        say(str(error))
    if failed:
        raise failed[0]
    return 0


def _tell(record: NamedSandbox) -> None:
    print(f"{record.name}  {record.snapshot[:12]}  {described(record)}")
