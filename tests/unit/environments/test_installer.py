"""What the installer is told, what it gets to know of its caller, and what its words mean."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from unit.environments.making import spec

from fumehood.environments import EnvironmentSpec
from fumehood.environments.installer import InstallReport, explain, find_uv, install_argv, installer_variables, plan
from fumehood.environments.sources import PackageSource, Site
from fumehood.errors import DeniedError, FumehoodError, StepFailedError, UsageError

CALLER = {
    "HOME": "/home/me",
    "SSL_CERT_FILE": "/etc/ssl/ca.pem",
    "UV_CACHE_DIR": "/home/me/.cache/uv",
    "UV_HTTP_TIMEOUT": "60",
    "UV_INDEX": "https://packages.example/simple",
    "UV_INDEX_OURS_PASSWORD": "hunter2",
    "UV_INDEX_STRATEGY": "first-index",
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
MINE = Site("https://mine.example/simple", "mine.example", 443, is_secure=True)


def argv(wanted: EnvironmentSpec, *sources: PackageSource) -> str:
    return " ".join(install_argv(wanted, sources))


def test_only_wheels_are_installed_and_the_cache_is_the_builds_own() -> None:
    command = argv(spec())
    assert command.startswith("/opt/installer/uv pip install ")
    for words in ("--only-binary :all:", "--cache-dir /opt/build/cache", "--target /opt/build/packages", "--no-config"):
        assert words in command
    assert "--python /opt/python/bin/python3.11" in command
    assert "--require-hashes" not in command


def test_hashes_are_required_where_there_are_any() -> None:
    assert "--require-hashes" in argv(spec(are_hashed=True))


def test_the_installer_learns_nothing_of_its_caller_but_how_patient_to_be() -> None:
    ours = {"PYC_INVALIDATION_MODE", "HOME", "TMPDIR"}
    assert set(installer_variables(CALLER, spec())) == {"UV_HTTP_TIMEOUT", "UV_INDEX_STRATEGY", *ours}
    assert set(installer_variables(CALLER, spec(index=MINE.url))) == {"UV_HTTP_TIMEOUT", *ours}
    assert installer_variables(CALLER, spec())["HOME"] == "/opt/build/home"


def test_sources_are_named_one_by_one_and_folders_where_the_installer_sees_them() -> None:
    command = argv(spec(), PackageSource("--default-index", MINE), PackageSource("--find-links", Path("/srv/wheels")))
    assert command.endswith("--default-index https://mine.example/simple --find-links file:///opt/sources/1")


def test_a_task_shows_the_installer_what_it_needs_and_no_password(tmp_path: Path) -> None:
    wanted = spec("Zope.Interface==1", index="https://me:hunter2@mine.example/simple")
    task = plan("/bin/uv", wanted, CALLER, asked=tmp_path / "asked.txt", build=tmp_path / "build")
    assert set(task.readable) == {"/opt/installer/uv", "/opt/installer/asked.txt"}
    assert task.writable == {"/opt/build": tmp_path / "build"}
    assert task.pages == ("https://mine.example/simple/zope-interface/",)
    assert "hunter2" not in repr(task)
    assert task.sites[0].login is not None


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
    ("", StepFailedError, "uv ended with code 7 and printed nothing. Check"),
]


@pytest.mark.parametrize(("said", "kind", "words"), MEANINGS)
def test_what_went_wrong_is_said_to_whom_it_concerns(said: str, kind: type[FumehoodError], words: str) -> None:
    error = explain(InstallReport(7, said))
    assert isinstance(error, kind)
    assert words in str(error)
    assert "\n" not in str(error)


def test_who_was_turned_back_is_told_where_and_why() -> None:
    error = explain(InstallReport(2, "error: No solution found", refused=("connect evil.example:443 (no rule)",)))
    assert isinstance(error, DeniedError)
    assert "was refused: connect evil.example:443 (no rule)" in str(error)


def test_a_limit_is_told_before_anything_that_the_installer_says() -> None:
    assert "it used more memory. Install fewer" in str(
        explain(InstallReport(137, "error: x", limit="it used more memory."))
    )


def test_a_missing_installer_is_an_error_with_the_command_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(UsageError, match=r"pip install uv"):
        find_uv()


def test_an_interpreter_without_a_path_takes_no_installer_from_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planted = tmp_path / "uv"
    planted.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "uv", None)
    for executable in ("", None, "python"):
        monkeypatch.setattr(sys, "executable", executable)
        with pytest.raises(UsageError, match=r"pip install uv"):
            find_uv()
