"""The login: where sandboxes are by default, and that its key goes to one server and is read by one user."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from fumehood import UsageError, connect
from fumehood.remote.login import Login, find_login, read_login, remove_login, write_login

HOME, OTHER = "https://hood.example", "https://other.example"


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    return {"FUMEHOOD_LOGIN": str(tmp_path / "config" / "login.json")}


def test_the_environment_wins_over_the_login(variables: dict[str, str]) -> None:
    assert find_login(variables) is None
    path = write_login(Login(HOME, "fh_stored"), variables)
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    assert find_login(variables) == Login(HOME, "fh_stored")
    assert find_login({**variables, "FUMEHOOD_KEY": "fh_given"}) == Login(HOME, "fh_given")
    both = {**variables, "FUMEHOOD_SERVER": OTHER, "FUMEHOOD_KEY": "fh_given"}
    assert find_login(both) == Login(OTHER, "fh_given")
    assert find_login({**variables, "FUMEHOOD_SERVER": ""}) is None
    assert "fh_stored" not in repr(find_login(variables))
    assert (remove_login(variables), remove_login(variables), find_login(variables)) == (True, False, None)


def test_the_key_of_a_login_goes_to_no_other_server(variables: dict[str, str]) -> None:
    write_login(Login(HOME, "fh_stored"), variables)
    assert find_login({**variables, "FUMEHOOD_SERVER": HOME + "/"}) == Login(HOME + "/", "fh_stored")
    with pytest.raises(UsageError, match=r"other\.example wants a key: set FUMEHOOD_KEY, or run `hood login"):
        find_login({**variables, "FUMEHOOD_SERVER": OTHER})


def test_a_login_that_others_could_use_or_have_made_is_refused(variables: dict[str, str], tmp_path: Path) -> None:
    path = write_login(Login(HOME, "fh_stored"), variables)
    path.chmod(0o640)
    with pytest.raises(UsageError, match="can be used by others; run `chmod 600"):
        read_login(variables)
    path.chmod(0o600)
    path.write_text('{"server": 7}')
    with pytest.raises(UsageError, match="is not valid"):
        read_login(variables)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="cannot be read"):
        read_login(variables)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(UsageError, match="is not a file"):
        read_login(variables)
    with pytest.raises(UsageError, match="must be an absolute path"):
        read_login({"FUMEHOOD_LOGIN": "login.json"})


def test_a_key_is_not_sent_in_the_clear() -> None:
    with pytest.raises(UsageError, match="would send the key in the clear"):
        connect("http://hood.example", "fh_x")


@pytest.mark.parametrize("key", ["fh_first fh_second", "fh_first\nX-Other: fh_second", "fh_f\u00fcrst", "fh_\0"])
def test_what_is_no_key_is_refused_before_anybody_could_show_it(key: str) -> None:
    with pytest.raises(UsageError, match="is not a key, which is one word") as refusal:
        connect("http://127.0.0.1:1", key)
    assert key[:5] not in str(refusal.value).replace("fh_...", "")


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from fumehood.remote.server import connect

    monkeypatch.setitem(sys.modules, "websockets.asyncio.client", None)

    async def open_one() -> None:
        async with connect("http://127.0.0.1:1", "key").sandbox():
            pass

    with pytest.raises(UsageError, match=re.escape("pip install 'fumehood[remote]'")):
        asyncio.run(open_one())
