"""What the installer is told, what it gets to know of its caller, and what its words mean."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from unit.environments.making import wishes

from fumehood.environments import Wishes
from fumehood.environments.installer import explain, find_uv, install_argv, installer_variables
from fumehood.errors import DeniedError, FumehoodError, StepFailedError, UsageError

CALLER = {
    "HOME": "/home/me",
    "HTTPS_PROXY": "http://proxy.example:3128",
    "SSL_CERT_FILE": "/etc/ssl/ca.pem",
    "UV_INDEX": "https://packages.example/simple",
    "UV_INDEX_OURS_PASSWORD": "hunter2",
    "UV_CONFIG_FILE": "/home/me/uv.toml",
    "UV_TARGET": "/",
    "UV_NO_BINARY": "1",
    "UV_NO_VERIFY_HASHES": "1",
    "UV_CONSTRAINT": "c.txt",
    "UV_PYTHON": "3.8",
    "PIP_INDEX_URL": "https://other.example/simple",
    "PYTHONPATH": "/tmp",
    "PYTHONSTARTUP": "/tmp/x.py",
    "LD_PRELOAD": "/tmp/x.so",
    "AWS_SECRET_ACCESS_KEY": "secret",
}


def argv(wanted: Wishes) -> str:
    return " ".join(install_argv("/bin/uv", wanted, Path("/b/asked.txt"), Path("/b/packages")))


def test_only_wheels_are_installed_and_nothing_is_linked_to_the_cache() -> None:
    command = argv(wishes())
    assert command.startswith("/bin/uv pip install ")
    for words in ("--only-binary :all:", "--link-mode copy", "--target /b/packages", "-r /b/asked.txt"):
        assert words in command
    assert "--python /opt/python/bin/python3.11" in command
    assert "--require-hashes" not in command


def test_hashes_are_required_where_there_are_any() -> None:
    assert "--require-hashes" in argv(wishes(are_hashed=True))


def test_the_installer_knows_how_to_reach_an_index_and_nothing_else() -> None:
    assert set(installer_variables(CALLER, wishes())) == {
        *("HOME", "HTTPS_PROXY", "SSL_CERT_FILE", "UV_INDEX", "UV_INDEX_OURS_PASSWORD", "UV_CONFIG_FILE"),
        "PYC_INVALIDATION_MODE",
    }


def test_an_index_of_the_policys_is_the_only_one() -> None:
    wanted = wishes(index="https://mine.example/simple")
    assert "--no-config --default-index https://mine.example/simple" in argv(wanted)
    assert set(installer_variables(CALLER, wanted)) == {"HOME", "HTTPS_PROXY", "SSL_CERT_FILE", "PYC_INVALIDATION_MODE"}


NEW_NOT_FOUND = """\
Using CPython 3.11.7 interpreter at: /usr/bin/python3
error: No solution found when resolving dependencies
  cause: Because nope was not found in the package registry and you require nope, we can conclude that your \
requirements are unsatisfiable.
"""
OLD_NOT_FOUND = """\
  × No solution found when resolving dependencies:
  ╰─▶ Because nope was not found in the package registry and you require
      nope, we can conclude that your requirements are unsatisfiable.
"""  # noqa: RUF001
NO_WHEELS = """\
error: No solution found when resolving dependencies
  cause: Because all versions of old have no usable wheels and you require old, we can conclude that your \
requirements are unsatisfiable.

hint: Wheels are required for `old` because building from source is disabled for all packages
"""
MISMATCH = """\
error: Failed to download `six==1.17.0`
  cause: Hash mismatch for `six==1.17.0`

         Expected:
           sha256:aa
"""
MEANINGS: list[tuple[str, type[FumehoodError], str]] = [
    (NEW_NOT_FOUND, UsageError, ": nope was not found in the package registry and you require nope. Check"),
    (OLD_NOT_FOUND, UsageError, ": nope was not found in the package registry and you require nope. Check"),
    (NO_WHEELS, DeniedError, ": all versions of old have no usable wheels and you require old. Only wheels are"),
    (MISMATCH, DeniedError, "Hash mismatch for `six==1.17.0` Expected: sha256:aa. The index has something else"),
    ("error: In `--require-hashes` mode, all must", UsageError, "must list every package, dependencies included"),
    ("error: Hash-checking is required, but no trusted hash", UsageError, "pinned with == and with its hash"),
    ("error: Failed to fetch: x\n  cause: refused", StepFailedError, "failed: Failed to fetch: x: refused. Check that"),
    ("error: disk full", StepFailedError, "disk full. Check that this machine reaches its index and has space"),
    ("", StepFailedError, "uv ended with code 7 and said nothing. Check"),
]


@pytest.mark.parametrize(("said", "kind", "words"), MEANINGS)
def test_what_went_wrong_is_said_to_whom_it_concerns(said: str, kind: type[FumehoodError], words: str) -> None:
    error = explain(said, 7)
    assert isinstance(error, kind)
    assert words in str(error)
    assert "\n" not in str(error)


def test_a_missing_installer_is_an_error_with_the_command_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uv", None)
    with pytest.raises(UsageError, match=r"pip install 'fumehood\[environments\]'"):
        find_uv()
