"""`hood doctor`: what isolation works here, mechanism by mechanism, and the command that mends what does not."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import get_args

import anyio

from fumehood.backends.docker.backend import examine as examine_containers
from fumehood.backends.microvm.backend import examine as examine_machines
from fumehood.backends.native.doctor import Diagnosis, MechanismCheck, MechanismState, examine
from fumehood.backends.selection import select_backend
from fumehood.characters import neutralise
from fumehood.cli import exitcodes
from fumehood.cli.arguments import Parser
from fumehood.cli.output import BOLD, COLUMNS, DIM, GREEN, RED, YELLOW, paint, wrapped
from fumehood.errors import FumehoodError, UnenforceableError, UsageError
from fumehood.policy import Policy
from fumehood.remote.login import find_login
from fumehood.sandbox.async_sandbox import PLACE, AsyncSandbox

_PROGRAM = "print(6 * 7)"
_EXPECTED = "42\n"


@dataclass(frozen=True, slots=True)
class SmokeTest:
    """Its result, with the time of the first run (`cold_ms`) and of another one (`warm_ms`)."""

    works: bool
    detail: str = ""
    cold_ms: float = 0.0
    warm_ms: float = 0.0
    enforcement: Mapping[str, str] = field(default_factory=dict[str, str])


def run_smoke_test() -> SmokeTest:
    try:
        return anyio.run(_try)
    except (FumehoodError, OSError) as error:
        return SmokeTest(works=False, detail=str(error))


async def _try() -> SmokeTest:
    started = time.perf_counter()
    async with AsyncSandbox() as box:
        first = await box.run(_PROGRAM)
        cold_ms = (time.perf_counter() - started) * 1000
        second = await box.run(_PROGRAM)
        warm_ms = (time.perf_counter() - started) * 1000 - cold_ms
        works = first.stdout == second.stdout == _EXPECTED
        detail = "" if works else f"it printed {first.stdout!r} and then {second.stdout!r}; {first.stderr}"
        return SmokeTest(works, detail, cold_ms, warm_ms, box.enforcement)


_COLOURS = {
    MechanismState.WORKS: GREEN,
    MechanismState.WEAKER: YELLOW,
    MechanismState.MISSING: RED,
    MechanismState.UNUSED: DIM,
}
_NAME_WIDTH = 19
_INDENT = " " * 11
_DETAILS = "works: as strong as it gets; weaker: sandboxes open with less;\nmissing: sandboxes cannot open."


class Arguments(argparse.Namespace):
    json: bool


@dataclass(frozen=True, slots=True)
class BackendState:
    name: str
    works: bool
    detail: str


def build_parser() -> argparse.ArgumentParser:
    description = "Try every mechanism of the isolation and say what works here."
    parser = Parser(prog="hood doctor", description=description, epilog=_DETAILS)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    diagnosis, smoke_test = examine(), run_smoke_test()
    backends = _backends(smoke_test.works)
    if chosen.json:
        found = {
            "works": smoke_test.works,
            "place": _place(),
            **asdict(diagnosis),
            "trial": asdict(smoke_test),
            "backends": list(map(asdict, backends)),
        }
        print(json.dumps(found))
    else:
        print("\n".join(_lines(diagnosis, smoke_test, backends)))
    return 0 if smoke_test.works else exitcodes.PROBLEM_FOUND


def _backends(native_works: bool) -> list[BackendState]:
    """The backends in the order in which `auto` tries them."""
    states: list[BackendState] = []
    for name in get_args(Policy.model_fields["backend"].annotation):
        if name == "auto":
            continue
        if name in ("docker", "gvisor"):
            states.append(BackendState(name, *examine_containers(name)))
            continue
        if name == "microvm":
            states.append(BackendState(name, *examine_machines()))
            continue
        try:
            select_backend(Policy(backend=name))
        except UnenforceableError as error:
            states.append(BackendState(name, False, error.reason))
        else:
            detail = "`backend: auto` takes it" if native_works else "does not work here, see above"
            states.append(BackendState(name, native_works, detail))
    return states


def _lines(diagnosis: Diagnosis, smoke_test: SmokeTest, backends: list[BackendState]) -> Iterator[str]:
    yield paint(f"{diagnosis.system}, as {diagnosis.user}", BOLD)
    yield ""
    shown: dict[tuple[str, ...], str] = {}
    for check in diagnosis.checks:
        yield from _check_lines(check)
        if check.fixes:
            yield from _fix_lines(check.fixes, shown.get(check.fixes))
            shown.setdefault(check.fixes, check.name)
    yield ""
    yield from _smoke_test_lines(smoke_test)
    yield ""
    yield paint("backends", BOLD)
    for state in backends:
        first, *more = wrapped(state.detail, indent=_INDENT)
        yield from (f"  {state.name:8} {first.strip()}", *more)
    yield ""
    yield _verdict(diagnosis, smoke_test)
    if (place := _place()) != PLACE:
        yield f"Sandboxes are opened elsewhere: at {place}. All of the above is this machine's."


def _place() -> str:
    """Where a sandbox would be opened; a login that cannot be used says why."""
    try:
        login = find_login()
    except UsageError as error:
        return str(error)
    return PLACE if login is None else login.url


def _check_lines(check: MechanismCheck) -> Iterator[str]:
    start = f"  {check.condition:7}  {check.name:{_NAME_WIDTH}}{check.purpose}"
    remark = f" ({neutralise(check.detail)})" if check.detail else ""
    fits = len(start + remark) <= COLUMNS
    yield (start + (remark if fits else "")).replace(
        check.condition, paint(check.condition, _COLOURS[check.condition]), 1
    )
    if not fits:
        yield from wrapped(check.detail, indent=_INDENT)


def _fix_lines(fixes: tuple[str, ...], same_as: str | None) -> Iterator[str]:
    if same_as:
        yield f"{_INDENT}fix: as for {same_as}"
        return
    for number, fix in enumerate(fixes):
        yield f"{_INDENT}{'or' if number else 'fix'}:"
        yield from (f"{_INDENT}  {line}" for line in fix.splitlines())


def _smoke_test_lines(smoke_test: SmokeTest) -> Iterator[str]:
    yield paint("a real run", BOLD)
    if smoke_test.works:
        yield f"  print(6 * 7) in a new sandbox took {smoke_test.cold_ms:.0f} ms, once more {smoke_test.warm_ms:.1f} ms"
    else:
        yield from wrapped(f"failed: {smoke_test.detail}", indent="  ")


def _verdict(diagnosis: Diagnosis, smoke_test: SmokeTest) -> str:
    if not smoke_test.works:
        return paint("Sandboxes do not work here.", RED)
    weaker = [check.name for check in diagnosis.checks if check.condition is MechanismState.WEAKER]
    if not weaker:
        return paint("Sandboxes work here, at full strength.", GREEN)
    return "\n".join(wrapped(f"Sandboxes work here, with less than the best: {', '.join(weaker)}.", indent=""))
