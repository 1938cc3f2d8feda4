"""A value that the host keeps is read by one set of rules, whatever it is read for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from fumehood import Policy, UsageError
from fumehood.policy.filters import CanarySource
from fumehood.policy.secret import MOST_VALUE_BYTES, HostValue, MissingValueError, ProcessSecrets
from fumehood.secret_scan.canaries import load_canaries
from fumehood.secret_scan.redaction import Redaction

VALUE = "s3cr3t-v4lue"


def in_variable(name: str = "TOKEN") -> HostValue:
    return CanarySource(name="billing", from_env=name)


def in_file(path: Path) -> HostValue:
    return CanarySource(name="billing", from_file=str(path))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{VALUE}\n")
    path.chmod(0o600)
    return path


def problem(wanted: HostValue, variables: Mapping[str, str] | None = None) -> UsageError:
    with pytest.raises(UsageError) as caught:
        wanted.read(ProcessSecrets(variables or {}))
    assert VALUE not in str(caught.value)
    assert str(caught.value).startswith("canary billing: ")
    return caught.value


@pytest.mark.parametrize("around", ["", "\n", "\r\n", " \t\n\n"])
def test_white_space_around_a_value_is_no_part_of_it(file: Path, around: str) -> None:
    file.write_text(f"{around}{VALUE}{around}")
    assert in_file(file).read(ProcessSecrets({})) == VALUE
    assert in_variable().read(ProcessSecrets({"TOKEN": f"{around}{VALUE}{around}"})) == VALUE


def test_lines_inside_a_value_stay(file: Path) -> None:
    file.write_text("first\nsecond\n")
    assert in_file(file).read(ProcessSecrets({})) == "first\nsecond"


@pytest.mark.parametrize("empty", ["", " ", "\n", "\t\r\n"])
def test_an_empty_value_is_a_missing_one(file: Path, empty: str) -> None:
    file.write_text(empty)
    for error in (problem(in_file(file)), problem(in_variable(), {"TOKEN": empty})):
        assert isinstance(error, MissingValueError)
        assert "is empty" in str(error)


def test_a_variable_that_is_not_set_is_missing() -> None:
    error = problem(in_variable(), {"OTHER": VALUE})
    assert isinstance(error, MissingValueError)
    assert "variable TOKEN is not set" in str(error)


def test_a_file_that_is_not_there_or_is_a_folder_is_named(tmp_path: Path) -> None:
    error = problem(in_file(tmp_path / "none"))
    assert isinstance(error, MissingValueError)
    assert f"file {tmp_path}/none cannot be read: No such file" in str(error)
    assert "Is a directory" in str(problem(in_file(tmp_path)))


@pytest.mark.parametrize("mode", [0o602, 0o666, 0o646])
def test_a_file_that_every_user_can_write_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    error = problem(in_file(file))
    assert not isinstance(error, MissingValueError)
    assert f"can be written by every user; run `chmod o-w {file}`" in str(error)


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o444])
def test_a_file_that_others_can_only_read_is_taken(file: Path, mode: int) -> None:
    """Container engines mount secrets with mode 0444."""
    file.chmod(mode)
    assert in_file(file).read(ProcessSecrets({})) == VALUE


@pytest.mark.timeout(10)
def test_a_pipe_in_the_place_of_the_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in str(problem(in_file(tmp_path / "pipe")))


def test_a_value_has_a_size_limit(file: Path) -> None:
    file.write_bytes(b"x" * MOST_VALUE_BYTES)
    assert len(in_file(file).read(ProcessSecrets({}))) == MOST_VALUE_BYTES
    file.write_bytes(b"x" * (MOST_VALUE_BYTES + 1))
    assert "more than 16384 bytes" in str(problem(in_file(file)))
    assert "more than 16384 bytes" in str(problem(in_variable(), {"TOKEN": "x" * (MOST_VALUE_BYTES + 1)}))


def test_what_is_not_text_is_refused(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    assert "is not text" in str(problem(in_file(file)))
    assert "is not text" in str(problem(in_variable(), {"TOKEN": os.fsdecode(b"\xff")}))


def with_secret(path: Path) -> Policy:
    inject = {"host": "api.example.com"}
    return Policy(
        network={"allow": [{"host": "api.example.com", "ports": [443], "protocol": "tls"}]},
        secrets=[{"name": "TOKEN", "from_file": str(path), "inject": inject}],
        filters={"canaries": [{"name": "billing", "from_file": str(path)}]},
    )


def test_the_log_and_the_canaries_know_the_value_that_the_gateway_sends(file: Path) -> None:
    policy = with_secret(file)
    assert Redaction.for_policy(policy, ProcessSecrets({})).values == (policy.secrets[0].read(ProcessSecrets({})),)
    assert [known.value for known in load_canaries(policy, ProcessSecrets({}))] == [
        policy.secrets[0].read(ProcessSecrets({}))
    ]


def test_a_secret_that_is_not_there_needs_no_redaction_and_one_that_cannot_be_known_is_an_error(file: Path) -> None:
    policy = with_secret(file)
    file.chmod(0o666)
    with pytest.raises(UsageError, match=r"secret TOKEN: .* can be written by every user"):
        Redaction.for_policy(policy, ProcessSecrets({}))
    file.unlink()
    assert Redaction.for_policy(policy, ProcessSecrets({})).values == ()
