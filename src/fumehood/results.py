"""What a run gives back: plain frozen data, the same from every backend."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Self

from fumehood.errors import FumehoodError
from fumehood.frozen import frozen

_SHOWN_LINES = 10
_SHOWN_CHARACTERS = 2000


class Status(StrEnum):
    """How a run ended, in the word that a caller branches on."""

    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    RESOURCE_EXCEEDED = "resource_exceeded"
    DENIED = "denied"
    CANCELLED = "cancelled"


class Cause(StrEnum):
    """What ended it."""

    EXIT = "exit"
    SIGNAL = "signal"
    WALL_TIME = "wall_time"
    CPU_TIME = "cpu_time"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    OUTPUT = "output"
    POLICY = "policy"
    CANCELLED = "cancelled"
    LOST = "lost"


@frozen
class Outcome:
    """How a run ended, as a backend saw it."""

    status: Status
    cause: Cause
    exit_code: int
    signal: str | None
    detail: str
    truncated: bool
    duration_ms: float
    cpu_ms: float
    peak_memory_bytes: int


@frozen
class Display:
    """One rich result of a session: the same thing in one or more media types."""

    data: Mapping[str, object]
    """Media type -> text for text types and SVG, bytes for images and the like, plain data for JSON."""
    metadata: Mapping[str, object]

    def to_dict(self) -> dict[str, object]:
        data = {
            kind: b64encode(value).decode() if isinstance(value, bytes) else value for kind, value in self.data.items()
        }
        return {"data": data, "metadata": dict(self.metadata)}


@frozen
class Artifact:
    """A file that a run produced and that the policy's `filesystem.outputs` lets out."""

    path: str
    """Below the workspace."""
    size: int
    sha256: str
    media_type: str


@frozen
class Denial:
    """Something that the policy refused: a command, or what a program tried on its way out."""

    kind: str
    """`command`; on the way out `dns`, `connect`, `tls`, `http`: how far it came; `udp` and `icmp` never go out."""
    what: str
    """The attempt in one line, such as `connect example.com:443`."""
    why: str
    rule: str = ""
    """The key of the rule that decided, such as `network.allow[0]`; empty when no rule covers the attempt."""
    remedy: str = ""
    """The smallest change of the policy that would allow it; empty when none would."""
    host: str = ""
    port: int = 0
    method: str = ""
    path: str = ""
    secure: bool = False
    """The request came in TLS."""
    websocket: bool = False
    """The request was to go on as a WebSocket."""
    count: int = 1
    """How often the same was tried."""

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.what}: {self.why}{times}" + (f"; {self.remedy}" if self.remedy else "")


@frozen
class RunOutput:
    """A run's outcome and output, as a backend saw them; without the output when that was streamed."""

    outcome: Outcome
    stdout: bytes = b""
    stderr: bytes = b""
    displays: tuple[Display, ...] = ()


@frozen
class RunResult:
    """One run's outcome. `exit_code` is 128 + n when signal n ended the program, as in a shell."""

    status: Status
    cause: Cause
    exit_code: int
    stdout_bytes: bytes
    stderr_bytes: bytes
    truncated: bool
    duration_ms: float
    cpu_ms: float
    peak_memory_bytes: int
    run_id: str
    policy_digest: str
    image_digest: str | None = None
    """The digest of the image that the program ran in; None without one, as on the native backend."""
    signal: str | None = None
    detail: str = ""
    """One sentence on what ended the run and what to change, empty for a plain exit."""
    displays: tuple[Display, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    denials: tuple[Denial, ...] = ()
    """What the program tried on its way out and was refused, in order; the same things are counted, not repeated."""
    compilation: RunResult | None = None
    """For a compiled language, the result of the compiler's run. If it failed, the program never ran."""
    restarted: bool = False
    """For a session, whether it had lost its state and this run began with a new one."""

    @classmethod
    def of(
        cls,
        record: RunOutput,
        run_id: str,
        policy_digest: str,
        image_digest: str | None = None,
        denials: tuple[Denial, ...] = (),
    ) -> RunResult:
        outcome = record.outcome
        return cls(
            status=outcome.status,
            cause=outcome.cause,
            exit_code=outcome.exit_code,
            stdout_bytes=record.stdout,
            stderr_bytes=record.stderr,
            truncated=outcome.truncated,
            duration_ms=outcome.duration_ms,
            cpu_ms=outcome.cpu_ms,
            peak_memory_bytes=outcome.peak_memory_bytes,
            run_id=run_id,
            policy_digest=policy_digest,
            image_digest=image_digest,
            signal=outcome.signal,
            detail=outcome.detail,
            displays=record.displays,
            denials=denials,
        )

    @property
    def ok(self) -> bool:
        return self.status is Status.SUCCESS

    def check(self) -> Self:
        """The result itself if the run succeeded, else RunFailedError with the end of what it printed."""
        if not self.ok:
            raise RunFailedError(self)
        return self

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    def to_dict(self) -> dict[str, object]:
        """JSON-ready: text instead of bytes; images and the like in base64, as in notebooks."""
        fields = asdict(self)
        fields.pop("stdout_bytes")
        fields.pop("stderr_bytes")
        return {
            **fields,
            "displays": [display.to_dict() for display in self.displays],
            "compilation": self.compilation.to_dict() if self.compilation else None,
            "stdout": self.stdout,
            "stderr": self.stderr,
        }


class RunFailedError(FumehoodError):
    """A run did not succeed, and its caller had asked `check()`; `result` is all of it."""

    def __init__(self, result: RunResult) -> None:
        reason = result.detail or (f"exit code {result.exit_code}" if result.cause is Cause.EXIT else result.cause)
        printed = _end(result.stderr) or _end(result.stdout)
        super().__init__(f"the run ended with {result.status}: {reason}" + (f"\n{printed}" if printed else ""))
        self.result = result


def _end(text: str) -> str:
    """The last lines of it, and not too much of them."""
    return "\n".join(text.rstrip().splitlines()[-_SHOWN_LINES:])[-_SHOWN_CHARACTERS:]
