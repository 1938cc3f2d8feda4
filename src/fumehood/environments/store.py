"""The store of installed environments: found by key, built once however many processes ask, removed when unused."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from fumehood.environments.installer import STEP, InstallReport, InstallRunner, InstallTask, install
from fumehood.environments.manifest import Manifest, describe, read_manifest, seal, write_manifest
from fumehood.environments.spec import EnvironmentSpec
from fumehood.errors import StepFailedError
from fumehood.host import full_disk, locks
from fumehood.host.folders import HOME, find_home, remove_folder
from fumehood.host.locks import Lock
from fumehood.tenant import Tenant

_KEY = re.compile(r"[0-9a-f]{64}")

Progress = Callable[[str], None]
"""Receives what happens, a short line at a time."""
Heartbeat = Callable[[], None]
"""Called several times a second while something takes its time; what it raises ends the work, and nothing is left."""


def _ignore(line: str) -> None:
    """Progress that is not shown."""


def _carry_on() -> None:
    """A heartbeat that never ends the work."""


def _no_runner(task: InstallTask, on_line: Progress, heartbeat: Heartbeat) -> InstallReport:
    """The runner of a read-only store, which raises: nothing can be installed."""
    raise StepFailedError(STEP, "the store has no runner", remedy="Give it a runner.")


@dataclass(frozen=True, slots=True)
class InstalledEnvironment:
    """Installed, complete and read-only."""

    folder: Path
    """The packages, as a sandbox sees them."""
    manifest: Manifest
    used_at: float

    @property
    def key(self) -> str:
        return self.manifest.key

    @property
    def digest(self) -> str:
        return self.manifest.content


class EnvironmentLease:
    """An environment that is in use, and therefore stays, until the lease is closed."""

    def __init__(self, environment: InstalledEnvironment, lock: Lock) -> None:
        self.environment = environment
        self._lock = lock

    def close(self) -> None:
        self._lock.close()


class EnvironmentStore:
    """Safe from any number of threads and processes. Everything blocks: for worker threads and command lines.

    Without a runner it finds and removes environments, and builds none.
    """

    def __init__(
        self, root: Path, runner: InstallRunner = _no_runner, variables: Mapping[str, str] = os.environ
    ) -> None:
        HOME.make(root.parent)
        HOME.make(root)
        self._root = root
        self._runner, self._variables = runner, variables

    @classmethod
    def open_default(cls, runner: InstallRunner = _no_runner) -> Self:
        """The user's own: below $FUMEHOOD_HOME, or the user's cache folder."""
        return cls(find_home(os.environ) / "environments", runner)

    @classmethod
    def open_for(cls, tenant: Tenant, runner: InstallRunner = _no_runner) -> Self:
        """The tenant's own: what another one has installed is neither found nor waited for."""
        if tenant.folder is None:
            return cls.open_default(runner)
        return cls(tenant.folder / "environments", runner, tenant.variables)

    def find(self, key: str) -> InstalledEnvironment | None:
        folder = self._root / key
        manifest = read_manifest(folder)
        if manifest is None or manifest.key != key:
            return None
        return InstalledEnvironment(folder / "packages", manifest, folder.stat().st_mtime)

    def use(
        self, spec: EnvironmentSpec, progress: Progress | None = None, heartbeat: Heartbeat = _carry_on
    ) -> EnvironmentLease:
        """The environment, built first if need be. It cannot be pruned before the lease is closed."""
        path, progress = self._lock_path(spec.key), progress or _ignore
        while True:
            lock = locks.wait_for(lambda: locks.try_shared(path), self._waiting(path, progress), heartbeat)
            environment = self.find(spec.key)
            if environment:
                os.utime(self._root / spec.key)
                return EnvironmentLease(environment, lock)
            lock.close()
            self.build(spec, progress, heartbeat)

    def build(
        self, spec: EnvironmentSpec, progress: Progress | None = None, heartbeat: Heartbeat = _carry_on
    ) -> InstalledEnvironment:
        """Install, unless another process just has. A build that fails or is interrupted leaves nothing usable."""
        self.sweep()
        path, progress = self._lock_path(spec.key), progress or _ignore
        attempt = locks.wait_for(lambda: locks.try_exclusive(path), self._waiting(path, progress), heartbeat)
        with closing(attempt) as lock:
            return self.find(spec.key) or self._build(spec, lock, progress, heartbeat)

    def list(self) -> list[InstalledEnvironment]:
        """Every finished environment, the one used last first."""
        keys = filter(_KEY.fullmatch, os.listdir(self._root))
        found = [environment for key in keys if (environment := self.find(key))]
        return sorted(found, key=lambda environment: environment.used_at, reverse=True)

    def prune(self, *, unused_for_seconds: float = 0) -> list[InstalledEnvironment]:
        """Remove what is not in use and was not used for so long; returns what it removed."""
        self.sweep()
        now = time.time()
        old = [each for each in self.list() if now - each.used_at >= unused_for_seconds]
        return [environment for environment in old if self._remove_unused(environment.key)]

    def sweep(self) -> None:
        """Remove what killed processes left behind, and what is no environment although it lies in its place."""
        for key in {match[0] for name in os.listdir(self._root) if (match := _KEY.search(name))}:
            leftovers = [place for place in self._unusable(key) if place.exists()]
            if self.find(key) and not leftovers:
                continue
            lock = locks.try_exclusive(self._lock_path(key))
            if lock:
                with closing(lock):
                    self._clear(key, lock)

    def _clear(self, key: str, lock: Lock) -> None:
        for leftover in self._unusable(key):
            remove_folder(leftover)
        if self.find(key) is None:
            self._remove(key)
            lock.remove()

    def _unusable(self, key: str) -> tuple[Path, Path]:
        return self._root / f".building-{key}", self._root / f".removing-{key}"

    def _build(
        self, spec: EnvironmentSpec, lock: Lock, progress: Progress, heartbeat: Heartbeat
    ) -> InstalledEnvironment:
        key, (place, _) = spec.key, self._unusable(spec.key)
        self._remove(key)  # something that is not usable may lie in its place
        remove_folder(place)
        place.mkdir(mode=0o700)
        try:
            progress(f"installing {_shown(spec)}")
            with full_disk.explained("installing packages", self._root, "FUMEHOOD_HOME"):
                install(
                    spec, place, variables=self._variables, runner=self._runner, progress=progress, heartbeat=heartbeat
                )
                self._finish(spec, place)
        except BaseException:
            remove_folder(place)
            lock.remove()
            raise
        environment = self.find(key)
        assert environment is not None
        return environment

    def _finish(self, spec: EnvironmentSpec, place: Path) -> None:
        packages = place / "packages"
        sealed = seal(packages)
        built_at = datetime.now(UTC).isoformat(timespec="seconds")
        manifest = describe(spec, packages, content=sealed.content, size_bytes=sealed.size_bytes, built_at=built_at)
        write_manifest(place, manifest)
        (place / "manifest.json").chmod(0o444)
        place.chmod(0o555)
        place.rename(self._root / spec.key)

    def _remove_unused(self, key: str) -> bool:
        lock = locks.try_exclusive(self._lock_path(key))
        if lock is None:
            return False
        with closing(lock):
            self._remove(key)
            lock.remove()
        return True

    def _remove(self, key: str) -> None:
        """Only with the exclusive lock. Renamed first, so that no process finds a part of it."""
        _, gone = self._unusable(key)
        remove_folder(gone)
        if (self._root / key).exists():
            (self._root / key).rename(gone)
            remove_folder(gone)

    def _lock_path(self, key: str) -> Path:
        return self._root / f"{key}.lock"

    def _waiting(self, path: Path, progress: Progress) -> Callable[[], None]:
        return lambda: progress(f"waiting for process {locks.holder(path)}, which works on the same environment")


def _shown(spec: EnvironmentSpec) -> str:
    names = [package.partition(" --hash")[0] for package in spec.packages]
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
