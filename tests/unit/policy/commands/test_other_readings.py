"""Lines that bash, or the program that is allowed, reads in another way than they look."""

from __future__ import annotations

import pytest

from fumehood.policy import Commands
from fumehood.policy.commands import judge


def allows(line: str, *allow: str, deny: tuple[str, ...] = ()) -> bool:
    return judge(Commands(allow=allow, deny=deny), line).allowed


@pytest.mark.parametrize(
    "line",
    [
        "gcc x.c -o {a,-wrapper,./w}",
        "gcc x.c -I -o -wrapper ./w",
        "gcc x.c -L -o -B./",
        "gcc x.c -D -o -specs=s",
        "gcc x.c -I -o -fplugin=./w.so",
        "gcc x.c -o @opts.txt",
        "gcc x.c -o *.txt",
        "false && X=a; gcc x.c -o $X .git/hooks/pre-commit",
        "false && X=a; gcc $X@opts.txt",
    ],
)
def test_what_a_compiler_writes_to_is_one_file(line: str) -> None:
    assert not allows(line, "gcc *", "false")
    assert allows("gcc -Wall -O2 x.c -o out/program", "gcc *")


@pytest.mark.parametrize("line", ["git push", "git push origin main", "git -C /x push", "git push --force"])
def test_a_star_at_the_end_of_what_is_denied_stands_for_nothing_too(line: str) -> None:
    assert not allows(line, "*", "git", deny=("git push *",))
    assert allows("git status", "*", "git", deny=("git push *",))


@pytest.mark.parametrize(
    "line",
    [
        "cat <<-EOF\n$(cat <<'X'\n\tX\ntouch P\nX\n)\nEOF\n",
        "cat <<-EOF\n\"$(cat <<'X'\n\tX\ntouch P\nX\n)\"\nEOF\n",
        "cat <<-EOF\n`cat <<'X'\n\tX\ntouch P\nX\n`\nEOF\n",
        "LANG=(C)echo touch P",
        "TZ=()echo touch P",
        'CI=(C)""echo touch P',
        "x='b[$(touch P)]'; a=(1 [x]=2)",
        "a=(\"\" [b['$(touch P)']]=3)",
        "a=(1 [x]+=2)",
        "x='b[$(touch P)]'; echo hi {a[x]}>/dev/null",
        "x='b[$(touch P)]'; cat {a[x]}<f",
        "x='b[$(touch P)]'; echo hi {a[\"x\"]}>>f",
        'LC_ALL=zh_CN.gbk\necho "x"',
        "export LANG=ja_JP.SJIS; ls",
        "env LC_CTYPE=zh_TW.Big5 ls",
    ],
)
def test_what_bash_reads_in_another_way_is_refused(line: str) -> None:
    assert not allows(line, "cat", "cat *", "echo", "echo *", "ls", "touch x", "env")


def test_what_looks_like_it_stays_allowed() -> None:
    for line in (
        "cat <<-EOF\n\ttoday is $(date)\n\tEOF\n",
        "a=(1 2 3); echo ${#a[@]}",
        "files=(\n  a\n  b\n)\nls",
        "LANG=C ls; LC_ALL=C.UTF-8 ls; export LANG=en_US.UTF-8",
        "echo {a,b} > out.txt",
    ):
        assert allows(line, "cat", "echo", "echo *", "ls", "date"), line


@pytest.mark.parametrize(
    "line",
    [
        *("env pip-x=1 touch pwn", "env -i pip-x=1 touch pwn", "env CI=1 pip-x=1 touch pwn", "env -- pip-=1 touch pwn"),
        *("env pip-x=1 pip-y", "sudo pip-x=1 touch pwn", "nice env pip-x= touch pwn"),
    ],
)
def test_env_takes_every_word_with_an_equals_sign_for_a_variable(line: str) -> None:
    assert not allows(line, "env", "sudo", "nice", "pip-*")
    assert allows("env CI=1 pip-x a=b", "env", "pip-*")


@pytest.mark.parametrize(
    "line",
    [
        *(
            "docker scan x",
            "docker -D nosuch",
            "docker restart x",
            "podman machine x",
            "helm secrets x",
            "helm template x",
        ),
        *("gh nosuch", "brew nosuch", "uv venv", "systemctl restart x", "aws nosuch", "aws configure set a b"),
        *("gcloud components x", "gcloud compute ssh x", "kubectl nosuch", "npm nosuch", "pip nosuch", "git nosuch"),
    ],
)
def test_a_sub_command_that_may_be_a_plugin_or_run_code_needs_a_rule(line: str) -> None:
    words = [word for word in line.split() if not word.startswith("-")]
    assert not allows(line, words[0])
    assert not allows(line, f"{words[0]} *")
    assert allows(line, f"{words[0]} {words[1]}")
    for harmless in ("docker ps -a", "helm list", "gh pr list", "systemctl status x", "aws s3 ls", "brew list"):
        assert allows(harmless, harmless.split()[0]), harmless
