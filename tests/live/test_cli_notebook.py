"""`hood run x.ipynb`: cells run in one session, and the notebook with their outputs is saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from live.cli_host import hood

pytestmark = pytest.mark.usefixtures("way")


def write(path: Path, *sources: str) -> Path:
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
        for source in sources
    ]
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
    return path


def test_cells_share_their_state_and_show_their_values(tmp_path: Path) -> None:
    done = hood("run", write(tmp_path / "x.ipynb", "x = 6", "", "print('product:')", "x * 7"))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"product:\n42\n", b"")


def test_the_notebook_is_saved_with_its_outputs_beside_other_files(tmp_path: Path) -> None:
    book = write(tmp_path / "x.ipynb", "open('made.txt', 'w').write('made'); print('a')", "1 / 0", "print('never')")
    done = hood("run", "--out", tmp_path / "out", book)
    assert done.returncode == 1
    assert b"hood: error (exit): code cell 2 of 3 ended the notebook\n" in done.stderr
    assert (tmp_path / "out" / "made.txt").read_text() == "made"
    first, second, third = json.loads((tmp_path / "out" / "x.ipynb").read_text())["cells"]
    assert first["outputs"][0] == {"output_type": "stream", "name": "stdout", "text": "a\n"}
    assert (second["outputs"][-1]["ename"], second["outputs"][-1]["evalue"]) == (
        "ZeroDivisionError",
        "division by zero",
    )
    assert (third["outputs"], third["execution_count"]) == ([], None)
    assert json.loads(book.read_text())["cells"][0]["outputs"] == []


def test_a_cell_that_lacks_a_module_is_answered_with_the_package_to_add(tmp_path: Path) -> None:
    done = hood("run", write(tmp_path / "x.ipynb", "import no_such_package_here"))
    assert done.stderr.splitlines()[-1].endswith(
        b"code cell 1 of 1 ended the notebook; there is no module no_such_package_here in the sandbox; "
        b"add --with no_such_package_here, or --project DIR if it is a file of yours"
    )


def test_a_cell_that_ends_the_process_fails_and_no_other_runs_without_its_state(tmp_path: Path) -> None:
    done = hood("run", write(tmp_path / "x.ipynb", "import os; os._exit(0)", "print('never')"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"state is lost" in done.stderr


def test_no_file_of_a_cell_takes_the_place_of_the_notebook(tmp_path: Path) -> None:
    """It could hold what is left out of outputs, and whoever opens it takes it for ours."""
    book = write(tmp_path / "x.ipynb", "open('x.ipynb', 'w').write('evil'); open('y', 'w'); print('a')")
    done = hood("run", "--out", tmp_path / "out", book)
    assert done.returncode == 0
    assert b"hood: x.ipynb of the program is not saved: the notebook has that name" in done.stderr
    (saved,) = json.loads((tmp_path / "out" / "x.ipynb").read_text())["cells"]
    assert saved["outputs"][0]["text"] == "a\n"
    assert (tmp_path / "out" / "y").exists()


def test_the_notebook_is_saved_as_a_file_and_nothing_else_is(tmp_path: Path) -> None:
    book = write(tmp_path / "x.ipynb", "open('made.txt', 'w').write('made')")
    (tmp_path / "p.yaml").write_text("filesystem: {outputs: ['**']}\n")
    target = tmp_path / "new" / "done.ipynb"
    assert hood("run", "--policy", tmp_path / "p.yaml", "--out", target, book).returncode == 0
    assert [path.name for path in target.parent.iterdir()] == ["done.ipynb"]
    again = hood("run", "--out", target, book)
    assert again.returncode == 2
    assert b"exists already; name another file, or let --overwrite replace it" in again.stderr
    assert hood("run", "--overwrite", "--out", target, book).returncode == 0


def test_a_notebook_imports_the_modules_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("NAME = 'helper'\n")
    assert hood("run", write(tmp_path / "x.ipynb", "import helper", "helper.NAME")).stdout == b"'helper'\n"


def test_a_notebook_prints_its_result_as_json(tmp_path: Path) -> None:
    done = hood("run", "--json", write(tmp_path / "x.ipynb", "print('unseen')", "raise SystemExit(3)"))
    assert json.loads(done.stdout)["status"] == "error"


def test_what_makes_no_sense_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "broken.ipynb").write_text("{")
    done = hood("run", tmp_path / "broken.ipynb")
    assert done.returncode == 2
    assert b"broken.ipynb is not a notebook: it is not valid JSON" in done.stderr
    done = hood("run", write(tmp_path / "x.ipynb", "1"), "--", "argument")
    assert b"a notebook has neither arguments nor --env" in done.stderr
    done = hood("run", tmp_path / "x.ipynb", "--out", tmp_path / "x2.ipynb")
    assert b"options stand before its name: `hood run --out " in done.stderr
    done = hood("run", "--out", tmp_path / "x2.ipynb", "-c", "1")
    assert b"is for notebooks; name a folder for other programs" in done.stderr
