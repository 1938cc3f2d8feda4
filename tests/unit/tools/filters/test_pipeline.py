"""Texts on their way to and from a model: what is taken out, what is withheld, and that each act is recorded."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tools.filters.tokens import tokens

from fumehood import Policy, PolicyError, SandboxError, UsageError
from fumehood.audit import AuditLog, Query, Trail
from fumehood.policy.filters import Filters
from fumehood.secret_scan.values import SecretValue
from fumehood.tools.filters import CanaryAlert, CanaryWatch, Direction, FilterStream, Pipeline, make_canary
from fumehood.tools.filters.invisible import make_visible

SECRET, CANARY = "correct-horse-battery", "KX83-canary-value-77"
OUT = Direction.TOOL_RESULT


def sift(text: str, **filters: object) -> str:
    return Pipeline(Policy(filters=filters), secrets={"A": SECRET}).sift(text).text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("nothing to see\n\there", "nothing to see\n\there"),
        (f"it is {SECRET}!", "it is [secret A removed]!"),
        (f"{SECRET}{SECRET}", "[secret A removed][secret A removed]"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07x", "red x"),
        ("10%\r20%\r\n", "10%\n20%\n"),
        ("a\u202eb\u200bc\U000e0041\U000e0042", "abc"),
        ("cor\u200brect-hor\x1b[0mse-battery", "[secret A removed]"),
        ("👩\u200d💻 ☁\ufe0f \u06cc\u200c\u062e", "👩\u200d💻 ☁\ufe0f \u06cc\u200c\u062e"),
        ("x\ufe0f\ufe01\ufe02y", "xy"),
        ("☁\ufe0f\ufe0f\ufe0f", "☁\ufe0f"),
        ("\x1b]0;never ends, but is text", "0;never ends, but is text"),
    ],
)
def test_what_is_left_of_a_text(text: str, left: str) -> None:
    assert sift(text) == left


@given(st.text(st.characters() | st.sampled_from("\x1b[]0;m\x07\r\u200d\ufe0f\u202e\U000e0041"), max_size=80))
def test_what_is_visible_stays_as_it_is(text: str) -> None:
    once = make_visible(text)
    assert make_visible(once) == once
    assert "\x1b" not in once


@pytest.mark.parametrize(
    ("key", "text", "removed"),
    [
        ("host_paths", "cat /etc/shadow now", "cat [host path removed] now"),
        ("host_paths", "cp ~/.ssh/id_rsa .", "cp [host path removed] ."),
        ("host_paths", "see /home/alice/notes.txt.", "see [host path removed]."),
        ("host_paths", "/var/run/docker.sock", "[host path removed]"),
        ("host_paths", "/workspace/../etc/shadow", "[host path removed]"),
        ("host_paths", r"C:\Users\bob\x.txt", "[host path removed]"),
        ("host_paths", "ls /tmp /workspace/x > /dev/null", "ls /tmp /workspace/x > /dev/null"),
        ("host_paths", "a/etc/b https://x.invalid/etc/c 1/2", "a/etc/b https://x.invalid/etc/c 1/2"),
        ("host_paths", "cat /data/home/x", "cat /data/home/x"),
        ("credentials", "echo $AWS_SECRET_ACCESS_KEY", "echo $[credential removed]"),
        ("credentials", "print the GITHUB_TOKEN", "print the [credential removed]"),
        ("credentials", "read .env and id_rsa", "read [credential removed] and [credential removed]"),
        ("credentials", "a TOKEN of respect, the next token", "a TOKEN of respect, the next token"),
        ("network", "curl http://169.254.169.254/latest", "curl [address removed]/latest"),
        ("network", "get https://evil.invalid/x", "get [address removed]/x"),
        (
            "network",
            "get https://good.example/x http://localhost:80/",
            "get https://good.example/x http://localhost:80/",
        ),
        ("network", "http://1.2.3/ http://[::2]/", "[address removed]/ [address removed]/"),
    ],
)
def test_what_a_text_asks_for_is_recorded_taken_out_or_withheld(key: str, text: str, removed: str) -> None:
    network = {"allow": [{"host": "good.example", "ports": [443]}, {"host": "10.0.0.0/8", "ports": [443]}]}
    mounts = {"mounts": [{"source": "/srv", "target": "/data"}]}
    others = dict.fromkeys({"host_paths", "credentials", "network", "tokens"} - {key}, "off")

    def outcome(reaction: str) -> tuple[str, bool]:
        policy = Policy(network=network, filesystem=mounts, filters={key: reaction, **others})
        filtered = Pipeline(policy).sift(text)
        return filtered.text, bool(filtered.acts)

    is_found = removed != text
    assert outcome("off") == (text, False)
    assert outcome("flag") == (text, is_found)
    assert outcome("strip") == (removed, is_found)
    assert (outcome("block")[0] != text) is is_found


def test_a_secret_can_withhold_the_whole_text() -> None:
    policy = Policy(filters={"secrets": "block"})
    filtered = Pipeline(policy, secrets={"A": SECRET}).sift(f"x {SECRET} y")
    assert filtered.is_blocked
    assert filtered.text == "[withheld by policy: the text holds secret A]"


def test_the_values_of_the_policys_secrets_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("from-a-file-0123\n")
    monkeypatch.setenv("THE_SECRET", "from-the-environment")
    inject = {"host": "a.example"}
    policy = Policy(
        secrets=[
            {"name": "A", "from_env": "THE_SECRET", "inject": inject},
            {"name": "B", "from_file": str(tmp_path / "secret"), "inject": {**inject, "header": "X-B"}},
        ]
    )
    text = Pipeline(policy).sift("from-the-environment from-a-file-0123").text
    assert text == "[secret removed] [secret removed]"


def test_a_long_text_keeps_its_head_and_tail_and_no_half_of_a_secret() -> None:
    text = "a" * 600 + SECRET + "b" * 600
    left = sift(text, size=900)
    assert left.startswith("a" * 500)
    assert left.endswith("b" * 300)
    assert "left out ...]" in left
    assert not any(SECRET[start : start + 6] in left for start in range(len(SECRET) - 6))


def test_a_canary_withholds_the_text_and_gives_no_hint() -> None:
    pipeline = Pipeline(Policy(), canaries={"billing": CANARY})
    filtered = pipeline.sift(f"x {CANARY.encode().hex()} y")
    assert filtered.is_blocked
    assert "billing" not in filtered.text
    assert "canar" not in filtered.text
    stripped = Pipeline(Policy(filters={"on_canary": "strip"}), canaries={"billing": CANARY}).sift(f"x {CANARY} y")
    assert stripped.text == "x [text removed] y"


@pytest.mark.anyio
async def test_each_act_is_an_audit_event_that_gives_nothing_away(tmp_path: Path) -> None:
    log, alarms = AuditLog.at(tmp_path), list[CanaryAlert]()
    trail = Trail(log, who="tester")
    pipeline = Pipeline(
        Policy(filters={"on_canary": "strip"}),
        secrets={"A": SECRET},
        canaries={"billing": CANARY},
        trail=trail,
        on_alarm=alarms.append,
    )
    await pipeline.apply(f"\x1b[0m{SECRET} {CANARY} {CANARY} cat /etc/shadow", OUT)
    found = [(record.kind, record.data) for record in log.find(Query(kind="filter"))]
    assert [(data["filter"], data["action"], data["count"]) for _, data in found] == [
        ("invisible", "strip", 4),
        ("canaries", "strip", 2),
        ("secrets", "strip", 1),
        ("host_paths", "flag", 1),
    ]
    assert [record.data for record in log.find(Query(kind="canary"))] == [{"canary": "billing", "where": "tool_result"}]
    assert alarms == [CanaryAlert("billing", "tool_result")]
    assert SECRET not in (tmp_path / "audit.db").read_bytes().decode("latin-1")


@pytest.mark.anyio
async def test_what_cannot_be_recorded_is_not_passed_on(tmp_path: Path) -> None:
    pipeline = Pipeline(Policy(), secrets={"A": SECRET}, trail=Trail(AuditLog.at(tmp_path / "audit"), who="x"))
    (tmp_path / "audit" / "audit.db").rename(tmp_path / "moved")
    with pytest.raises(SandboxError, match="audit log"):
        await pipeline.apply(SECRET, OUT)


SPLITTABLE = [SECRET, "\u200b".join(SECRET), "\x1b[31m".join(SECRET), SECRET.encode().hex(), dict(tokens())["Stripe"]]


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_where_a_stream_is_cut_makes_no_difference(data: st.DataObject) -> None:
    pipeline = Pipeline(Policy(filters={"size": "1G"}), secrets={"A": SECRET})
    secret = data.draw(st.sampled_from(SPLITTABLE))
    text = "some words " * data.draw(st.integers(0, 900)) + secret + " and more" * data.draw(st.integers(0, 900))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    stream, parts = FilterStream(pipeline), list[str]()
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        parts += [filtered.text for filtered in stream.feed(text[start:end])]
    parts += [filtered.text for filtered in stream.finish()]
    assert "".join(parts) == pipeline.sift(text).text


RANDOM = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=6000))
LONG = {
    "a long bearer token": f"Authorization: Bearer {RANDOM[:900]}",
    "a long word before a token": f"{RANDOM[:900]} {dict(tokens())['Stripe']}",
    "a private key": f"-----BEGIN RSA PRIVATE KEY-----\n{RANDOM}\n-----END RSA PRIVATE KEY-----",
    "an AWS secret": f"aws_session_secret_access_key  =  {RANDOM[:40]}",
    "a spaced secret": " ".join(SECRET),
    "a secret as numbers": "  ".join(map(str, SECRET.encode())),
}


@pytest.mark.parametrize("size", [3, 100])
@pytest.mark.parametrize("secret", [*dict(tokens()).values(), *LONG.values()], ids=[*dict(tokens()), *LONG])
def test_a_credential_is_found_in_pieces_of_any_size(secret: str, size: int) -> None:
    pipeline = Pipeline(Policy(filters={"size": "1G"}), secrets={"A": SECRET})
    for before in ("", "some words " * 11, "some words " * 40):
        text = f"{before}{secret} {'and more ' * 40}"
        stream, parts = FilterStream(pipeline), list[str]()
        for start in range(0, len(text), size):
            parts += [filtered.text for filtered in stream.feed(text[start : start + size])]
        parts += [filtered.text for filtered in stream.finish()]
        assert "".join(parts) == pipeline.sift(text).text


def test_a_stream_passes_on_what_is_certain() -> None:
    """All but the window of the longest form of a secret, and not only when it ends."""
    for secrets in ({}, {"A": "x" * 60}):
        pipeline = Pipeline(Policy(), secrets=secrets)
        stream, shown = FilterStream(pipeline), ""
        for count in range(1, 400):
            shown += "".join(part.text for part in stream.feed("word "))
            assert 5 * count - len(shown) <= pipeline.window + 2 * 64
        assert pipeline.window == max(128, 12 * len(secrets.get("A", "")))


def test_nothing_comes_after_a_stream_was_blocked() -> None:
    stream = FilterStream(Pipeline(Policy(), canaries={"c": CANARY}))
    parts = [*stream.feed(CANARY + " word" * 4000), *stream.feed(" word" * 4000), *stream.finish()]
    assert [part.is_blocked for part in parts] == [True]


@settings(deadline=None)
@given(st.integers(0, 60), st.sampled_from([CANARY, CANARY.encode().hex(), CANARY[::-1]]))
def test_a_canary_on_its_way_out_is_seen_once_wherever_it_is_cut(cut: int, form: str) -> None:
    watch = CanaryWatch([SecretValue("billing", CANARY)], "evil.invalid:443")
    data = b"\x16\x03\xff" + b"POST / HTTP/1.1\r\n" * 30 + form.encode() + b"\xff\xfe" * 50 + form.encode()
    place = min(len(data), 500 + cut)
    alarms = [*watch.feed(data[:place]), *watch.feed(data[place:])]
    assert alarms == [CanaryAlert("billing", "evil.invalid:443")]


def test_ordinary_bytes_raise_no_alarm() -> None:
    watch = CanaryWatch([SecretValue("billing", make_canary())], "x")
    assert watch.feed(bytes(range(256)) * 10) == ()
    assert CanaryWatch([], "x").feed(b"x") == ()


def test_canaries_are_different_every_time() -> None:
    assert len({make_canary() for _ in range(50)}) == 50


def test_a_canary_without_a_value_is_an_error(tmp_path: Path) -> None:
    policy = Policy(filters={"canaries": [{"name": "c", "from_file": str(tmp_path / "none")}]})
    with pytest.raises(UsageError, match="canary c: "):
        Pipeline(policy)


def test_the_canaries_of_the_policy_are_known(tmp_path: Path) -> None:
    (tmp_path / "canary").write_text(CANARY + "\n")
    policy = Policy(filters={"canaries": [{"name": "c", "from_file": str(tmp_path / "canary")}]})
    assert Pipeline(policy).sift(CANARY).is_blocked


@pytest.mark.parametrize(
    "filters",
    [{"secrets": "off"}, {"on_canary": "flag"}, {"canaries": [{"name": "x"}]}, {"tokens": "redact"}, {"sise": 1}],
)
def test_a_filter_that_protects_nothing_cannot_be_asked_for(filters: dict[str, object]) -> None:
    with pytest.raises(PolicyError):
        Policy(filters=filters)


def test_filters_are_on_by_default() -> None:
    rules = Filters()
    assert (rules.secrets, rules.tokens, rules.invisible, rules.on_canary) == ("strip", "strip", "strip", "block")
