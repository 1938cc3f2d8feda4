"""The authority of a cluster, and credentials on disk."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from fumehood.cluster.authority import ClusterAuthority, Member
from fumehood.cluster.certificates import make_key, make_request
from fumehood.cluster.credentials import MemberCredentials
from fumehood.cluster.join import make_token, read_token
from fumehood.cluster.nkeys import KeyKind, SigningPair
from fumehood.errors import UsageError


@pytest.fixture
def authority(tmp_path: Path) -> ClusterAuthority:
    return ClusterAuthority.create(tmp_path / "authority", ["tls://127.0.0.1:4222"])


def test_keys_are_for_their_user_alone(authority: ClusterAuthority, tmp_path: Path) -> None:
    authority.make_member("w1", "worker").write(tmp_path / "w1.creds")
    make_token(authority, "w2", "worker", 60)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files if path.suffix != ".lock"} == {0o600}
    assert stat.S_IMODE(authority.folder.stat().st_mode) == 0o700


def test_credentials_that_others_can_read_are_refused(authority: ClusterAuthority, tmp_path: Path) -> None:
    path = tmp_path / "w1.creds"
    authority.make_member("w1", "worker").write(path)
    path.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        MemberCredentials.read(path)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"name": 1}', "\x00"])
def test_a_file_that_holds_no_credentials_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "some.creds"
    path.touch(0o600)
    path.write_text(content)
    with pytest.raises(UsageError, match="does not hold the credentials"):
        MemberCredentials.read(path)


def test_a_second_cluster_does_not_take_the_place_of_the_first(authority: ClusterAuthority) -> None:
    with pytest.raises(UsageError, match="already"):
        ClusterAuthority.create(authority.folder, [])


def test_a_removed_member_is_removed_though_the_clock_was_set_back(authority: ClusterAuthority) -> None:
    """NATS refuses what was issued up to the time of a revocation: a token from an hour that is yet to come stayed."""
    user = authority.make_member("w1", "worker").user
    (account,) = authority.revoke("w1")
    issued, revoked = (read_payload(token) for token in (user, authority.account_token(account)))
    assert issued["iat"] + 365 * 24 * 3600 < revoked["nats"]["revocations"][issued["sub"]]


def test_a_key_is_of_one_member(authority: ClusterAuthority) -> None:
    """A newcomer brings its key. With that of another member, the other one would go when the newcomer is removed."""
    server = read_payload(authority.make_member("s1", "server").user)["sub"]
    request = make_request(make_key(), "w1")
    for _ in range(2):
        with pytest.raises(UsageError, match="another member's"):
            authority.admit(Member("w1", "worker", server, "FUMEHOOD"), request)
        if "s1" in {member.name for member in authority.members()}:
            authority.revoke("s1")


def read_payload(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def test_a_name_is_given_once(authority: ClusterAuthority) -> None:
    authority.make_member("w1", "worker")
    with pytest.raises(UsageError, match="hood cluster remove w1"):
        ClusterAuthority(authority.folder).make_member("w1", "server")


@pytest.mark.parametrize(
    ("before", "after", "is_given"),
    [
        ((), (), True),
        (("acme",), (), True),
        (("acme",), ("acme", "globex"), True),
        ((), ("acme",), False),
        (("acme", "globex"), ("acme",), False),
    ],
)
def test_a_name_is_not_given_again_for_fewer_tenants(
    authority: ClusterAuthority, before: tuple[str, ...], after: tuple[str, ...], *, is_given: bool
) -> None:
    """NATS proves to servers the name, and not the key: the token of before would be believed with it."""
    authority.make_member("w1", "worker", before)
    authority.revoke("w1")
    authority.make_member("w1", "worker", before)
    authority.revoke("w1")
    if is_given:
        make_token(authority, "w1", "worker", 60, after)
        authority.make_member("w1", "worker", after)
        return
    with pytest.raises(UsageError, match="choose another name"):
        make_token(authority, "w1", "worker", 60, after)
    with pytest.raises(UsageError, match="choose another name"):
        ClusterAuthority(authority.folder).make_member("w1", "worker", after)


def test_a_member_can_be_removed_again_until_nats_knows_it(authority: ClusterAuthority) -> None:
    user = read_payload(authority.make_member("w1", "worker").user)["sub"]
    for _ in range(2):
        (account,) = ClusterAuthority(authority.folder).revoke("w1")
        assert user in read_payload(ClusterAuthority(authority.folder).account_token(account))["nats"]["revocations"]
    with pytest.raises(UsageError, match="there is no member"):
        authority.revoke("w2")


@pytest.mark.parametrize("name", ["", "W1", "a.b", "*", ">", "a b", "-a", "a" * 64])
def test_a_name_that_could_be_another_subject_is_refused(authority: ClusterAuthority, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a name"):
        authority.make_member(name, "worker")
    with pytest.raises(UsageError, match="cannot be a name"):
        make_token(authority, name, "worker", 60)


def test_a_signing_request_brings_its_key_and_nothing_else(authority: ClusterAuthority) -> None:
    """What it says of its own name does not count."""
    from cryptography import x509

    member = Member("w1", "worker", SigningPair.generate(KeyKind.USER).public, "FUMEHOOD")
    given = authority.admit(member, make_request(make_key(), "server"))
    certificate = x509.load_pem_x509_certificate(given["certificate"].encode())
    assert certificate.subject.rfc4514_string() == "CN=w1"
    assert given["observer"] == ""


@pytest.mark.parametrize(
    "request_pem", ["", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----"]
)
def test_a_signing_request_that_is_not_valid_is_refused(authority: ClusterAuthority, request_pem: str) -> None:
    member = Member("w1", "worker", SigningPair.generate(KeyKind.USER).public, "FUMEHOOD")
    with pytest.raises(UsageError, match="signing request"):
        authority.admit(member, request_pem)
    assert authority.members() == []


@pytest.mark.parametrize("token", ["", "hoodjoin_", "hoodjoin_AAAA", "/nonexistent", "hoodjoin_" + "A" * 4000])
def test_a_token_that_is_not_whole_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="join token"):
        read_token(token)
