"""Everything of ours that runs inside has imported all that it needs before a file of the user's can be reached."""

from __future__ import annotations

import ast
from pathlib import Path

import fumehood.guest

GUEST = Path(fumehood.guest.__file__).parent


def late_imports(source: str) -> list[int]:
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    inner = [node for function in functions for node in ast.walk(function)]
    return [node.lineno for node in inner if isinstance(node, ast.Import | ast.ImportFrom)]


def test_no_function_of_the_guest_imports_anything() -> None:
    found = {str(path.relative_to(GUEST)): late_imports(path.read_text()) for path in GUEST.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_a_late_import_would_be_found() -> None:
    assert late_imports("import os\ndef serve():\n    if True:\n        from hashlib import sha256\n") == [4]
