"""The sample of parameters that `make test` runs leaves out no test on any backend."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sampling

WORDS = ("a", "b", "c")


def item(function: str, backend: str, word: str, *marks: str) -> Any:
    """As pytest has it."""
    return SimpleNamespace(
        nodeid=f"tests/test_x.py::{function}[{backend}-{word}]",
        callspec=SimpleNamespace(params={"backend": backend, "word": word} if backend else {"word": word}),
        get_closest_marker=lambda name: SimpleNamespace(args=("test_x",)) if name in marks else None,
    )


def ran(items: list[Any]) -> list[str]:
    """What is left of them, as backend and word; what was left out is reported as that."""
    dropped: list[Any] = []
    config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items)))
    before = list(items)
    sampling.deselect(config, items, sampling.functions_on_native(items))
    assert sorted(map(id, [*items, *dropped])) == sorted(map(id, before))
    return [f"{each.callspec.params.get('backend', '')} {each.callspec.params['word']}" for each in items]


def everywhere(*marks: str) -> list[Any]:
    return [item("test_x", backend, word, *marks) for backend in ("native", "docker", "gvisor") for word in WORDS]


@pytest.fixture
def extent(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda text: monkeypatch.setenv("PARAMETERS", text)


def test_containers_run_the_first_and_the_native_backend_all(extent: Callable[[str], None]) -> None:
    extent("")
    assert ran(everywhere()) == ["native a", "native b", "native c", "docker a", "gvisor a"]


def test_the_second_run_has_the_first_of_everything(extent: Callable[[str], None]) -> None:
    extent("first")
    assert ran([*everywhere(), *(item("test_y", "", word) for word in WORDS)]) == [
        *("native a", "docker a", "gvisor a", " a"),
    ]


def test_sandboxes_at_a_server_run_once(extent: Callable[[str], None]) -> None:
    items = [item("test_x", backend, word) for backend in ("native", "remote") for word in WORDS]
    extent("")
    assert ran(list(items)) == ["native a", "native b", "native c", "remote a"]
    extent("first")
    assert ran(list(items)) == ["native a"]
    extent("all")
    assert len(ran(list(items))) == 6


def test_nothing_is_left_out_if_all_are_wanted(extent: Callable[[str], None]) -> None:
    extent("all")
    assert len(ran(everywhere())) == 9


@pytest.mark.parametrize("text", ["", "first"])
def test_a_test_that_asks_for_it_keeps_every_parameter_but_on_gvisor(extent: Callable[[str], None], text: str) -> None:
    extent(text)
    assert len(ran(everywhere("every_parameter"))) == 7


def test_one_that_differs_runs_beside_one_that_does_not(extent: Callable[[str], None]) -> None:
    extent("")
    marked = [item("test_x", "docker", word, *(["xfail"] if word != "a" else [])) for word in WORDS]
    assert ran([item("test_x", "native", "a"), *marked]) == ["native a", "docker a", "docker b"]


def test_sessions_with_ipython_run_the_first_and_those_with_the_plain_shell_all(extent: Callable[[str], None]) -> None:
    extent("")
    items = [item("test_x", "", word) for _ in range(2) for word in WORDS]
    for number, each in enumerate(items):
        each.callspec.params["session"] = ("plain", "ipython")[number // 3]
    assert ran(items) == [" a", " b", " c", " a"]


def test_by_a_keeper_the_first_runs_after_all_have_run_without(extent: Callable[[str], None]) -> None:
    extent("")
    items = [item("test_x", "", word) for _ in range(2) for word in WORDS]
    for number, each in enumerate(items):
        each.callspec.params["way"] = ("plain", "keeper")[number // 3]
    assert ran(items) == [" a", " b", " c", " a"]


def test_a_parameter_that_is_called_a_way_is_one_like_others(extent: Callable[[str], None]) -> None:
    extent("")
    items = everywhere()
    for each in items:
        each.callspec.params["way"] = each.callspec.params["word"]
    assert ran(items) == ["native a", "native b", "native c", "docker a", "gvisor a"]


@pytest.mark.parametrize(("text", "kept"), [("", 7), ("all", 12)])
def test_of_an_adapter_what_it_names_runs_in_containers_too(
    extent: Callable[[str], None], text: str, kept: int
) -> None:
    extent(text)
    backends = ("native", "docker")
    items = [item(name, each, word, "adapter") for name in ("test_x", "test_y") for each in backends for word in WORDS]
    assert len(ran(items)) == kept


def test_what_an_adapter_names_is_one_of_its_tests() -> None:
    for path in (Path(__file__).parents[1] / "live").glob("test_*.py"):
        for names in re.findall(r"mark\.adapter\((.*?)\)", path.read_text(), re.DOTALL):
            assert re.findall(r'"(\w+)"', names), path.name
            assert [name for name in re.findall(r'"(\w+)"', names) if f"def {name}(" not in path.read_text()] == []


@pytest.mark.parametrize(("text", "kept"), [("", "aei"), ("first", "a"), ("all", "abcdefghi")])
def test_of_programs_that_show_one_mechanism_every_fourth_runs(
    extent: Callable[[str], None], text: str, kept: str
) -> None:
    extent(text)
    assert ran([item("test_x", "", word, "some_parameters") for word in "abcdefghi"]) == [f" {each}" for each in kept]


def test_what_containers_alone_have_runs_there_with_all_parameters(extent: Callable[[str], None]) -> None:
    extent("")
    assert ran([item("test_x", "docker", word) for word in WORDS]) == ["docker a", "docker b", "docker c"]


@pytest.mark.parametrize(("text", "kept"), [("", 4), ("all", 9)])
def test_what_the_host_does_runs_on_one_kind_of_container(extent: Callable[[str], None], text: str, kept: int) -> None:
    extent(text)
    assert len(ran(everywhere("one_container"))) == kept


def test_every_attack_runs_on_every_backend() -> None:
    attacks = (Path(__file__).parents[1] / "escape").glob("test_*.py")
    samples = ("one_container", "some_parameters", "mark.adapter")
    assert [path.name for path in attacks if any(word in path.read_text() for word in samples)] == []


def test_what_is_tried_many_times_is_tried_less_often(extent: Callable[[str], None]) -> None:
    tried: list[int] = []
    for text in ("", "first", "all"):
        extent(text)
        tried.append(sampling.amount(3, whole=10))
    assert tried == [3, 3, 10]


def test_an_unknown_extent_is_refused(extent: Callable[[str], None]) -> None:
    extent("some")
    with pytest.raises(pytest.UsageError, match="neither 'first' nor 'all'"):
        ran([])
