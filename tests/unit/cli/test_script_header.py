"""What a script's header asks for, and what it does not get for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood import Policy
from fumehood.cli.script_header import ScriptHeader, check_python, read_header, with_header
from fumehood.errors import UsageError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_HOME", str(tmp_path / "hood"))


def script(*lines: str) -> bytes:
    return "\n".join(["#!/usr/bin/env python", "# /// script", *(f"# {line}" for line in lines), "# ///", "1"]).encode()


def test_a_header_is_read() -> None:
    source = script('requires-python = ">=3.11"', "dependencies = [", '  "pandas<3",', '  "rich",', "]")
    assert read_header(source, "x.py") == ScriptHeader(("pandas<3", "rich"), ">=3.11")
    assert read_header(script(), "x.py") == ScriptHeader((), None)
    assert read_header(b"# /// other\n# ///\n", "x.py") is None
    assert read_header(b"print('# /// script')", "x.py") is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"# /// script\n# x = 1\nprint()\n# ///", "has no end"),
        (b"# /// script\n# ///\n# /// script\n# ///", "more than one header"),
        (script("dependencies = ["), "is not valid TOML"),
        (script("x = " + "[" * 30_000), "is not valid TOML"),
        (script("x = '" + "a" * 70_000 + "'"), "more than 65536 characters"),
        (script("dependencies = 'pandas'"), "must be a list of packages"),
        (script("dependencies = [1]"), "must be a list of packages"),
        (script("requires-python = 3"), "must be text"),
        (script(f"dependencies = {['a'] * 201}"), "more than 200 packages"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(source: bytes, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read_header(source, "x.py")


@pytest.mark.parametrize("key", ["index", "sources", "extra-index-url", "find-links"])
def test_a_header_does_not_choose_where_packages_come_from(key: str) -> None:
    with pytest.raises(UsageError, match=f"says where packages come from \\(tool.uv.{key}\\)"):
        read_header(script("[tool.uv]", f"{key} = {{a = 'https://evil.example'}}"), "x.py")


@pytest.mark.parametrize("package", ["x @ https://evil.example/x.whl", "--index-url=https://evil.example", "-r /etc/x"])
def test_a_header_asks_for_names_and_versions_alone(package: str) -> None:
    with pytest.raises(UsageError, match="must be a package with optional versions"):
        with_header(Policy(), script(f"dependencies = [{package!r}]"), "x.py", install=True)


def test_nothing_is_installed_because_a_script_says_so() -> None:
    """Names of packages are sent to an index: the script would have a way out."""
    with pytest.raises(UsageError, match=r"add --install to install them, or --with 'pandas<3' --with rich"):
        with_header(Policy(), script('dependencies = ["pandas<3", "rich"]'), "x.py", install=False)


def test_who_asks_gets_the_packages_beside_those_of_the_policy() -> None:
    policy = Policy(environment={"packages": ["numpy==2.*"]})
    policy = with_header(policy, script('dependencies = ["rich", "NumPy"]'), "x.py", install=True)
    assert policy.environment.packages == ("numpy==2.*", "rich")


def test_packages_that_the_policy_names_need_no_word() -> None:
    policy = Policy(environment={"packages": ["scikit-learn==1.*"]})
    assert with_header(policy, script('dependencies = ["Scikit_Learn>1"]'), "x.py", install=False) is policy


@pytest.mark.parametrize(
    "wanted", [">=3.11", ">3.11.2", "==3.11.*", "~=3.11.0", "~=3.8", "!=3.12.*, <4", "", " >= 3.9 "]
)
def test_a_python_that_fits(wanted: str) -> None:
    check_python(wanted, "x.py", (3, 11, 7))


@pytest.mark.parametrize(
    "wanted", [">=3.12", "<3.11", "==3.11", "~=3.10.0", "!=3.11.*", ">=3.9,<3.11", "<=3.10", ">3.11.7"]
)
def test_a_python_that_does_not_fit(wanted: str) -> None:
    with pytest.raises(UsageError, match=r"x.py needs Python .*, and this is 3\.11\.7"):
        check_python(wanted, "x.py", (3, 11, 7))


@pytest.mark.parametrize("wanted", ["3.11", ">=three", "=>3"])
def test_a_python_that_cannot_be_read(wanted: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        check_python(wanted, "x.py", (3, 11, 7))
