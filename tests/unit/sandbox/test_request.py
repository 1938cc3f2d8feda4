"""A caller's wishes become a checked request or one clear error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.errors import DeniedError, FumehoodError, UsageError
from fumehood.policy import Policy
from fumehood.policy.secret import PROCESS_SECRETS
from fumehood.sandbox.request import make_request, refuse_secrets

POLICY = Policy(resources={"timeout": "10s"})


def request(code: str | bytes | None = None, **options: Any) -> Any:
    return make_request(POLICY, code, options)  # type: ignore[arg-type]


def test_code_alone_gets_the_defaults() -> None:
    made = request("print(1)")
    assert (made.language, made.source, made.script_name) == ("python", b"print(1)", "main.py")
    assert (made.arguments, dict(made.environment), made.cwd) == ((), {}, "")
    assert (made.timeout_seconds, made.stdin) == (10.0, None)


def test_a_command_has_no_source() -> None:
    made = request(argv=["ls", "-l"])
    assert (made.source, made.arguments) == (None, ("ls", "-l"))


@pytest.mark.parametrize(("language", "name"), [("python", "main.py"), ("sh", "main.sh"), ("bash", "main.bash")])
def test_the_script_is_named_after_its_language(language: str, name: str) -> None:
    assert request("x", language=language).script_name == name
    assert request("x", language=language, name="own").script_name == "own"


def test_an_alias_is_taken_for_the_language() -> None:
    made = request("x", language="js")
    assert (made.language, made.interpreter, made.script_name) == ("javascript", ("node",), "main.js")


def test_a_command_has_no_interpreter_whatever_the_language() -> None:
    assert request(argv=["ls"], language="sh").interpreter is None


def test_a_java_source_is_named_after_its_class() -> None:
    assert request("public class Point { }", language="java").script_name == "Point.java"
    assert request("public class Point { }", language="java", name="Own.java").script_name == "Own.java"


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"args": ["a", ""]}, "arguments", ("a", "")),
        ({"args": ("a",)}, "arguments", ("a",)),
        ({"env": {"A": "1"}}, "environment", {"A": "1"}),
        ({"env": None}, "environment", {}),
        ({"cwd": "/tmp"}, "cwd", "/tmp"),
        ({"timeout": None}, "timeout_seconds", 10.0),
        ({"timeout": 3}, "timeout_seconds", 3),
        ({"timeout": 10.0}, "timeout_seconds", 10.0),
        ({"stdin": "ü"}, "stdin", "ü".encode()),
        ({"stdin": b""}, "stdin", b""),
        ({"stdin": 0}, "stdin", 0),
        ({"name": None}, "script_name", "main.py"),
    ],
    ids=str,
)
def test_options_are_taken_over(options: dict[str, object], field: str, value: object) -> None:
    assert getattr(request("x", **options), field) == value


MISTAKES: dict[str, tuple[dict[str, object], str]] = {
    "neither code nor command": ({}, "either code or argv"),
    "both code and command": ({"code": "x", "argv": ["ls"]}, "either code or argv"),
    "an empty command": ({"argv": []}, "argv is empty"),
    "a command as one text": ({"argv": "ls -l"}, "argv"),
    "arguments as one text": ({"code": "x", "args": "-v"}, "args"),
    "a NUL in an argument": ({"argv": ["a\0"]}, "argument 'a\\\\x00' has a NUL"),
    "a NUL in the environment": ({"code": "x", "env": {"A": "\0"}}, "value of environment variable 'A'"),
    "an empty variable": ({"code": "x", "env": {"": "1"}}, "must not be empty"),
    "an equals sign in a variable": ({"code": "x", "env": {"A=B": "1"}}, "'A=B' must not be empty or contain '='"),
    "a NUL in the source": ({"code": "a\nb\0c"}, r"NUL byte in line 2 \(byte 3\)"),
    "a NUL in the folder": ({"code": "x", "cwd": "a\0"}, "cwd"),
    "a long argument": ({"argv": ["x" * 131_073]}, "argument is longer than 128K; pass it on standard input"),
    "a long source": ({"code": b" " * (32 * 1024 * 1024 + 1)}, "the source is .*, more than 32M"),
    "a folder as a name": ({"code": "x", "name": "a/b"}, "plain file name"),
    "a dot as a name": ({"code": "x", "name": "."}, "plain file name"),
    "a long name": ({"code": "x", "name": "ü" * 128}, "plain file name"),
    "an unknown language": (
        {"code": "x", "language": "cobol"},
        "unknown language 'cobol'; available: python, sh, bash",
    ),
    "a name that the compiler would not take": (
        {"code": "x", "language": "c++", "name": "x.txt"},
        r"script name 'x.txt' must end in .cpp or .cc or .cxx",
    ),
    "a place by a detour": ({"code": "x", "name": "/workspace/../x.py"}, "without detours"),
    "a place for a compiler": ({"code": "x", "language": "c", "name": "/workspace/x.c"}, "must be a plain file name"),
    "no time": ({"code": "x", "timeout": 0}, "timeout 0 is not valid: a duration"),
    "time that is no duration": ({"code": "x", "timeout": "soon"}, "timeout 'soon' is not valid: a duration"),
    "code that is no text": ({"code": 3}, "the code must be text or bytes, not int"),
    "an argument that is no text": ({"code": "x", "args": [1]}, "argument 1 must be text, not int"),
    "an environment that is a list": (
        {"code": "x", "env": ["A=1"]},
        "env must be a mapping of names to values, not list",
    ),
    "a variable that is no text": (
        {"code": "x", "env": {"A": 1}},
        "value of environment variable 'A' 1 must be text, not int",
    ),
    "stdin that is no data": (
        {"code": "x", "stdin": 1.5},
        "stdin must be text, bytes or a descriptor's number, not float",
    ),
    "a folder that is no text": ({"code": "x", "cwd": 3}, "cwd 3 must be text, not int"),
    "negative time": ({"code": "x", "timeout": -2.5}, "timeout -2.5 is not valid: a duration"),
    "endless time": ({"code": "x", "timeout": float("inf")}, "timeout inf is not valid: a duration"),
    "no number of time": ({"code": "x", "timeout": float("nan")}, "timeout nan is not valid: a duration"),
    "a surrogate in an argument": ({"argv": ["\ud800"]}, "argument"),
    "a surrogate in the environment": ({"code": "x", "env": {"A": "\ud800"}}, "environment variable 'A'"),
    "a surrogate in the folder": ({"code": "x", "cwd": "\ud800"}, "cwd"),
    "a surrogate in the name": ({"code": "x", "name": "\ud800"}, "script name"),
    "a surrogate in the input": ({"code": "x", "stdin": "\ud800"}, "stdin"),
    "a negative descriptor": ({"code": "x", "stdin": -1}, "stdin"),
}


@pytest.mark.parametrize(("wishes", "words"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_clear_error(wishes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        request(**wishes)


def test_more_time_than_the_policy_gives_is_denied() -> None:
    with pytest.raises(DeniedError, match=r"timeout 11s is more than the policy's resources\.timeout of 10s"):
        request("x", timeout=11)


def test_bytes_that_an_argument_can_carry_are_carried() -> None:
    """What os.fsdecode made of a file name that is no UTF-8."""
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    assert request(argv=["cat", name]).arguments == ("cat", name)


@given(st.text(st.characters(codec=None)) | st.binary())
def test_any_source_is_taken_or_refused(code: str | bytes) -> None:
    source = code if isinstance(code, bytes) else code.encode("utf-8", "surrogatepass")
    if b"\0" in source:
        with pytest.raises(UsageError, match="NUL"):
            request(code)
    else:
        assert request(code).source == source


@given(st.lists(st.text(st.characters(codec=None)), min_size=1), st.dictionaries(st.text(), st.text()))
def test_any_command_is_taken_or_refused(argv: Sequence[str], env: dict[str, str]) -> None:
    try:
        made = request(argv=argv, env=env)
    except FumehoodError:
        return
    assert (made.arguments, made.environment) == (tuple(argv), env)


def test_the_request_does_not_change_with_the_callers_data() -> None:
    argv, env = ["ls"], {"A": "1"}
    made = request(argv=argv, env=env)
    argv.append("x")
    env["B"] = "2"
    assert (made.arguments, dict(made.environment)) == (("ls",), {"A": "1"})


@pytest.mark.parametrize("value", ["abcdefgh12345", "Bearer abcdefgh12345"])
def test_no_variable_carries_the_value_of_a_secret(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HOST_TOKEN", "abcdefgh12345\n")
    policy = Policy(
        secrets=[{"name": "TOKEN", "from_env": "HOST_TOKEN", "inject": {"host": "a.example"}}],
        network={"allow": [{"host": "a.example", "ports": [443], "methods": ["GET"]}]},
    )
    with pytest.raises(DeniedError, match="variable MINE has the value of the secret TOKEN"):
        refuse_secrets(policy, {"OTHER": "1", "MINE": value}, PROCESS_SECRETS)
    refuse_secrets(policy, {"OTHER": "1"}, PROCESS_SECRETS)
