"""The folder that git names after a URL is judged as one that stands in the line; real git says which it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from requirements import require

from fumehood.policy import Commands
from fumehood.policy.commands import judge
from fumehood.policy.commands.clone_names import cloned_folders
from fumehood.policy.commands.syntax import known

_HIDDEN = (".config", ".ssh", ".npmrc", "hooks", "config", "HEAD")
_URLS = (
    *("https://h/scripts", "https://h/scripts.git", "https://h/scripts/", "https://h/scripts.git/", "h:scripts"),
    *("https://h/scripts/.git", "https://h/scripts/.git/", "https://h/scripts//.git//", "https://h/scripts.git/.git"),
    *("https://scripts:443", "https://u@scripts:443/", "https://u:p@scripts", "https://a@b@scripts", "scripts:22"),
    *("scripts:", "h:x:22/", "git@h:o/scripts.git", "ssh://git@h:22/o/scripts", "https://h/a:scripts", "h:o:scripts"),
    *("https://scripts/.git", "https://h/scripts.git.bundle", "https://h/scripts/.git.git", "x://y://scripts"),
    *("https://h/scripts ", "https://h/scripts.git ", "https://h/x/scripts/ ", "h:scripts ", "h:x/scripts/.git "),
    *("https://h/ scripts", "https://h/scripts\x0b", "https://h/a  scripts", "https://h/x?y/scripts", "https://h/%2e"),
    *("https://h/.config", "https://h/.config.git", "https://h/.git.git", "h:.config", "https://.config:1"),
    *("https://h/x@y", "a@b:c@d", "https://h//a//", "https://h/~u", "h/.git:x", "https://.git/", "https://h/..", "h:."),
)


def allows(line: str, *rules: str) -> bool:
    return judge(Commands(allow=rules), line).allowed


def _made_by_git(url: str, folder: Path) -> str | None:
    """None where git makes no folder at all. No protocol is allowed, so that git names it and connects to nothing."""
    environment = {"PATH": os.environ["PATH"], "GIT_ALLOW_PROTOCOL": "none", "HOME": str(folder), "LC_ALL": "C"}
    ran = subprocess.run(["git", "clone", "--", url], cwd=folder, env=environment, capture_output=True, check=False)
    found = re.match(r"Cloning into '(.*)'\.\.\.\n", ran.stderr.decode())
    return found[1] if found else None


def test_real_git_makes_the_folder_that_was_judged(tmp_path: Path) -> None:
    require(shutil.which("git"), "needs git")
    made = {url: name for url in _URLS if (name := _made_by_git(url, tmp_path)) is not None}
    judged = {url: {word.text for word in cloned_folders(known(url))} for url in made}
    assert len(made) >= 40
    assert {url: name for url, name in made.items() if name not in judged[url] and judged[url] != {None}} == {}
    policy = ("*", "bash scripts/build.sh")
    assert [url for url, name in made.items() if name == "scripts" and allows(f"git clone '{url}'", *policy)] == []


@pytest.mark.parametrize("name", _HIDDEN)
def test_real_git_would_make_a_folder_that_gives_orders(name: str, tmp_path: Path) -> None:
    require(shutil.which("git"), "needs git")
    source = tmp_path / "data" / name
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    for number, url in enumerate((str(source), f"file://{source}", f"{source}/", f"{source}/.git")):
        folder = tmp_path / str(number)
        folder.mkdir()
        subprocess.run(["git", "clone", "-q", url], cwd=folder, capture_output=True, check=True)
        assert [path.name for path in folder.iterdir()] == [name]
        for line in (f"git clone {url}", f"git -C /tmp clone -q {url}", f"git clone {url} && git status"):
            assert not allows(line, "*"), line
            assert not allows(line, "git clone", "git status"), line
        assert allows(f"git clone {url} plain", "*")


@pytest.mark.parametrize(
    "url", ["'https://h/x '", "'h:x y'", '"https://h/$x"', "'https://h/x?a=b'", "'https://h/x\ty'"]
)
def test_where_git_changes_the_name_another_has_to_be_given(url: str) -> None:
    assert not allows(f"git clone -- {url}", "*")
    (refusal,) = judge(Commands(allow=("*",)), "git clone 'https://h/x?a=b'").denied
    assert refusal.fix == "write a plain name for the folder after it"
    assert allows("git clone 'https://h/x?a=b' x", "*")


def test_plain_urls_need_no_name_beside_them() -> None:
    for url in (
        "https://a.example/o/r.git",
        "git@a.example:o/r.git",
        "/data/repo",
        "ssh://git@a.example:22/o/r",
        "./x",
    ):
        assert allows(f"git clone --depth 1 {url}", "*"), url
        assert allows(f"git clone {url}", "*", "./build.sh"), url
    assert allows("git clone https://h/.config", "git clone https://h/.config")


@pytest.mark.parametrize(
    "line",
    [
        *("gh repo clone o/r d -- -c core.sshCommand=./x", "gh gist clone x -- --upload-pack=./evil"),
        *("gh repo clone o/r -- -ccore.sshCommand=./x", "gh gist clone x d -- --config=core.sshCommand=./x"),
        *("gh repo clone o/.config", "gh repo clone o/r .git", "gh repo clone o/r ../x", "gh repo clone ext::sh"),
        *("gh repo fork --clone -- -c x=y", "gh repo create x --clone", "gh gist clone https://h/.config.git"),
    ],
)
def test_gh_makes_folders_as_git_does_and_gives_it_no_words(line: str) -> None:
    assert not allows(line, "gh")
    if "clone " in line and "--clone" not in line:
        assert not allows(line, "gh repo clone", "gh gist clone")
    for harmless in ("gh repo clone o/r", "gh repo clone o/r d", "gh gist clone 0123abc"):
        assert allows(harmless, "gh"), harmless
