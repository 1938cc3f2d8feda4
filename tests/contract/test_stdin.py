"""Standard input: data, text, or a descriptor of the caller's, which stays the caller's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fumehood import FumehoodError, Sandbox, Status

COUNT = "import sys\ndata = sys.stdin.buffer.read()\nprint(len(data), data[:4], data[-4:])"
MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("stdin", "stdout"),
    [
        (None, "0 b'' b''\n"),
        (b"", "0 b'' b''\n"),
        (b"\x00\xff\r\n", "4 b'\\x00\\xff\\r\\n' b'\\x00\\xff\\r\\n'\n"),
        ("grüße", "7 b'gr\\xc3\\xbc' b'\\xc3\\x9fe'\n".replace("b'\\xc3\\x9fe'", repr("grüße".encode()[-4:]))),
        (b"abcd" * MEGABYTE, f"{4 * MEGABYTE} b'abcd' b'abcd'\n"),
    ],
    ids=["none", "empty", "binary", "text", "4 MiB"],
)
def test_data_arrives_as_it_is_and_then_ends(box: Sandbox, stdin: bytes | str | None, stdout: str) -> None:
    assert box.run(COUNT, stdin=stdin).stdout == stdout


@pytest.mark.one_container
def test_commands_and_shells_read_it_too(box: Sandbox) -> None:
    assert box.run(argv=["cat"], stdin=b"for a command").stdout == "for a command"
    assert box.run("read line; echo got $line", language="sh", stdin="one\ntwo\n").stdout == "got one\n"


def test_without_any_a_reader_is_at_the_end_at_once(box: Sandbox) -> None:
    result = box.run("input()")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "EOFError: EOF when reading a line")


@pytest.mark.parametrize(
    "source",
    ["print('done')", "import sys; sys.stdin.read(10); print('done')", "import os; os.close(0); print('done')"],
)
def test_input_that_nobody_reads_does_not_hold_up_the_end(box: Sandbox, source: str) -> None:
    result = box.run(source, stdin=b"x" * 16 * MEGABYTE)
    assert (result.status, result.stdout) == (Status.SUCCESS, "done\n")


def test_a_program_that_answers_as_it_reads(box: Sandbox) -> None:
    """Both directions at once, more than any pipe holds: neither side may wait for the other for ever."""
    data = b"0123456789abcde\n" * 30_000
    box_output = box.run(argv=["cat"], stdin=data).stdout_bytes
    assert box_output == data


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)


@pytest.mark.one_container
def test_a_pipe_can_be_passed(box: Sandbox, pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.write(write, b"through a pipe")
    os.close(write)
    assert box.run(argv=["cat"], stdin=read).stdout == "through a pipe"
    os.fstat(read)  # still the caller's


@pytest.mark.one_container
def test_a_pipe_with_an_open_writer_that_nobody_reads(box: Sandbox, pipe: tuple[int, int]) -> None:
    read, write = pipe
    try:
        assert box.run("print('done')", stdin=read).stdout == "done\n"
    finally:
        os.close(write)


@pytest.mark.one_container
def test_a_pipe_that_is_written_while_the_program_runs(box: Sandbox, pipe: tuple[int, int]) -> None:
    read, write = pipe
    received = b""
    for event in box.stream("import sys\nprint('ready')\nprint(input() + input())", stdin=read):
        received += getattr(event, "data", b"")
        if received == b"ready\n" and write >= 0:
            os.write(write, b"one\ntwo\n")
            os.close(write)
            write = -1
    assert received == b"ready\nonetwo\n"


@pytest.mark.one_container
@pytest.mark.parametrize("size", [0, 10, MEGABYTE], ids=["empty", "small", "large"])
def test_a_file_can_be_passed(box: Sandbox, tmp_path: Path, size: int) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"x" * size)
    with path.open("rb") as stream:
        assert box.run("import sys; print(len(sys.stdin.buffer.read()))", stdin=stream.fileno()).stdout == f"{size}\n"


@pytest.mark.one_container
def test_a_file_is_read_from_where_the_caller_left_it(box: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"skipped kept")
    with path.open("rb", buffering=0) as stream:
        stream.seek(8)
        assert box.run(argv=["cat"], stdin=stream.fileno()).stdout == "kept"


@pytest.mark.one_container
def test_dev_null_can_be_passed(box: Sandbox) -> None:
    with open(os.devnull, "rb") as stream:
        assert box.run(COUNT, stdin=stream.fileno()).stdout == "0 b'' b''\n"


def test_the_program_does_not_get_the_callers_descriptor(box: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"data")
    with path.open("r+b") as stream:
        seen = box.run("import os; print(os.readlink('/proc/self/fd/0'))", stdin=stream.fileno()).stdout
    assert str(path) not in seen


@pytest.mark.one_container
@pytest.mark.parametrize("case", ["closed", "negative", "folder", "not readable"])
def test_a_descriptor_that_cannot_be_read_is_one_clear_error(box: Sandbox, tmp_path: Path, case: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    write_only = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    folder = os.open(tmp_path, os.O_RDONLY)
    descriptor = {"closed": 4000, "negative": -1, "folder": folder, "not readable": write_only}[case]
    try:
        with pytest.raises(FumehoodError, match="stdin"):
            box.run("input()", stdin=descriptor)
    finally:
        os.close(write_only)
        os.close(folder)
    assert len(os.listdir("/proc/self/fd")) == before
    assert box.run("print('on')").stdout == "on\n"


@pytest.mark.one_container
def test_text_that_cannot_be_encoded_is_one_clear_error(box: Sandbox) -> None:
    with pytest.raises(FumehoodError, match="stdin"):
        box.run("input()", stdin="lone \ud800")
