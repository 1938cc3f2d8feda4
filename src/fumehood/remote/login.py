"""The login of a user: the server where sandboxes are opened, and its key, in a file that only its owner can read.

`hood login` writes it. FUMEHOOD_SERVER and FUMEHOOD_KEY take its place; FUMEHOOD_SERVER without a value means this
machine, whatever the login says.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.host.folders import PrivateFolder, user_folder

URL_VARIABLE = "FUMEHOOD_SERVER"
KEY_VARIABLE = "FUMEHOOD_KEY"
CA_VARIABLE = "FUMEHOOD_SERVER_CA"
FILE_VARIABLE = "FUMEHOOD_LOGIN"
_FOLDER = PrivateFolder("the login", FILE_VARIABLE, is_readable=True)
_MOST_BYTES = 64 * 1024


@frozen
class Login:
    url: str
    key: str
    ca_file: str | None = None

    def __repr__(self) -> str:
        return f"Login({self.url!r})"


def login_file(variables: Mapping[str, str] = os.environ) -> Path:
    chosen = variables.get(FILE_VARIABLE)
    if not chosen:
        return user_folder("config", variables, FILE_VARIABLE) / "login.json"
    if not os.path.isabs(chosen):
        raise UsageError(f"{FILE_VARIABLE} {chosen!r} must be an absolute path")
    return Path(chosen)


def find_login(variables: Mapping[str, str] = os.environ) -> Login | None:
    """Where sandboxes are opened by default; None for this machine."""
    url = variables.get(URL_VARIABLE)
    if url == "":
        return None
    stored = read_login(variables)
    if url is None and stored is None:
        return None
    place = url or (stored.url if stored else "")
    # The key of a login is sent to the server that it was made for, and to no other.
    own = stored if stored and stored.url == place.rstrip("/") else None
    key = variables.get(KEY_VARIABLE) or (own.key if own else None)
    if not key:
        raise UsageError(f"{place} wants a key: set {KEY_VARIABLE}, or run `hood login {place}`")
    return Login(place, key, variables.get(CA_VARIABLE) or (own.ca_file if own else None))


def read_login(variables: Mapping[str, str] = os.environ) -> Login | None:
    """The stored one, which is refused if another user could have written or read it."""
    path = login_file(variables)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"the login {path} cannot be read: {error.strerror}; `hood logout` removes it") from error
    with os.fdopen(descriptor, "rb") as file:
        _check_owner(path, os.fstat(descriptor))
        return _parse(path, file.read(_MOST_BYTES))


def _check_owner(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"the login {path} is not a file; `hood logout` removes it")
    if found.st_uid != os.geteuid():
        raise UsageError(f"the login {path} belongs to another user (uid {found.st_uid}); log in again")
    if found.st_mode & 0o077:
        raise UsageError(f"the login {path} can be used by others; run `chmod 600 {path}`, and revoke its key")


def _parse(path: Path, data: bytes) -> Login:
    try:
        given: object = json.loads(data)
    except ValueError:
        given = None
    fields = cast("dict[str, object]", given) if isinstance(given, dict) else {}
    url, key, ca_file = fields.get("server"), fields.get("key"), fields.get("ca_file")
    if not isinstance(url, str) or not isinstance(key, str) or not isinstance(ca_file, str | None):
        raise UsageError(f"the login {path} is not valid; run `hood login URL` again")
    return Login(url, key, ca_file)


def write_login(login: Login, variables: Mapping[str, str] = os.environ) -> Path:
    """In the place of another one, at once."""
    path = login_file(variables)
    _FOLDER.make(path.parent)
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({"server": login.url, "key": login.key, "ca_file": login.ca_file}, file)
    os.replace(draft, path)
    return path


def remove_login(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether there was one."""
    try:
        login_file(variables).unlink()
    except FileNotFoundError:
        return False
    return True
