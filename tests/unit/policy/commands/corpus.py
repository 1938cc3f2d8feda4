"""The lines of the data files beside this one, and the policies that they are judged by."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from fumehood.policy import Commands

_NUMBERED = re.compile("⟨U\\+([0-9A-F]{4})⟩")

# Everyday tools, some of which could be made to run anything; no `rm`, and of git only what changes nothing elsewhere.
EVERYDAY = Commands(
    allow=(
        *("awk", "basename", "bash", "cat", "chmod", "cp", "cut", "date", "df", "diff", "dirname", "du", "echo"),
        *("env", "file", "find", "git --version", "git add", "git branch", "git checkout", "git commit"),
        *("git config", "git diff", "git log", "git show", "git stash", "git status", "git switch", "grep", "gzip"),
        *("head", "jq", "ln", "ls", "md5sum", "mkdir", "mv", "nice", "nohup", "realpath", "sed", "seq", "sh"),
        *("sha256sum", "sleep", "sort", "stat", "tail", "tar", "tee", "timeout", "touch", "tr", "uniq", "wc"),
        "xargs",
    ),
    deny=("git push", "rm"),
)  # fmt: skip
# Whatever is not denied; programs that run code need a rule that names them.
OPEN = Commands(deny=("git push", "rm"))
# For agents at work on a project: with interpreters and builders, so that the kernel has to see to the rest.
PROJECT = Commands(
    allow=(
        *(EVERYDAY.allow or ()),
        *("base64", "cargo", "cmp", "column", "comm", "curl", "expr", "fold", "free", "g++", "gcc", "go", "gunzip"),
        *("hexdump", "hostname", "id", "install", "join", "make", "nl", "node", "nproc", "npm test", "npm run *"),
        *("npm ci", "npm ls", "npx tsc", "numfmt", "od", "paste", "pip", "printenv", "ps", "python", "python3"),
        *("readlink", "rev", "rg", "rm", "rmdir", "shuf", "split", "strings", "tac", "tree", "truncate", "uname"),
        *("unzip", "uptime", "wget", "which", "whoami", "xxd", "zcat", "zip", "git"),
    ),
    deny=("git push",),
)  # fmt: skip
# Ordinary lines that are refused all the same; docs/commands.md says why.
REFUSED_ALL_THE_SAME = frozenset(
    {
        *('find "$dir" -name x 2>/dev/null || true', 'find "$dir" -type "$kind" -newer x'),
        *("ls *.txt | xargs sed -i 's/a/b/' --", "grep -rl x . | xargs sed -i 's/a/b/'"),
        *("trap 'echo done' EXIT", 'greet() { echo "hello $1"; }; greet world'),
        *('count() { ls "$1" | wc -l; }\ncount src', "function greet { echo hi; }\ngreet", 'tar czf "$out.tgz" src'),
        *(
            'tar -czf "$name" -C "$dir" src',
            'git show "$commit"',
            'git diff "$base" -- src',
            "git log $range --oneline",
        ),
        *("ln -s ../lib lib", "cd build && cp out.txt ../", "cd src && ls && cd .. && ls > files.txt"),
        *("cp -r /usr/share/dict .", 'echo "$line" >> "logs/$name.log"'),
        *('while read -r f; do wc -l < "$f"; done < list.txt', 'printf "%s $unit\\n" "$n"', 'echo "one \\\ntwo"'),
        *('if [ -f a ]; then f=a; else f=b; fi; sort "$f"', '[ -f a.txt ] && f=a.txt; sort "$f"'),
        "(( n = 5 )); echo $((n + 1))",
        *("env A=1 ls", "export FOO=1; ls", "FOO=1; export FOO; ls"),
    }
)


@cache
def lines(name: str) -> list[str]:
    text = (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8")
    found = [line for line in text.split("\n") if line and not line.startswith("## ")]
    return [_NUMBERED.sub(lambda match: chr(int(match[1], 16)), line).replace("⏎", "\n") for line in found]
