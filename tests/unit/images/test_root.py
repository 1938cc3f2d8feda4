"""Reading a root file system that somebody else made."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.images.archives import file, link, write_archive

from fumehood import FumehoodError
from fumehood.images.dpkg import wheel_platform
from fumehood.images.root import add_account, open_root


def test_python_is_found_through_links(tmp_path: Path) -> None:
    entries = [link("./bin", "usr/bin"), link("usr/bin/python3", "/bin/python3.12"), file("usr/bin/python3.12")]
    with open_root(write_archive(tmp_path / "root.tar", *entries)) as root:
        assert root.python() == ("/usr/bin/python3", (3, 12))


@pytest.mark.parametrize(
    "entries",
    [
        [file("usr/bin/perl")],
        [link("usr/bin/python3", "python3.11")],
        [link("usr/bin/python3", "/usr/bin/python3")],
        [link("usr", "/usr")],
        [link("usr/bin/python3", "../../../../../../python3.11")],
    ],
    ids=["none", "a dead link", "a loop", "a loop of folders", "out of the root"],
)
def test_python_that_is_not_there_is_not_found(tmp_path: Path, entries: list[tuple[object, bytes]]) -> None:
    with open_root(write_archive(tmp_path / "root.tar", *entries)) as root:  # type: ignore[arg-type]
        assert root.python() is None


def test_a_command_is_found_through_links_that_lead_up(tmp_path: Path) -> None:
    """As Debian's Go has it; the link from there is followed from where it is."""
    program = "usr/lib/go-1.19/bin/go"
    entries = [link("usr/bin/go", "../lib/go/bin/go"), link("usr/lib/go", "./go-1.19"), file(program)]
    with open_root(write_archive(tmp_path / "root.tar", *entries)) as root:
        assert root.resolve("usr/bin/go") == program
        assert root.find_command("go", {program}) == program
        assert root.find_command("go", set()) is None


def test_what_is_no_archive_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "root.tar").write_bytes(b"no archive" * 1000)
    with pytest.raises(FumehoodError, match="reading the root file system failed"), open_root(tmp_path / "root.tar"):
        pytest.fail("it opened")


def test_the_user_has_a_number_of_its_own(tmp_path: Path) -> None:
    passwd = b"root:x:0:0::/:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\nsandbox:x:7:7::/:/bin/sh\n"
    entries = [file("etc/passwd", passwd), file("etc/group", b"root:x:0:\nother:x:1001:\n")]
    with open_root(write_archive(tmp_path / "root.tar", *entries)) as root:
        account = add_account(root)
    assert account.user == "1002:1002"
    assert account.files["etc/passwd"].endswith(b"\nsandbox:x:1002:1002::/workspace:/bin/sh\n")
    assert account.files["etc/passwd"].count(b"sandbox:") == 1


def _libc(version: str) -> tuple[object, bytes]:
    return file("var/lib/dpkg/status", f"Package: libc6\nStatus: install ok installed\nVersion: {version}\n".encode())


@pytest.mark.parametrize(
    ("entry", "platform"),
    [
        (_libc("2.36-9+deb12u14"), "x86_64-manylinux_2_36"),
        (_libc("2.99-1"), "x86_64-manylinux_2_40"),
        (_libc("2.30-1"), "x86_64-manylinux_2_28"),
        (file("lib/ld-musl-x86_64.so.1"), "x86_64-unknown-linux-musl"),
        (file("etc/os-release"), "x86_64-manylinux_2_17"),
    ],
)
def test_wheels_fit_the_c_library_of_the_image(tmp_path: Path, entry: tuple[object, bytes], platform: str) -> None:
    with open_root(write_archive(tmp_path / "root.tar", entry)) as root:  # type: ignore[arg-type]
        assert wheel_platform(root, "x86_64") == platform
