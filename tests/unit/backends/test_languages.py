"""Languages: one entry each, and a clear word on those that do not exist."""

from __future__ import annotations

import pytest

from fumehood.backends.languages import LANGUAGES, find_language
from fumehood.errors import UsageError


@pytest.mark.parametrize(("name", "suffix"), [("python", ".py"), ("sh", ".sh"), ("bash", ".bash")])
def test_a_language_is_found_by_its_name(name: str, suffix: str) -> None:
    language = find_language(name)
    assert (language.name, language.suffix) == (name, suffix)


def test_only_python_needs_no_interpreter_in_front() -> None:
    assert [name for name, language in LANGUAGES.items() if language.interpreter is None] == ["python"]
    assert all(language.interpreter[0].startswith("/") for language in LANGUAGES.values() if language.interpreter)


@pytest.mark.parametrize("name", ["", "Python", "perl", "py", "bash ", "python\0"])
def test_an_unknown_language_names_those_that_exist(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_language(name)
    assert repr(name) in str(caught.value)
    assert "available: python, sh, bash" in str(caught.value)
