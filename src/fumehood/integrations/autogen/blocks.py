"""Code blocks as scripts, each with a language and a file for its source, and their results for the model."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from autogen_core.code_executor import CodeBlock, CodeResult

from fumehood.backends.languages import Language, find_language
from fumehood.errors import DeniedError, UsageError
from fumehood.policy.paths import is_inside
from fumehood.results import Cause, RunResult, Status

# AutoGen's own pattern has only `#`, which is not a comment in C or JavaScript.
_FILE_NAME = re.compile(r"(?:#|//) ?filename:(.*)")
_POWERSHELL = ("powershell", "pwsh", "ps1")
_FAILED, _DENIED = 1, 126
_CANCELLED = "Code execution was cancelled."
_HEADINGS = {
    Status.TIMEOUT: "Timeout",
    Status.RESOURCE_EXCEEDED: "Resource limit exceeded",
    Status.DENIED: "Denied",
    Status.CANCELLED: "Cancelled",
    Status.ERROR: "Error",
}


@dataclass(frozen=True)
class BlockScript:
    language: Language
    source: bytes
    path: str
    """The absolute path in the sandbox."""
    is_named: bool
    """Whether the block names the file; otherwise the executor may remove it."""

    @property
    def run_name(self) -> str | None:
        """The name for the run. Compilers get a copy, under a name that they accept."""
        if self.language.toolchain is None:
            return self.path
        return posixpath.basename(self.path) if self.is_named else None


def read_block(block: CodeBlock, folder: str) -> BlockScript:
    language, source = _language(block.language), block.code.encode("utf-8", "surrogatepass")
    name = _file_name(block.code)
    if name is None:
        own = f"tmp_code_{sha256(source).hexdigest()}{language.suffixes[0]}"
        return BlockScript(language, source, posixpath.join(folder, own), is_named=False)
    return BlockScript(language, source, _path(name, folder), is_named=True)


def _language(name: str) -> Language:
    spelling = name.strip().lower()
    if not spelling:
        raise UsageError("the code block has no language; write it behind the opening fence, such as ```python")
    if spelling in _POWERSHELL:
        raise UsageError("PowerShell is not supported; use sh, bash or python")
    return find_language(spelling)


def _file_name(code: str) -> str | None:
    match = _FILE_NAME.match(code.split("\n", 1)[0])
    return match[1].strip() if match else None


def _path(name: str, folder: str) -> str:
    path = posixpath.normpath(posixpath.join(folder, name))
    if not name or not is_inside(path, folder) or path == folder or name.endswith("/"):
        raise UsageError(f"Filename is not in the workspace: {name!r} must name a file below {folder}")
    return path


@dataclass
class SandboxCodeResult(CodeResult):
    """124 is the exit code of a timeout, 137 of too much memory or output, 126 of what the policy denies."""

    code_file: str | None = None
    """The file of the first block: on the host if there is a work_dir, otherwise in the sandbox."""
    status: Status = Status.SUCCESS
    cause: Cause = Cause.EXIT


@dataclass
class BlocksReport:
    """Collects results block by block; a call that is cancelled keeps what is in it."""

    outputs: list[str] = field(default_factory=list[str])
    files: list[str] = field(default_factory=list[str])
    exit_code: int = 0
    status: Status = Status.SUCCESS
    cause: Cause = Cause.EXIT

    @property
    def has_failed(self) -> bool:
        return self.exit_code != 0

    def add(self, result: RunResult) -> None:
        self.outputs.append(_text(result))
        self.status, self.cause = result.status, result.cause
        self.exit_code = result.exit_code if result.ok else result.exit_code or _FAILED

    def note(self, text: str) -> None:
        """Add a note for the model that is not a failure."""
        if text:
            self.outputs.append(_on_its_own_line("".join(self.outputs), text))

    def refuse(self, error: UsageError | DeniedError) -> None:
        """Report a block that is not valid or not allowed: the model can correct it."""
        self.outputs.append(_on_its_own_line("".join(self.outputs), f"{error}\n"))
        denied = isinstance(error, DeniedError)
        self.status, self.cause = (Status.DENIED, Cause.POLICY) if denied else (Status.ERROR, Cause.EXIT)
        self.exit_code = _DENIED if denied else _FAILED

    def cancel(self) -> None:
        self.outputs.append(_on_its_own_line("".join(self.outputs), _CANCELLED))
        self.exit_code, self.status, self.cause = _FAILED, Status.CANCELLED, Cause.CANCELLED

    def conclude(self) -> SandboxCodeResult:
        return SandboxCodeResult(
            exit_code=self.exit_code,
            output="".join(self.outputs),
            code_file=self.files[0] if self.files else None,
            status=self.status,
            cause=self.cause,
        )


def _text(result: RunResult) -> str:
    text = ""
    for part in _parts(result):
        text += _on_its_own_line(text, part)
    return text


def _parts(result: RunResult) -> Iterator[str]:
    yield result.stdout
    yield result.stderr
    if result.detail:
        yield f"{_HEADINGS.get(result.status, result.status.value)}: {result.detail}\n"


def _on_its_own_line(before: str, text: str) -> str:
    return f"\n{text}" if text and before and not before.endswith("\n") else text
