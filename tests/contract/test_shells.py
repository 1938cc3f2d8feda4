"""Shell scripts and commands: arguments, exit codes, pipes, and what cannot be started."""

from __future__ import annotations

import pytest

from fumehood import Cause, Sandbox, Status, UsageError

BOTH = {
    "output": ("echo hello", "hello\n", 0),
    "an exit code": ("exit 3", "", 3),
    "the last command's exit code": ("echo a; false", "a\n", 1),
    "set -e": ("set -e\necho before\nfalse\necho after", "before\n", 1),
    "pipes": ("printf 'b\\na\\n' | sort | tr -d '\\n'", "ab", 0),
    "a here-document": ("name=world\ncat <<END\nhello $name\nEND", "hello world\n", 0),
    "$0 and $#": ('echo "$0" $#', "/run/main.{suffix} 3\n", 0),
    "arguments": ('for a in "$@"; do echo "<$a>"; done', "<one>\n<two words>\n<>\n", 0),
    "a subshell and a background job": ("(echo sub) & wait; echo main", "sub\nmain\n", 0),
    "command substitution": ("echo $(( 6 * 7 )) $(printf x)", "42 x\n", 0),
    "a trap": ("trap 'echo bye' EXIT\necho hi", "hi\nbye\n", 0),
    "redirection": ("echo kept > file; cat < file; rm file", "kept\n", 0),
    "a missing command": ("no_such_command_here 2>/dev/null", "", 127),
    "unicode": ("echo 'grüße 日本'", "grüße 日本\n", 0),
    "an empty script": ("", "", 0),
    "python from a shell": ("python3 -c 'print(6 * 7)'", "42\n", 0),
    "files shared in a script": ("mkdir -p a/b && cd a/b && pwd", "/workspace/a/b\n", 0),
}
BASH_ONLY = {
    "arrays": ("a=(1 2 3); echo ${#a[@]}", "3\n", 0),
    "process substitution": ("cat <(echo one) <(echo two)", "one\ntwo\n", 0),
    "pipefail": ("set -o pipefail; false | true", "", 1),
    "a here-string": ("cat <<< text", "text\n", 0),
    "[[ ]]": ("[[ abc == a* ]] && echo yes", "yes\n", 0),
}
ARGS = ("one", "two words", "")


@pytest.mark.some_parameters
@pytest.mark.parametrize("language", ["sh", "bash"])
@pytest.mark.parametrize(("script", "stdout", "code"), BOTH.values(), ids=BOTH.keys())
def test_a_shell_script_runs(box: Sandbox, language: str, script: str, stdout: str, code: int) -> None:
    result = box.run(script, language=language, args=ARGS)
    assert (result.stdout, result.exit_code) == (stdout.replace("{suffix}", language), code)


@pytest.mark.one_container
@pytest.mark.parametrize(("script", "stdout", "code"), BASH_ONLY.values(), ids=BASH_ONLY.keys())
def test_bash_is_bash(box: Sandbox, script: str, stdout: str, code: int) -> None:
    result = box.run(script, language="bash")
    assert (result.stdout, result.exit_code) == (stdout, code)


@pytest.mark.one_container
def test_a_shell_error_names_the_script_and_line(box: Sandbox) -> None:
    assert "/run/main.bash: line 2:" in box.run("true\nno_such_command_here", language="bash").stderr


def test_a_signal_ends_a_shell_as_it_ends_a_program(box: Sandbox) -> None:
    result = box.run("kill -TERM $$", language="sh")
    assert (result.cause, result.signal, result.exit_code) == (Cause.SIGNAL, "SIGTERM", 143)


def test_a_writer_into_a_closed_pipe_is_ended_quietly(box: Sandbox) -> None:
    result = box.run("yes | head -n 1", language="sh")
    assert (result.stdout, result.stderr, result.exit_code) == ("y\n", "", 0)


COMMANDS = {
    "a name in PATH": (["echo", "a", "b c"], "a b c\n", 0),
    "an absolute path": (["/bin/sh", "-c", "exit 9"], "", 9),
    "special characters are not special": (["echo", "$HOME", "*", ";", "a|b"], "$HOME * ; a|b\n", 0),
    "an argument like an option": (["printf", "%s", "--help"], "--help", 0),
    "python": (["python3", "-c", "import sys; print(sys.argv[1:])", "x"], "['x']\n", 0),
    "many arguments": (["sh", "-c", "echo $#", "sh", *["x"] * 5000], "5000\n", 0),
    "a long argument": (["sh", "-c", "echo ${#1}", "sh", "x" * 100_000], "100000\n", 0),
}


@pytest.mark.parametrize(("argv", "stdout", "code"), COMMANDS.values(), ids=COMMANDS.keys())
def test_a_command_runs(box: Sandbox, argv: list[str], stdout: str, code: int) -> None:
    result = box.run(argv=argv)
    assert (result.stdout, result.exit_code, result.cause) == (stdout, code, Cause.EXIT)


@pytest.mark.parametrize("name", ["no-such-program", "/no/such/program", "./missing", "bin/missing"])
def test_a_program_that_is_not_there_gives_127(box: Sandbox, name: str) -> None:
    result = box.run(argv=[name])
    assert (result.status, result.exit_code) == (Status.ERROR, 127)
    assert name in result.stderr


@pytest.mark.parametrize("name", ["/etc/passwd", "/usr", "./plain"])
def test_a_program_that_is_none_gives_126(box: Sandbox, name: str) -> None:
    box.run("open('plain', 'w').write('echo hi')")
    result = box.run(argv=[name])
    assert (result.status, result.exit_code) == (Status.ERROR, 126)
    assert name in result.stderr


def test_a_program_in_the_workspace_can_be_started(box: Sandbox) -> None:
    box.run("import os\nopen('tool', 'w').write('#!/bin/sh\\necho tool $1\\n')\nos.chmod('tool', 0o755)")
    assert box.run(argv=["./tool", "x"]).stdout == "tool x\n"


def test_an_argument_list_beyond_the_kernels_limit_is_a_result(box: Sandbox) -> None:
    result = box.run(argv=["true", *["x" * 100_000] * 60])
    assert (result.status, result.exit_code) == (Status.ERROR, 126)


@pytest.mark.one_container
@pytest.mark.parametrize(
    ("code", "options", "text"),
    [
        (None, {}, "either code or argv"),
        ("x", {"argv": ["ls"]}, "either code or argv"),
        (None, {"argv": []}, "argv is empty"),
        (None, {"argv": "ls -l"}, "argv"),
        (None, {"argv": ["a\0b"]}, "NUL"),
        ("x", {"args": ["a\0b"]}, "NUL"),
        ("x", {"args": "abc"}, "args"),
        (None, {"argv": ["x" * 200_000]}, "longer than 128K"),
        (None, {"argv": ["lone \ud800"]}, "argument"),
        ("x", {"name": "a/b"}, "plain file name"),
        ("x", {"name": ".."}, "plain file name"),
        ("x", {"name": "n" * 256}, "plain file name"),
    ],
    ids=str,
)
def test_a_request_that_makes_no_sense_is_one_clear_error(
    box: Sandbox, code: str | None, options: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        box.run(code, **options)  # type: ignore[arg-type]
