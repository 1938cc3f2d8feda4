"""No spelling of a path gets around a rule."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.policy import Policy
from fumehood.policy.egress import Rulebook


def allows(target: str, *paths: str) -> bool:
    book = Rulebook(
        Policy(network={"allow": [{"host": "a.com", "ports": [443], "paths": list(paths or ("/public/**",))}]})
    )
    route = book.find_route("a.com", 443)
    assert route is not None
    return book.decide_request(route, "GET", target, "a.com").allowed


@pytest.mark.parametrize(
    "target",
    ["/public/", "/public/x", "/public/x?y=/../..", "/public/%41", "/public/a%20b", "/public/a+b;v=1", "/p%75blic/x"],
)
def test_a_path_that_every_server_reads_alike_is_judged(target: str) -> None:
    assert allows(target)


@pytest.mark.parametrize(
    "target",
    [
        *("/", "/public", "/private/x", "/Public/x", "public/x", "", "*", "//public/x", "/x/public/x"),
        *("/public/../private", "/public/./../private", "/public/%2e%2e/private", "/public/%2E./private"),
        *("/public/%252e%252e/private", "/public/..%2fprivate", "/public/..%5cprivate", "/public/..\\private"),
        *(
            "/public/%25252e%25252e%25252fprivate",
            "/public/..;/private",
            "/public/..;a=b/private",
            "/public/%2e%2e%3b/x",
        ),
        *("/public/%c0%ae%c0%ae/private", "/public/%uff0e%uff0e/x", "/public/%zz", "/public/%", "/public/%2"),
        *("/public/%EF%BC%8E%EF%BC%8E/private", "/public/\uff0e\uff0e/private", "/public//x"),
        *(
            "/public/..%20/x",
            "/public/%00",
            "/public/a%0d%0aHost:%20evil",
            "/public/x#y",
            "/public/x%23/../y",
            "/public/x y",
        ),
        *("http://a.com/public/x", "https://evil.com/public/x", "a.com:443", "/public/\x7f", "/public/\t"),
        *("\\public\\x", "/public%2fx/../../y", "/%2e%2e/public/x", "/public/x/..", "/public/x/.", "/public/%5c..%5cx"),
    ],
)
def test_a_path_outside_or_in_doubt_is_refused(target: str) -> None:
    assert not allows(target)


def test_an_encoded_slash_has_to_be_covered_in_both_readings() -> None:
    assert allows("/projects/group%2Fname/issues", "/projects/**")
    assert not allows("/projects/group%2Fname", "/projects/*")
    assert not allows("/public%2fx")


@pytest.mark.parametrize(
    "target",
    [
        *("/closed;.json", "/closed%3b.json", "/closed%253b.json", "/closed%3f.json", "/closed%253F.json"),
        *("/closed;/a.json", "/%63losed;.json", "/closed%cd%be.json", "/closed%ef%bc%9f.json", "/a;/closed;.json"),
    ],
)
def test_a_path_that_some_servers_stop_reading_has_to_be_covered_up_to_there(target: str) -> None:
    assert allows("/x.json", "/*.json")
    assert not allows(target, "/*.json")
    assert not allows(target, "/**/*.json")


def test_a_path_with_too_many_readings_is_refused() -> None:
    assert not allows("/" + "%" + "25" * 100 + "41", "/**")


def test_a_path_that_takes_long_to_read_is_refused() -> None:
    assert allows("/" + "a" * 4095, "/**")
    assert not allows("/" + "a" * 4096, "/**")


def test_everything_is_everything() -> None:
    assert allows("/", "/**")
    assert allows("/a/b", "/**")


PIECES = st.sampled_from(
    [*("..", ".", "/", "\\", "%2e", "%2E%2e", "%2f", "%5C", "%25", "2e", "2f", ";", "%3b", "a", "public", "private")]
)


@given(st.lists(PIECES, max_size=8))
def test_no_reading_of_an_allowed_path_leaves_the_rule(pieces: list[str]) -> None:
    target = "/public/" + "".join(pieces)
    if not allows(target):
        return
    for _ in range(5):
        for reading in (target, target.replace("\\", "/")):
            names: list[str] = []
            for name in reading.split("/")[1:]:
                plain = name.partition(";")[0]
                if plain == "..":
                    names = names[:-1]
                elif plain != ".":
                    names.append(name)
            assert names[0] == "public"
        target = unquote(target)
