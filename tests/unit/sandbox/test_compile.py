"""One request for a compiled language becomes a compiler's run, a program's run, and one that clears up."""

from __future__ import annotations

import pytest

from fumehood.backends.languages import LANGUAGES
from fumehood.policy import Policy
from fumehood.sandbox.compile import Build, plan_build
from fumehood.sandbox.request import RunOptions, make_request

POLICY = Policy(resources={"memory": "1G", "cpus": 1.5, "timeout": "7s"})
OPTIONS: RunOptions = {"args": ["a"], "stdin": b"in", "env": {"A": "1"}, "cwd": "sub", "timeout": 3.0}


def plan(language: str, source: str = "x") -> Build:
    build = plan_build(make_request(POLICY, source, {**OPTIONS, "language": language}), POLICY)
    assert build is not None
    return build


@pytest.mark.parametrize("language", [name for name, known in LANGUAGES.items() if not known.toolchain])
def test_there_is_nothing_to_plan_for_other_languages(language: str) -> None:
    assert plan_build(make_request(POLICY, "x", {"language": language}), POLICY) is None


def test_there_is_nothing_to_plan_for_a_command() -> None:
    assert plan_build(make_request(POLICY, None, {"argv": ["ls"], "language": "c"}), POLICY) is None


@pytest.mark.parametrize("language", [name for name, known in LANGUAGES.items() if known.toolchain])
def test_every_word_is_filled_in(language: str) -> None:
    build = plan(language)
    words = (*(build.compiling.interpreter or ()), *build.compiling.arguments, *(build.running.interpreter or ()))
    assert not [word for word in words if "{" in word]


def test_only_the_program_may_go_out() -> None:
    build = plan("c")
    assert (build.compiling.is_offline, build.running.is_offline, build.clearing.is_offline) == (True, False, True)


def test_the_compiler_gets_the_source_and_the_program_everything_else() -> None:
    build = plan("c")
    assert (build.compiling.source, build.running.source) == (b"x", None)
    assert (build.compiling.arguments, build.running.arguments) == (("-lm",), ("a",))
    assert (build.compiling.stdin, build.running.stdin) == (None, b"in")
    assert (build.compiling.environment, build.running.environment) == ({"HOME": "/tmp"}, {"A": "1"})
    assert build.compiling.cwd == build.running.cwd == "sub"
    assert build.compiling.timeout_seconds == build.running.timeout_seconds == 3.0


def test_what_one_leaves_the_next_takes_and_the_last_removes() -> None:
    build = plan("c")
    assert build.compiling.leaves == build.running.takes == build.clearing.arguments[-1]
    assert (build.compiling.takes, build.running.leaves) == (None, None)
    assert build.running.interpreter == ("/run/build/program",)
    assert plan("c").compiling.leaves != build.compiling.leaves


def test_java_is_told_the_policys_limits_and_the_main_class() -> None:
    running = plan("java", "package p; class Start { void main() { } }").running.interpreter
    assert running is not None
    assert {"-XX:MaxRAM=1073741824", "-XX:ActiveProcessorCount=2"} < set(running)
    assert running[-1] == "p.Start"
