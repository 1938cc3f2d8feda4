"""Leaves a keeper behind, for the next `hood run`, when this one has ended."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import fumehood_client
from fumehood.errors import UsageError
from fumehood.host import locks
from fumehood.host.folders import PrivateFolder

_FOLDER = PrivateFolder("the keeper's socket", "XDG_RUNTIME_DIR")
# Never from the current folder, nor from where variables of this environment lead.
_ISOLATED = ("-E", "-P", *(["-s"] if sys.flags.no_user_site else []))
_BOOT = "import sys; from fumehood.cli.keeper import resident; resident.main(int(sys.argv[1]))"


def start_at_exit() -> None:
    """To be called before the first sandbox is opened, so that everything of it is closed first."""
    chosen = os.environ.get("FUMEHOOD_KEEPER", "")
    if chosen not in ("", "on", "off"):
        raise UsageError(f"FUMEHOOD_KEEPER {chosen!r} must be on or off")
    if fumehood_client.reason_for_none(os.environb) is None:
        atexit.register(start)


def start() -> None:
    """Starts one unless there is one. A failure is ignored: what this process was asked to do is done."""
    with suppress(OSError, UsageError):
        folder = Path(os.fsdecode(fumehood_client.folder_of_sockets(os.environb)))
        _FOLDER.make(folder)
        if folder.is_symlink():
            return  # which clients do not follow
        lock = locks.try_exclusive(folder / f"{fumehood_client.name_of_keeper()}.lock")
        if lock:
            _spawn(folder, lock)


def _spawn(folder: Path, lock: locks.Lock) -> None:
    """In a session of its own, and with nothing of ours but the lock, which it holds as long as it lives."""
    subprocess.Popen(
        [sys.executable, *_ISOLATED, "-c", _BOOT, str(lock.descriptor)],
        pass_fds=(lock.descriptor,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"LC_ALL": "C.UTF-8", "PYDANTIC_DISABLE_PLUGINS": "__all__"},
        cwd=folder,
        start_new_session=True,
    )
