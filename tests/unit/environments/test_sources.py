"""Where packages come from: read from the policy, or from what uv itself makes of its configuration."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest
from unit.environments.making import spec

from fumehood.environments.installer import find_uv, install_argv
from fumehood.environments.sources import PackageSource, Site, find_sources
from fumehood.errors import StepFailedError, UsageError
from fumehood.host.interpreter import own_interpreter

MINE = "https://mine.example/simple"


def site(index: str, **variables: str) -> Site:
    (source,) = find_sources("/no/uv", spec(index=index), variables)
    assert isinstance(source.place, Site)
    return source.place


def configured(**variables: str) -> tuple[PackageSource, ...]:
    return find_sources(find_uv(), spec(python=own_interpreter()), variables)


def test_a_policys_index_is_taken_apart_without_asking_anybody() -> None:
    assert site(MINE) == Site(MINE, "mine.example", 443, is_secure=True)
    assert site("http://127.0.0.1:8080/simple") == Site("http://127.0.0.1:8080/simple", "127.0.0.1", 8080, False)
    assert site("https://Mine.Example:8443/").port == 8443


def test_a_password_is_not_in_the_address_that_the_installer_gets() -> None:
    found = site("https://me:p%40ss@mine.example/simple")
    assert found.url == MINE
    assert found.login is not None
    assert b64decode(found.login) == b"me:p@ss"
    assert found.login not in repr(found)


def test_a_password_in_netrc_is_found(tmp_path: Path) -> None:
    file = tmp_path / ".netrc"
    file.write_text("machine mine.example login me password hunter2\n")
    file.chmod(0o600)
    for found in (site(MINE, NETRC=str(file)), site(MINE, HOME=str(tmp_path))):
        assert b64decode(found.login or "") == b"me:hunter2"
    assert site("https://other.example/simple", HOME=str(tmp_path)).login is None


@pytest.mark.parametrize("index", ["https://*.example/simple", "https://10.0.0.0x1/simple", "https://mine.example:0x/"])
def test_a_host_that_is_none_is_refused(index: str) -> None:
    with pytest.raises(UsageError, match="the host of the package index"):
        site(index)


def test_an_index_behind_a_proxy_is_refused_unless_it_is_exempt() -> None:
    proxy = {"HTTPS_PROXY": "http://proxy.example:3128"}
    with pytest.raises(UsageError, match=r"HTTPS_PROXY is set.*add mine.example to NO_PROXY"):
        site(MINE, **proxy)
    for exempt in ("*", "mine.example", "x, .example", "example"):
        assert site(MINE, **proxy, NO_PROXY=exempt).host == "mine.example"
    assert site("http://127.0.0.1/simple", **proxy).host == "127.0.0.1"


def test_uv_tells_what_its_variables_and_its_configuration_mean(tmp_path: Path) -> None:
    file = tmp_path / "uv.toml"
    file.write_text('[[index]]\nname = "ours"\nurl = "https://me:hunter2@ours.example/simple"\n')
    found = configured(UV_CONFIG_FILE=str(file), UV_DEFAULT_INDEX=MINE, UV_FIND_LINKS=str(tmp_path))
    assert {(each.option, each.place.url if isinstance(each.place, Site) else each.place) for each in found} == {
        ("--default-index", MINE),
        ("--index", "https://ours.example/simple"),
        ("--find-links", tmp_path),
    }


def test_a_folder_can_be_an_index(tmp_path: Path) -> None:
    assert configured(UV_DEFAULT_INDEX=tmp_path.as_uri()) == (PackageSource("--default-index", tmp_path),)


def test_a_configuration_that_uv_does_not_take_is_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "uv.toml"
    file.write_text("index-url = 7\n")
    with pytest.raises(StepFailedError, match=r"reading uv's configuration failed.*Check uv.toml"):
        configured(UV_CONFIG_FILE=str(file))


def test_no_index_is_asked_where_the_user_says_so(tmp_path: Path) -> None:
    wheels = str(tmp_path)
    assert [source.is_index for source in configured(UV_FIND_LINKS=wheels, UV_NO_INDEX="1")] == [False]
    assert "--no-index" in install_argv(spec(), configured(UV_FIND_LINKS=wheels, UV_NO_INDEX="1"))
    assert [source.is_index for source in configured(UV_FIND_LINKS=wheels, UV_NO_INDEX="0")] == [True, False]
    assert "--no-index" not in install_argv(spec(), configured(UV_FIND_LINKS=wheels))
