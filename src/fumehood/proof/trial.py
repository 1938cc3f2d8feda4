"""A trial: an attack on a control that must fail, or a use that must work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Literal

from fumehood.frozen import frozen

if TYPE_CHECKING:
    from fumehood.proof.laboratory import Laboratory

Kind = Literal["attack", "use"]
Result = Literal["held", "partial", "broken", "not tested", "does not apply"]
# What holds for every sandbox and is no line of the enforcement report.
ALWAYS: Mapping[str, str] = {
    "runs": "each run has processes, memory and temporary files of its own",
    "end": "a run ends with everything it has started",
    "results": "answers over a socket that programs never have; two streams of bytes; displays written anew",
    "snapshots": "workspaces and archives as lists of checked entries, charged before they are kept",
    "audit": "signed hash chain, written before results are returned",
}


class BrokenError(Exception):
    """The attack succeeded, or the use did not work: what was seen."""


class NotTestedError(Exception):
    """The trial could not be carried out: why. The policy is then not proved."""


class DoesNotApplyError(Exception):
    """What the trial attacks is not part of this policy, or of this backend by its design: why."""


@frozen
class Trial:
    """`carry_out` returns what was seen if the control held."""

    control: str
    kind: Kind
    what: str
    carry_out: Callable[[Laboratory], Awaitable[str]]
    admitted: tuple[str, ...] = ()
    """Words of the enforcement report by which a backend admits that this very attack gets through."""

    @property
    def name(self) -> str:
        return f"{self.control}.{getattr(self.carry_out, '__name__', 'trial')}"


@frozen
class Observation:
    """What came of a trial."""

    name: str
    control: str
    kind: Kind
    what: str
    result: Result
    seen: str
    seconds: float


_Carry = Callable[["Laboratory"], Awaitable[str]]


def attack(control: str, what: str, *, admitted: tuple[str, ...] = ()) -> Callable[[_Carry], Trial]:
    return lambda carry_out: Trial(control, "attack", what, carry_out, admitted)


def use(control: str, what: str) -> Callable[[_Carry], Trial]:
    return lambda carry_out: Trial(control, "use", what, carry_out)
