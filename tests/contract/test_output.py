"""What a program writes reaches the caller: every byte, in order, up to the limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sampling

from fumehood import Cause, Sandbox, Status

MEGABYTE = 1024 * 1024
LINES = sampling.amount(20_000, whole=200_000)


def test_both_streams_are_kept_apart(box: Sandbox) -> None:
    result = box.run("import sys\nfor n in range(3):\n    print('out', n)\n    print('err', n, file=sys.stderr)")
    assert result.stdout == "out 0\nout 1\nout 2\n"
    assert result.stderr == "err 0\nerr 1\nerr 2\n"


@pytest.mark.one_container
def test_binary_output_arrives_as_it_is(box: Sandbox) -> None:
    result = box.run("import os; os.write(1, bytes(range(256))); os.write(2, bytes(range(255, -1, -1)))")
    assert result.stdout_bytes == bytes(range(256))
    assert result.stderr_bytes == bytes(range(255, -1, -1))


@pytest.mark.one_container
def test_invalid_text_is_replaced_in_text_and_kept_in_bytes(box: Sandbox) -> None:
    result = box.run("import os; os.write(1, b'a\\xffb\\xc3'); os.write(2, b'\\xfe')")
    assert (result.stdout, result.stderr) == ("a\ufffdb\ufffd", "\ufffd")
    assert (result.stdout_bytes, result.stderr_bytes) == (b"a\xffb\xc3", b"\xfe")


@pytest.mark.one_container
def test_a_character_cut_by_a_buffer_is_put_together_again(box: Sandbox) -> None:
    text = "ü" * 100_001
    assert box.run(f"print('x' + {text!r}, end='')").stdout == "x" + text


@pytest.mark.one_container
def test_lone_surrogates_do_not_end_a_program(box: Sandbox) -> None:
    result = box.run("import sys\nprint('\\udcff')\nprint('\\ud800', file=sys.stderr)")
    assert (result.stdout_bytes, result.stderr) == (b"\xff\n", "\\ud800\n")


def test_output_of_children_is_part_of_the_runs(box: Sandbox) -> None:
    source = "import os, subprocess\nprint('a')\nsubprocess.run(['echo', 'b'])\nos.system('echo c 1>&2')\nprint('d')"
    result = box.run(source)
    assert (result.stdout, result.stderr) == ("a\nb\nd\n", "c\n")


def test_much_output_arrives_whole(open_box: Callable[..., Sandbox]) -> None:
    box = open_box(resources={"output": "32M"})
    result = box.run(f"import sys\nfor n in range({LINES}):\n    sys.stdout.write(f'{{n:063}}\\n')")
    assert result.stdout == "".join(f"{n:063}\n" for n in range(LINES))
    assert not result.truncated


def test_both_streams_full_at_once_do_not_block(open_box: Callable[..., Sandbox]) -> None:
    box = open_box(resources={"output": "8M"})
    result = box.run(
        f"import os\nfor _ in range({2 * MEGABYTE // 65536}):\n    os.write(2, b'e' * 65536); os.write(1, b'o' * 65536)"
    )
    assert (len(result.stdout_bytes), len(result.stderr_bytes)) == (2 * MEGABYTE, 2 * MEGABYTE)


@pytest.mark.one_container
@pytest.mark.parametrize("limit", [1, 1000, 65536, 65537, 300_000])
def test_output_up_to_the_limit_is_fine(open_box: Callable[..., Sandbox], limit: int) -> None:
    box = open_box(resources={"output": limit})
    result = box.run(f"import os, sys\nsys.stdout.write('x' * {limit})")
    assert (result.status, result.truncated, result.stdout) == (Status.SUCCESS, False, "x" * limit)
    more = box.run(f"import os, sys\nsys.stdout.write('x' * {limit + 1})")
    assert (more.status, more.cause, more.truncated) == (Status.RESOURCE_EXCEEDED, Cause.OUTPUT, True)
    assert more.stdout == "x" * limit


@pytest.mark.parametrize(
    "program",
    [
        "while True: print('x' * 1000)",
        "import sys\nwhile True: sys.stderr.write('y' * 1000)",
        ["yes"],
        (
            "import signal\nfor n in range(1, 65):\n"
            "    try: signal.signal(n, signal.SIG_IGN)\n    except Exception: pass\n"
            "while True:\n    try: print('stubborn')\n    except OSError: pass"
        ),
    ],
    ids=["stdout", "stderr", "a command", "ignoring every signal"],
)
def test_endless_output_is_stopped(open_box: Callable[..., Sandbox], program: str | list[str]) -> None:
    box = open_box(resources={"output": "100K"})
    result = box.run(program) if isinstance(program, str) else box.run(argv=program)
    assert (result.status, result.cause, result.exit_code) == (Status.RESOURCE_EXCEEDED, Cause.OUTPUT, 137)
    assert len(result.stdout_bytes) + len(result.stderr_bytes) == 100 * 1024
    assert "resources.output" in result.detail


@pytest.mark.one_container
def test_the_limit_holds_for_both_streams_together(open_box: Callable[..., Sandbox]) -> None:
    result = open_box(resources={"output": "10K"}).run("import os\nos.write(1, b'o' * 8000)\nos.write(2, b'e' * 8000)")
    assert result.cause is Cause.OUTPUT
    assert len(result.stdout_bytes) + len(result.stderr_bytes) == 10 * 1024
