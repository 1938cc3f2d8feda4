"""`hood run --project DIR --sync-back`: what a program changed is shown, and written back after a yes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from live.cli_host import hood, open_terminal
from live.test_cli_project import CHANGE, content, program, project
from requirements import require

__all__ = ["project"]


def sync_back(project: Path, code: str, *options: str) -> tuple[int, str]:
    program(project, code)
    done = hood("run", "--project", ".", "--sync-back", *options, "main.py", cwd=project)
    return done.returncode, done.stderr.decode()


def test_changes_are_shown_and_written_back(project: Path) -> None:
    code, told = sync_back(project, CHANGE, "--yes")
    assert code == 0
    assert told.splitlines() == [
        *("changed  data.txt", "@@ line 1 @@", " one", " two", "+three"),
        *("added    sub/new.txt", "@@ line 1 @@", "+new", "deleted  gone.txt"),
        f"hood: files written back to {project}: 3",
    ]
    found = content(project)
    assert (found["data.txt"], found["sub/new.txt"]) == ("one\ntwo\nthree\n", "new\n")
    assert "gone.txt" not in found
    assert found[".env"] == "TOKEN=private\n"


def test_without_a_terminal_and_without_yes_nothing_is_written(project: Path) -> None:
    before = content(project)
    code, told = sync_back(project, CHANGE)
    assert "nothing was written back: there is no terminal to ask at; --yes writes without asking" in told
    assert (code, content(project)) == (0, {**before, "main.py": CHANGE})


@pytest.mark.parametrize(("key", "is_written"), [(b"y", True), (b"y\n", True), (b"n", False), (b"\x03", False)])
def test_a_person_says_yes_or_no(key: bytes, is_written: bool, project: Path) -> None:
    program(project, CHANGE)
    with open_terminal("run", "--project", str(project), "--sync-back", str(project / "main.py")) as terminal:
        terminal.wait_for(b"y = yes   n = no")
        assert b"\x1b[32m+three\x1b[0m" in terminal.seen
        assert "sub/new.txt" not in content(project)
        terminal.type(key)
        assert terminal.process.wait(60) == 0
    assert ("sub/new.txt" in content(project)) == is_written


def test_a_program_that_failed_changes_nothing_without_a_person(project: Path) -> None:
    code, told = sync_back(project, f"{CHANGE}\nraise SystemExit(3)", "--yes")
    assert code == 3
    assert "nothing was written back: the program failed" in told
    assert "gone.txt" in content(project)


def test_only_what_the_policy_lets_out_is_written_back(project: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("filesystem: {outputs: ['sub/**']}\n")
    code, told = sync_back(project, CHANGE, "--yes", "--policy", str(tmp_path / "policy.yaml"))
    assert code == 0
    for path in ("data.txt", "gone.txt"):
        assert f"hood: not written back: {path}: filesystem.outputs of the policy does not name it" in told
    found = content(project)
    assert (found["data.txt"], found["gone.txt"], found["sub/new.txt"]) == ("one\ntwo\n", "gone\n", "new\n")


def test_a_policy_that_lets_nothing_out_is_refused_before_anything_runs(project: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("resources: {timeout: 5s}\n")
    code, told = sync_back(project, CHANGE, "--yes", "--policy", str(tmp_path / "policy.yaml"))
    assert code == 2
    assert "--sync-back has nothing to save: the policy names no filesystem.outputs" in told


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", ".GIT/config", ".venv/bin/python", "x/node_modules/y.js", "docs/HEAD"]
)
def test_what_tools_execute_is_not_written_back(path: str, project: Path) -> None:
    attack = f"import os\nos.makedirs(os.path.dirname({path!r}))\nopen({path!r}, 'w').write('evil')\n"
    code, told = sync_back(project, attack, "--yes")
    assert code == 0
    assert f"hood: not written back: {path}: tools execute what lies there" in told
    assert "evil" not in "".join(content(project).values()).replace(attack, "")


def test_a_folder_does_not_become_a_repository_whose_configuration_git_obeys(project: Path) -> None:
    require(shutil.which("git"), "needs git")
    config = (
        f'[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = "touch {project}/evil; false"\n'
    )
    attack = f"""import os
for folder in ("docs/objects", "docs/refs"):
    os.makedirs(folder)
    open(f"{{folder}}/x", "w").close()
