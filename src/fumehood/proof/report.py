"""A proof report: what was tried and seen. Its verdict follows from the observations and is stored nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from fumehood.audit.events import AuditEvent
from fumehood.audit.keys import SigningKey, is_signed
from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.proof.host_facts import ProofHost
from fumehood.proof.trial import Kind, Observation, Result

FORMAT = 1
_PURPOSE = b"fumehood proof report 1\n"
_MOST_BYTES = 4 << 20

Verdict = Literal["held", "partial", "broken", "incomplete"]


class ControlEntry(BaseModel):
    """A line of the enforcement report."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    control: str
    mechanism: str
    partial: bool = False


class ProofReport(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = FORMAT
    made_at: str
    host: ProofHost
    policy_name: str
    policy_digest: str
    image_digest: str | None
    controls: tuple[ControlEntry, ...]
    observations: tuple[Observation, ...]
    key: str = ""
    """The public half of the key that signed it, in hexadecimal."""
    signature: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.with_result("broken"):
            return "broken"
        if self.gaps():
            return "incomplete"
        return "partial" if self.with_result("partial") else "held"

    def gaps(self) -> list[str]:
        """What was not tested is not proved: trials that could not be carried out, and controls without an attack or
        a use that was."""
        kinds: tuple[Kind, ...] = ("attack", "use")
        missing = [
            f"{entry.control}: {kind} not carried out"
            for entry in self.controls
            for kind in kinds
            if not any(one.result in ("held", "partial") for one in self.of(entry.control, kind))
        ]
        untested = self.with_result("not tested")
        return missing + [f"{one.control}: {one.what} It could not be tried: {one.seen}" for one in untested]

    def with_result(self, result: Result) -> list[Observation]:
        return [one for one in self.observations if one.result == result]

    def of(self, control: str, kind: Kind) -> list[Observation]:
        return [one for one in self.observations if (one.control, one.kind) == (control, kind)]

    def result_of(self, control: str) -> Result:
        """The worst of its trials; `not tested` also without an attack or a use."""
        worst: tuple[Result, ...] = ("broken", "not tested", "partial")
        for result in worst:
            if any(one.control == control for one in self.with_result(result)):
                return result
        return "not tested" if any(gap.startswith(f"{control}: ") for gap in self.gaps()) else "held"

    def partial_controls(self) -> list[str]:
        return [entry.control for entry in self.controls if entry.partial]

    def signed(self, key: SigningKey) -> ProofReport:
        named = self.model_copy(update={"key": key.public.hex(), "signature": ""})
        return named.model_copy(update={"signature": key.sign(named.statement()).hex()})

    def statement(self) -> bytes:
        """The signed text: every field but the signature, in one spelling."""
        fields = self.model_dump(mode="json", exclude={"signature"})
        return _PURPOSE + json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")

    def is_signed_by(self, public: bytes) -> bool:
        try:
            signature = bytes.fromhex(self.signature)
        except ValueError:
            return False
        has_one_spelling = self.signature == signature.hex()
        return has_one_spelling and self.key == public.hex() and is_signed(public, self.statement(), signature)

    def to_json(self) -> str:
        return self.model_dump_json(indent=1) + "\n"


@frozen
class ProofMade(AuditEvent):
    """The record of a report; `sha256` is that of its JSON file."""

    kind = "proof.made"

    policy: str
    backend: str
    verdict: str
    sha256: str


def read_report(path: Path) -> ProofReport:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the report {path} cannot be read: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path} is too large for a proof report")
    try:
        # Of a key that occurs twice, another reader may show the other value.
        fields: object = json.loads(data, object_pairs_hook=_without_repeats)
        report = ProofReport.model_validate(fields)
        if _spelling(fields) != _spelling(json.loads(report.to_json())):
            raise ValueError("it has a field, or a form of a value, that no report has")
        return report
    except (ValueError, RecursionError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"{path} is not a proof report, as `hood prove` writes it: {first}") from error


def _spelling(fields: object) -> str:
    """What was left out when a report was read, or taken for something else, is not signed: somebody added it."""
    return json.dumps(fields, sort_keys=True)


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key occurs twice")
    return fields
