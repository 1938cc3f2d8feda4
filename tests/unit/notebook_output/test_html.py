"""HTML from a sandbox: what a person wants to see stays, what a viewer would execute or fetch does not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.notebook_output import media_bundle
from fumehood.notebook_output.html import harmless_html
from fumehood.results import Display

TABLE = (
    '<table border="1" class="dataframe"><thead><tr style="text-align: right;"><th></th><th>n</th></tr></thead>'
    '<tbody><tr><th>0</th><td colspan="2">1 &lt; 2</td></tr></tbody></table>'
)
# What could begin or end a formula, where none can.
FORMULA_MARK = re.compile(r"<span>(?:\$|\\+)</span>")
# Whatever follows a `<` in harmless HTML, but for the source of embedded pictures.
OPENING = re.compile(r'</?[a-z0-9]+(?: (?:[a-z]+)="[^"<>]*")*>')


def test_a_table_of_pandas_stays_as_it_is() -> None:
    assert harmless_html(f"<div>\n<style scoped>.x {{ color: red }}</style>{TABLE}</div>") == f"<div>\n{TABLE}</div>"


@pytest.mark.parametrize(
    ("attack", "left"),
    [
        ("<script>alert(1)</script>a", "a"),
        ("<SCRIPT src=//evil>x</SCRIPT >a", "a"),
        ("<script>unclosed", ""),
        ("<scr<script></script>ipt>alert(1)", "&lt;script&gt;alert(1)"),
        ("<img src=x onerror=alert(1)>", "<img>"),
        ("<img src='https://203.0.113.10/?data'>", "<img>"),
        ('<img src="data:text/html;base64,AAAA">', "<img>"),
        ("<td onclick='alert(1)' STYLE='background:url(//evil)'>a</td>", "<td>a</td>"),
        ("<p style='text-align: left; background: url(//evil)'>a</p>", "<p>a</p>"),
        ("<a href=javascript:alert(1)>a</a>", "a"),
        ("<svg><animate onbegin=alert(1)></svg>a", "a"),
        ("<math><mtext><img src=x></math>a", "a"),
        ("<iframe srcdoc='&lt;script&gt;'></iframe><object data=x><embed src=x>a", "a"),
        ("<link rel=dns-prefetch href=//evil><meta http-equiv=refresh content='0;//evil'><base href=//evil>a", "a"),
        ("<form action=//evil><input><button>a</button></form>", "a"),
        ('<p title="</p><script>alert(1)</script>">a', "&lt;p title=&quot;&quot;&gt;a"),
        ("<!--><script>alert(1)</script>-->", "&lt;!--&gt;--&gt;"),
        ("&lt;script&gt;alert(1)&lt;/script&gt;", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("</div></td></table><table><tr><td>a", "<table><tr><td>a</td></tr></table>"),
        ("<b><i>a</b>c</i>", "<b><i>a</i></b>c"),
        ("<div class='jp-Dialog'>a</div>", "<div>a</div>"),
        (r"$\href{javascript:x}{a}$", r"<span>$</span><span>\</span>href{javascript:x}{a}<span>$</span>"),
        (
            r"\<x>(\style{background:url(//evil)}{a}\)",
            r"<span>\</span>(<span>\</span>style{background:url(//evil)}{a}<span>\</span>)",
        ),
        ("&#36;a&dollar;", "<span>$</span>a<span>$</span>"),
    ],
)
def test_what_is_executed_fetched_or_laid_over_others_is_left_out(attack: str, left: str) -> None:
    assert harmless_html(attack) == left


@given(
    st.lists(
        st.sampled_from(
            [*"<>\"'=/& a", "script", "img", "src=", "onerror=", "<p", "</", "<!--", "&lt;", "$", "\\", "&#92;", "("]
        )
    )
)
def test_nothing_but_known_tags_comes_out_whatever_goes_in(pieces: list[str]) -> None:
    left = harmless_html("".join(pieces))
    assert "<script" not in left
    assert not re.search(r"[$\\]", FORMULA_MARK.sub("", left))
    assert re.sub(OPENING, "", left).count("<") == 0


def test_only_what_is_known_to_be_harmless_is_in_a_bundle() -> None:
    kinds = ["application/javascript", "application/vnd.evil+json", "text/javascript", "application/pdf"]
    assert media_bundle(Display(dict.fromkeys(kinds, "x"), {})) == {}
    assert media_bundle(Display({"image/png": b"\x89", "image/svg+xml": "<svg/>"}, {})) == {"image/png": "iQ=="}
    drawing = media_bundle(Display({"image/svg+xml": "<svg onload='alert(1)'/>"}, {}))
    assert drawing == {"text/html": '<img src="data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9J2FsZXJ0KDEpJy8+">'}
    text = "[a](javascript:alert(1)) <script>"
    assert media_bundle(Display({"text/markdown": text, "text/plain": "<Markdown object>"}, {})) == {"text/plain": text}
