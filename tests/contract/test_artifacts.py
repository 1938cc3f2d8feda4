"""What a run hands over: the files that the policy names, described, and bounded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
import sampling

from fumehood import Cause, Sandbox, Status

pytestmark = pytest.mark.one_container

OpenBox = Callable[..., Sandbox]


def test_an_artifact_has_path_size_digest_and_type(lend_box: OpenBox) -> None:
    box = lend_box(filesystem={"outputs": ["out/**"]})
    result = box.run("import os; os.mkdir('out'); open('out/a.csv', 'w').write('1,2'); open('b.csv', 'w')")
    (artifact,) = result.artifacts
    assert (artifact.path, artifact.size, artifact.media_type) == ("out/a.csv", 3, "text/csv")
    assert artifact.sha256 == hashlib.sha256(b"1,2").hexdigest()


def test_an_unknown_type_is_plain_data(lend_box: OpenBox) -> None:
    (artifact,) = lend_box(filesystem={"outputs": ["*"]}).run("open('x.unheard-of', 'w')").artifacts
    assert artifact.media_type == "application/octet-stream"


def test_each_run_has_its_own_artifacts(lend_box: OpenBox) -> None:
    box = lend_box(filesystem={"outputs": ["*"]})
    assert [artifact.path for artifact in box.run("open('a', 'w')").artifacts] == ["a"]
    assert [artifact.path for artifact in box.run("open('b', 'w')").artifacts] == ["b"]
    assert [artifact.path for artifact in box.run("open('a', 'w').write('x')").artifacts] == ["a"]
    assert box.run("pass").artifacts == ()


def test_what_the_caller_puts_in_is_not_the_runs(lend_box: OpenBox) -> None:
    box = lend_box(filesystem={"outputs": ["*"]})
    box.files.write("mine", b"")
    assert [artifact.path for artifact in box.run("open('its', 'w')").artifacts] == ["its"]


def test_a_program_that_fails_has_artifacts_too(lend_box: OpenBox) -> None:
    result = lend_box(filesystem={"outputs": ["*"]}).run("open('x', 'w').write('partial'); raise SystemExit(3)")
    assert (result.exit_code, [artifact.path for artifact in result.artifacts]) == (3, ["x"])


def test_without_outputs_there_are_none(lend_box: OpenBox) -> None:
    assert lend_box().run("open('x', 'w')").artifacts == ()


@pytest.mark.parametrize("count", [1001, sampling.amount(10_000, whole=60_000)])
def test_too_many_files_are_a_clear_status(lend_box: OpenBox, count: int) -> None:
    box = lend_box(filesystem={"outputs": ["**"]}, resources={"timeout": 60})
    result = box.run(f"for n in range({count}): open(str(n), 'w').close()")
    assert (result.status, result.cause, result.artifacts) == (Status.RESOURCE_EXCEEDED, Cause.OUTPUT, ())
    assert f"{count} output files, more than 1000; raise resources.artifacts" in result.detail
    assert box.run("open('one more', 'w')").ok


def test_too_much_data_is_a_clear_status(lend_box: OpenBox) -> None:
    box = lend_box(filesystem={"outputs": ["**"]}, resources={"artifacts_size": "1M"})
    result = box.run("open('x', 'wb').truncate(2**20 + 1)")
    assert (result.status, result.cause) == (Status.RESOURCE_EXCEEDED, Cause.OUTPUT)
    assert "raise resources.artifacts_size" in result.detail


def test_links_pipes_and_version_control_are_no_artifacts(lend_box: OpenBox) -> None:
    code = """if True:
        import os
        os.symlink('/etc/passwd', 'link'); os.symlink('/etc', 'folder'); os.mkfifo('pipe')
        os.mkdir('.git'); open('.git/config', 'w'); open('file', 'w')
    """
    result = lend_box(filesystem={"outputs": ["**"]}).run(code)
    assert [artifact.path for artifact in result.artifacts] == ["file"]


def test_a_tree_of_thousands_of_levels_is_no_trouble(lend_box: OpenBox) -> None:
    code = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\nopen('bottom', 'w')"
    result = lend_box(filesystem={"outputs": ["**"]}).run(code)
    assert (result.ok, result.artifacts) == (True, ())


def test_what_may_leave_is_listed_as_it_is_now(lend_box: OpenBox) -> None:
    box = lend_box(filesystem={"outputs": ["out/**"]})
    assert box.files.outputs() == {}
    box.files.write("out/mine", b"123")
    box.run("import os; open('out/its', 'w'); open('elsewhere', 'w'); os.symlink('/etc/passwd', 'out/link')")
    assert {path: entry.size for path, entry in box.files.outputs().items()} == {"out/its": 0, "out/mine": 3}
    box.files.remove("out/mine")
    assert list(box.files.outputs()) == ["out/its"]
    assert lend_box().files.outputs() == {}
