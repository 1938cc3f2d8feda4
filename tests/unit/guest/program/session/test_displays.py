"""Rich results: every method that notebooks know, and those that go wrong."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from unit.guest.program.session.talking import SITE_PACKAGES, Session

from fumehood.guest.contract.bundle import MAX_DISPLAY_BYTES


@pytest.mark.parametrize(
    ("method", "returned", "media_type"),
    [
        ("_repr_html_", "<b>x</b>", "text/html"),
        ("_repr_markdown_", "**x**", "text/markdown"),
        ("_repr_latex_", "$x$", "text/latex"),
        ("_repr_svg_", "<svg/>", "image/svg+xml"),
        ("_repr_png_", b"\x89PNG", "image/png"),
        ("_repr_jpeg_", b"\xff\xd8", "image/jpeg"),
        ("_repr_pdf_", b"%PDF", "application/pdf"),
        ("_repr_json_", {"a": [1, None]}, "application/json"),
        ("_repr_javascript_", "alert(1)", "application/javascript"),
    ],
)
def test_each_method_gives_a_media_type(session: Session, method: str, returned: object, media_type: str) -> None:
    source = f"""
        class Thing:
            def __repr__(self): return "a thing"
            def {method}(self): return {returned!r}
        class Detailed(Thing):
            def {method}(self): return {returned!r}, {{"width": 3}}
        class Modest(Thing):
            def {method}(self): return None
        display(Thing(), Detailed(), Modest(), Thing)
    """
    answer = session.execute(textwrap.dedent(source))
    assert answer.displays[:3] == [
        {"text/plain": "a thing", media_type: returned},
        {"text/plain": "a thing", media_type: returned},
        {"text/plain": "a thing"},
    ]
    assert list(answer.displays[3]) == ["text/plain"]  # of a class, which has the method for its instances
    assert answer.metadata[:3] == [{}, {media_type: {"width": 3}}, {}]
    assert answer.stderr == ""


def test_a_bundle_may_hold_types_that_nobody_knows(session: Session) -> None:
    source = """
        class Chart:
            def __repr__(self): return "a chart"
            def _repr_html_(self): return "<b>"
            def _repr_mimebundle_(self, include=None, exclude=None):
                data = {"application/vnd.vegalite.v5+json": {"mark": "bar"}, "image/png": "cGljdHVyZQ=="}
                return data, {"image/png": {"width": 5}}
        Chart()
    """
    answer = session.execute(textwrap.dedent(source))
    assert answer.displays == [
        {
            "application/vnd.vegalite.v5+json": {"mark": "bar"},
            "image/png": b"picture",
            "text/plain": "a chart",
            "text/html": "<b>",
        }
    ]
    assert answer.metadata == [{"image/png": {"width": 5}}]


def test_an_object_may_display_itself(session: Session) -> None:
    answer = session.execute("class Own:\n    def _ipython_display_(self): display('instead')\nOwn()")
    assert answer.values == ["'instead'"]


def test_a_bundle_can_be_displayed_as_it_is(session: Session) -> None:
    answer = session.execute("display({'text/html': '<i>'}, raw=True, metadata={'a': 1})")
    assert (answer.displays, answer.metadata) == ([{"text/html": "<i>"}], [{"a": 1}])


@pytest.mark.parametrize("method", ["__repr__", "_repr_html_", "_repr_mimebundle_"])
def test_a_method_that_fails_is_shown_and_the_others_go_on(session: Session, method: str) -> None:
    source = f"""
        class Broken:
            def __repr__(self): return "broken"
            def _repr_html_(self): return "<b>"
            def {method}(self, **options): raise ValueError("in here")
        display(Broken(), 1)
        print("and on")
    """
    answer = session.execute(textwrap.dedent(source))
    assert answer.ended == "ok"
    assert answer.stdout == "and on\n"
    assert "ValueError: in here" in answer.stderr
    assert "guest" not in answer.stderr
    others = {"text/plain": "broken", "text/html": "<b>"}
    others.pop({"__repr__": "text/plain", "_repr_html_": "text/html"}.get(method, ""), None)
    assert answer.displays == [others, {"text/plain": "1"}]


@pytest.mark.parametrize("returned", ["5", "object()", "['x']", "(1, 2, 3)"])
def test_what_a_method_must_not_return_is_left_out(session: Session, returned: str) -> None:
    source = f"""
        class Odd:
            def __repr__(self): return "odd"
            def _repr_png_(self): return {returned}
            def _repr_html_(self): return {returned}
            def _repr_mimebundle_(self, **options): return {returned}
        Odd()
    """
    answer = session.execute(textwrap.dedent(source))
    assert (answer.displays, answer.ended) == ([{"text/plain": "odd"}], "ok")


def test_objects_that_answer_to_every_name_are_shown_as_text(session: Session) -> None:
    answer = session.execute("from unittest.mock import MagicMock\nMagicMock(name='anything')")
    assert [list(display) for display in answer.displays] == [["text/plain"]]


def test_an_interrupt_in_a_method_ends_the_run(session: Session) -> None:
    started = session.start(
        "class Slow:\n    def _repr_html_(self):\n        print('in it')\n        while True: pass\nSlow()"
    )
    session.wait_for_output("in it")
    session.interrupt()
    assert session.finish(started).ended == "interrupted"


def test_a_huge_display_is_replaced_by_a_note(session: Session) -> None:
    answer = session.execute(
        f"class Huge:\n    def _repr_png_(self): return bytes({MAX_DISPLAY_BYTES + 1})\ndisplay(Huge())\n'next'"
    )
    assert "was left out" in str(answer.displays[0]["text/plain"])
    assert answer.displays[1:] == [{"text/plain": "'next'"}]


def test_large_displays_arrive_whole(session: Session) -> None:
    answer = session.execute(
        "class Large:\n    def __repr__(self): return 'large'\n"
        f"    def _repr_png_(self): return bytes({MAX_DISPLAY_BYTES - 5})\nLarge()"
    )
    assert answer.displays == [{"text/plain": "large", "image/png": bytes(MAX_DISPLAY_BYTES - 5)}]


def test_displays_arrive_in_order_and_whole_from_any_thread(session: Session) -> None:
    source = """
        import threading
        def show(name):
            for number in range(50):
                display({"text/plain": f"{name} {number} " + name * 100_000}, raw=True)
        threads = [threading.Thread(target=show, args=(name,)) for name in "ab"]
        for thread in threads: thread.start()
        show("c")
        for thread in threads: thread.join()
    """
    answer = session.execute(textwrap.dedent(source))
    texts = [str(value) for value in answer.values]
    for name in "abc":
        assert [text for text in texts if text[0] == name] == [f"{name} {n} " + name * 100_000 for n in range(50)]


def test_a_thread_may_display_between_runs(session: Session) -> None:
    session.execute(
        "import threading\ngo = threading.Event()\ndef later():\n    go.wait()\n    display('late')\n"
        "thread = threading.Thread(target=later)\nthread.start()"
    )
    answers = [session.execute("go.set()"), session.execute("thread.join()")]
    assert [value for answer in answers for value in answer.values] == ["'late'"]
    assert session.execute("1").values == ["1"]


def test_frames_are_shown_as_html_and_text(tmp_path: Path) -> None:
    with Session(tmp_path, packages=[SITE_PACKAGES]) as session:
        answer = session.execute("import pandas\npandas.DataFrame({'column': [1, 2]})")
    assert "column" in str(answer.displays[0]["text/plain"])
    assert "<table" in str(answer.displays[0]["text/html"])
