"""The lines of the data files beside this one, and the policies that they are judged by."""

from __future__ import annotations

import re
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


def lines(name: str) -> list[str]:
    text = (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8")
    found = [line for line in text.split("\n") if line and not line.startswith("## ")]
    return [_NUMBERED.sub(lambda match: chr(int(match[1], 16)), line).replace("⏎", "\n") for line in found]
