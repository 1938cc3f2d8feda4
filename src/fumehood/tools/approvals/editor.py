"""A text in the user's editor, on their terminal."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

import anyio

from fumehood.errors import UsageError

_SUFFIXES = {"python": ".py", "bash": ".sh", "sh": ".sh", "javascript": ".js", "json": ".json"}


def editor_argv(variables: Mapping[str, str]) -> list[str]:
    return shlex.split(variables.get("VISUAL") or variables.get("EDITOR") or "vi")


async def edit(text: str, language: str, terminal: int) -> str:
    """What the text has become; UsageError when the editor fails, and then nothing has changed."""
    argv = editor_argv(os.environ)
    with tempfile.TemporaryDirectory(prefix="hood-edit-") as folder:
        file = Path(folder) / f"call{_SUFFIXES.get(language, '.txt')}"
        _write(file, text)
        try:
            code = await _run([*argv, str(file)], terminal)
        except OSError as error:
            raise UsageError(
                f"the editor {argv[0]!r} cannot be started: {error.strerror}; set EDITOR to one that is there"
            ) from error
        if code != 0:
            raise UsageError(f"the editor {argv[0]!r} exited with {code}, so nothing was changed")
        return _read(file)


async def _run(argv: list[str], terminal: int) -> int:
    process = await anyio.open_process(argv, stdin=terminal, stdout=terminal, stderr=terminal)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            with anyio.CancelScope(shield=True):
                await process.wait()


def _write(file: Path, text: str) -> None:
    with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(f"what the editor left cannot be read: {error.strerror}") from error
