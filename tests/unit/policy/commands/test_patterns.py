"""Patterns against words that are not known in full."""

from __future__ import annotations

import random
from itertools import product

import pytest

from fumehood.policy.commands.patterns import matches, possibly, possibly_named
from fumehood.policy.commands.syntax import GLOB, ONE, PLAIN, Hole, Piece, Word, joined

_BU_OR_X = Hole(is_plain=True, choices=("bu", "x"))


def word(*pieces: Piece) -> Word:
    return Word(joined(pieces), 0, 0, "")


@pytest.mark.parametrize(
    ("pieces", "is_possible"),
    [
        *((("build.sh",), True), (("a/build.sh",), True), (("xbuild.sh",), False), (("build.sh/",), False)),
        *((("part_", GLOB), False), (("part_", GLOB, GLOB), True), (("part_", ONE), True), ((GLOB, ".txt"), False)),
        *((("b", GLOB), True), (("x/", GLOB), True), ((GLOB, ".sh"), True), ((PLAIN,), True)),
        *(((_BU_OR_X, "ild.sh"), True), ((_BU_OR_X, "build.sh"), True), ((_BU_OR_X, "uild.sh"), False)),
        *(((Hole(choices=("*.txt", "**/*.txt")),), False), ((Hole(choices=("**/b*.sh",)),), True)),
    ],
)
def test_the_last_part_of_a_path_may_be_a_name(pieces: tuple[Piece, ...], is_possible: bool) -> None:
    assert possibly_named(word(*pieces), "build.sh") is is_possible


def test_whatever_a_word_may_become_is_seen() -> None:
    chance, values = random.Random(17), ["".join(made) for size in range(4) for made in product("ab", repeat=size)]
    for _ in range(3000):
        pattern = "".join(chance.choice("ab*") for _ in range(chance.randint(0, 3)))
        pieces = [chance.choice(["a", "b", "ab", ONE]) for _ in range(chance.randint(0, 2))]
        texts = map("".join, product(*([piece] if isinstance(piece, str) else values for piece in pieces)))
        assert possibly(word(*pieces), pattern) == any(matches(pattern, text) for text in texts), (pieces, pattern)
