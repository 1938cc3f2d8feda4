"""The policy's `commands` on every backend: a line that is not allowed never starts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fumehood import Cause, DeniedError, Finished, Policy, Sandbox, Status, UnenforceableError

COMMANDS = {"allow": ["ls", "cat", "touch"], "deny": ["cat /etc/*"]}

OpenBox = Callable[..., Sandbox]


@pytest.mark.one_container
@pytest.mark.parametrize("language", ["bash", "sh"])
def test_a_line_that_is_allowed_runs(lend_box: OpenBox, language: str) -> None:
    result = lend_box(commands=COMMANDS).run("touch a; ls | cat", language=language)
    assert (result.status, result.stdout, result.denials) == (Status.SUCCESS, "a\n", ())


@pytest.mark.one_container
@pytest.mark.parametrize("language", ["bash", "sh"])
def test_a_line_that_is_not_allowed_does_not_even_begin(lend_box: OpenBox, language: str) -> None:
    box = lend_box(commands=COMMANDS)
    result = box.run("touch a; rm -rf x", language=language)
    assert (result.status, result.cause, result.exit_code) == (Status.DENIED, Cause.POLICY, 126)
    assert result.detail == "rm -rf x: rm is not allowed; add 'rm' to commands.allow"
    (denial,) = result.denials
    assert (denial.kind, denial.what, denial.rule) == ("command", "rm -rf x", "")
    assert box.run("ls", language=language).stdout == ""


@pytest.mark.one_container
def test_a_command_without_a_shell_is_judged_too(lend_box: OpenBox) -> None:
    box = lend_box(commands=COMMANDS)
    assert box.run(argv=["ls", "-a"]).ok
    result = box.run(argv=["cat", "/etc/passwd"])
    assert (result.status, result.denials[0].rule) == (Status.DENIED, "commands.deny[cat /etc/*]")
    assert box.run(argv=["bash", "-c", "ls"]).status is Status.DENIED


@pytest.mark.one_container
def test_streams_and_background_runs_are_judged_too(lend_box: OpenBox) -> None:
    box = lend_box(commands=COMMANDS)
    (event,) = list(box.stream("rm x", language="bash"))
    assert isinstance(event, Finished)
    assert event.result.status is Status.DENIED
    with pytest.raises(DeniedError, match="add 'rm' to commands"):
        box.start("rm x", language="bash")
    with pytest.raises(DeniedError):
        box.start(argv=["bash"], terminal=(80, 24))


@pytest.mark.one_container
def test_a_script_that_lies_in_the_sandbox_is_not_the_one_that_was_judged(lend_box: OpenBox) -> None:
    box = lend_box(commands=COMMANDS)
    box.files.write("x.sh", b"rm x")
    assert box.run("ls", language="bash", name="/workspace/x.sh").status is Status.DENIED


@pytest.mark.one_container
def test_code_in_other_languages_is_no_command_line(lend_box: OpenBox) -> None:
    assert lend_box(commands=COMMANDS).run("print(1)").stdout == "1\n"


def test_with_the_kernel_only_named_programs_can_be_executed(make_policy: Callable[..., Policy], backend: str) -> None:
    policy = make_policy(commands={"allow": ["ls", "bash"], "enforce": "kernel"})
    if backend == "gvisor":
        with pytest.raises(UnenforceableError, match=r"commands\.enforce: .*no Landlock"), Sandbox(policy):
            pytest.fail("it opened")
        return
    with Sandbox(policy) as box:
        assert "Landlock" in box.enforcement["commands"]
        assert box.run("ls /usr > /dev/null && echo fine", language="bash").stdout == "fine\n"
        tried = box.run("import subprocess\ntry:\n    subprocess.run(['id'])\nexcept PermissionError:\n    print('no')")
        assert tried.stdout == "no\n"
        assert box.run("ls /usr > /dev/null && echo fine", language="sh").stdout == "fine\n"
        for language in ("javascript", "c"):
            result = box.run("true", language=language)
            assert (result.status, result.cause) == (Status.DENIED, Cause.POLICY)
            assert "kernel lets" in result.detail


def test_the_kernel_holds_programs_without_being_asked_where_it_can(lend_box: OpenBox, backend: str) -> None:
    box = lend_box(commands=COMMANDS)
    code = "import subprocess\ntry:\n    subprocess.run(['id'])\nexcept PermissionError:\n    print('no')"
    if backend == "gvisor":
        assert "not held by the kernel: gVisor has no Landlock" in box.enforcement["commands"]
        assert box.run(code).ok
    else:
        assert "Landlock lets 3 named programs be executed" in box.enforcement["commands"]
        assert box.run(code).stdout == "no\n"
    assert box.run("touch a; ls | cat", language="bash").stdout == "a\n"


def test_without_the_kernel_any_program_can_be_executed_by_code(lend_box: OpenBox) -> None:
    box = lend_box(commands={**COMMANDS, "enforce": "parse"})
    assert box.run("import subprocess\nprint(subprocess.run(['true']).returncode)").stdout == "0\n"
    assert box.run("true; id", language="bash").status is Status.DENIED


def test_a_strict_policy_opens_where_the_kernel_can_hold_its_programs(
    make_policy: Callable[..., Policy], backend: str
) -> None:
    refused_for = ""
    try:
        with Sandbox(make_policy(commands={"allow": ["ls"]}, strict=True)) as box:
            assert "Landlock lets 1 named programs be executed" in box.enforcement["commands"]
    except UnenforceableError as error:
        refused_for = error.control
    assert refused_for != "commands" or backend == "gvisor"


def test_what_the_kernel_cannot_hold_is_said_and_a_strict_policy_refuses_it(
    make_policy: Callable[..., Policy], backend: str
) -> None:
    for commands in ({"deny": ["rm"]}, {"allow": ["ls", "pip-*"]}, {"allow": ["./build.sh"]}):
        with Sandbox(make_policy(commands=commands)) as box:
            assert "not held by the kernel" in box.enforcement["commands"]
    policy = make_policy(commands={"allow": ["ls", "pip-*"]}, strict=True)
    with pytest.raises(UnenforceableError, match=r"strict is on|resources\.") as caught, Sandbox(policy):
        pytest.fail("it opened")
    if "commands" in str(caught.value):
        assert "Name the programs in commands.allow" in str(caught.value)


def test_programs_find_their_helpers_though_nobody_named_those(lend_box: OpenBox, backend: str) -> None:
    """Tar compresses with other programs, and git has a whole folder of them."""
    git = "git init -q r && cd r && git status -s && " if backend == "native" else ""  # the image of the tests has none
    box = lend_box(commands={"allow": ["git", "tar", "touch"]})
    result = box.run(f"{git}touch a && tar czf x.tgz a && tar tzf x.tgz", language="bash")
    assert (result.stdout, result.stderr) == ("a\n", "")
