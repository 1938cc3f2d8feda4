"""Which calls need a yes: of the rules that apply the strictest decides, and those that name the tool come first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood import Policy, PolicyError
from fumehood.policy import Approval
from fumehood.policy.approvals import rules_that_ask

ALWAYS, FIRST, NEVER = "always", "first_use", "never"


def rules(*given: dict[str, object]) -> tuple[Approval, ...]:
    return Policy(approvals=list(given)).approvals


def asks(found: tuple[Approval, ...], tool: str = "shell", risk: str = "high", *texts: str) -> bool:
    return bool(rules_that_ask(found, tool, risk, texts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "tool", "asked"),
    [
        ([], "shell", False),
        ([{"tool": "shell"}], "shell", True),
        ([{"tool": "shell"}], "python", False),
        ([{"tool": "shell"}], "shell_session", False),
        ([{"tool": "shell"}], "Shell", False),
        ([{"tool": "*"}], "python", True),
        ([{"tool": "*"}, {"tool": "list_files", "when": NEVER}], "list_files", False),
        ([{"tool": "*"}, {"tool": "list_files", "when": NEVER}], "python", True),
        ([{"tool": "list_files", "when": NEVER}, {"tool": "list_files"}], "list_files", True),
        ([{"tool": "list_files"}, {"tool": "list_files", "when": NEVER}], "list_files", True),
        ([{"tool": "*", "when": NEVER}, {"tool": "shell"}], "shell", True),
        ([{"tool": "*", "when": FIRST}], "shell", True),
        ([{"tool": "*", "when": NEVER}, {"tool": "*", "when": FIRST}], "shell", True),
    ],
)
def test_the_strictest_of_the_nearest_rules_decides(given: list[dict[str, object]], tool: str, asked: bool) -> None:
    assert asks(rules(*given), tool) is asked


@pytest.mark.parametrize(
    ("least", "risk", "asked"), [("low", "low", True), ("medium", "low", False), ("high", "high", True)]
)
def test_risk_is_the_least_that_asks(least: str, risk: str, asked: bool) -> None:
    assert asks(rules({"tool": "*", "risk": least}), "x", risk) is asked


@pytest.mark.parametrize(
    ("pattern", "text", "asked"),
    [
        ("rm *", "rm -rf /", True),
        ("rm *", "echo; rm -rf /", False),
        ("*rm *", "echo\nrm -rf /", True),
        ("*DROP TABLE*", "select 1;\n\n  DROP TABLE x", True),
        ("*DROP TABLE*", "drop table x", False),
    ],
)
def test_a_pattern_is_a_glob_over_the_whole_text(pattern: str, text: str, asked: bool) -> None:
    assert asks(rules({"tool": "shell", "pattern": pattern}), "shell", "high", "other", text) is asked


def test_a_first_use_is_asked_about_until_somebody_said_yes_to_that_rule() -> None:
    first, other = rules({"tool": "shell", "when": FIRST}, {"tool": "shell", "when": FIRST, "pattern": "rm *"})
    assert rules_that_ask((first, other), "shell", "high", ("ls",)) == (first,)
    assert rules_that_ask((first, other), "shell", "high", ("ls",), {first}) == ()
    assert rules_that_ask((first, other), "shell", "high", ("rm x",), {first}) == (other,)


def test_a_first_use_that_was_granted_does_not_make_always_less_strict() -> None:
    first, always = rules({"tool": "shell", "when": FIRST}, {"tool": "shell"})
    assert rules_that_ask((first, always), "shell", "high", (), {first, always}) == (always,)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"tool": st.sampled_from(["a", "b", "*"]), "when": st.sampled_from([ALWAYS, FIRST, NEVER])},
            optional={"risk": st.sampled_from(["low", "medium", "high"])},
        ),
        max_size=5,
    ),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["low", "medium", "high"]),
    st.randoms(),
)
def test_the_order_of_rules_makes_no_difference(
    given: list[dict[str, object]], tool: str, risk: str, random: object
) -> None:
    found = list(rules(*given))
    before = set(rules_that_ask(found, tool, risk, ()))  # type: ignore[arg-type]
    random.shuffle(found)  # type: ignore[attr-defined]
    assert set(rules_that_ask(found, tool, risk, ())) == before  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"tool": "shell", "when": NEVER, "pattern": "ls *"}, "when: never takes no pattern"),
        ({"tool": "sh*"}, "the name of one tool, or * alone"),
        ({"tool": "read file"}, "the name of one tool"),
        ({"tool": "shell", "expires": "0s"}, "a duration"),
        ({"when": ALWAYS}, "is required"),
    ],
)
def test_a_rule_that_could_be_misread_is_refused(rule: dict[str, object], words: str) -> None:
    with pytest.raises(PolicyError, match=words.replace("*", r"\*")):
        Policy(approvals=[rule])
