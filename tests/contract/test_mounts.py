"""Host files that a policy shows to a sandbox: read-only unless it says otherwise, and the caller's own to read."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from ordinary import own

from fumehood import FumehoodError, Policy, Sandbox, UnenforceableError, UsageError


def mounts(*entries: tuple[Path, str, str]) -> dict[str, object]:
    return {"mounts": [{"source": str(source), "target": target, "mode": mode} for source, target, mode in entries]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as a careful user has it: nobody else may look inside."""
    folder = tmp_path / "ordner mit ü"
    (folder / "below").mkdir(parents=True)
    for path, text in ((folder / "private", "secret"), (folder / "below" / "naïve file.txt", "deep")):
        path.write_text(text)
        path.chmod(0o600)
    folder.chmod(0o700)
    own(folder)
    return folder


def test_files_of_the_caller_are_readable_whatever_their_mode(open_box: Callable[..., Sandbox], folder: Path) -> None:
    box = open_box(filesystem=mounts((folder, "/data", "ro")))
    result = box.run(
        "import os\nprint(open('/data/private').read(), os.listdir('/data/below'))\n"
        "print(open('/data/below/naïve file.txt').read())"
    )
    assert (result.stdout, result.stderr) == ("secret ['naïve file.txt']\ndeep\n", "")
    assert box.run(argv=["cat", "/data/private"]).stdout == "secret"


ATTEMPTS = {
    "overwriting": "open('/data/private', 'w')",
    "appending": "open('/data/private', 'a')",
    "creating": "open('/data/new', 'w')",
    "removing": "os.remove('/data/private')",
    "renaming": "os.rename('/data/private', '/data/other')",
    "making a folder": "os.mkdir('/data/new')",
    "changing a mode": "os.chmod('/data/private', 0o777)",
    "changing a time": "os.utime('/data/private')",
    "truncating": "os.truncate('/data/private', 0)",
    "linking": "os.symlink('x', '/data/link')",
    "removing the mount point": "os.rmdir('/data')",
}


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS.keys())
def test_a_read_only_mount_cannot_be_changed(open_box: Callable[..., Sandbox], folder: Path, attempt: str) -> None:
    box = open_box(filesystem=mounts((folder, "/data", "ro")))
    assert box.run(f"import os\ntry:\n    {attempt}\nexcept OSError:\n    print('refused')").stdout == "refused\n"
    assert sorted(path.name for path in folder.iterdir()) == ["below", "private"]
    assert ((folder / "private").read_text(), (folder / "private").stat().st_mode & 0o777) == ("secret", 0o600)


def test_what_is_written_to_a_writable_mount_is_the_callers(open_box: Callable[..., Sandbox], folder: Path) -> None:
    box = open_box(filesystem=mounts((folder, "/data", "rw")))
    result = box.run(
        "import os\nopen('/data/new', 'w').write('made inside')\n"
        "open('/data/private', 'a').write('!')\nos.makedirs('/data/a/b')"
    )
    assert result.stderr == ""
    assert (folder / "new").read_text() == "made inside"
    assert (folder / "private").read_text() == "secret!"
    assert {path.stat().st_uid for path in (folder / "new", folder / "a" / "b")} == {folder.stat().st_uid}


def test_inside_the_owner_has_the_name_of_the_sandboxs_user(open_box: Callable[..., Sandbox], folder: Path) -> None:
    box = open_box(filesystem=mounts((folder, "/data", "ro")))
    assert box.run(argv=["stat", "-c", "%U", "/data/private"]).stdout == "sandbox\n"


@pytest.mark.parametrize(("mode", "words"), [("ro", "cannot be read by user"), ("rw", "cannot be written by user")])
def test_a_folder_that_the_sandboxs_user_may_not_use_is_shown_to_it_or_refused(
    make_policy: Callable[..., Policy], folder: Path, mode: str, words: str
) -> None:
    """Root's own, which no engine can show as anybody else's. Only root has such folders."""
    os.chown(folder, os.geteuid(), os.getegid())
    try:
        with Sandbox(make_policy(filesystem=mounts((folder, "/data", mode)))) as box:
            said = box.run("import os; print(os.listdir('/data'))").stdout
    except UnenforceableError as error:
        said = str(error)
    refused = all(part in said for part in (str(folder), "/data", words, "chown -R", "backend: native"))
    assert refused or said in ("['private', 'below']\n", "['below', 'private']\n")


def test_what_everybody_may_use_is_used_by_anybody(open_box: Callable[..., Sandbox], tmp_path: Path) -> None:
    """Two owners, neither of whom programs can be at once."""
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    own(tmp_path / "theirs")
    entries = ((tmp_path / "mine", "/mine", "rw"), (tmp_path / "theirs", "/theirs", "rw"))
    result = open_box(filesystem=mounts(*entries)).run("for x in '/mine/x', '/theirs/x': open(x, 'w')")
    assert result.stderr == ""


