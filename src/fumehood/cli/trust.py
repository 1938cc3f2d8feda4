"""Which project policies this user trusts: a copy of each, in a folder of the user's own.

A policy that was found, not named, may come with a cloned repository, or be the work of a program that could write to
the folder. So it counts only while it is, byte for byte, what its user made known with `hood init` or `hood policy
trust`. The copy is for comparison, and for the difference in words when the file has changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fumehood.errors import UsageError
from fumehood.host.folders import PrivateFolder, user_folder

VARIABLE = "FUMEHOOD_TRUST"
FOLDER = PrivateFolder("trusted policies", VARIABLE)


def find_folder(variables: Mapping[str, str]) -> Path:
    """$FUMEHOOD_TRUST, else the user's state folder."""
    chosen = variables.get(VARIABLE)
    if not chosen:
        return user_folder("state", variables, VARIABLE) / "trust"
    if not os.path.isabs(chosen):
        raise UsageError(f"{VARIABLE} {chosen!r} must be an absolute path")
    return Path(chosen)


def trusted_content(path: str) -> bytes | None:
    """What the file at this absolute path held when it was trusted; None if it never was."""
    copy = _copy_of(path)
    try:
        head, _, content = copy.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{copy}, the copy of a trusted policy, cannot be read: {error.strerror}") from error
    FOLDER.make(copy.parent)  # it exists, so this only checks that no other user can write there
    return content if head == _head(path) else None


def remember(path: str, content: bytes) -> None:
    """From now on the file is trusted, as long as it holds exactly this."""
    copy = _copy_of(path)
    FOLDER.make(copy.parent)
    draft = copy.with_suffix(f".{os.getpid()}")
    try:
        draft.write_bytes(_head(path) + b"\n" + content)
        draft.replace(copy)
    except OSError as error:
        raise UsageError(f"{copy} cannot be written, so {path} is not trusted: {error.strerror}") from error


def forget(path: str) -> bool:
    """Whether it was trusted until now."""
    was_trusted = trusted_content(path) is not None
    _copy_of(path).unlink(missing_ok=True)
    return was_trusted


def _head(path: str) -> bytes:
    return b"# " + ascii(path).encode()


def _copy_of(path: str) -> Path:
    from hashlib import sha256

    return find_folder(os.environ) / f"{sha256(os.fsencode(path)).hexdigest()}.yaml"
