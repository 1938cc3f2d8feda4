"""Files in and out: what the caller puts in the program finds, and what the program makes the caller can have."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from ordinary import own

from fumehood import DeniedError, FumehoodError, Sandbox, UsageError

OpenBox = Callable[..., Sandbox]
OUT = {"outputs": ["**"]}


@pytest.fixture
def box(lend_box: OpenBox) -> Sandbox:
    return lend_box(filesystem=OUT)


NAMES = ["data.csv", "two\nlines", os.fsdecode(b"\xff\xfe"), "x" * 255, "-rf", "漢字"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_what_is_written_a_program_reads_and_the_other_way_round(box: Sandbox, name: str) -> None:
    box.files.write(f"in/{name}", b"from the host")
    code = f"name = {name!a}\nprint(open('in/' + name).read())\nopen('out-' + name[:200], 'w').write('back')"
    assert box.run(code).stdout == "from the host\n"
    assert box.files.read(f"out-{name[:200]}") == b"back"
    assert [entry.name for entry in box.files.list("in")] == [name]


def test_files_can_be_written_before_the_first_run_and_read_after_the_last(box: Sandbox) -> None:
    box.files.write("a/b", "text")
    assert box.files.read("/workspace/a/b") == b"text"
    assert box.files.stat("a").kind == "folder"
    box.files.remove("a", recursive=True)
    assert box.files.list() == []


def test_a_program_may_change_and_execute_what_was_put_in(box: Sandbox) -> None:
    box.files.write("tool.sh", "#!/bin/sh\necho ran", executable=True)
    assert box.run(argv=["./tool.sh"]).stdout == "ran\n"
    assert box.run("open('tool.sh', 'a').write('x'); import os; os.remove('tool.sh')").ok
    assert box.files.list() == []


def test_five_megabytes_arrive_whole(box: Sandbox) -> None:
    data = os.urandom(5_000_000)
    box.files.write("x", data)
    assert box.files.read("x") == data


def test_a_tree_goes_in_and_comes_out(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "project/src").mkdir(parents=True)
    (tmp_path / "project/src/main.py").write_text("print('hello')")
    (tmp_path / "project/link").symlink_to("src/main.py")
    (tmp_path / "project/out").symlink_to("/etc")
    sent = box.files.upload(tmp_path / "project", "project")
    assert (sent.files, [item.path for item in sent.skipped]) == (1, ["out"])
    assert box.run(argv=["python3", "project/link"]).stdout == "hello\n"
    got = box.files.download("project", tmp_path / "copy")
    assert (got.files, got.skipped) == (1, ())
    assert (tmp_path / "copy/link").read_text() == "print('hello')"


@pytest.mark.one_container
def test_what_comes_out_is_data(box: Sandbox, tmp_path: Path) -> None:
    code = """if True:
        import os, socket
        os.makedirs('out/.git/hooks')
        open('out/.git/hooks/pre-commit', 'w').write('evil')
        open('out/tool', 'w').write('x')
        os.chmod('out/tool', 0o777)
        os.symlink('/etc/passwd', 'out/absolute')
        os.symlink('../../../../../etc/passwd', 'out/relative')
        os.symlink('tool', 'out/fine')
        os.mkfifo('out/pipe')
        socket.socket(socket.AF_UNIX).bind('out/socket')
    """
    assert box.run(code).ok
    got = box.files.download("out", tmp_path / "copy")
    assert sorted(os.listdir(tmp_path / "copy")) == ["fine", "tool"]
    assert {item.path for item in got.skipped} == {
        f"out/{name}" for name in (".git", "absolute", "relative", "pipe", "socket")
    }
    assert stat.S_IMODE((tmp_path / "copy/tool").stat().st_mode) & 0o7111 == 0
    with_git = box.files.download("out", tmp_path / "with-git", git=True)
    assert with_git.files == 2


@pytest.mark.one_container
def test_only_what_outputs_name_leaves(open_box: OpenBox, tmp_path: Path) -> None:
    box = open_box(filesystem={"outputs": ["out/*.csv"]})
    assert box.run("import os; os.mkdir('out'); [open(n, 'w') for n in ('out/a.csv', 'out/b.txt', 'c.csv')]").ok
    assert box.files.read("out/a.csv") == b""
    for path in ("out/b.txt", "c.csv", "out/../c.csv", "/etc/hostname"):
        with pytest.raises(DeniedError):
            box.files.read(path)
    got = box.files.download("out", tmp_path / "copy")
    assert (os.listdir(tmp_path / "copy"), [item.path for item in got.skipped]) == (["a.csv"], ["out/b.txt"])
    assert len(box.files.list("out")) == 2


@pytest.mark.one_container
def test_without_outputs_nothing_leaves(lend_box: OpenBox, tmp_path: Path) -> None:
    box = lend_box()
    box.files.write("x", b"")
    with pytest.raises(DeniedError, match=r"filesystem\.outputs"):
        box.files.read("x")
    with pytest.raises(DeniedError, match=r"filesystem\.outputs"):
        box.files.download("", tmp_path / "copy")


ON_A_MOUNT = "writing to a read-only mount"
BAD: dict[str, tuple[Callable[[Sandbox, Path], object], type[FumehoodError], str]] = {
    "reading a folder": (lambda box, here: box.files.read("folder"), UsageError, "is a folder"),
    "reading what is not there": (lambda box, here: box.files.read("missing"), UsageError, "does not exist"),
    "reading a pipe": (lambda box, here: box.files.read("pipe"), UsageError, "is a pipe"),
    "reading a link out": (lambda box, here: box.files.read("passwd"), UsageError, "leads out of the workspace"),
    "reading above": (lambda box, here: box.files.read("../etc/passwd"), UsageError, "leads out of the workspace"),
    ON_A_MOUNT: (lambda box, here: box.files.write("/data/x", b""), DeniedError, "read-only"),
    "writing to the system": (lambda box, here: box.files.write("/usr/bin/x", b""), DeniedError, "read-only"),
    "writing to a folder": (lambda box, here: box.files.write("folder", b""), UsageError, "is a folder"),
    "writing more than fits": (
        lambda box, here: box.files.write("x", bytes(5_000_000)),
        DeniedError,
        "workspace is full",
    ),
    "writing to scratch": (lambda box, here: box.files.write("/tmp/x", b""), UsageError, "made anew for each run"),
    "removing what is full": (lambda box, here: box.files.remove("folder"), UsageError, "recursive=True"),
    "making a folder twice": (lambda box, here: box.files.mkdir("folder", parents=False), UsageError, "exists already"),
    "uploading what is not there": (lambda box, here: box.files.upload(here / "no", "x"), UsageError, "No such file"),
    "downloading over something": (lambda box, here: box.files.download("file", here / "taken"), UsageError, "exists"),
    "a path with NUL": (lambda box, here: box.files.list("a\0b"), UsageError, "NUL"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_done_is_one_clear_error(lend_box: OpenBox, tmp_path: Path, what: str) -> None:
    action, kind, words = BAD[what]
    (tmp_path / "taken").touch()
    (tmp_path / "data").mkdir()
    mounts = [{"source": str(tmp_path / "data"), "target": "/data"}] if what == ON_A_MOUNT else []
    box = lend_box(filesystem={**OUT, "mounts": mounts, "workspace": {"size": "4M"}})
    prepare = (
        "import os\nos.mkfifo('pipe'); os.makedirs('folder/x'); open('file', 'w')\nos.symlink('/etc/passwd', 'passwd')"
    )
    assert box.run(prepare).ok
    before = {entry.name for entry in box.files.list()}
    with pytest.raises(kind, match=words):
        action(box, tmp_path)
    assert {entry.name for entry in box.files.list()} == before
    assert box.run("print('still here')").stdout == "still here\n"


def test_a_writable_mount_can_be_written_to(open_box: OpenBox, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    own(tmp_path / "data")
    mount = {"source": str(tmp_path / "data"), "target": "/data", "mode": "rw"}
    box = open_box(filesystem={"mounts": [mount]})
    box.files.write("/data/sub/x", b"x")
    assert (tmp_path / "data/sub/x").read_bytes() == b"x"
    assert [entry.name for entry in box.files.list("/data")] == ["sub"]


def test_files_of_two_sandboxes_are_apart(lend_box: OpenBox) -> None:
    one, other = lend_box(filesystem=OUT), lend_box(filesystem=OUT)
    one.files.write("x", b"1")
    assert other.files.list() == []


def test_the_smallest_limits_leave_room_for_files(open_box: OpenBox) -> None:
    box = open_box(filesystem=OUT, resources={"open_files": 16, "processes": 1, "output": 3, "memory": "16M"})
    box.files.write("a/b/c", b"x")
    assert box.files.read("a/b/c") == b"x"


def test_files_can_be_used_while_a_program_runs(lend_box: OpenBox) -> None:
    box = lend_box(filesystem=OUT)
    code = (
        "import os, time\nprint('ready', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('went')"
    )
    run = box.start(code)
    said = b""
    while said != b"ready\n":
        said += run.read().stdout
    box.files.write("go", b"")
    assert run.wait().stdout == "ready\nwent\n"


def test_what_is_written_as_a_program_would_goes_through_a_link_and_keeps_its_mode(box: Sandbox) -> None:
    code = "import os; open('target', 'w').close(); os.chmod('target', 0o666); os.symlink('target', 'link')"
    assert box.run(code).ok
    box.files.write("link", b"new", as_program=True)
    assert (box.files.read("target"), box.files.stat("target").mode, box.files.stat("link").kind) == (
        b"new",
        0o666,
        "link",
    )
    assert (box.files.stat("link", follow=True).kind, box.files.stat("link", follow=True).name) == ("file", "link")
    box.files.write("link", b"newer")
    assert (box.files.read("target"), box.files.stat("link").kind) == (b"new", "file")


@pytest.mark.parametrize("plant", ["os.chmod('x', 0o444)", "os.chmod('x', 0)"])
def test_what_a_program_may_not_write_is_not_written_as_one(box: Sandbox, plant: str) -> None:
    assert box.run(f"import os; open('x', 'w').write('old'); {plant}").ok
    with pytest.raises(DeniedError, match="permissions") as caught:
        box.files.write("x", b"new", as_program=True)
    assert caught.value.errno == errno.EACCES
    assert box.run("import os; os.chmod('x', 0o644); print(open('x').read())").stdout == "old\n"
    box.files.write("x", b"new")


def test_a_link_out_of_the_workspace_is_not_followed_by_what_is_written_as_a_program_would(box: Sandbox) -> None:
    assert box.run("import os; os.symlink('/tmp/x', 'link'); os.mkfifo('pipe')").ok
    with pytest.raises(UsageError, match="leads out"):
        box.files.write("link", b"", as_program=True)
    with pytest.raises(UsageError, match="is a pipe"):
        box.files.write("pipe", b"", as_program=True)


ERRORS: dict[str, tuple[Callable[[Sandbox], object], int]] = {
    "nothing there": (lambda box: box.files.read("missing"), errno.ENOENT),
    "a folder": (lambda box: box.files.read("folder"), errno.EISDIR),
    "no folder": (lambda box: box.files.list("file"), errno.ENOTDIR),
    "no folder on the way": (lambda box: box.files.write("file/x", b""), errno.ENOTDIR),
    "there already": (lambda box: box.files.mkdir("file"), errno.EEXIST),
    "too large": (lambda box: box.files.read("file", max_bytes=1), errno.EFBIG),
    "a pipe": (lambda box: box.files.read("pipe"), errno.EINVAL),
    "a link out": (lambda box: box.files.read("out"), errno.EACCES),
    "read-only": (lambda box: box.files.write("/usr/x", b""), errno.EROFS),
}


@pytest.mark.parametrize(("action", "number"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_about_a_file_has_the_kernels_number(
    box: Sandbox, action: Callable[[Sandbox], object], number: int
) -> None:
    code = (
        "import os; os.mkdir('folder'); open('file', 'w').write('text'); os.mkfifo('pipe'); os.symlink('/etc', 'out')"
    )
    assert box.run(code).ok
    with pytest.raises(FumehoodError) as caught:
        action(box)
    assert caught.value.errno == number


def test_a_file_gets_another_name_and_an_entry_has_an_owner(box: Sandbox) -> None:
    box.files.write("old", "content")
    box.files.rename("old", "deep/new")
    assert box.run("import os; print(open('deep/new').read(), os.path.exists('old'))").stdout == "content False\n"
    owner = box.run("import os; print(os.getuid(), os.getgid())").stdout.split()
    entry = box.files.stat("deep/new")
    assert [str(entry.uid), str(entry.gid)] == owner
