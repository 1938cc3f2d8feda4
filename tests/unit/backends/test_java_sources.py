"""The main class of a Java source is found in its text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.backends.languages import find_names

MAIN = "public static void main(String[] args) { }"
SOURCES = {
    "a public class": (f"public class A {{ {MAIN} }}", "A", "A"),
    "a class that is not public": (f"class A {{ {MAIN} }}", "A", "A"),
    "a package": (f"package one.two;\npublic final class A {{ {MAIN} }}", "A", "one.two.A"),
    "the public one of two with a main": (f"class A {{ {MAIN} }} public class B {{ {MAIN} }}", "B", "B"),
    "a main outside of the public class": (f"public class A {{ }} class B {{ {MAIN} }}", "A", "B"),
    "the first of two": (f"class A {{ {MAIN} }} class B {{ {MAIN} }}", "A", "A"),
    "a main in a nested class": (f"class A {{ static class X {{ {MAIN} }} }} class B {{ {MAIN} }}", "B", "B"),
    "a nested public class": (f"class A {{ public static class X {{ }} {MAIN} }}", "A", "A"),
    "a record": (f"record A(int x) {{ {MAIN} }}", "A", "A"),
    "an interface": ("public interface A { static void main(String[] a) { } }", "A", "A"),
    "an enum": (f"public enum A {{ X; {MAIN} }}", "A", "A"),
    "an annotation": (f'@SuppressWarnings("public class X {{") public class A {{ {MAIN} }}', "A", "A"),
    "classes in comments": (f"// public class X {{\n/* public class Y {{ */ public class A {{ {MAIN} }}", "A", "A"),
    "braces in text": (f'class A {{ char c = \'}}\'; String s = "}}\\"}}"; {MAIN} }}', "A", "A"),
    "braces in a text block": (f'class A {{ String s = """\n}}}}"\n"""; {MAIN} }}', "A", "A"),
    "no main": ("class A { }", "A", "A"),
    "no class": ("void main() { }", "Main", "Main"),
    "nothing": ("", "Main", "Main"),
}


@pytest.mark.parametrize(("source", "file", "program"), SOURCES.values(), ids=SOURCES.keys())
def test_the_class_is_found_in(source: str, file: str, program: str) -> None:
    assert find_names(source.encode()) == (file, program)


@given(st.binary() | st.text("{}\"'/*\\ \npublicas").map(str.encode))
def test_any_bytes_have_names(source: bytes) -> None:
    file, program = find_names(source)
    assert file
    assert program


@pytest.mark.parametrize(
    "piece", ["/*", '"', '"\\"', "'", '"""', "{", "public ", "class ", "package a", "void main", "\\"]
)
def test_a_hostile_source_is_read_once(piece: str) -> None:
    """A pattern that went back and forth would not come to an end within the time that a test has."""
    assert find_names((piece * 10_000_000).encode()[:30_000_000])[0]