def test_a_single_file_can_be_mounted(open_box: Callable[..., Sandbox], folder: Path) -> None:
    box = open_box(filesystem=mounts((folder / "private", "/in/one.txt", "ro")))
    result = box.run("import os\nprint(open('/in/one.txt').read(), os.listdir('/in'))\nopen('/in/one.txt', 'w')")
    assert result.stdout == "secret ['one.txt']\n"
    assert result.exit_code == 1


def test_several_mounts_stand_side_by_side(open_box: Callable[..., Sandbox], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        own(tmp_path / name)
    box = open_box(
        filesystem=mounts((tmp_path / "a", "/in/here/a", "ro"), (tmp_path / "b", "/in/there with spaces/ü", "rw"))
    )
    result = box.run("print(open('/in/here/a/file').read(), open('/in/there with spaces/ü/file').read())")
    assert (result.stdout, result.stderr) == ("a b\n", "")


@pytest.mark.one_container
def test_a_source_through_a_symbolic_link_is_followed(open_box: Callable[..., Sandbox], folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    box = open_box(filesystem=mounts((link, "/data", "ro")))
    assert box.run("print(open('/data/private').read())").stdout == "secret\n"


def test_a_link_inside_a_mount_does_not_lead_out_of_it(open_box: Callable[..., Sandbox], folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.write_text("not for you")
    (folder / "link").symlink_to(outside)
    box = open_box(filesystem=mounts((folder, "/data", "ro")))
    assert "FileNotFoundError" in box.run("open('/data/link')").stderr


def test_changes_on_the_host_are_seen_inside(open_box: Callable[..., Sandbox], folder: Path) -> None:
    box = open_box(filesystem=mounts((folder, "/data", "ro")))
    assert box.run("print(open('/data/private').read())").stdout == "secret\n"
    (folder / "private").write_text("changed")
    assert box.run("print(open('/data/private').read())").stdout == "changed\n"


@pytest.mark.one_container
def test_a_source_that_was_replaced_is_seen_by_the_next_sandbox(
    make_policy: Callable[..., Policy], tmp_path: Path
) -> None:
    """A link to the current version that is moved on, as snapshots are published."""
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "version").write_text(name)
    current = tmp_path / "current"
    policy = make_policy(filesystem=mounts((current, "/data", "ro")))
    for name in ("v1", "v2"):
        current.unlink(missing_ok=True)
        current.symlink_to(name)
        with Sandbox(policy) as box:
            assert box.run("print(open('/data/version').read())").stdout == f"{name}\n"


@pytest.mark.one_container
def test_a_source_that_was_removed_is_missed_by_the_next_sandbox(
    make_policy: Callable[..., Policy], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    policy = make_policy(filesystem=mounts((folder, "/data", "ro")))
    with Sandbox(policy) as box:
        assert box.run("pass").ok
    folder.rmdir()
    with pytest.raises(UsageError, match="cannot be used"), Sandbox(policy):
        pass


@pytest.mark.one_container
@pytest.mark.parametrize("name", ["missing", "loop", "dangling", "file/below"])
def test_a_source_that_cannot_be_used_is_one_clear_error(
    make_policy: Callable[..., Policy], tmp_path: Path, name: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").write_text("")
    source = tmp_path / name
    with (
        pytest.raises(UsageError, match=r"mount source .* cannot be used: .+ Check the path") as caught,
        Sandbox(make_policy(filesystem=mounts((source, "/data", "ro")))),
    ):
        pass
    assert str(source) in str(caught.value)


def test_a_mount_over_a_folder_of_the_interpreter_is_refused_or_works(
    make_policy: Callable[..., Policy], folder: Path
) -> None:
    """A target that happens to lie in a read-only tree that the backend shows."""
    target = f"{os.path.realpath(sys.base_prefix)}/mounted"
    try:
        policy = make_policy(filesystem=mounts((folder, target, "ro")))
        with Sandbox(policy) as box:
            said = box.run(f"print(open('{target}/private').read())").stdout
    except FumehoodError as error:
        said = str(error)
    assert said == "secret\n" or target in said
    assert not os.path.exists(target)


@pytest.fixture
def listener(folder: Path) -> Iterator[socket.socket]:
    """By a relative path: the whole one may be too long for a socket."""
    with socket.socket(socket.AF_UNIX) as listening, chdir(folder):
        listening.bind("service.sock")
        listening.listen()
        own(folder)
        yield listening


def test_a_mount_with_a_socket_is_refused_by_its_name(
    open_box: Callable[..., Sandbox], folder: Path, listener: socket.socket
) -> None:
    with pytest.raises(UnenforceableError, match=r"service\.sock.*sockets: true"):
        open_box(filesystem=mounts((folder, "/data", "ro")))


def test_sockets_in_a_mount_that_allows_them_can_be_used(
    open_box: Callable[..., Sandbox], folder: Path, listener: socket.socket
) -> None:
    box = open_box(filesystem={"mounts": [{"source": str(folder), "target": "/data", "sockets": True}]})
    code = "import socket; socket.socket(socket.AF_UNIX).connect('/data/service.sock'); print('connected')"
    assert box.run(code).stdout == "connected\n"
