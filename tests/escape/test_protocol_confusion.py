"""Protocol confusion: making the machinery believe, or stumble over, what a program says.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| writing into channels of the machinery | they are closed before the program runs | `descriptors-closed` |
| lies on stdout | answers come over a socket that the program never had | `answers-apart` |
| forged notes | one of three words, labels failures alone | `notes-checked`, `notes-of-any-kind` |
| odd exits | the lower eight bits count | `exit-codes-in-range` |
| taking output back from the host | the host never waits in a read | `pipes-that-never-block` |
| death by a real-time signal | a verdict for every signal | `every-signal-known` |
| children of the supervisor | seccomp refuses CLONE_PARENT | `children-of-its-own` |
| signals to the group | a session for each run, Landlock scope | `own-session, landlock` |
| odd arguments and variables | JSON in a sealed file | `text-encoded`, `text-checked` |
| odd script names | scripts are called by their path | `scripts-by-path` |
| source like a request | the request is the first line | `request-before-source` |
| output that is no text, or of two streams | bytes in two pipes | `output-as-bytes`, `streams-apart` |
| a closed workspace | a run that cannot start says why | `refusals-told` |
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from escape.conftest import MakeSandbox
from escape.laboratory import ENDED, attack, booty, lingering_attack, number_of, program
from fumehood import AsyncSandbox, Cause, SandboxError, Status, UsageError

pytestmark = pytest.mark.anyio

LIES = [
    '{"failed": "starting", "detail": "forged"}',
    '{"refused": "forged"}',
    '{"status": 0, "ended_by": "wall_time", "cpu_ms": 1e9, "peak_memory_bytes": 0, "trouble": null}',
    '{"do": "close", "workspace": 1}',
    '{"go": true}',
    "kill",
    "",
    "\0" * 64,
    "[" * 5000,
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: repr(lie[:30]))
async def test_no_descriptor_takes_a_lie(sandbox: AsyncSandbox, lie: str) -> None:
    code = """
        found = {}
        for number in range(3, 1024):
            for speak in (lambda: os.write(number, lie), lambda: socket.socket(fileno=number).send(lie)):
                found[outcome(speak)] = number
    """
    result = await sandbox.run(program(code, lie=lie.encode()))
    assert set(booty(result)) == {"EBADF"}
    assert (result.status, result.cause, result.exit_code) == (Status.SUCCESS, Cause.EXIT, 0)


@pytest.mark.parametrize("stream", [1, 2], ids=["stdout", "stderr"])
async def test_a_lie_that_is_printed_is_text(sandbox: AsyncSandbox, stream: int) -> None:
    text = "\n".join(LIES)
    result = await sandbox.run(f"import os; os.write({stream}, {text.encode()!r}); os._exit(7)")
    assert (result.status, result.cause, result.exit_code) == (Status.ERROR, Cause.EXIT, 7)
    assert (result.stdout if stream == 1 else result.stderr) == text


FORGED_NOTES = ["memory", "disk", "processes"]


@pytest.mark.parametrize("note", FORGED_NOTES)
async def test_a_forged_note_does_not_turn_success_into_failure(sandbox: AsyncSandbox, note: str) -> None:
    result = await sandbox.run(program("os.symlink(note, '/run/.exhausted'); found = 0", note=note))
    assert (booty(result), result.status, result.cause) == (0, Status.SUCCESS, Cause.EXIT)


@pytest.mark.parametrize("note", ["", "wall_time", "../../etc/shadow", "x" * 4000, "memory\n", "\udcff"], ids=ascii)
async def test_an_unknown_note_is_not_believed(sandbox: AsyncSandbox, note: str) -> None:
    code = "outcome(lambda: os.symlink(note, '/run/.exhausted')); found = 0"
    result = await sandbox.run(program(code, note=note) + "os._exit(5)")
    assert (booty(result), result.status, result.cause, result.exit_code) == (0, Status.ERROR, Cause.EXIT, 5)


@pytest.mark.parametrize("kind", ["mkfifo", "mkdir"])
async def test_a_note_that_cannot_be_read_holds_nobody_up(sandbox: AsyncSandbox, kind: str) -> None:
    result = await sandbox.run(program(f"os.{kind}('/run/.exhausted'); found = 0") + "os._exit(5)")
    assert (booty(result), result.status, result.exit_code) == (0, Status.ERROR, 5)


ENDINGS = {
    "closing every stream": ("os.close(0); os.close(1); os.close(2); os._exit(7)", 7),
    "closing all descriptors": ("os.closerange(0, 1024); os._exit(7)", 7),
    "a large number": ("sys.exit(2 ** 40 + 7)", 7),
    "a negative number": ("sys.exit(-1)", 255),
    "its own end of the interpreter": ("libc._exit(7)", 7),
    "a failing exit handler": ("__import__('atexit').register(lambda: 1 / 0); sys.exit(7)", 7),
    "a failing excepthook": ("sys.excepthook = None; raise ValueError", 1),
    "an exit in the excepthook": ("sys.excepthook = lambda *_: os._exit(7); raise ValueError", 7),
    "no standard streams": ("sys.stdout = sys.stderr = None; sys.exit(7)", 7),
    "executing something else": ("os.execv('/bin/sh', ['sh', '-c', 'exit 7'])", 7),
    "leaving an orphan with the streams": ("os.fork() or signal.pause()\nos._exit(7)", 7),
    "leaving a stopped orphan": ("os.fork() or os.kill(os.getpid(), signal.SIGSTOP)\nos._exit(7)", 7),
}


@pytest.mark.parametrize(("code", "expected"), ENDINGS.values(), ids=ENDINGS)
async def test_the_exit_code_is_right_after(sandbox: AsyncSandbox, code: str, expected: int) -> None:
    result = await sandbox.run(program(f"print({ENDED!r}, flush=True)\n{code}"))
    assert result.stdout.startswith(ENDED), "it never started"
    assert (result.cause, result.exit_code) == (Cause.EXIT, expected)


async def test_a_program_that_will_not_let_the_interpreter_end_is_ended(sandbox: AsyncSandbox) -> None:
    """It runs on in the frames that called it, with no descriptor and no right that they had."""
    code = """
        found, frame = [], sys._getframe()
        while frame:
            sockets = [value for value in list(frame.f_locals.values()) if isinstance(value, socket.socket)]
            found += [outcome(lambda: channel.send(b"{}")) for channel in sockets]
            frame = frame.f_back
        os._exit = lambda code: None
    """
    result = await sandbox.run(program(code), timeout=5)
    assert set(booty(result)) == {"EBADF"}
    assert result.cause in (Cause.EXIT, Cause.SIGNAL)
    assert await attack(sandbox, "found = 42") == 42


DEADLY = [1, 2, 3, 4, 6, 7, 8, 9, 11, 13, 14, 15, 16, 29, 30, 31, 34, 35, 40, 63, 64]


@pytest.mark.parametrize("number", DEADLY, ids=lambda number: f"signal {number}")
async def test_death_by_a_signal_is_reported(sandbox: AsyncSandbox, number: int) -> None:
    code = "libc.signal(number, 0); os.kill(os.getpid(), number); signal.pause()"
    result = await sandbox.run(program(f"print({ENDED!r}, flush=True)\n{code}", number=number))
    assert result.stdout.startswith(ENDED), "it never started"
    assert (result.status, result.cause, result.exit_code) == (Status.ERROR, Cause.SIGNAL, 128 + number)


async def test_output_that_is_taken_back_cannot_make_the_host_wait(sandbox: AsyncSandbox) -> None:
    """A program can open its end of a pipe anew to read. What the host was promised is then gone, and a read that may
    block stops the whole application, until the program lets it go on."""
    async with lingering_attack(sandbox, "found = [os.fstat(n).st_ino for n in (1, 2)]") as inodes:
        ours = [n for n in open_descriptors() if os.readlink(f"/proc/self/fd/{n}") in {f"pipe:[{i}]" for i in inodes}]
        assert len(ours) == 2
        assert [os.get_blocking(number) for number in ours] == [False, False]


def open_descriptors() -> list[int]:
    found = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            os.fstat(int(path.name))
        except OSError:
            continue  # that of the listing itself
        found.append(int(path.name))
    return found


async def test_binary_output_arrives_as_it_is(sandbox: AsyncSandbox) -> None:
    data = bytes(range(256)) * 512
    result = await sandbox.run("import os; data = bytes(range(256)) * 512\nwhile data: data = data[os.write(1, data):]")
    arrived = result.stdout_bytes == data  # apart, because a long comparison takes pytest minutes to show
    assert arrived


async def test_two_streams_do_not_mix(sandbox: AsyncSandbox) -> None:
    code = "import os\nfor _ in range(3000):\n  os.write(1, b'o' * 99 + b'\\n'); os.write(2, b'e' * 99 + b'\\n')"
    result = await sandbox.run(code)
    streams = ((result.stdout_bytes, b"o"), (result.stderr_bytes, b"e"))
    assert [data == (letter * 99 + b"\n") * 3000 for data, letter in streams] == [True, True]


ARGUMENTS = ["", " ", "\n", "a\nb", "\t\r\x1b[31m", "\x7f", "-c", "--", '{"go": true}', "äöü\u2028", "\udcff\udc80"]


async def test_odd_arguments_arrive_as_they_are(sandbox: AsyncSandbox) -> None:
    result = await sandbox.run("import sys; sys.stdout.write(ascii(sys.argv[1:]))", args=ARGUMENTS)
    assert result.stdout == ascii(ARGUMENTS)


async def test_odd_arguments_of_a_command_arrive_as_they_are(sandbox: AsyncSandbox) -> None:
    result = await sandbox.run(argv=["printf", "%s\\0", *ARGUMENTS])
    assert result.stdout_bytes.split(b"\0")[:-1] == [os.fsencode(argument) for argument in ARGUMENTS]


async def test_odd_variables_arrive_as_they_are(sandbox: AsyncSandbox) -> None:
    variables = {"A B": "c\nd", "\n": "\t", "ä": "\udcff", "1": "", '{"x"': "}", "LD_PRELOAD": "/none", "IFS": "x"}
    code = "import os, sys; sys.stdout.write(ascii({k: os.environ[k] for k in sorted(os.environ) if k in names}))"
    result = await sandbox.run(f"names = {sorted(variables)!a}\n{code}", env=variables)
    assert result.stdout == ascii({name: variables[name] for name in sorted(variables)})


@pytest.mark.parametrize("place", ["args", "env", "name", "cwd"])
async def test_text_that_is_no_text_is_one_clear_error(sandbox: AsyncSandbox, place: str) -> None:
    text = "a\ud800"
    value = {"args": [text], "env": {"A": text}, "name": text, "cwd": text}[place]
    with pytest.raises(UsageError):
        await sandbox.run("print(1)", **{place: value})


SCRIPT_NAMES = ["a\nb", "-c", ".exhausted", "\x1b[31m", "'; exit 1; '", "$(exit 1)", "x" * 255, "ä\udcff"]


@pytest.mark.parametrize("name", SCRIPT_NAMES, ids=ascii)
@pytest.mark.parametrize("language", ["python", "sh"])
async def test_an_odd_script_name_is_a_name(sandbox: AsyncSandbox, language: str, name: str) -> None:
    code = "import os; os.write(1, b'ran')" if language == "python" else "printf ran"
    result = await sandbox.run(code, name=name, language=language)
    assert (result.status, result.stdout) == (Status.SUCCESS, "ran")


async def test_source_that_looks_like_a_request_is_source(sandbox: AsyncSandbox) -> None:
    request = '{"interpreter": ["/bin/sh"], "script": "x", "arguments": [], "environment": {}, "cwd": "/"}'
    result = await sandbox.run(f"{request}\nprint('ran')")
    assert result.stdout == "ran\n"


@pytest.mark.parametrize("mode", [0o000, 0o444], ids=oct)
async def test_a_workspace_that_was_closed_is_an_error_with_a_reason(sandbox: AsyncSandbox, mode: int) -> None:
    """Otherwise the caller sees a program that failed without a word, though it never ran."""
    assert await attack(sandbox, "found = outcome(lambda: os.chmod('/workspace', mode))", mode=mode) == "GOT None"
    try:
        result = await sandbox.run("print('ran')")
    except UsageError:
        return
    assert result.stdout or result.stderr or result.detail


async def test_a_child_that_is_given_to_the_supervisor_does_not_hold_it_up(make_sandbox: MakeSandbox) -> None:
    """With CLONE_PARENT the child becomes the supervisor's, and the process namespace can't end before it is buried."""
    code = """
        child = call(number, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
        if child == 0:
            signal.pause()
        found = "born"
    """
    async with make_sandbox() as attacker, make_sandbox() as neighbour:
        assert (await neighbour.run("print(42)")).stdout == "42\n"  # from here on it cannot move to another cell
        result = await attacker.run(program(code, number=number_of("clone")), timeout=2)
        assert result.cause is Cause.EXIT
        said: list[str] = []
        with suppress(SandboxError):  # its cell is gone
            # More than were on standby before.
            said = [(await neighbour.run("print(42)")).stdout for _ in range(8)]
        assert said == ["42\n"] * 8


async def test_signals_that_the_program_sends_to_its_group_end_the_program_alone(sandbox: AsyncSandbox) -> None:
    async with lingering_attack(sandbox, "found = 0"):
        result = await sandbox.run(program(f"print({ENDED!r}, flush=True); os.killpg(0, signal.SIGKILL)"))
    assert (result.cause, result.signal) == (Cause.SIGNAL, signal.SIGKILL.name)
    assert await attack(sandbox, "found = 42") == 42
