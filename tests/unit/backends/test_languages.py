"""Languages: one entry each, and a clear word on those that do not exist."""

from __future__ import annotations

import re

import pytest

from fumehood.backends.languages import LANGUAGES, find_language, language_of_file
from fumehood.errors import UsageError


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_language_is_found_by_its_name_its_aliases_and_its_suffixes(name: str) -> None:
    language = LANGUAGES[name]
    assert find_language(name) is language
    assert all(find_language(alias) is language for alias in language.aliases)
    assert all(language_of_file(suffix) is language for suffix in language.suffixes)
    assert all(language_of_file(suffix.upper()) is language for suffix in language.suffixes)


def test_no_name_and_no_suffix_means_two_languages() -> None:
    names = [name for language in LANGUAGES.values() for name in (language.name, *language.aliases)]
    suffixes = [suffix for language in LANGUAGES.values() for suffix in language.suffixes]
    assert len(set(names)) == len(names)
    assert len(set(suffixes)) == len(suffixes)


def test_every_language_but_python_says_what_it_needs() -> None:
    assert [name for name, language in LANGUAGES.items() if not language.commands] == ["python"]
    assert LANGUAGES["java"].commands == ("javac", "java")
    assert LANGUAGES["rust"].commands == ("rustc", "cc")
    assert not any("{" in command for language in LANGUAGES.values() for command in language.commands)


def test_a_language_is_interpreted_or_compiled_and_not_both() -> None:
    assert not [name for name, language in LANGUAGES.items() if language.interpreter and language.toolchain]
    assert all(
        language.toolchain.compiling.count("{source}") == 1 for language in LANGUAGES.values() if language.toolchain
    )


def test_an_unknown_suffix_is_no_language() -> None:
    assert language_of_file("") is language_of_file(".txt") is None


@pytest.mark.parametrize("name", ["", "Python", "perl", "bash ", "python\0"])
def test_an_unknown_language_names_those_that_exist(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_language(name)
    assert repr(name) in str(caught.value)
    assert "available: python, sh, bash, javascript, typescript, c, c++, rust, go, java" in str(caught.value)


@pytest.mark.parametrize(("name", "meant"), [("Python", "python"), ("jaba", "java"), ("rusty", "rust"), ("C++", "c++")])
def test_an_unknown_language_is_named_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"unknown language {name!r} (did you mean {meant!r}?)")):
        find_language(name)
