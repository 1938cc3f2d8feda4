"""`hood policy test`: files and folders in; lines, JUnit XML or JSON and an exit code out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
import sampling

from fumehood.cli.entry import run_command

GOOD = """\
version: 1
network: {allow: [{host: example.com, ports: [443]}]}
tests:
  - {connect: "example.com:443", expect: allow}
  - {read: /etc/shadow, expect: deny}
"""
BAD = """\
version: 1
network:
  allow:
    - {host: "*.example.com", ports: [443]}
tests:
  - {connect: "evil.example.com:443", expect: deny}
  - {connect: "example.com:443", expect: allow}
  - {resource: memory=512M, expect: allow}
"""
UNTESTED = "version: 1\nresources: {memory: 64M}\n"
BROKEN = "version: 1\nresources: {memroy: 1G}\ntests: [{read: /x, expect: deny}]\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(**files: str) -> None:
    for name, text in files.items():
        path = Path(name.replace("__", "/") + ".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_tests_that_hold_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    put(good=GOOD)
    assert run_command(["policy", "test", "good.yaml"]) == 0
    assert capsys.readouterr().out == "ok    good.yaml: 2 tests\n1 policy, 2 tests: 2 passed\n"


def test_a_failure_says_what_was_expected_what_came_which_rule_decided_and_what_to_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(bad=BAD)
    assert run_command(["policy", "test", "bad.yaml"]) == 1
    assert capsys.readouterr().out == (
        "fail  bad.yaml:6: deny connect evil.example.com:443\n"
        "      expected deny, got allow by network.allow[0] (bad.yaml:4): the rule opens\n"
        "      evil.example.com:443, at public addresses\n"
        "fail  bad.yaml:7: allow connect example.com:443\n"
        "      expected allow, got deny by network.allow (bad.yaml:3): no rule opens this\n"
        "      name\n"
        "      to allow it: add {host: example.com, ports: [443]} to network.allow\n"
        "FAIL  bad.yaml: 2 of 3 tests failed\n"
        "1 policy, 3 tests: 1 passed, 2 failed\n"
    )


def test_every_test_is_named_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    put(good=GOOD)
    assert run_command(["policy", "test", "-v", "good.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "pass  good.yaml:4: allow connect example.com:443",
        "pass  good.yaml:5: deny read /etc/shadow",
    ]


def test_a_policy_without_tests_is_named_and_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    put(good=GOOD, untested=UNTESTED)
    assert run_command(["policy", "test"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok    good.yaml: 2 tests",
        "none  untested.yaml: no tests",
        "2 policies, 2 tests: 2 passed, 1 policy has no tests",
    ]


def test_a_policy_with_a_mistake_is_never_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    put(good=GOOD, broken=BROKEN, syntax="version: 1\ntests: [{read: /x, expect: deny}\n")
    assert run_command(["policy", "test"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "error broken.yaml:2: resources.memroy: unknown key (got '1G'); did you mean",
        "      memory?",
    ]
    assert lines[2] == "ok    good.yaml: 2 tests"
    assert lines[3].startswith("error syntax.yaml:3: is not valid YAML")
    assert lines[-1] == "3 policies, 2 tests: 2 passed, 2 policies have problems"


def test_a_folder_is_searched_for_policies_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    put(
        a__b__deep=GOOD,
        compose='version: "3"\nservices: {x: {image: y}}\nsecrets: {}\n',
        logging="version: 1\nformatters: {}\n",
        helm="{{- if .Values.x }}\nkind: Secret\n",
        chart="name: x\nversion: 1.0.0\nenvironment: {}\n",
    )
    put(**{".hidden__policy": BAD})
    Path("a/b/other.yml").write_text(GOOD)
    Path("a/hood.yaml").write_text("resources: {memory: 64M}\n")
    Path("a/notes.txt").write_text(GOOD)
    Path("a/binary.yaml").write_bytes(bytes(range(256)))
    assert run_command(["policy", "test", "."]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines[:-1]) == [
        "none  a/hood.yaml: no tests",
        "ok    a/b/deep.yaml: 2 tests",
        "ok    a/b/other.yml: 2 tests",
    ]


def test_a_file_is_tested_once_however_often_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    put(a__good=GOOD)
    assert run_command(["policy", "test", "a/good.yaml", "a", "./a/good.yaml", "."]) == 0
    assert capsys.readouterr().out.splitlines() == ["ok    a/good.yaml: 2 tests", "1 policy, 2 tests: 2 passed"]


def test_nothing_to_test_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "test"]) == 2
    assert capsys.readouterr().out.splitlines()[0] == "error .: there is no policy here; name a file or another folder"


@pytest.mark.parametrize("name", ["none.yaml", "none", "loop.yaml", "pipe.yaml", "dangling.yaml"])
def test_a_file_that_cannot_be_read_is_one_clear_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.symlink("loop.yaml", "loop.yaml")
    os.symlink("nowhere", "dangling.yaml")
    os.mkfifo("pipe.yaml")
    assert run_command(["policy", "test", name]) == 2
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith(f"error {name}: cannot be read: ")
    assert rest == ["1 policy, 0 tests: 0 passed, 1 policy has problems"]


def test_what_cannot_be_read_in_a_folder_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    put(good=GOOD)
    os.symlink("nowhere", "dangling.yaml")
    assert run_command(["policy", "test"]) == 2
    assert "error dangling.yaml: cannot be read: there is no such file" in capsys.readouterr().out


def test_a_folder_that_may_not_be_searched_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may search every folder")
    put(good=GOOD)
    os.mkdir("closed", 0)
    assert run_command(["policy", "test"]) == 2
    assert "closed: cannot be searched: Permission denied" in capsys.readouterr().out


def test_junit_xml_has_a_suite_for_each_policy_and_a_case_for_each_test(capsys: pytest.CaptureFixture[str]) -> None:
    put(good=GOOD, bad=BAD, broken=BROKEN, untested=UNTESTED)
    assert run_command(["policy", "test", "--junit", "r.xml"]) == 2
    root = ElementTree.parse("r.xml").getroot()
    assert (root.tag, root.get("tests"), root.get("failures"), root.get("errors")) == ("testsuites", "6", "2", "1")
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["bad.yaml", "broken.yaml", "good.yaml", "untested.yaml"]
    assert [case.get("name") for case in suites["good.yaml"]] == [
        "allow connect example.com:443",
        "deny read /etc/shadow",
    ]
    case = suites["bad.yaml"][0]
    assert (case.get("file"), case.get("line"), case.get("classname")) == ("bad.yaml", "6", "bad.yaml")
    failure = case.find("failure")
    assert failure is not None
    assert (failure.get("message") or "").startswith("expected deny, got allow by network.allow[0] (bad.yaml:4)")
    error = suites["broken.yaml"].find("testcase/error")
    assert error is not None
    assert "did you mean memory?" in (error.get("message") or "")
    for suite in root:
        assert int(suite.get("tests", "")) == len(suite)
        assert int(suite.get("failures", "")) == len(suite.findall("testcase/failure"))
        assert float(suite.get("time", "")) >= 0


def test_junit_xml_survives_the_strangest_names() -> None:
    put(**{"a\x1b[2J<&>\udcff": BAD})
    assert run_command(["policy", "test", ".", "--junit", "r.xml"]) == 1
    assert len(ElementTree.parse("r.xml").getroot()) == 1


def test_a_report_that_cannot_be_written_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    put(good=GOOD)
    assert run_command(["policy", "test", "--junit", "no/such/folder/r.xml"]) == 2
    assert "--junit 'no/such/folder/r.xml' cannot be written: No such file" in capfd.readouterr().err


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    put(bad=BAD, broken=BROKEN)
    assert run_command(["policy", "test", "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert (data["passed"], data["tests"], data["failed"], data["problems"]) == (False, 3, 2, [])
    first = data["policies"][0]["tests"][0]
    assert first == {
        "line": 6,
        "attempt": "connect evil.example.com:443",
        "expect": "deny",
        "passed": False,
        "got": "allow",
        "why": "the rule opens evil.example.com:443, at public addresses",
        "rule": "network.allow[0]",
        "rule_line": 4,
        "remedy": "",
    }
    assert data["policies"][1]["problems"] != []


def test_very_many_tests_are_all_run(capsys: pytest.CaptureFixture[str]) -> None:
    many = sampling.amount(2000, whole=10_000)
    tests = "".join(f'  - {{connect: "h{number}.example.com:443", expect: allow}}\n' for number in range(many - 1))
    put(many=f'version: 1\nnetwork: {{allow: [{{host: "*.example.com", ports: [443]}}]}}\ntests:\n{tests}')
    with open("many.yaml", "a") as file:
        file.write("  - {read: /etc/shadow, expect: allow}\n")
    assert run_command(["policy", "test", "many.yaml", "--junit", "r.xml"]) == 1
    assert capsys.readouterr().out.splitlines()[0] == f"fail  many.yaml:{many + 3}: allow read /etc/shadow"
    assert ElementTree.parse("r.xml").getroot().get("tests") == str(many)


def test_a_name_cannot_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    put(**{"\x1b[2J": BAD})
    assert run_command(["policy", "test"]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_lines_fit_a_terminal_of_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    put(bad=BAD, broken=BROKEN, good=GOOD, untested=UNTESTED)
    run_command(["policy", "test", "-v"])
    run_command(["policy", "test", "--help"])
    run_command(["policy", "explain", "--help"])
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--backend", "native"], "--backend says where --live tries the tests; add --live"),
        (["--live", "--backend", "moon"], "unknown 'moon'; choose from auto, native"),
        (["--junti", "x"], "unknown option --junti (did you mean '--junit'?)"),
    ],
)
def test_a_bad_option_is_one_clear_line(arguments: list[str], reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    put(good=GOOD)
    assert run_command(["policy", "test", "good.yaml", *arguments]) == 2
    said = capfd.readouterr().err
    assert reason in said
    assert said.count("\n") == 1
