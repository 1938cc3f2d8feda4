"""Notebooks: read strictly, and given outputs that are data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fumehood.cli.notebook import read_notebook
from fumehood.errors import UsageError
from fumehood.events import Stderr, Stdout
from fumehood.notebook_output import CellStreams
from fumehood.results import Display


def cell(source: object, **parts: object) -> dict[str, object]:
    return {"cell_type": "code", "source": source, "metadata": {"trusted": True}, "outputs": [{"x": 1}], **parts}


def notebook(*cells: object, **parts: object) -> bytes:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [*cells], **parts}).encode()


def output_of(book: Any) -> CellStreams:
    return CellStreams(book.output_of(book.cells[0]))


def written(book: Any) -> dict[str, Any]:
    return json.loads(book.to_bytes())


def test_code_cells_are_found_and_old_outputs_are_gone() -> None:
    book = read_notebook(notebook(cell("a"), {"cell_type": "markdown", "source": "# b"}, cell(["c\n", "d"])), "x.ipynb")
    assert [book.source_of(each) for each in book.cells] == ["a", "c\nd"]
    assert book.code == b"a\n\nc\nd"
    assert [each.get("outputs") for each in written(book)["cells"]] == [[], None, []]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"{", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b"\xff", "is not valid JSON"),
        (b"[]", "is not a notebook of format 4"),
        (b'{"nbformat": 3}', "is not a notebook of format 4"),
        (b'{"nbformat": 4}', "has no list of cells"),
        (notebook(1), "a cell in it is not an object"),
        (notebook(cell(7)), "the source of a cell in it is not text"),
        (notebook(cell([7])), "the source of a cell in it is not text"),
        (notebook(cell("x", metadata=[])), "'metadata' in it is not an object"),
        (notebook(metadata=1), "'metadata' in it is not an object"),
        (notebook(metadata={"kernelspec": {"language": "R"}}), "is a notebook of 'R'"),
        (notebook(metadata={"language_info": {"name": "julia"}}), "is a notebook of 'julia'"),
        (notebook(*[cell("x")] * 2001), "more than 2000 code cells"),
    ],
)
def test_what_is_not_a_notebook_is_refused_with_the_reason(source: bytes, reason: str) -> None:
    with pytest.raises(UsageError, match=f"x.ipynb.*{reason}"):
        read_notebook(source, "x.ipynb")


def test_no_output_is_marked_as_trusted() -> None:
    """A viewer that believes the mark executes what the sandbox wrote."""
    markdown = {"cell_type": "markdown", "source": "", "metadata": {"trusted": True}}
    book = read_notebook(notebook(cell("x"), markdown, metadata={"signature": "sha256:0"}), "x.ipynb")
    output_of(book).show(Display({"text/html": "<script>alert(1)</script>"}, {"trusted": True}))
    assert b"trusted" not in book.to_bytes()
    assert b"signature" not in book.to_bytes()


def test_programs_are_not_taken_as_outputs() -> None:
    book = read_notebook(notebook(cell("x")), "x.ipynb")
    kinds = ["application/javascript", "application/vnd.evil+json", "text/javascript", "application/x-sh"]
    output = output_of(book)
    output.show(Display(dict.fromkeys(kinds, "alert(1)"), {}))
    output.show(Display({"text/plain": "x", "application/javascript": "alert(1)"}, {}))
    assert [output["data"] for output in written(book)["cells"][0]["outputs"]] == [{"text/plain": "x"}]


def test_outputs_have_the_form_of_notebooks() -> None:
    book = read_notebook(notebook(cell("x")), "x.ipynb")
    output = output_of(book)
    for event in (Stdout(b"a\xff"), Stdout(b"b\n"), Stderr(b"c"), Stdout(b"d"), Display({"image/png": b"\x89PNG"}, {})):
        output.show(event)
    assert written(book)["cells"][0]["outputs"] == [
        {"output_type": "stream", "name": "stdout", "text": "a\ufffdb\n"},
        {"output_type": "stream", "name": "stderr", "text": "c"},
        {"output_type": "stream", "name": "stdout", "text": "d"},
        {"output_type": "display_data", "data": {"image/png": "iVBORw=="}, "metadata": {}},
    ]


def test_outputs_are_bounded() -> None:
    book = read_notebook(notebook(cell("x")), "x.ipynb")
    output = output_of(book)
    for _ in range(70):
        output.show(Stdout(b"x" * 1024**2))
        output.show(Display({"text/plain": "y" * 1024}, {}))
    assert len(book.to_bytes()) < 66 * 1024**2
    assert written(book)["cells"][0]["outputs"][-1]["text"].startswith("(more output was left out")


def test_outputs_are_bounded_in_number() -> None:
    """A program that writes one character to each stream in turn makes an output of each."""
    book = read_notebook(notebook(cell("x")), "x.ipynb")
    output = output_of(book)
    for _ in range(100_000):
        output.show(Stdout(b"x"))
        output.show(Stderr(b"x"))
    assert len(book.cells[0]["outputs"]) < 140_000


def test_a_character_that_comes_in_pieces_is_one() -> None:
    book = read_notebook(notebook(cell("x")), "x.ipynb")
    output = output_of(book)
    for event in (Stdout(b"a\xc3"), Stdout(b"\xa9b"), Stdout(b"\xc3"), Stderr(b"\xa9")):
        output.show(event)
    output.finish()
    outputs = written(book)["cells"][0]["outputs"]
    assert [each["text"] for each in outputs] == ["aéb", "\ufffd", "\ufffd"]
