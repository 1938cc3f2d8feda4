"""A policy of a tenant names nothing of the host, and the process's own policies name what they always could."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fumehood.egress.credentials import Credentials
from fumehood.errors import DeniedError, UnenforceableError, UsageError
from fumehood.policy import Docker, Policy
from fumehood.policy.secret import GivenSecrets, MissingValueError
from fumehood.secret_scan.canaries import load_canaries
from fumehood.secret_scan.redaction import Redaction
from fumehood.tenant import LOCAL, Tenant

ACME = Tenant("acme", Path("/var/lib/hood/acme"))
NETWORK = {"allow": [{"host": "api.example.com", "ports": [443]}]}


def with_secret(**origin: str) -> Policy:
    secret = {"name": "TOKEN", "inject": {"host": "api.example.com"}, **origin}
    return Policy(network=NETWORK, secrets=[secret], filters={"canaries": [{"name": "billing", **origin}]})


@pytest.mark.parametrize("variable", ["PATH", "SERVER_KEY"])
def test_a_variable_of_the_server_is_no_secret_of_a_tenant(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", "the-key-of-the-server")
    policy = with_secret(from_env=variable)
    with pytest.raises(MissingValueError, match=f"variable {variable} is not set"):
        Credentials(policy, ACME.secrets)
    with pytest.raises(MissingValueError):
        load_canaries(policy, ACME.secrets)
    assert Redaction.for_policy(policy, ACME.secrets).values == ()
    # The same policy of this process's own gets it, which is what the tenant is kept from.
    assert Redaction.for_policy(policy, LOCAL.secrets).values
    Credentials(policy, LOCAL.secrets)


def test_a_file_of_the_server_is_no_secret_of_a_tenant() -> None:
    policy = with_secret(from_file="/etc/hostname")
    with pytest.raises(DeniedError, match=r"secret TOKEN: from_file: a policy of tenant acme cannot name"):
        ACME.check(policy)
    # Nor where the policy was not checked.
    with pytest.raises(MissingValueError, match="is a file of the server"):
        Credentials(policy, ACME.secrets)
    Credentials(policy, LOCAL.secrets)


def test_a_tenant_has_its_own_value_of_a_name_and_nothing_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "the-key-of-the-server")
    tenant = Tenant("acme", Path("/var/lib/hood/acme"), GivenSecrets({"TOKEN": "the-key-of-acme"}))
    policy = with_secret(from_env="TOKEN")
    assert Credentials(policy, tenant.secrets).headers(policy.secrets) == [("Authorization", "Bearer the-key-of-acme")]
    assert "the-key-of-acme" not in repr(tenant)


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ({"docker": {"host": "tcp://10.0.0.1:2375"}}, "docker.host"),
        ({"docker": {"tls_ca": "/etc/ssl/ca.pem"}}, "docker.tls_ca"),
        ({"docker": {"tls_cert": "/a", "tls_key": "/b"}}, "docker.tls_cert"),
        ({"filesystem": {"mounts": [{"source": "/etc", "target": "/data"}]}}, "filesystem.mounts: /etc"),
        ({"filesystem": {"mounts": [{"source": "/srv/acme/x", "target": "/data"}]}}, "filesystem.mounts: /srv/acme/x"),
        ({"environment": {"requirements": "/etc/passwd"}}, "environment.requirements"),
        ({"environment": {"packages": ["six"], "index": "https://169.254.169.254/simple"}}, "environment.index"),
        ({"network": {"allow": [{"host": "127.0.0.1", "ports": [8440], "private": True}]}}, "network.allow: private"),
        ({"filters": {"canaries": [{"name": "c", "from_file": "/etc/shadow"}]}}, "canary c: from_file"),
    ],
)
def test_a_policy_that_names_something_of_the_host_is_refused(document: dict[str, Any], key: str) -> None:
    policy = Policy.model_validate(document)
    tenant = Tenant("acme", Path("/var/lib/hood/acme"), mounts=frozenset({"/srv/acme"}))
    with pytest.raises(DeniedError) as caught:
        tenant.check(policy)
    assert str(caught.value).startswith(f"{key}: a policy of tenant acme cannot name")
    LOCAL.check(policy)


def test_a_tenant_gets_what_it_was_given() -> None:
    mounts = {"mounts": [{"source": "/srv/acme", "target": "/data", "mode": "rw"}]}
    private = {"allow": [{"host": "db.internal", "ports": [5432], "protocol": "tcp", "private": True}]}
    given = Tenant("acme", Path("/x"), mounts=frozenset({"/srv/acme"}), private_networks=True)
    given.check(Policy(filesystem=mounts, network=private, resources={"memory": "1G"}))


def test_a_container_of_a_tenant_is_on_the_tenants_engine_or_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")
    policy = Policy(backend="docker")
    with pytest.raises(UnenforceableError, match="tenant acme has no container engine"):
        ACME.engine(policy)
    own = Docker(host="tcp://docker.acme.example:2376")
    assert Tenant("acme", Path("/x"), docker=own).engine(policy) is own
    assert LOCAL.engine(policy) is policy.docker
    with pytest.raises(UsageError, match=r"needs docker\.host"):
        Tenant("acme", Path("/x"), docker=Docker())


@pytest.mark.parametrize("name", ["", "..", "a/b", "Acme", "a" * 64, "-a", "a\n", "ä"])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a tenant"):
        Tenant(name, Path("/x"))


def test_a_limit_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="memory_bytes 0 of tenant acme must be 32 MiB or more"):
        Tenant("acme", Path("/x"), memory_bytes=0)
    with pytest.raises(UsageError, match="cpu_weight 0 of tenant acme must be from 1 to 10000"):
        Tenant("acme", Path("/x"), cpu_weight=0)


def test_a_tenant_has_a_folder_of_its_own() -> None:
    for folder in (None, Path("relative")):
        with pytest.raises(UsageError, match="must be an absolute path"):
            Tenant("acme", folder)
