"""`hood run` of a program with more than one file: modules beside a script, and a copy of a project's folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from live.cli_host import hood
from live.package_index import make_wheel, open_index

pytestmark = pytest.mark.usefixtures("way")


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    (folder / "package").mkdir(parents=True)
    (folder / "main.py").write_text("import helper\nfrom package import part\nprint(helper.NAME, part.NUMBER)\n")
    (folder / "helper.py").write_text("NAME = 'helper'\n")
    (folder / "package" / "__init__.py").touch()
    (folder / "package" / "part.py").write_text("NUMBER = 7\n")
    (folder / "data.txt").write_text("of the host\n")
    return folder


def test_a_script_imports_the_modules_of_its_folder(app: Path, tmp_path: Path) -> None:
    done = hood("run", "app/main.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"helper 7\n", b"")


def test_a_session_imports_them_too(app: Path, tmp_path: Path) -> None:
    assert hood("run", "--session", "app/main.py", cwd=tmp_path).stdout == b"helper 7\n"


def test_a_script_in_a_home_folder_brings_nothing_else_in(app: Path) -> None:
    (app / "main.py").write_text("import os\nprint(os.listdir())\nimport helper\n")
    done = hood("run", app / "main.py", env={**os.environ, "HOME": str(app)})
    assert (done.returncode, done.stdout) == (1, b"[]\n")
    assert b"hood: helper.py beside the script is not copied into the sandbox: your home folder" in done.stderr


def test_a_script_sees_what_it_imports_and_no_other_file_of_its_folder(app: Path) -> None:
    look = "\nimport os\nprint(sorted(name for _, _, files in os.walk('.') for name in files if name[-1] != 'c'))\n"
    with (app / "main.py").open("a") as script:
        script.write(look)
    assert hood("run", app / "main.py").stdout == b"helper 7\n['__init__.py', 'helper.py', 'part.py']\n"


def test_a_module_that_is_a_link_to_a_file_of_the_host_does_not_come_in(app: Path, tmp_path: Path) -> None:
    """What a cloned repository could do to read what its user can."""
    (tmp_path / "private.txt").write_text("TOKEN = 'private'\n")
    (app / "helper.py").unlink()
    (app / "helper.py").symlink_to(tmp_path / "private.txt")
    (app / "main.py").write_text("import helper\nprint(helper.TOKEN)\n")
    done = hood("run", app / "main.py")
    assert done.returncode == 1
    assert b"private'" not in done.stdout + done.stderr
    assert b"ModuleNotFoundError" in done.stderr


def test_modules_that_came_along_are_not_saved_as_outputs(app: Path, tmp_path: Path) -> None:
    with (app / "main.py").open("a") as script:
        script.write("open('result.txt', 'w').write('x')\n")
    assert hood("run", "--out", tmp_path / "out", app / "main.py").returncode == 0
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name != "__pycache__"] == ["result.txt"]


def test_modules_that_come_along_are_recorded(app: Path) -> None:
    assert hood("run", app / "main.py").returncode == 0
    assert b"helper.py" in hood("audit", "search", "--kind", "file.in").stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("[core]\n")
    (folder / "lib.py").write_text("WORD = 'library'\n")
    (folder / "data.txt").write_text("one\ntwo\n")
    (folder / "gone.txt").write_text("gone\n")
    (folder / ".env").write_text("TOKEN=private\n")
    return folder


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def program(folder: Path, code: str) -> Path:
    (folder / "main.py").write_text(code)
    return folder / "main.py"


CHANGE = """
import os
open('data.txt', 'a').write('three\\n')
open('sub/new.txt', 'w').write('new\\n')
os.remove('gone.txt')
"""


def test_a_program_works_on_a_copy_of_its_project(project: Path) -> None:
    look = "import os, lib\nprint(lib.WORD, __file__, os.getcwd(), sorted(os.listdir()))\n"
    program(project, look + CHANGE)
    before = content(project)
    done = hood("run", "--project", ".", "main.py", cwd=project)
    listed = b"['data.txt', 'gone.txt', 'lib.py', 'main.py', 'sub']"
    assert done.stdout.replace(b"'__pycache__', ", b"") == b"library /workspace/main.py /workspace " + listed + b"\n"
    assert (done.returncode, done.stderr) == (0, b"")
    assert content(project) == before


def test_a_program_starts_in_the_folder_of_the_project_where_its_user_is(project: Path) -> None:
    (project / "sub" / "run.sh").write_text("pwd; cat ../data.txt; echo $0\n")
    done = hood("run", "--project", "..", "run.sh", cwd=project / "sub")
    assert done.stdout == b"/workspace/sub\none\ntwo\n/workspace/sub/run.sh\n"


def test_code_and_programs_from_elsewhere_work_on_a_project_too(project: Path, tmp_path: Path) -> None:
    code = "import lib, os; print(lib.WORD, os.getcwd())"
    assert hood("run", "--project", project, "-c", code).stdout == b"library /workspace\n"
    (tmp_path / "tool.py").write_text(code)
    assert hood("run", "--project", project, tmp_path / "tool.py").stdout == b"library /workspace\n"


def test_nothing_comes_in_by_a_link_out_of_the_project(project: Path, tmp_path: Path) -> None:
    (tmp_path / "private.txt").write_text("private")
    (project / "link").symlink_to(tmp_path / "private.txt")
    done = hood("run", "--project", project, "-c", "import os; print(os.path.lexists('link'))")
    assert done.stdout == b"False\n"
    assert done.stderr == b"hood: link is left out: it is a link that leads out of the folder, or may\n"


def test_a_header_is_not_installed_unless_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_HOME", str(tmp_path / "hood"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    header = "# /// script\n# dependencies = ['greeter']\n# ///\n"
    (tmp_path / "x.py").write_text(f"{header}import greeter\nprint(greeter.WORD)\n")
    with open_index(make_wheel("greeter", {"greeter.py": "WORD = 'hello'\n"})) as index:
        (tmp_path / "index.yaml").write_text(f"environment: {{index: '{index.url}'}}\n")
        command = ["run", "--policy", str(tmp_path / "index.yaml")]
        refused = hood(*command, tmp_path / "x.py")
        assert (refused.returncode, refused.stdout) == (2, b"")
        assert b"x.py asks for packages in its header, which you did not: add --install" in refused.stderr
        assert index.paths == []
        assert hood(*command, "--install", tmp_path / "x.py").stdout == b"hello\n"
        asked = len(index.paths)
        assert hood(*command, tmp_path / "x.py").stdout == b"hello\n"  # it is there now, and no index is asked
        assert len(index.paths) == asked