open("docs/HEAD", "w").write("ref: refs/heads/main")
open("docs/config", "w").write({config!r})
"""
    assert sync_back(project, attack, "--yes")[0] == 0
    assert (project / "docs" / "config").exists()
    subprocess.run(["git", "status"], cwd=project / "docs", capture_output=True, check=False)
    assert not (project / "evil").exists()


def test_a_hidden_file_is_written_back_only_after_a_question(project: Path) -> None:
    attack = "import os; os.mkdir('.vscode'); open('.vscode/tasks.json', 'w').write('evil'); open('new', 'w')\n"
    code, told = sync_back(project, attack, "--yes")
    assert code == 0
    assert "hood: not written back: .vscode/tasks.json: tools read hidden files unasked" in told
    assert not (project / ".vscode").exists()
    assert (project / "new").exists()
    with open_terminal("run", "--project", str(project), "--sync-back", str(project / "main.py")) as terminal:
        terminal.wait_for(b"y = yes   n = no")
        terminal.type(b"y")
        assert terminal.process.wait(60) == 0
    assert (project / ".vscode/tasks.json").read_text() == "evil"


def test_a_link_that_the_program_made_leads_nowhere(project: Path, tmp_path: Path) -> None:
    """A folder of the host's by a link of the program's: written through, it would be any file of the user's."""
    (tmp_path / "victim").mkdir()
    attack = f"import os\nos.rmdir('sub')\nos.symlink({str(tmp_path / 'victim')!r}, 'sub')\n"
    assert sync_back(project, attack, "--yes")[0] == 0
    assert not (project / "sub").is_symlink()
    (project / "sub").rmdir()
    (project / "sub").symlink_to(tmp_path / "victim")  # one of the host's is not followed, either
    code, told = sync_back(project, "import os; os.mkdir('sub'); open('sub/x', 'w').write('x')", "--yes")
    assert code == 2
    assert "not written back: sub/x: its folder on the host cannot be used" in told
    assert os.listdir(tmp_path / "victim") == []


def test_a_file_that_changed_on_the_host_meanwhile_is_kept(project: Path) -> None:
    program(project, f"{CHANGE}\ninput()")
    command = ["run", "--project", str(project), "--sync-back", str(project / "main.py")]
    with open_terminal(*command) as terminal:
        terminal.type(b"\n")
        terminal.wait_for(b"y = yes   n = no")
        (project / "data.txt").write_text("mine\n")
        (project / "sub" / "new.txt").write_text("mine\n")
        terminal.type(b"y")
        assert terminal.process.wait(60) == 2
        terminal.wait_for(b"exists on the host, and was not copied into the sandbox")
    assert b"not written back: data.txt: it has changed on the host since it was copied" in terminal.seen
    found = content(project)
    assert (found["data.txt"], found["sub/new.txt"]) == ("mine\n", "mine\n")
    assert "gone.txt" not in found


def test_an_ignored_file_of_the_hosts_is_not_replaced(project: Path) -> None:
    (project / ".gitignore").write_text("local.cfg\n")
    (project / "local.cfg").write_text("mine\n")
    code, told = sync_back(project, "open('local.cfg', 'w').write('evil')", "--yes")
    assert code == 2
    assert "not written back: local.cfg: it exists on the host, and was not copied into the sandbox" in told
    assert content(project)["local.cfg"] == "mine\n"


@pytest.mark.parametrize(
    ("bomb", "told"),
    [
        ("for n in range(1001): open(f'f{n}', 'w')", "--sync-back: the program changed more than 1000 files"),
        ("open('big', 'wb').truncate(300 << 20)", "--sync-back: what the program changed has more than 256M"),
    ],
)
def test_too_much_is_not_written_back(bomb: str, told: str, project: Path) -> None:
    code, said = sync_back(project, bomb, "--yes", "--disk", "1G")
    assert code == 2
    assert told in said
    assert set(content(project)) - {"main.py"} == {".git/config", "lib.py", "data.txt", "gone.txt", ".env"}


def test_a_name_does_not_look_like_a_line_of_ours(project: Path) -> None:
    code, told = sync_back(project, "open('x\\nhood: all is well\\x1b[2J', 'w')", "--yes")
    assert code == 0
    assert "added    x⟨U+000A⟩hood: all is well⟨U+001B⟩[2J" in told


def test_what_is_written_back_is_recorded_with_its_place(project: Path) -> None:
    assert sync_back(project, CHANGE, "--yes")[0] == 0
    lines = hood("audit", "search", "--json", "--since", "1h").stdout.splitlines()
    records = [record for line in lines if (record := json.loads(line)["record"])["kind"].startswith("file.")]
    targets = {(record["kind"], record["data"].get("target")) for record in records}
    assert ("file.out", str(project / "sub" / "new.txt")) in targets
    assert ("file.removed", str(project / "gone.txt")) in targets


def test_options_that_need_others_say_so(project: Path) -> None:
    for options, words in (
        (["--sync-back"], b"--sync-back writes to the folder of --project DIR; give that, too"),
        (["--yes"], b"--yes lets --sync-back write without asking; give that, too"),
        (["--project", ".", "--yes"], b"--yes lets --sync-back write without asking; give that, too"),
    ):
        done = hood("run", *options, "-c", "1", cwd=project)
        assert (done.returncode, words in done.stderr) == (2, True)


def test_a_project_and_approvals_exclude_each_other(project: Path, tmp_path: Path) -> None:
    (tmp_path / "asks.yaml").write_text("approvals: [{tool: python}]\n")
    done = hood("run", "--policy", tmp_path / "asks.yaml", "--project", project, "-c", "1")
    assert done.returncode == 2
    assert b"--project: the policy asks for approvals" in done.stderr
