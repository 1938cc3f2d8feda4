"""Packages that are installed into an open sandbox: by its own `pip`, under its own policy, through its own network.

What a program there could do by itself is all that happens here. What is installed is as trustworthy as the sandbox's
other files: programs can change it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

import anyio.to_thread

from fumehood.environments import EnvironmentSpec
from fumehood.environments.installer import find_uv, reason_of
from fumehood.environments.sources import Site, find_sources
from fumehood.errors import DeniedError, FumehoodError, StepFailedError, UsageError
from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.policy.arguments import add_packages
from fumehood.policy.sections import Environment
from fumehood.results import Cause, RunResult, Status
from fumehood.sandbox.sandboxed_installer import InstallSandbox, run_installer

_STEP = "installing packages"
_INSTEAD = "or name the packages when the sandbox opens: packages=[...]"
# How uv writes a change, and how pip does; names and versions are letters, digits and what joins them.
_ADDED = re.compile(r"^ \+ ([A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+)$", re.MULTILINE)
_REMOVED = re.compile(r"^ - ([A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+)$", re.MULTILINE)
_PIP_ADDED = re.compile(r"^Successfully installed (.+)$", re.MULTILINE)
_PIP_REASON = re.compile(r"^ERROR: (.+)$", re.MULTILINE)
_NOT_FOUND = 127
_UNKNOWN_PACKAGE = ("No solution found", "No matching distribution", "Failed to parse", "Invalid requirement")


@frozen
class Installation:
    """What an installation has changed in a sandbox, according to the installer inside."""

    installed: tuple[str, ...]
    """Packages with their versions, dependencies included, such as `six==1.17.0`; empty if all were there already."""
    removed: tuple[str, ...]
    """What was there before in another version."""
    output: str
    """The installer's own words."""


class OpenTarget(InstallSandbox, Protocol):
    """A sandbox that is open, and its policy."""

    @property
    def policy(self) -> Policy: ...


async def install(
    box: OpenTarget,
    packages: Sequence[str],
    *,
    is_open: bool,
    allow_sdists: bool,
    progress: Callable[[str], None] | None,
) -> Installation:
    if not packages:
        raise UsageError("install needs at least one package, such as install('pandas')")
    asked = add_packages(Policy(), packages, "install").environment.packages
    if not is_open:
        raise await anyio.to_thread.run_sync(_closed, box.policy.environment)
    argv = ["pip", "install", "--only-binary", ":none:" if allow_sdists else ":all:", *asked]
    result, output = await run_installer(box, argv, {"NO_COLOR": "1"}, progress or _ignore)
    if not result.ok:
        raise _explained(result, output)
    pip_added = [name for line in _PIP_ADDED.findall(output) for name in line.split()]
    return Installation((*_ADDED.findall(output), *map(_with_version, pip_added)), (*_REMOVED.findall(output),), output)


def _ignore(line: str) -> None:
    """Progress that is not shown."""


def _with_version(text: str) -> str:
    """`six-1.17.0`, as pip writes it, as a requirement."""
    name, _, version = text.rpartition("-")
    return f"{name}=={version}"


def _closed(section: Environment) -> DeniedError:
    what = " and ".join(map(_rule, _sites(section))) or "a rule for the host of your package index"
    return DeniedError(
        f"{_STEP}: the network of this sandbox is closed; add {what} to network.allow of its policy, {_INSTEAD}"
    )


def _sites(section: Environment) -> list[Site]:
    """The indexes that uv would use inside, which knows nothing of this user's configuration."""
    try:
        plain = Environment(index=section.index)
        found = find_sources(find_uv(), EnvironmentSpec.of(plain), {})
    except FumehoodError:
        return []
    return [source.place for source in found if isinstance(source.place, Site)]


def _rule(site: Site) -> str:
    """The rule that opens an index, as a policy has it."""
    plain = "" if site.is_secure else ", protocol: http"
    return f"{{host: {site.host}, ports: [{site.port}]{plain}}}"


def _explained(result: RunResult, output: str) -> FumehoodError:
    """The installer's words, by who has to act on them."""
    reason = reason_of(output) if "error: " in output else " ".join(_PIP_REASON.findall(output)) or reason_of(output)
    if result.denials:
        refused = "; ".join(map(str, result.denials))
        return DeniedError(f"{_STEP}: {reason} The policy refused: {refused}, {_INSTEAD}.".replace("  ", " "))
    if result.status is Status.DENIED or result.cause not in (Cause.EXIT, Cause.SIGNAL):
        remedy = f"Raise that limit in the policy, {_INSTEAD}."
        return StepFailedError(_STEP, (result.detail or result.cause).rstrip("."), remedy=remedy)
    if result.exit_code == _NOT_FOUND:
        return DeniedError(f"{_STEP}: there is no pip in this sandbox; use an image that has one, {_INSTEAD}")
    if "no usable wheels" in output or "building from source is disabled" in output:
        return DeniedError(
            f"{_STEP}: {reason} Only wheels are installed, unless you say install(..., allow_sdists=True): building "
            "from source runs the package's code, in this sandbox."
        )
    if any(words in output for words in _UNKNOWN_PACKAGE):
        return UsageError(f"{_STEP}: {reason}")
    return StepFailedError(_STEP, reason.rstrip(".") or f"pip ended with code {result.exit_code}", remedy=result.detail)
