"""`hood run` of a program with more than one file: modules beside a script, and a copy of a project's folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from live.cli_host import hood

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
