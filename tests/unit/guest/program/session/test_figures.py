"""matplotlib's figures, in both shells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from unit.guest.program.session.talking import SITE_PACKAGES, Answer, Session

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def fonts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library's list of fonts, which it makes once; seconds for every test otherwise."""
    return tmp_path_factory.mktemp("matplotlib")


@contextmanager
def open_drawing(shell: str, folder: Path, fonts: Path) -> Iterator[Session]:
    """An environment with matplotlib; without IPython, as far as `import` can tell, for the plain shell."""
    with Session(folder, packages=[SITE_PACKAGES], hidden=["IPython"] * (shell == "plain")) as session:
        assert session.shell == shell
        session.execute(f"import os\nos.environ['MPLCONFIGDIR'] = {str(fonts)!r}")
        yield session


@pytest.fixture(scope="module", params=["plain", "ipython"])
def drawing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fonts: Path) -> Iterator[Session]:
    """One for all tests that leave the library as it is: importing it takes longer than any of them."""
    with open_drawing(request.param, tmp_path_factory.mktemp("drawing"), fonts) as session:
        yield session


@pytest.fixture(params=["plain", "ipython"])
def fresh_drawing(request: pytest.FixtureRequest, tmp_path: Path, fonts: Path) -> Iterator[Session]:
    """One in which the library is not imported."""
    with open_drawing(request.param, tmp_path, fonts) as session:
        yield session


def pictures(answer: Answer) -> list[bytes]:
    return [data["image/png"] for data in answer.displays if "image/png" in data]  # type: ignore[misc]


def test_figures_that_are_open_at_the_end_are_shown_once(drawing: Session) -> None:
    answer = drawing.execute("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.figure()\nplt.plot([2, 1]);")
    assert [picture[:4] for picture in pictures(answer)] == [PNG, PNG]
    assert (answer.stderr, answer.ended) == ("", "ok")
    assert drawing.execute("plt.get_fignums()").displays == [{"text/plain": "[]"}]


def test_show_shows_at_once_and_without_a_warning(drawing: Session) -> None:
    answer = drawing.execute("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\ndisplay('after')")
    assert ["image/png" in data for data in answer.displays] == [True, False]
    assert answer.stderr == ""


def test_a_figure_as_the_last_value_is_shown_once(drawing: Session) -> None:
    answer = drawing.execute(
        "import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\naxes.plot([1, 2])\nfigure"
    )
    assert len(answer.displays) == 1
    assert set(answer.displays[0]) == {"text/plain", "image/png"}
    again = drawing.execute("figure")
    assert len(pictures(again)) == 1


def test_figures_are_shown_after_an_error_too(drawing: Session) -> None:
    answer = drawing.execute("import matplotlib.pyplot as plt\nplt.plot([1, 2])\n1 / 0")
    assert (len(pictures(answer)), answer.ended) == (1, "error")


def test_the_user_may_save_and_close(drawing: Session) -> None:
    answer = drawing.execute("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('saved.png')\nplt.close()")
    assert answer.displays == []
    assert (drawing.workspace / "saved.png").read_bytes()[:4] == PNG


@pytest.mark.parametrize(
    "choice", ["import matplotlib\nmatplotlib.use('Agg')", "import os\nos.environ['MPLBACKEND'] = 'Agg'"]
)
def test_a_backend_that_the_user_has_chosen_is_left_alone(fresh_drawing: Session, choice: str) -> None:
    fresh_drawing.execute(choice)
    answer = fresh_drawing.execute("import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
    assert answer.displays == []
    assert fresh_drawing.execute("plt.get_backend().lower()").values == ["'agg'"]


def test_child_processes_are_not_affected(fresh_drawing: Session) -> None:
    fresh_drawing.execute("import matplotlib.pyplot, os, sys")
    assert fresh_drawing.execute("'MPLBACKEND' in os.environ").values == ["False"]


def test_a_library_that_the_cell_has_imported_is_told_as_well(tmp_path: Path) -> None:
    with Session(tmp_path, packages=[SITE_PACKAGES], preload=["matplotlib.pyplot"], hidden=["IPython"]) as session:
        answer = session.execute("import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
    assert len(pictures(answer)) == 1


def test_a_figure_that_cannot_be_drawn_is_an_error_of_its_run(drawing: Session) -> None:
    answer = drawing.execute(
        "import matplotlib.pyplot as plt\nplt.plot([1]); plt.title('$x')\nplt.title(r'$\\frac{$');"
    )
    assert answer.ended == "error"
    assert "ValueError" in answer.stderr or "Error" in answer.stderr
    assert drawing.execute("plt.get_fignums()").displays == [{"text/plain": "[]"}]


def test_the_import_leaves_no_trace_on_the_library(fresh_drawing: Session) -> None:
    answer = fresh_drawing.execute("import matplotlib\n'exec_module' in vars(matplotlib.__loader__)")
    assert answer.values == ["False"]
