"""One run's source as code: statements, and the last expression apart, whose value is displayed."""

from __future__ import annotations
import __future__

import ast
import linecache
from types import CodeType

from ..source import text_of

_FUTURES = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})


class Compiler:
    """Remembers `from __future__ import`, as an interactive interpreter does."""

    def __init__(self) -> None:
        self._flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def compile(self, source: bytes, name: str) -> list[CodeType]:
        """Statements evaluate to None, the last expression to its value."""
        text = text_of(source, name)
        _remember(text, name)
        try:
            tree = compile(text, name, "exec", self._flags | ast.PyCF_ONLY_AST, dont_inherit=True)
            assert isinstance(tree, ast.Module)
            last = _take_last_value(tree, text)
            statements = [self._compile(tree, name, "exec")]
            return statements + [self._compile(expression, name, "eval") for expression in last]
        except SyntaxError as error:
            _add_line(error, name)
            raise

    def _compile(self, tree: ast.Module | ast.Expression, name: str, mode: str) -> CodeType:
        code: CodeType = compile(tree, name, mode, self._flags, dont_inherit=True)
        self._flags |= code.co_flags & _FUTURES
        return code


def _take_last_value(tree: ast.Module, text: str) -> list[ast.Expression]:
    match tree.body:
        case [*_, ast.Expr() as last] if not _is_followed_by_semicolon(last, text):
            tree.body.pop()
            return [ast.Expression(last.value)]
        case _:
            return []


def _is_followed_by_semicolon(statement: ast.Expr, text: str) -> bool:
    assert statement.end_lineno is not None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").encode().split(b"\n")
    rest = lines[statement.end_lineno - 1 :]
    rest[0] = rest[0][statement.end_col_offset :]
    return b"\n".join(rest).lstrip(b" \t\f\\\n").startswith(b";")


def _remember(text: str, name: str) -> None:
    """Adds the source to `linecache` for tracebacks and `inspect`, without a time, so that no file is checked."""
    lines = [f"{line}\n" for line in text.splitlines()]
    linecache.cache[name] = (len(text), None, lines, name)


def _add_line(error: SyntaxError, name: str) -> None:
    """Errors that are found late come without the line: the compiler looks for a file of that name."""
    if error.text is None and error.filename == name and error.lineno:
        error.text = linecache.getline(name, error.lineno) or None
