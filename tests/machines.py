"""Machines of the tests' own: an image that is made once, and templates that stay in the cache folder by content.

Run as a program, `python tests/machines.py` makes the image and prints the folder that FUMEHOOD_MACHINES is to name.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

BACKEND = "microvm"
COMPONENTS = ("qemu-system-x86_64", "mmdebstrap", "mkfs.erofs", "lz4")
_SOURCES = Path(__file__).parent.parent / "src" / "fumehood" / "images"


def missing() -> str | None:
    """Why there can be none here."""
    if os.geteuid() != 0:
        return "an image for machines is made as root here"
    absent = [name for name in COMPONENTS if shutil.which(name) is None]
    return f"needs {', '.join(absent)} (apt-get install qemu-system-x86 mmdebstrap erofs-utils lz4)" if absent else None


def folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "fumehood" / "test-machines"


def use() -> str:
    """Makes the image unless the one that is there was made in the same way; returns the folder for it."""
    place = folder()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(place / "tests.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = place / "recipe.json"
        if not record.exists() or json.loads(record.read_text()) != recipe():
            _make_image(place)
            record.write_text(json.dumps(recipe()))
    finally:
        os.close(lock)
    return str(place)


def _make_image(place: Path) -> None:
    """With the same command that users have."""
    environment = {**os.environ, "FUMEHOOD_MACHINES": str(place), "PYTHONPATH": str(_SOURCES.parent.parent)}
    command = [sys.executable, "-m", "fumehood", "image", "build", "--vm"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def recipe() -> str:
    """Of all that decides what is in the image, but for what is new in Debian."""
    content = b"".join(path.read_bytes() for path in sorted(_SOURCES.rglob("*.py")))
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    if problem := missing():
        sys.exit(problem)
    print(use())
