"""The architecture, held by tests: who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUEST = ROOT / "src" / "fumehood" / "guest"
GUEST_MODULES = sorted(GUEST.rglob("*.py"))
# What a tool takes is called so in every module that has tools.
SHARED_NAMES = {"Arguments"}


def test_every_layer_imports_only_downward() -> None:
    lint = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_the_guest_has_modules() -> None:
    assert GUEST_MODULES, f"no module found in {GUEST}"


@pytest.mark.parametrize("module", GUEST_MODULES, ids=lambda path: str(path.relative_to(GUEST)))
def test_the_guest_imports_the_standard_library_and_itself_only(module: Path) -> None:
    assert list(foreign_imports(module.read_text(), depth=len(module.relative_to(GUEST).parts))) == []


@pytest.mark.parametrize(
    ("source", "depth", "expected"),
    [
        ("import os, json.decoder", 1, []),
        ("from . import protocol", 1, []),
        ("from .kernel import calls", 1, []),
        ("from .. import protocol", 2, []),
        ("from .. import errors", 1, ["line 1: from .. leaves the guest"]),
        ("import os\nimport yaml", 1, ["line 2: yaml is not in the standard library"]),
        ("import fumehood.guest", 1, ["line 1: fumehood is not in the standard library"]),
        ("def f():\n    from pydantic import BaseModel", 1, ["line 2: pydantic is not in the standard library"]),
        ("import importlib\nimportlib.import_module('yaml')", 1, ["line 2: yaml is not in the standard library"]),
        ("__import__('yaml')", 1, ["line 1: yaml is not in the standard library"]),
    ],
)
def test_the_check_itself_sees_every_way_to_import(source: str, depth: int, expected: list[str]) -> None:
    assert list(foreign_imports(source, depth=depth)) == expected


def foreign_imports(source: str, *, depth: int) -> Iterator[str]:
    """Name each import that is neither standard library nor relative inside the guest; `depth` 1 is a top module."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(level=level) if level > depth:
                yield f"line {node.lineno}: from {'.' * level} leaves the guest"
            case ast.ImportFrom(level=0, module=str(name)):
                yield from not_standard(node, [name])
            case ast.Import(names=aliases):
                yield from not_standard(node, [alias.name for alias in aliases])
            case ast.Call(
                func=ast.Name(id="__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield from not_standard(node, [name])


def not_standard(node: ast.stmt | ast.expr, names: list[str]) -> Iterator[str]:
    for name in (name.partition(".")[0] for name in names):
        if name not in sys.stdlib_module_names:
            yield f"line {node.lineno}: {name} is not in the standard library"


def test_no_public_class_name_means_two_things() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in homes.items() if len(places) > 1 and name not in SHARED_NAMES} == {}
