"""Proof reports: their verdict, their signature, and what is held against one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import fumehood
from fumehood import Policy
from fumehood.audit.keys import SigningKey
from fumehood.errors import UsageError
from fumehood.proof.carry_out import carry_out
from fumehood.proof.host_facts import describe_host
from fumehood.proof.junit import to_junit
from fumehood.proof.laboratory import Laboratory
from fumehood.proof.page import to_html
from fumehood.proof.report import ControlEntry, ProofReport, read_report
from fumehood.proof.standards import by_standard, evidence_for
from fumehood.proof.trial import ALWAYS, BrokenError, Observation, Trial
from fumehood.proof.trials import TRIALS, trials_of
from fumehood.proof.verification import objections

KEY = SigningKey(Ed25519PrivateKey.generate())
CONTROLS = ("filesystem", "network", *ALWAYS)
HOST = describe_host("native")


def observations() -> list[Observation]:
    return [Observation(t.name, t.control, t.kind, t.what, "held", "seen", 0.01) for t in trials_of(CONTROLS)]


def make_report(seen: list[Observation] | None = None, controls: tuple[str, ...] = CONTROLS) -> ProofReport:
    return ProofReport(
        made_at="2026-01-31T09:30:00Z",
        host=HOST,
        policy_name="analyst",
        policy_digest=Policy().digest,
        image_digest=None,
        controls=tuple(ControlEntry(control=control, mechanism="a wall") for control in controls),
        observations=tuple(observations() if seen is None else seen),
    ).signed(KEY)


def refusals(report: ProofReport, **options: object) -> list[str]:
    return list(objections(report, KEY.public, **options))  # type: ignore[arg-type]


def test_a_report_that_is_whole_and_signed_proves_what_it_says() -> None:
    assert make_report().verdict == "held"
    assert refusals(make_report(), host=HOST, policy=Policy()) == []


def test_one_attack_that_succeeded_breaks_the_whole() -> None:
    seen = observations()
    seen[0] = replace(seen[0], result="broken", seen="it read the file")
    assert make_report(seen).verdict == "broken"
    assert any("it read the file" in refusal for refusal in refusals(make_report(seen)))


@pytest.mark.parametrize("kind", ["attack", "use"])
def test_what_was_not_tested_is_not_proved(kind: str) -> None:
    seen = [
        replace(one, result="not tested", seen="no way") if (one.control, one.kind) == ("network", kind) else one
        for one in observations()
    ]
    report = make_report(seen)
    assert report.verdict == "incomplete"
    assert report.gaps()[0] == f"network: {kind} not carried out"
    assert refusals(report) == report.gaps()
    assert report.result_of("network") == "not tested"
    assert report.result_of("filesystem") == "held"


def with_first(result: str, control: str = "filesystem") -> ProofReport:
    """One trial of a control came to this; the others held."""
    seen = observations()
    place = next(place for place, one in enumerate(seen) if one.control == control)
    seen[place] = replace(seen[place], result=result, seen="for a reason")  # type: ignore[arg-type]
    return make_report(seen)


def test_one_trial_that_could_not_be_carried_out_is_a_gap_although_others_of_its_control_held() -> None:
    report = with_first("not tested")
    assert report.verdict == "incomplete"
    assert [gap.startswith("filesystem: ") and gap.endswith("for a reason") for gap in report.gaps()] == [True]
    assert refusals(report) == report.gaps()


def test_a_trial_that_does_not_apply_is_told_and_is_no_gap() -> None:
    report = with_first("does not apply")
    assert (report.verdict, refusals(report)) == ("held", [])
    assert "for a reason" in to_html(report)
    suite = ElementTree.fromstring(to_junit(report))
    assert (suite.get("skipped"), suite.get("failures")) == ("1", "0")


def test_a_control_of_which_nothing_applies_is_not_proved() -> None:
    seen = [replace(one, result="does not apply") if one.control == "network" else one for one in observations()]
    assert make_report(seen).verdict == "incomplete"


def test_an_attack_that_got_through_where_it_was_expected_to_is_not_hidden() -> None:
    report = with_first("partial")
    assert (report.verdict, report.result_of("filesystem")) == ("partial", "partial")
    assert "Every control held" not in to_html(report)


async def came_to(trial: Trial, partial: dict[str, str]) -> str:
    return (await carry_out(trial, cast("Laboratory", None), partial)).result


async def get_through(_: Laboratory) -> str:
    raise BrokenError("it got through")


@pytest.mark.anyio
async def test_what_a_backend_admits_excuses_that_attack_and_no_other_of_the_control() -> None:
    """A machine of software is partial in `kernel`; that its emulator is root on the host is not what it admits."""
    admitted = Trial("kernel", "attack", "Do what it says.", get_through, ("by its makers",))
    another = Trial("kernel", "attack", "Do something else.", get_through)
    partial = {"kernel": "not vouched for by its makers"}
    assert await came_to(admitted, partial) == "partial"
    assert await came_to(another, partial) == "broken"
    assert await came_to(admitted, {"kernel": "another weakness"}) == "broken"
    assert await came_to(admitted, {"network": "not vouched for by its makers"}) == "broken"
    assert await came_to(admitted, {}) == "broken"


def test_what_trials_take_for_admitted_is_what_backends_say() -> None:
    """A mechanism that is worded anew would turn what was partial into broken."""
    backends = Path(fumehood.__file__).parent / "backends"
    sources = "".join(path.read_text() for path in backends.rglob("*.py"))
    words = {words for trial in TRIALS for words in trial.admitted}
    assert len(words) > 3
    assert {each for each in words if each not in sources} == set()
    assert all(trial.kind == "attack" for trial in TRIALS if trial.admitted)


def test_a_page_says_of_a_control_that_held_that_it_is_enforced_in_part() -> None:
    whole = make_report()
    partly = whole.controls[0].model_copy(update={"mechanism": "half a wall", "partial": True})
    page = to_html(whole.model_copy(update={"controls": (partly, *whole.controls[1:])}))
    assert "Enforced in part on this host, as the backend says itself: filesystem." in page
    assert "filesystem: enforced in part on this host: half a wall" in page
    assert page.count(">held, in part<") == 1
    assert "in part" not in to_html(whole)


def test_a_control_that_did_not_hold_is_evidence_for_no_standard() -> None:
    assert "filesystem (broken)" in to_html(with_first("broken"))
    assert "filesystem (broken)" not in to_html(make_report())


def test_a_report_with_a_trial_left_out_is_refused() -> None:
    seen = observations()
    left_out = seen.pop(1)
    assert any(left_out.what in refusal for refusal in refusals(make_report(seen)))


def test_a_report_without_a_control_that_every_sandbox_has_is_refused() -> None:
    controls = tuple(control for control in CONTROLS if control != "audit")
    assert "audit is not among its controls" in refusals(make_report(controls=controls))


def test_a_control_that_no_trial_knows_is_a_gap() -> None:
    report = make_report(controls=(*CONTROLS, "teleport"))
    assert report.verdict == "incomplete"
    assert "teleport: this version knows no trial of it" in refusals(report)


@pytest.mark.parametrize("field", ["made_at", "policy_name", "policy_digest", "image_digest"])
def test_a_field_that_was_changed_is_noticed(field: str) -> None:
    changed = make_report().model_copy(update={field: "another"})
    assert refusals(changed) == ["it is not signed with this key, or was changed afterwards"]


def test_an_observation_that_was_changed_is_noticed() -> None:
    report = make_report()
    changed = report.model_copy(update={"observations": (*report.observations[1:], report.observations[0])})
    assert refusals(changed) == ["it is not signed with this key, or was changed afterwards"]


def test_another_key_vouches_for_nothing() -> None:
    other = SigningKey(Ed25519PrivateKey.generate())
    assert list(objections(make_report().signed(other), KEY.public))


@pytest.mark.parametrize("field", ["version", "kernel", "machine", "user"])
def test_a_report_of_another_host_is_refused(field: str) -> None:
    here = HOST.model_copy(update={field: "another"})
    assert any(field in refusal for refusal in refusals(make_report(), host=here))
    assert refusals(make_report(), host=None) == []


@pytest.mark.parametrize("made_at", ["2026-01-31T09:29:59Z", "2126-01-31T09:30:00Z", "2020-12-31T23:59:59Z"])
def test_a_report_that_is_older_than_asked_for_or_of_the_future_is_refused(made_at: str) -> None:
    report = make_report().model_copy(update={"made_at": made_at}).signed(KEY)
    assert refusals(report) == []
    (refusal,) = refusals(report, since="2026-01-31T09:30:00.500000Z")
    assert made_at in refusal
    assert refusals(make_report(), since="2026-01-31T09:30:00.500000Z") == []


def test_a_report_of_another_policy_is_refused() -> None:
    other = Policy(resources={"memory": "64M"})
    assert any("another policy" in refusal for refusal in refusals(make_report(), policy=other))


def test_a_policy_that_leaves_the_backend_open_is_that_of_a_proof_on_a_chosen_one() -> None:
    chosen = Policy(backend="docker")
    there = HOST.model_copy(update={"backend": "docker"})
    report = make_report().model_copy(update={"policy_digest": chosen.digest, "host": there}).signed(KEY)
    assert refusals(report, policy=Policy()) == refusals(report, policy=chosen) == []
    assert refusals(report, policy=Policy(backend="native"))


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    path.write_text(make_report().to_json())
    assert read_report(path) == make_report().model_copy(update={"signature": read_report(path).signature})
    assert refusals(read_report(path)) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"format": 1, "format": 1}',
        json.dumps({"format": 2}),
        "[" * 100_000,
        "\ud800".encode("utf-8", "surrogatepass"),
    ],
)
def test_what_is_not_a_report_is_named(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "proof.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(UsageError, match="not a proof report"):
        read_report(path)


def test_a_key_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    path.write_text(make_report().to_json().replace('"made_at"', '"made_at": "2020-01-01T00:00:00Z",\n "made_at"', 1))
    with pytest.raises(UsageError, match="occurs twice"):
        read_report(path)


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ('"result": "held"', '"result": "held",\n   "note": "and nothing was left out"'),
        ('"backend"', '"note": "x",\n  "backend"'),
        ('"partial": false', '"partial": "off"'),
        ('"partial": false', '"partial": 0'),
        ('"seconds": 0.01', '"seconds": "0.01"'),
        ('"format": 1', '"format": true'),
        ('"format": 1', '"format": 1.0'),
    ],
)
def test_what_only_another_reader_would_find_in_a_report_is_refused(tmp_path: Path, written: str, instead: str) -> None:
    """It is not signed: `verify` would vouch for a file in which somebody else reads something else."""
    path, text = tmp_path / "proof.json", make_report().to_json()
    assert written in text
    path.write_text(text.replace(written, instead, 1))
    with pytest.raises(UsageError, match="not a proof report"):
        read_report(path)


def test_a_signature_has_one_spelling() -> None:
    report = make_report()
    for other in (report.signature.upper(), f" {report.signature}", f"{report.signature[:2]} {report.signature[2:]}"):
        assert other != report.signature
        assert refusals(report.model_copy(update={"signature": other}))


def test_no_byte_of_a_report_can_be_changed(tmp_path: Path) -> None:
    path, data = tmp_path / "proof.json", make_report().to_json().encode()
    outside = re.compile(rb"\s")
    for place in range(0, len(data), 7):
        if outside.match(data, place):
            continue  # space between values, which means nothing to any reader
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            report = read_report(path)
        except UsageError:
            continue
        assert refusals(report), data[place - 20 : place + 20]


def test_a_report_without_an_end_is_not_read_to_the_end() -> None:
    with pytest.raises(UsageError, match="too large"):
        read_report(Path("/dev/zero"))


def test_every_control_has_an_attack_and_a_use() -> None:
    kinds = {(trial.control, trial.kind) for trial in TRIALS}
    controls = {trial.control for trial in TRIALS}
    assert kinds == {(control, kind) for control in controls for kind in ("attack", "use")}
    assert all(evidence_for(control) for control in controls)
    assert len({trial.name for trial in TRIALS}) == len(TRIALS)


def test_every_control_that_a_backend_reports_has_trials() -> None:
    backends = Path(fumehood.__file__).parent / "backends"
    sources = "".join(path.read_text() for path in backends.rglob("*.py"))
    reported = set(re.findall(r'\bEnforcement\(\s*"([^"]+)"', sources))
    assert {"kernel", "filesystem.mounts", "resources.memory"} <= reported
    assert reported <= {trial.control for trial in TRIALS}


@pytest.mark.anyio
async def test_a_trial_that_saw_nothing_has_not_tested_anything() -> None:
    async def go_through_nothing(_: Laboratory) -> str:
        return ""

    trial = Trial("network", "attack", "Reach each of no hosts.", go_through_nothing)
    observation = await carry_out(trial, cast("Laboratory", None), {})
    assert (observation.result, observation.seen) == ("not tested", "the trial tried nothing")


def test_hostile_text_stays_text_in_the_page_and_in_junit() -> None:
    hostile = "<script>alert(1)</script>\x1b[2J\u202e&"
    seen = [replace(one, seen=hostile, result="broken") for one in observations()]
    report = make_report(seen).model_copy(update={"policy_name": hostile})
    page, xml = to_html(report), to_junit(report)
    assert "<script>" not in page
    assert "\x1b" not in page + xml
    assert "\u202e" not in page + xml
    suite = ElementTree.fromstring(xml)
    assert suite.get("failures") == str(len(seen) + len(report.gaps()))


def test_a_gap_is_a_failure_in_junit() -> None:
    seen = [one for one in observations() if one.control != "network"]
    suite = ElementTree.fromstring(to_junit(make_report(seen)))
    assert [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None] == [
        "network: attack not carried out",
        "network: use not carried out",
    ]


def test_clauses_of_a_standard_are_in_its_order() -> None:
    numbers = [re.findall(r"A\.8\.(\d+)", clause) for clause in by_standard(("filesystem", "privileges", "audit"))]
    found = [int(number) for clause in numbers for number in clause]
    assert len(found) > 2
    assert found == sorted(found)
