"""ARCHITECTURE.md names what there is: every path, class, function and record kind on that page exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "fumehood"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
# What is code without being ours: paths inside a sandbox, commands, other people's names.
FOREIGN = {"/workspace", "/usr", "/run", "/tmp", "/dev/shm", "/proc", "exec", "tool.importlinter", "path::name"}


def test_every_path_and_name_of_the_page_exists() -> None:
    assert list(mistakes(PAGE)) == []


def test_the_tree_names_what_there_is() -> None:
    assert list(missing_of_tree(tree_of(PAGE))) == []


def test_the_tree_has_every_package_and_module_of_the_top_level() -> None:
    there = {path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    named = {path.parts[0] for path in tree_of(PAGE)}
    assert there - {"__init__.py", "__main__.py"} == named


@pytest.mark.parametrize("document", DECISIONS, ids=lambda path: path.name)
def test_every_path_of_a_decision_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert [each for each in quoted(text) if is_path(each) and mistake(each)] == []


def test_the_list_of_decisions_has_each_of_them() -> None:
    listed = re.findall(r"\]\((\d{3}-[\w-]+\.md)\)", (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8"))
    assert listed == [path.name for path in DECISIONS if path.name != "README.md"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`sandbox/request.py::make_request` and `tests/contract`", []),
        ("`policy/egress/rulebook.py::Rulebook.decide_name`", []),
        ("`RunAudit.finished` of `sandbox/audit/` writes `run.finished`", []),
        ("`sandbox/requests.py`", ["`sandbox/requests.py`: no such path"]),
        ("`src/fumehood/sync.py`", ["`src/fumehood/sync.py`: no such path"]),
        ("`sandbox/request.py::make_wish`", ["`sandbox/request.py::make_wish`: no such name in that file"]),
        (
            "`policy/egress/rulebook.py::Rulebook.guess`",
            ["`policy/egress/rulebook.py::Rulebook.guess`: no such name in that file"],
        ),
        ("a `WayOut`", ["`WayOut`: does not occur in src"]),
        ("`RunAudit.perished`", ["`RunAudit.perished`: does not occur in src"]),
    ],
)
def test_a_name_that_is_not_there_is_reported(text: str, found: list[str]) -> None:
    assert list(mistakes(text)) == found


def test_a_tree_with_a_module_that_is_not_there_is_reported() -> None:
    page = "```text\nsandbox/   here\n  request.py, wish.py  not here\ngusts/   nor this\n```\n"
    assert list(missing_of_tree(tree_of(page))) == ["sandbox/wish.py", "gusts"]


def mistakes(text: str) -> Iterator[str]:
    for each in quoted(text):
        if why := mistake(each):
            yield f"`{each}`: {why}"


def quoted(text: str) -> Iterator[str]:
    """What is in backticks and is one word, outside of blocks of code."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for match in re.finditer(r"`([^`\s]+)`", prose):
        if match[1] not in FOREIGN:
            yield match[1]


def is_path(text: str) -> bool:
    return (
        "::" in text
        or re.fullmatch(r"[\w.-]+(/[\w.-]+)*(/|\.(py|md|toml|txt))|(src|tests|docs)/[\w./-]+", text) is not None
    )


def mistake(text: str) -> str:
    if not is_path(text):
        return "" if occurs(text) else "does not occur in src"
    path, _, name = text.partition("::")
    places = [base / path for base in (PACKAGE, ROOT) if (base / path).exists()]
    if not places:
        # A file's name alone stands for the modules of that name.
        return "" if "/" not in path and next(PACKAGE.rglob(path), None) else "no such path"
    if name and name not in names_of(places[0]):
        return "no such name in that file"
    return ""


@cache
def source() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))


def occurs(text: str) -> bool:
    """The text itself, or a class with its method."""
    if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", source()):
        return True
    owner, _, method = text.partition(".")
    return bool(method) and any(text in names_of(path) for path in PACKAGE.rglob("*.py") if owner in path.read_text())


@cache
def names_of(module: Path) -> frozenset[str]:
    """Functions, classes with their methods, and constants of a module."""
    names: set[str] = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef():
                names.add(node.name)
                names |= {f"{node.name}.{name}" for part in node.body for name in bound_by(part)}
            case _:
                names |= set(bound_by(node))
    return frozenset(names)


def bound_by(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign():
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name() as target):
            yield target.id
        case _:
            pass


def tree_of(page: str) -> list[Path]:
    """The paths of the first block of text: names before two blanks, below the last folder at the margin."""
    block = re.search(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert block is not None, "there is no tree"
    paths: list[Path] = []
    folder = Path()
    for line in block[1].splitlines():
        names = [Path(name) for name in re.split(r"\s{2,}", line.strip())[0].split(", ")]
        if line.startswith(" "):
            paths += [folder / name for name in names]
        else:
            folder = names[0]
            paths += names
    return paths


def missing_of_tree(paths: list[Path]) -> Iterator[str]:
    return (str(path) for path in paths if not (PACKAGE / path).exists())
