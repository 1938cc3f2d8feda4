"""A second opinion: the line is judged only if tree-sitter's grammar of bash finds the same commands and words in it.

Each reader has its own mistakes. A line that fools one of them is read in two ways, and that is a reason to refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from fumehood.errors import UsageError
from fumehood.policy.commands.script import Script
from fumehood.policy.commands.verdict import RefusedError

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

Span = tuple[int, int]
_SPECIAL = {"declaration_command", "unset_command", "test_command"}
_SPECIAL_HEADS = frozenset({"export", "declare", "typeset", "local", "readonly", "unset", "unsetenv", "[", "[["})
_REWORD = "write it in a plainer way"


@cache
def _parser() -> Parser:
    try:
        import tree_sitter_bash
        from tree_sitter import Language, Parser
    except ImportError as error:
        raise UsageError(
            "a policy with `commands` reads shell commands with tree-sitter, which is not installed; "
            "install it with `pip install 'fumehood[shell]'`"
        ) from error
    return Parser(Language(tree_sitter_bash.language()))


def check_agreement(source: bytes, script: Script) -> None:
    """Raises RefusedError where the two differ."""
    root = _parser().parse(source).root_node
    if root.has_error:
        start, end = next(_errors(root))
        raise RefusedError(start, end, "this is not understood as shell syntax", _REWORD)
    heads, words = set[Span](), set[Span]()
    for node in _walk(root):
        _collect(node, heads, words)
    _compare(heads, _own_heads(script), "a command")
    _compare(words, _own_words(script), "a word")


def _own_heads(script: Script) -> set[Span]:
    commands = {(simple.words[0].start, simple.words[0].end) for simple in script.commands if simple.words}
    return commands | {(word.start, word.end) for word in script.tests}


def _own_words(script: Script) -> set[Span]:
    return {
        (word.start, word.end)
        for simple in script.commands
        if simple.words and simple.words[0].raw not in _SPECIAL_HEADS
        for word in simple.words[1:]
    }


def _compare(theirs: set[Span], ours: set[Span], what: str) -> None:
    different = sorted(theirs ^ ours)
    if different:
        start, end = different[0]
        raise RefusedError(start, end, f"it can be read in two ways: {what} begins or ends elsewhere", _REWORD)


def _walk(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending += node.children


def _errors(root: Node) -> Iterator[Span]:
    for node in _walk(root):
        if node.is_error or node.is_missing:
            yield node.start_byte, node.end_byte
    yield root.start_byte, root.end_byte


def _span(node: Node) -> Span:
    return node.start_byte, node.end_byte


def _collect(node: Node, heads: set[Span], words: set[Span]) -> None:
    if node.type in _SPECIAL:
        # `((...))` is a test to this grammar in some places.
        if node.children[0].type != "((":
            heads.add(_span(node.children[0]))
    elif node.type == "command":
        for child in node.children:
            if child.type == "command_name":
                heads.add(_span(child))
            elif child.type not in ("variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect"):
                words.add(_span(child))
    elif node.type == "file_redirect":
        # This grammar takes every word after the first for a target too.
        targets = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
        words.update(map(_span, targets[1:]))
    elif node.type == "heredoc_redirect":
        words.update(_span(child) for child in node.children_by_field_name("argument"))
