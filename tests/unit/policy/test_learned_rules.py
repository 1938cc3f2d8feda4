"""What a program was refused becomes the smallest policy that would allow it, and nothing beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.policy import Policy
from fumehood.policy.decision import deny
from fumehood.policy.egress import Attempt, Rulebook, to_denial
from fumehood.policy.learned_rules import learn
from fumehood.results import Denial


def request(method: str, url: str, port: int = 443) -> Denial:
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    what = f"{method} {scheme}://{host}:{port}/{path}"
    fields = {"secure": scheme in ("https", "wss"), "websocket": scheme.startswith("ws")}
    return Denial("http", what, "no", host=host, port=port, method=method, path=f"/{path}", **fields)


def connection(host: str, port: int, kind: str = "connect") -> Denial:
    return Denial(kind, f"{kind} {host}:{port}", "no", host=host, port=port)


def rules(*denials: Denial) -> list[dict[str, object]]:
    allow = learn(Policy(), denials).policy.network.allow
    return [rule.model_dump(mode="json", exclude_defaults=True) for rule in allow]


def test_a_request_is_learned_with_its_method_and_path() -> None:
    found = rules(request("GET", "https://api.example.com/repos"), request("POST", "https://api.example.com/issues"))
    assert found == [
        {"host": "api.example.com", "ports": [443], "methods": ["GET", "POST"], "paths": ["/issues", "/repos"]}
    ]


def test_a_protocol_is_named_where_it_is_not_the_usual_one() -> None:
    assert rules(request("GET", "http://a.example/x", 8080)) == [
        {"host": "a.example", "ports": [8080], "protocol": "http", "methods": ["GET"], "paths": ["/x"]}
    ]
    assert rules(connection("a.example", 8443, "tls")) == [{"host": "a.example", "ports": [8443], "protocol": "tls"}]
    assert rules(connection("db.example", 5432)) == [{"host": "db.example", "ports": [5432]}]


@pytest.mark.parametrize(("scheme", "protocol"), [("ws", "http"), ("wss", "tls")])
def test_a_websocket_is_learned_as_one(scheme: str, protocol: str) -> None:
    (rule,) = rules(request("GET", f"{scheme}://a.example/live", 8443))
    assert (rule["protocol"], rule["websocket"]) == (protocol, True)


def test_many_paths_become_the_folder_that_they_are_in() -> None:
    found = rules(*(request("GET", f"https://a.example/files/{number}/data") for number in range(30)))
    assert found[0]["paths"] == ["/files/**"]


def test_an_address_that_is_not_public_says_so_in_its_rule() -> None:
    assert rules(connection("10.0.0.7", 5432)) == [{"host": "10.0.0.7", "ports": [5432], "private": True}]
    assert rules(connection("93.184.215.14", 443)) == [{"host": "93.184.215.14", "ports": [443]}]


def test_what_no_rule_can_allow_is_a_remark() -> None:
    lesson = learn(
        Policy(),
        [
            connection("224.0.0.1", 443),
            connection("what\\x00.example", 443),
            Denial("dns", "dns only.example", "no", host="only.example"),
        ],
    )
    assert lesson.policy.network.allow == ()
    assert len(lesson.remarks) == 3
    assert all(remark in lesson.to_yaml() for remark in lesson.remarks)


def tried(method: str, path: str, host: str = "b.example") -> Denial:
    """As the gateway records it."""
    return to_denial(deny(Attempt("http", host, 443, method, path, secure=True), "no"))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("M-SEARCH", "/x"), ("get", "/x"), ("OPTIONS", "*"), ("GET", "http://x/"), ("GET", "/../x"), ("GET", "*/")),
        *(("GET", "/a//b"), ("GET", "/" + "a" * 300), ("GET", "/a\u00a0b"), ("GET", "/a%00"), ("GET", "/a%C2%A0b")),
        *(("GET", "/a\\x0ab"), ("GET", "/%ff"), ("GET", "")),
    ],
)
def test_an_odd_request_is_a_remark_and_hides_nothing_else(method: str, path: str) -> None:
    lesson = learn(Policy(), [tried("GET", "/a", "good.example"), tried(method, path)])
    assert [rule.host for rule in lesson.policy.network.allow] == ["good.example"]
    (remark,) = lesson.remarks
    assert remark.startswith(f"{method} https://b.example:443")
    assert Policy.loads(lesson.to_yaml()) == lesson.policy


@pytest.mark.parametrize("path", ["/a/*", "/a/**", "/[a-z]/x", "/a%20b", "/a;b=c/d", "/a]b", "/x:y@z"])
def test_a_path_that_looks_like_a_pattern_is_learned_as_itself(path: str) -> None:
    lesson = learn(Policy(), [tried("GET", path)])
    book = Rulebook(Policy.loads(lesson.to_yaml()))
    route = book.find_route("b.example", 443)
    assert route is not None
    assert book.decide_request(route, "GET", path, "b.example").allowed
    assert not book.decide_request(route, "GET", "/a/other", "b.example").allowed
    assert not book.decide_request(route, "GET", "/k/x", "b.example").allowed


@pytest.mark.parametrize("host", ["t", "https", "wss", "ws"])
def test_the_scheme_is_no_part_of_the_name(host: str) -> None:
    (rule,) = rules(request("GET", f"http://{host}/x", 8080))
    assert (rule["protocol"], rule.get("websocket")) == ("http", None)


def test_everything_else_of_the_policy_is_kept_and_its_old_rules_are_not() -> None:
    policy = Policy(
        name="mine",
        network={"allow": [{"host": "old.example", "ports": [443]}]},
        resources={"memory": "64M", "timeout": "5s"},
        filesystem={"mounts": [{"source": "/srv", "target": "/data"}], "outputs": ["out/**"]},
    )
    lesson = learn(policy, [connection("new.example", 443)])
    assert lesson.policy == policy.override({"network": {"allow": [{"host": "new.example", "ports": [443]}]}})


@pytest.mark.parametrize("policy", [Policy(), Policy(resources={"memory": "64M", "timeout": "1500ms", "cpus": 0.5})])
def test_what_is_printed_is_that_policy(policy: Policy) -> None:
    lesson = learn(policy, [request("GET", "https://a.example/x"), connection("10.0.0.7", 5432)])
    assert Policy.loads(lesson.to_yaml()) == lesson.policy


HOSTS = st.sampled_from(["a.example", "b.example", "198.51.100.7", "xn--bcher-kva.example"])
PORTS = st.sampled_from([80, 443, 5432, 8443])
PATHS = st.lists(st.text("abcXYZ019-._~", min_size=1, max_size=9).filter(lambda name: set(name) != {"."}), max_size=4)


@given(
    st.lists(
        st.one_of(
            st.builds(connection, HOSTS, PORTS, st.sampled_from(["connect", "tls"])),
            st.builds(lambda host, path: request("GET", f"https://{host}/{'/'.join(path)}"), HOSTS, PATHS),
        ),
        max_size=20,
    )
)
def test_what_was_learned_allows_what_was_tried(denials: list[Denial]) -> None:
    lesson = learn(Policy(), denials)
    book = Rulebook(Policy.loads(lesson.to_yaml()))
    for denial in denials:
        assert book.decide_connection(denial.host, denial.port).allowed
        route = book.find_route(denial.host, denial.port)
        assert route is not None
        if denial.kind == "http":
            assert book.decide_request(route, denial.method, denial.path, denial.host).allowed
    tried = {(denial.host, denial.port) for denial in denials}
    assert {(rule.host, port) for rule in lesson.policy.network.allow for port in rule.ports} == tried


def test_how_often_something_was_tried_says_nothing() -> None:
    once = connection("a.example", 443)
    assert learn(Policy(), [once]) == learn(Policy(), [replace(once, count=7)])
