"""What a refusal suggests works as it is printed: the rule that it names, or the change of the line."""

from __future__ import annotations

import ast
import re

import pytest
import sampling
from unit.policy.commands.corpus import EVERYDAY, OPEN, PROJECT, lines

from fumehood.policy import Commands
from fumehood.policy.commands import judge
from fumehood.policy.commands.decision import described

_QUOTED = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_ADDED = re.compile(rf"add {_QUOTED} to commands\.allow|commands\.allow: {_QUOTED}")
_REMOVED = re.compile(rf"remove {_QUOTED} from commands\.deny")
_FILES = ("smuggling", "hostile", "two_shells", "ordinary", "working")
# Each is judged twice by each of three policies.
EVERY = sampling.amount(4, whole=1)


def _followed(commands: Commands, fix: str) -> Commands | None:
    """The policy with the change that the text names; None when it names none."""
    if found := _ADDED.search(fix):
        rule = str(ast.literal_eval(found[1] or found[2]))
        return Commands(allow=(*(("*",) if commands.allow is None else commands.allow), rule), deny=commands.deny)
    if found := _REMOVED.search(fix):
        return Commands(allow=commands.allow, deny=tuple(set(commands.deny) - {ast.literal_eval(found[1])}))
    return None


@pytest.mark.parametrize("commands", [EVERYDAY, OPEN, PROJECT], ids=["everyday", "open", "project"])
def test_a_rule_that_a_refusal_names_is_enough(commands: Commands) -> None:
    tried, failed = 0, list[str]()
    for line in (line for name in _FILES for line in lines(name)[::EVERY]):
        for refusal in judge(commands, line).denied:
            try:
                changed = _followed(commands, refusal.fix)
            except ValueError as error:
                failed.append(f"{line!r}: {refusal.fix}: {error}")
                continue
            if changed is None:
                continue
            tried += 1
            if refusal in judge(changed, line).denied:
                failed.append(f"{line!r}: {described(refusal)}")
    assert tried > 100
    assert failed == []


@pytest.mark.parametrize(
    ("line", "fix", "changed"),
    [
        ('awk -F"$e" 1 x', "put a space before the value", 'awk -F "$e" 1 x'),
        ('sort -k"$n" x', "put a space after -k", 'sort -k "$n" x'),
        ("git log --format %H", "write it as --format=...", "git log --format=%H"),
        ("git log -S --x", "write it as -S--x", "git log -S--x"),
        ("git log --author --x", "write it as --author=--x", "git log --author=--x"),
        ("echo 12>o.txt", "put a space after it", "echo 12 >o.txt"),
        ('find . -exec echo "$x" \\;', "write a letter or ./ before it", 'find . -exec echo "./$x" \\;'),
        ('find . -exec echo "$x" \\;', "set it to a plain word", 'x=a; find . -exec echo "$x" \\;'),
        ("ls | xargs -I{} -n1 echo {}", "without -n and -L", "ls | xargs -I{} echo {}"),
        ("cat ~root/x", "write its path", "cat /root/x"),
        ("echo a=~/x", 'use "$HOME"', 'echo a="$HOME/x"'),
        ("echo $10", "use ${10}", "echo ${10}"),
        ("cat 1< x", "use > for what is written", "cat < x > y.txt"),
        ("[ $x = a ]", "put quotes around variables", '[ "$x" = a ]'),
        ("[ a = b -a c = d ]", "&& or || between them", "[ a = b ] && [ c = d ]"),
        ("export A=$x", "put quotes around it", 'export CI="x"'),
        ('git diff "$x"', "write --end-of-options before it", 'git diff --end-of-options "$x"'),
        ('sort "$x"', "write -- or ./ before it", 'sort -- "$x"'),
        ('sort "$x"', "write -- or ./ before it", 'sort "./$x"'),
        ("sort $x", "put quotes around it, or set it to a plain word", "x=a; sort $x"),
        ('find "$x"', "write ./ before it", 'find "./$x"'),
        ('read -r x; cat < "$x"', "write ./ before it", 'read -r x; cat < "./$x"'),
        ('cat x > "$y"', "set it to a plain name in the line", 'y=a; cat x > "$y.txt"'),
        ("cat x > ../y", "write the whole path, such as /workspace/name", "cat x > /workspace/y"),
        ("cp -a /usr/share/dict y", "without -a, -d and -P, and with -L", "cp -rL /usr/share/dict y"),
        ("printf $x a", "begin with a format", "printf '%s' \"$x\" a"),
        ("bash -c -e ls", "write options before -c", "bash -e -c ls"),
        ("bash", "use bash -c '...'", "bash -c 'ls'"),
        ("echo `echo \\`ls\\``", "use $(...)", "echo $(echo $(ls))"),
        ("n=$1; echo $((n))", "set n to plain numbers alone before", "n=1; echo $((n))"),
        ("cat <<'E-O'\na\nE-O", "use EOF or 'EOF'", "cat <<'EOF'\na\nEOF"),
        ("git commit", "add --dry-run or", "git commit --dry-run"),
        ("echo a >& /dev/tcp/x/1", "use a program that is allowed", "echo a | cat"),
    ],
)
def test_a_change_of_the_line_that_a_refusal_names_is_enough(line: str, fix: str, changed: str) -> None:
    assert fix in str(judge(EVERYDAY, line))
    assert judge(EVERYDAY, changed).allowed, str(judge(EVERYDAY, changed))
