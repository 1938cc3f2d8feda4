"""Which modules beside a script come with it, and which files never do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fumehood.cli.modules import find_modules
from fumehood.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program's folder, with more in it than the program."""
    files = {
        "helper.py": "import deeper\n",
        "deeper.py": "",
        "unused.py": "",
        "notes.txt": "private",
        "key.pem": "private",
        "package/__init__.py": "",
        "package/part.py": "import deeper",
        "package/data.json": "{}",
        "package/inner/__init__.py": "",
        "package/__pycache__/part.py": "",
        "plain/one.py": "from . import two",
        "plain/two.py": "from ..deeper import x",
        "plain/unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def found(folder: Path, source: str, **options: bool) -> set[str]:
    (folder / "main.py").write_text(source)
    return set(find_modules(str(folder / "main.py"), source.encode(), **options).files)


PACKAGE = {"package/__init__.py", "package/part.py", "package/inner/__init__.py", "deeper.py"}


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ("import helper", {"helper.py", "deeper.py"}),
        ("import os, deeper as d; import helper", {"helper.py", "deeper.py"}),
        ("try: import deeper\nexcept ImportError: pass", {"deeper.py"}),
        ("def f():\n\tfrom deeper import (\n  x,  # one\n  y)", {"deeper.py"}),
        ("from deeper \\\n import x", {"deeper.py"}),
        ("from deeper import *", {"deeper.py"}),
        ("import package.part", PACKAGE),
        ("from package import part", PACKAGE),
        ("import plain.one", {"plain/one.py", "plain/two.py", "deeper.py"}),
        ("from plain import two", {"plain/two.py", "deeper.py"}),
        ("print('hello')", set[str]()),
        ("import os, sys, json", set[str]()),
        ("import absent, notes, key", set[str]()),
        ("# import helper", set[str]()),
        ("importhelper = fromhelper = 1", set[str]()),
        ("from .. import x\nfrom ...etc import passwd", set[str]()),
        ("import main", {"main.py"}),
    ],
)
def test_what_is_imported_comes_along_and_nothing_else(source: str, files: set[str], folder: Path) -> None:
    assert found(folder, source) == files


def test_what_comes_along_is_the_files_content(folder: Path) -> None:
    assert find_modules(str(folder / "main.py"), b"").files == {}
    (folder / "main.py").touch()
    assert find_modules(str(folder / "main.py"), b"import helper").files["helper.py"] == b"import deeper\n"


def test_a_module_named_like_one_of_pythons_stays_out(folder: Path) -> None:
    (folder / "secrets.py").write_text("")
    (folder / "main.py").touch()
    modules = find_modules(str(folder / "main.py"), b"import secrets")
    assert modules.files == {}
    assert "a module of Python itself has that name" in modules.notes[0]


@pytest.mark.parametrize("name", ["linked.py", "linked/__init__.py", "linked/part.py"])
def test_a_link_brings_nothing_in(name: str, folder: Path) -> None:
    secret = folder.parent / f"{folder.name}-secret" / "part.py"
    secret.parent.mkdir()
    secret.write_text("private")
    place = folder / name
    if name.endswith("part.py"):
        place.parent.symlink_to(secret.parent)
    else:
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(secret)
    (folder / "main.py").touch()
    assert find_modules(str(folder / "main.py"), b"import linked, linked.part").files == {}


def test_a_pipe_brings_nothing_in_and_holds_up_nothing(folder: Path) -> None:
    os.mkfifo(folder / "pipe.py")
    assert found(folder, "import pipe") == set()


@pytest.mark.parametrize("place", ["", "up"])
def test_nothing_comes_from_a_home_folder_or_from_above(
    place: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder / place))
    (folder / place).mkdir(exist_ok=True)
    (folder / "main.py").touch()
    modules = find_modules(str(folder / "main.py"), b"import helper, package")
    assert modules.files == {}
    assert len(modules.notes) == 2
    assert "helper.py beside the script is not copied into the sandbox: your home folder" in "\n".join(modules.notes)


def test_nothing_comes_from_a_folder_that_every_user_can_write(folder: Path) -> None:
    folder.chmod(0o1777)
    assert found(folder, "import helper") == set()


def test_nothing_comes_along_unseen_by_who_approves(folder: Path) -> None:
    assert found(folder, "import helper", is_asked_for=True) == set()


def test_a_linked_script_has_the_modules_of_its_own_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (folder / "main.py").touch()
    link = tmp_path_factory.mktemp("bin") / "tool"
    link.symlink_to(folder / "main.py")
    assert set(find_modules(str(link), b"import deeper").files) == {"deeper.py"}


def test_what_is_no_file_has_no_modules() -> None:
    assert find_modules("/dev/stdin", b"import helper").files == {}


def test_too_much_is_refused_with_a_way_out(folder: Path) -> None:
    (folder / "big.py").write_bytes(b"#" * (16 * 1024 * 1024 + 1))
    with pytest.raises(UsageError, match=r"more than 500 files or 16M; name what belongs .* --project DIR"):
        found(folder, "import big")
    (folder / "many").mkdir()
    for number in range(501):
        (folder / "many" / f"m{number}.py").touch()
    (folder / "many" / "__init__.py").touch()
    with pytest.raises(UsageError, match="--project DIR"):
        found(folder, "import many")


@pytest.mark.parametrize("text", ["from a import (", f"from{' ' * 100}", ":" * 100, f"from .{'.' * 100}", "\\\n" * 40])
def test_a_hostile_text_is_read_in_one_pass(text: str, folder: Path) -> None:
    """One that went over characters twice would take hours."""
    assert found(folder, text * (4_000_000 // len(text))) == set()
