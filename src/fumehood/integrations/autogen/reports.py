"""What comes of code blocks, as AutoGen hands it to a model: an exit code and a text that says what happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from autogen_core.code_executor import CodeResult

from fumehood.errors import DeniedError, UsageError
from fumehood.results import Cause, RunResult, Status

_FAILED, _DENIED = 1, 126
_CANCELLED = "Code execution was cancelled."
_HEADINGS = {
    Status.TIMEOUT: "Timeout",
    Status.RESOURCE_EXCEEDED: "Resource limit exceeded",
    Status.DENIED: "Denied",
    Status.CANCELLED: "Cancelled",
    Status.ERROR: "Error",
}


@dataclass
class SandboxCodeResult(CodeResult):
    """124 is the exit code of a timeout, 137 of too much memory or output, 126 of what the policy denies."""

    code_file: str | None = None
    """Of the first block: on the host if there is a work_dir, otherwise in the sandbox."""
    status: Status = Status.SUCCESS
    cause: Cause = Cause.EXIT


@dataclass
class Report:
    """Grows block by block; what is in it when a call is cancelled is not lost."""

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
        """Something that the model should know of, and that is no failure."""
        if text:
            self.outputs.append(_on_its_own_line("".join(self.outputs), text))

    def refuse(self, error: UsageError | DeniedError) -> None:
        """What the block asked for makes no sense or is not allowed. The model can do something about it."""
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
