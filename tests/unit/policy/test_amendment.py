"""A rule added to the text of a policy: everything else stays as it was written."""

from __future__ import annotations

import pytest

from fumehood import Policy, PolicyError, UsageError
from fumehood.policy.amendment import with_network_rule

RULE = "{host: example.com, ports: [443]}"
TEXTS = {
    "nothing": "",
    "another section": "# mine\nresources: {memory: 1G}  # much\n",
    "a flow list": "network: {allow: [{host: a.example, ports: [80]}]}  # one\n",
    "an empty flow list": "network:\n  allow: []\n",
    "a block list": "network:\n  allow:\n    - host: a.example  # first\n      ports: [80]\n\n# end\nname: x\n",
    "a block list of flow rules": "network:\n  allow:\n  - {host: a.example, ports: [80]}  # note\nname: x",
    "a block without a list": "network:\n  publish: [8000]\nname: x\n",
    "a flow mapping without a list": "network: {publish: [8000]}\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_rule_is_added_and_nothing_else_changes(text: str) -> None:
    amended = with_network_rule(text, RULE)
    before, after = Policy.loads(text), Policy.loads(amended)
    assert [rule.host for rule in after.network.allow] == [*(r.host for r in before.network.allow), "example.com"]
    assert after.override({"network": {"allow": before.network.allow}}).digest == before.digest
    remaining = iter(amended)
    assert all(character in remaining for character in text.rstrip())


@pytest.mark.parametrize("text", ["network:\n", "network: {allow: null}\n", "network: {allow: [{host: b}"])
def test_a_text_of_another_form_is_left_to_a_person(text: str) -> None:
    with pytest.raises((UsageError, PolicyError)):
        with_network_rule(text, RULE)


@pytest.mark.parametrize("rule", ["host: a\nb: c", "[]", "{host: x, ports: [1]}]\nname: other"])
def test_what_is_not_one_rule_is_refused(rule: str) -> None:
    with pytest.raises(UsageError, match="not a rule"):
        with_network_rule("", rule)
