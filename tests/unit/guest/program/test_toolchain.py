"""Which commands a sandbox has for a language, by its own PATH."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fumehood.guest.program import toolchain


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only one in PATH; has one command, one file that is none, and one folder."""
    (tmp_path / "tool").touch(0o755)
    (tmp_path / "text").touch(0o644)
    (tmp_path / "folder").mkdir()
    monkeypatch.setenv("PATH", f"/nowhere:{tmp_path}")
    return tmp_path


def request(language: str, *interpreter: str, **changes: Any) -> dict[str, Any]:
    commands = {"none": [], "one": ["tool"], "text": ["text"], "folder": ["folder"], "two": ["tool", "gone", "lost"]}
    return {"language": language, "interpreter": list(interpreter), "commands": commands, **changes}


def test_a_command_in_path_is_settled(folder: Path) -> None:
    asked = request("one", "tool", "-x")
    assert toolchain.find_commands(asked) is None
    assert asked["interpreter"] == [f"{folder}/tool", "-x"]


def test_a_path_stays_what_it_is(folder: Path) -> None:
    asked = request("one", "/run/build/program")
    assert toolchain.find_commands(asked) is None
    assert asked["interpreter"] == ["/run/build/program"]


@pytest.mark.parametrize(
    ("language", "missing"), [("text", "no text"), ("folder", "no folder"), ("two", "no gone and no lost")]
)
def test_what_is_missing_is_named_with_what_is_there(folder: Path, language: str, missing: str) -> None:
    said = toolchain.find_commands(request(language, "x"))
    assert said == f"language {language!r} is not available in this sandbox: it has {missing}; available: none, one"


def test_a_command_of_the_callers_is_not_looked_for(folder: Path) -> None:
    assert toolchain.find_commands({"language": "text", "interpreter": None, "commands": None}) is None


def test_a_product_is_moved(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    folder = tmp_path / "build"
    toolchain.hand_over({"leaves": str(folder), "takes": None})
    (folder / "program").touch(0o755)
    toolchain.hand_over({"leaves": None, "takes": str(folder)}, str(place))
    assert (place / "build" / "program").stat().st_mode & 0o777 == 0o755
    assert not folder.exists()


def test_a_product_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        toolchain.hand_over({"leaves": None, "takes": str(tmp_path / "gone")})
