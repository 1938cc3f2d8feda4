"""Installs packages with uv: wheels only, compiled, from the index that the policy or this user's configuration names.

uv runs where the runner that we are given puts it, and sees what it needs: itself, the list of packages, the folder
that it fills, and folders that serve as an index. Its cache lies in that folder too, and goes when it is done: one that
outlives a build could be used to plant something into the next. `PIP_*` variables mean nothing, as everywhere with uv.

An `InstallTask` is what to run, which files it may see, which hosts it may reach. How an untrusted program is confined
is known to the `InstallRunner` alone, which is given to the store.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fumehood.environments.sources import PackageSource, Site, find_sources
from fumehood.environments.spec import EnvironmentSpec
from fumehood.errors import DeniedError, FumehoodError, StepFailedError, UsageError
from fumehood.host import uv
from fumehood.host.folders import remove_folder
from fumehood.policy.sections import project_name


@dataclass(frozen=True, slots=True)
class InstallTask:
    argv: tuple[str, ...]
    variables: Mapping[str, str]
    readable: Mapping[str, Path]
    """Where the program sees it -> a file or folder of the host that it may read."""
    writable: Mapping[str, Path]
    sites: tuple[Site, ...]
    """The hosts that it may reach."""
    pages: tuple[str, ...] = ()
    """Pages at these sites whose links name further hosts that keep the files."""


@dataclass(frozen=True, slots=True)
class InstallReport:
    code: int
    output: str
    """Its standard error."""
    limit: str = ""
    """Which limit ended it, in a sentence."""
    refused: tuple[str, ...] = ()
    """Hosts that it tried to reach and that were denied."""


class InstallRunner(Protocol):
    """Runs a task where it sees and reaches nothing but what the task names. Blocks.

    Whatever `heartbeat` raises, several times a second, ends it; by then nothing of it is left running.
    """

    def __call__(
        self, task: InstallTask, on_line: Callable[[str], None], heartbeat: Callable[[], None]
    ) -> InstallReport: ...


STEP = "building the environment"
_INSTALL_UV = "pip install uv"

# As uv sees them.
_UV = "/opt/installer/uv"
_ASKED = "/opt/installer/asked.txt"
_BUILD = "/opt/build"
_SOURCES = "/opt/sources"

_KEPT = frozenset({"UV_OFFLINE", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_CONCURRENT_DOWNLOADS"})
# Which of several indexes: not looked at when the policy names one.
_KEPT_WITH_INDEXES = frozenset({"UV_INDEX_STRATEGY"})
_INTERESTING = re.compile(r"(?:Resolved|Downloading|Downloaded|Prepared|Installed|Bytecode compiled) ")
# How uv draws a chain of reasons, in its older releases and in its newer ones.
_REASON_START = re.compile(r"^\s*(?:error: |\u00d7 )", re.MULTILINE)
_REASON_NEXT = re.compile(r":?\s*(?:\n\s*cause: |╰─▶ |├─▶ )")
_NO_SOLUTION = "No solution found when resolving dependencies: "


def find_uv() -> str:
    found = uv.find_uv()
    if found is None:
        raise UsageError(f"environment.packages needs uv to install packages: run `{_INSTALL_UV}`")
    return found


def install(
    spec: EnvironmentSpec,
    folder: Path,
    *,
    variables: Mapping[str, str],
    runner: InstallRunner,
    progress: Callable[[str], None],
    heartbeat: Callable[[], None],
) -> None:
    """Into `folder/packages`."""
    build, asked = folder / "build", folder / "asked.txt"
    for place in (build, build / "packages", build / "home"):
        place.mkdir()
    asked.write_text("".join(f"{package}\n" for package in spec.packages), encoding="utf-8")
    task = plan(find_uv(), spec, variables, asked=asked, build=build)
    report = runner(task, lambda line: progress(line) if _INTERESTING.match(line) else None, heartbeat)
    for attempt in report.refused:
        progress(f"refused: {attempt}")
    if report.code != 0 or report.limit:
        raise explain(report)
    asked.unlink()
    _take_over(build / "packages", folder / "packages")
    remove_folder(build)


def plan(uv: str, spec: EnvironmentSpec, variables: Mapping[str, str], *, asked: Path, build: Path) -> InstallTask:
    sources = find_sources(uv, spec, variables)
    folders = {f"{_SOURCES}/{number}": source.place for number, source in enumerate(sources)}
    sites = tuple(source.place for source in sources if isinstance(source.place, Site))
    return InstallTask(
        argv=tuple(install_argv(spec, sources)),
        variables=installer_variables(variables, spec),
        readable={
            _UV: Path(uv),
            _ASKED: asked,
            **{target: place for target, place in folders.items() if isinstance(place, Path)},
        },
        writable={_BUILD: build},
        sites=sites,
        pages=tuple(_pages(sources, spec)),
    )


def install_argv(spec: EnvironmentSpec, sources: Sequence[PackageSource]) -> list[str]:
    argv = [_UV, "pip", "install", "--color", "never", "--python", spec.interpreter.executable]
    argv += ["--target", f"{_BUILD}/packages", "-r", _ASKED]
    # The cache goes when the build is over, and is on the same file system: nothing needs to be copied.
    argv += ["--only-binary", ":all:", "--link-mode", "hardlink", "--cache-dir", f"{_BUILD}/cache"]
    if spec.target is not None:
        argv += ["--python-version", ".".join(map(str, spec.target.version))]
        argv += ["--python-platform", spec.target.platform]
    # Bytecode is of use to the release that made it alone.
    if spec.target is None or spec.target.version == spec.interpreter.version:
        argv.append("--compile-bytecode")
    if spec.are_hashed:
        argv.append("--require-hashes")
    argv.append("--no-config")
    if not any(source.is_index for source in sources):
        argv.append("--no-index")
    for number, source in enumerate(sources):
        place = source.place
        argv += [source.option, place.url if isinstance(place, Site) else f"file://{_SOURCES}/{number}"]
    return argv


def installer_variables(caller: Mapping[str, str], spec: EnvironmentSpec) -> dict[str, str]:
    names = _KEPT if spec.index is not None else _KEPT | _KEPT_WITH_INDEXES
    kept = {name: value for name, value in caller.items() if name in names}
    # Nothing in a read-only folder changes, so bytecode need not be compared with its source at every import.
    return {**kept, "PYC_INVALIDATION_MODE": "UNCHECKED_HASH", "HOME": f"{_BUILD}/home", "TMPDIR": f"{_BUILD}/home"}


def _pages(sources: Sequence[PackageSource], spec: EnvironmentSpec) -> Iterator[str]:
    """The pages of the requested packages, at indexes whose identity TLS verifies."""
    projects = [project_name(package) for package in spec.packages]
    for source in sources:
        if source.is_index and isinstance(source.place, Site) and source.place.is_secure:
            yield from (f"{source.place.url.rstrip('/')}/{project}/" for project in projects)


def _take_over(made: Path, place: Path) -> None:
    """What an installer has left is not to be believed: a link would have us read, or seal, what it leads to."""
    if made.is_symlink() or not made.is_dir():
        raise DeniedError(f"{STEP}: the installer has put something else into the place of the packages' folder")
    for root, folders, files in os.walk(made):
        for name in (*folders, *files):
            if Path(root, name).is_symlink():
                raise DeniedError(
                    f"{STEP}: {Path(root, name).relative_to(made)} is a symbolic link, which no wheel can hold; "
                    "find out which package it belongs to and do without it"
                )
    # uv's own lock on the folder, open to everybody.
    (made / ".lock").unlink(missing_ok=True)
    made.rename(place)


def explain(report: InstallReport) -> FumehoodError:
    """uv's words, by who has to act on them."""
    if report.limit:
        return StepFailedError(STEP, report.limit.rstrip("."), remedy="Install fewer packages at once.")
    output = report.output
    reason = reason_of(output) or f"uv ended with code {report.code} and printed nothing"
    # First: to uv, what was refused may look as if it did not exist.
    if report.refused:
        return DeniedError(
            f"{STEP}: {reason} The installer may go to its index and to the hosts that the index's pages name, and "
            f"was refused: {', '.join(report.refused)}. Use an index that keeps its files in these places."
        )
    if "no usable wheels" in output or "building from source is disabled" in output:
        return DeniedError(
            f"{STEP}: {reason} Only wheels are installed, because building from source runs the package's code; "
            "choose another release or package."
        )
    if "network was disabled" in output:
        return StepFailedError(STEP, reason.rstrip("."), remedy="Unset UV_OFFLINE.")
    if any(words in output for words in ("No solution found", "Failed to parse", "Couldn't parse")):
        return UsageError(f"{STEP}: {reason} Check the packages: --with, packages=[...], or environment of the policy.")
    if "Hash mismatch" in output:
        return DeniedError(
            f"{STEP}: {reason} The index has something else than what environment.requirements pins: find out which "
            "is right before you change the hash."
        )
    if "require-hashes" in output or "Hash-checking is required" in output:
        return UsageError(
            f"{STEP}: {reason} With hashes, environment.requirements must list every package, dependencies included, "
            "pinned with == and with its hash."
        )
    return StepFailedError(STEP, reason.rstrip("."), remedy="Check that this machine reaches its index and has space.")


def reason_of(output: str) -> str:
    """uv's reason for a failure, without the progress before it and the hints after it, in one line."""
    start = _REASON_START.search(output)
    error = output[start.end() :] if start else output[-1000:]
    chain = _REASON_NEXT.sub(": ", error.split("\n\nhint:")[0].replace("│", " "))
    words = " ".join(chain.split()).removeprefix(_NO_SOLUTION).removeprefix("Because ")
    words = words.replace(", we can conclude that your requirements are unsatisfiable", "")
    return words if not words or words.endswith(".") else f"{words}."
