"""Requirements files are read for packages, versions, markers and hashes; whatever else they say is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fumehood.environments.spec import parse_requirements, read_requirements
from fumehood.errors import UsageError

A, B = "sha256:" + "a" * 64, "sha512:" + "b" * 128
COMPILED = f"""\
# made by a tool
numpy==2.4.6 ; python_full_version < '3.12' and sys_platform == 'linux' \\
    --hash={A} \\
    --hash={B}
    # via
    #   -r requirements.in \\
    #   pandas

six==1.17.0 --hash {A}  # the last one
"""


def test_what_tools_compile_is_understood() -> None:
    parsed = parse_requirements(COMPILED, name="r.txt")
    assert parsed.lines == (
        f"numpy==2.4.6 ; python_full_version < '3.12' and sys_platform == 'linux' --hash={A} --hash={B}",
        f"six==1.17.0 --hash={A}",
    )
    assert parsed.are_hashed


def test_a_plain_list_has_no_hashes() -> None:
    parsed = parse_requirements("six\n\niniconfig>=2,<3\nuvicorn[standard]~=0.34", name="r.txt")
    assert (len(parsed.lines), parsed.are_hashed) == (3, False)


@pytest.mark.parametrize(
    "line",
    [
        "-r other.txt",
        "--requirement other.txt",
        "-c constraints.txt",
        "-e .",
        "--index-url https://packages.example/simple",
        "--extra-index-url=https://packages.example/simple",
        "--find-links /srv/wheels",
        "--trusted-host packages.example",
        "--no-binary :all:",
        "git+https://code.example/x.git",
        "six @ https://files.example/six.whl",
        "https://files.example/six.whl",
        "./six",
        "/srv/six",
        "../six.whl",
        "six --hash=md5:0123",
        "six --hash=sha256:xyz",
        "six --config-settings=a=b",
        "six --no-binary=six",
        "six==1 six==2",
        "six ; python_version > '3' -r other.txt --hash=1",
        "${PACKAGE}",
    ],
)
def test_everything_else_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(UsageError, match=r"r.txt: line 2: "):
        parse_requirements(f"iniconfig\n{line}\n", name="r.txt")


def test_a_backslash_cannot_hide_a_line_in_a_comment() -> None:
    assert parse_requirements("# comment \\\nsix\n", name="r").lines == ("six",)
    with pytest.raises(UsageError, match="line 1"):
        parse_requirements("six \\\n-r other.txt\n", name="r")


@pytest.mark.parametrize("name", ["missing.txt", "folder", "pipe", "binary"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=f"environment.requirements: .*{name} cannot be read: "):
        read_requirements(str(tmp_path / name))


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"#" * 5_000_000)
    with pytest.raises(UsageError, match="larger than 4 MiB"):
        read_requirements(str(tmp_path / "large"))
