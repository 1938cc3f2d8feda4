"""What a policy may say: the whole format, and what it refuses."""

from __future__ import annotations

import copy
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from fumehood.errors import PolicyError
from fumehood.policy import Mount, NetworkRule, Policy, Resources, controls, deny_all, describe


def refusal(**fields: object) -> str:
    with pytest.raises(PolicyError) as caught:
        Policy(**fields)
    return str(caught.value)


def mounts(*targets: str) -> dict[str, object]:
    return {"mounts": [{"source": "/srv/data", "target": target} for target in targets]}


def rule(**fields: object) -> dict[str, object]:
    return {"allow": [{"host": "example.com", "ports": [443], **fields}]}


def secret(**fields: object) -> list[object]:
    return [{"name": "TOKEN", "from_env": "TOKEN", "inject": {"host": "api.github.com"}, **fields}]


def test_the_empty_policy_denies_all_and_bounds_everything() -> None:
    policy = Policy()
    assert (policy.filesystem.mounts, policy.filesystem.outputs, policy.network.allow, policy.secrets) == ((),) * 4
    assert (policy.resources.timeout, policy.resources.memory, policy.resources.processes) == (30.0, 512 * 1024**2, 64)
    assert controls(policy) == []


def test_defaults_are_what_a_checked_policy_has_and_are_valid() -> None:
    """They are used without a check, so that a run without a policy need not build what checks it."""
    unchecked, checked = Policy.defaults(), Policy()
    assert (unchecked, unchecked.digest, unchecked.model_fields_set) == (checked, checked.digest, set())
    assert unchecked.model_dump() == checked.model_dump()
    assert Policy.model_validate(unchecked.model_dump()) == checked
    assert deny_all() == checked


def test_a_policy_cannot_be_changed() -> None:
    policy = Policy()
    with pytest.raises(ValidationError, match="frozen"):
        policy.strict = True
    with pytest.raises(ValidationError, match="frozen"):
        policy.resources.memory = 1


def test_sections_are_given_as_mappings_or_as_models() -> None:
    assert Policy(resources={"memory": "1G"}) == Policy(resources=Resources(memory=1024**3))
    assert Policy(filesystem={"mounts": [Mount(source="/srv", target="/data")]}).filesystem.mounts[0].mode == "ro"


@pytest.mark.parametrize("version", [0, 2, True, 1.0, "1"])
def test_only_version_one_is_understood(version: object) -> None:
    assert refusal(version=version).startswith("version: must be ")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("timeout", 0, "from 1ms to 720h"),
        ("timeout", -5, "from 1ms to 720h"),
        ("timeout", math.nan, "from 1ms to 720h"),
        ("cpu_time", "0s", "from 1ms to 720h"),
        ("memory", 0, "from 1 to 1024T"),
        ("memory", "15M", "from 16M to 1024T"),
        ("memory", "2000T", "from 1 to 1024T"),
        ("cpus", 0, "from 0.01 to 1024"),
        ("cpus", math.inf, "finite"),
        ("cpus", True, "must be a number"),
        ("processes", 0, "from 1 to 4194304"),
        ("processes", -1, "from 1 to 4194304"),
        ("processes", "64", "must be a whole number"),
        pytest.param("processes", 10**5000, "from 1 to 4194304", id="huge number"),
        ("disk", "1K", "from 4K to 1024T"),
        ("inodes", 0, "from 16 to 1000000000"),
        ("output", 0, "from 1 to 1024T"),
        ("open_files", 15, "from 16 to 1048576"),
        ("open_files", 20.0, "must be a whole number"),
        ("artifacts", 0, "from 1 to 100000"),
        ("artifacts_size", 0, "from 1 to 1024T"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_with_what_is_allowed(key: str, value: object, message: str) -> None:
    text = refusal(resources={key: value})
    assert text.startswith(f"resources.{key}: ")
    assert message in text


@pytest.mark.parametrize(
    "folder",
    ["/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp", "/etc", "/usr", "/bin", "/lib64", "/workspace"],
)
@pytest.mark.parametrize("below", ["", "/", "/x", "//x/./y"])
def test_a_target_inside_what_the_sandbox_owns_is_refused_by_name(folder: str, below: str) -> None:
    assert f"is inside {folder}, which" in refusal(filesystem=mounts(folder + below))


def test_a_target_that_covers_what_the_sandbox_owns_is_refused_by_name() -> None:
    assert "would cover /var/tmp, which is the sandbox's own" in refusal(filesystem=mounts("/var"))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("/", "root of the sandbox"),
        ("//", "root of the sandbox"),
        ("data", "absolute"),
        ("", "1 to 4096 characters"),
        ("/data/../etc", "must not contain .."),
        ("/..", "must not contain .."),
        ("/da\0ta", "control or invisible"),
        ("/da\nta", "control or invisible"),
        pytest.param("/" + "x" * 5000, "1 to 4096 characters", id="long"),
        (5, "must be text"),
    ],
)
def test_a_target_that_is_no_place_in_the_sandbox_is_refused(target: str, message: str) -> None:
    assert message in refusal(filesystem=mounts(target))


@pytest.mark.parametrize("target", ["/data", "/data/", "//data", "/data/."])
def test_a_target_has_one_spelling(target: str) -> None:
    assert Policy(filesystem=mounts(target)).filesystem.mounts[0].target == "/data"


def test_targets_must_not_meet() -> None:
    assert "two mounts have the target /a" in refusal(filesystem=mounts("/a", "/b", "/a/"))
    assert "target /a/b/c is inside target /a" in refusal(filesystem=mounts("/a/b/c", "/a-b", "/a"))
    assert len(Policy(filesystem=mounts("/a", "/a-b", "/ab", "/b/a")).filesystem.mounts) == 4


def test_sources_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert Mount(source="x/../data", target="/data").source == f"{tmp_path}/data"
    assert Mount(source="~/data", target="/data").source == "/home/ada/data"
    assert Mount.model_validate({"source": Path("data"), "target": "/data"}).source == f"{tmp_path}/data"
    assert "user who does not exist" in refusal(
        filesystem={"mounts": [{"source": "~nobody-of-that-name/x", "target": "/x"}]}
    )


def test_a_relative_source_in_a_vanished_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    text = refusal(filesystem={"mounts": [{"source": "data", "target": "/data"}]})
    os.chdir(tmp_path)
    assert "current folder no longer exists" in text


@pytest.mark.parametrize(
    ("host", "normal"),
    [
        ("API.GitHub.com.", "api.github.com"),
        ("*.Example.com", "*.example.com"),
        ("*", "*"),
        ("10.0.0.1", "10.0.0.1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("localhost", "localhost"),
        ("_srv.example.com", "_srv.example.com"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.1/32", "10.0.0.1"),
        ("2001:DB8::/32", "2001:db8::/32"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_a_host_has_one_spelling(host: str, normal: str) -> None:
    assert NetworkRule(host=host, ports=(443,)).host == normal


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("https://example.com", "bare name"),
        ("example.com:443", "bare name"),
        ("example.com/x", "bare name"),
        ("ex*mple.com", "wildcard"),
        ("*.*.com", "wildcard"),
        ("a.*.com", "wildcard"),
        ("bücher.example", "xn--"),
        ("\u212aelvin.example", "xn--"),
        ("example..com", "no host name"),
        ("-a.com", "no host name"),
        ("*.", "wildcard"),
        (".", "no host name"),
        ("127.1", "no host name"),
        ("2130706433", "no host name"),
        ("a.0x7f", "no host name"),
        ("1.2.3.256", "no host name"),
        ("fe80::1%eth0", "network interface"),
        ("[::1]", "bare name"),
        ("a\0.com", "control or invisible"),
        ("a" * 64 + ".com", "no host name"),
        ("10.0.0.1/8", "no block of addresses"),
        ("10.0.0.0/33", "no block of addresses"),
        ("10.0.0.0/255.0.0.0", "plain block"),
        ("::ffff:10.0.0.0/104", "plain block"),
    ],
)
def test_a_host_that_could_be_read_in_two_ways_is_refused(host: str, message: str) -> None:
    assert message in refusal(network=rule(host=host))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ports": []}, "network.allow[0].ports: is an empty list"),
        ({"ports": [0]}, "ports[0]: must be from 1 to 65535"),
        ({"ports": [65536]}, "ports[0]: must be from 1 to 65535"),
        ({"ports": [True]}, "ports[0]: must be a whole number"),
        ({"ports": 443}, "ports: must be a list"),
        ({"ports": [443, 443]}, "ports: lists 443 twice"),
        ({"methods": []}, "methods: is an empty list"),
        ({"methods": ["GET IT"]}, "must be an HTTP method"),
        ({"methods": ["PO\u017fT"]}, "must be an HTTP method"),
        ({"methods": ["get", "GET"]}, "lists GET twice"),
        ({"paths": ["repos"]}, "must start with /"),
        ({"paths": ["/a/../b"]}, "not contain .."),
        ({"protocol": "udp"}, "must be one of tls, http, tcp"),
        ({"protocol": "tcp", "methods": ["GET"]}, "cannot be checked with protocol tcp"),
        ({"ports": [443, 8443], "paths": ["/x"]}, "which is that of port 8443; set protocol to tls or http"),
        ({"ports": [5432], "websocket": True}, "which is that of port 5432; set protocol to tls or http"),
        ({"headers": ["X-Tenant"]}, "headers needs methods or paths"),
        ({"paths": ["/x"], "headers": []}, "headers: is an empty list"),
        ({"paths": ["/x"], "headers": ["X_Tenant"]}, "must be a header's name of letters, digits and -"),
        ({"paths": ["/x"], "headers": ["X-Tenant: 1"]}, "must be a header's name of letters, digits and -"),
        ({"max_bytes": 0}, "a size is"),
        ({"max_connections": 0}, "must be from 1"),
        ({"max_rate": 0}, "must be from 0.001"),
        ({"private": "yes"}, "must be true or false"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(fields: dict[str, object], message: str) -> None:
    assert message in refusal(network=rule(**fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"from_env": None}, "exactly one of from_env and from_file"),
        ({"from_file": "/run/token"}, "exactly one of from_env and from_file"),
        ({"name": "NOT-A-NAME"}, "letters, digits and _"),
        ({"inject": {"host": "*.github.com"}}, "without a wildcard"),
        ({"inject": {"host": "10.0.0.0/8"}}, "without a wildcard or a block"),
        ({"inject": {"host": "a.com", "header": "Host"}}, "may carry a credential"),
        ({"inject": {"host": "a.com", "header": "A\r\nB"}}, "control or invisible"),
        ({"inject": {"host": "a.com", "format": "Bearer"}}, "must hold {} once"),
        ({"inject": {"host": "a.com", "format": "{}{}"}}, "must hold {} once"),
        ({"inject": {"host": "a.com", "format": "{0}"}}, "must hold {} once"),
    ],
)
def test_a_secret_that_cannot_be_meant_is_refused(fields: dict[str, object], message: str) -> None:
    assert message in refusal(secrets=secret(**fields))


def test_two_secrets_need_two_names() -> None:
    assert "two secrets have the name TOKEN" in refusal(secrets=[*secret(), *secret()])


def test_two_secrets_need_two_places() -> None:
    other = secret(name="OTHER", inject={"host": "API.github.com", "header": "authorization"})
    assert "OTHER and TOKEN are for the same header of the same host" in refusal(secrets=[*secret(), *other])


@pytest.mark.parametrize(
    ("port", "protocol", "spoken"),
    [(443, None, "tls"), (80, None, "http"), (5432, None, "tcp"), (443, "tcp", "tcp"), (8443, "tls", "tls")],
)
def test_what_is_spoken_on_a_port_is_what_is_usual_there_unless_the_rule_says_otherwise(
    port: int, protocol: str | None, spoken: str
) -> None:
    assert (
        NetworkRule.model_validate({"host": "a.com", "ports": [port], "protocol": protocol}).protocol_on(port) == spoken
    )


def test_what_stands_below_secrets_is_never_repeated_in_an_error() -> None:
    text = refusal(secrets=[{"name": "hunter2 hunter2", "from_env": "hunter2!", "value": "hunter2"}])
    assert "secrets[0].value: unknown key" in text
    assert "hunter2" not in text


@pytest.mark.parametrize("package", ["-r x", "--index-url=x", "a @ https://x", "./wheel.whl", "https://x", "a b", ""])
def test_a_package_can_be_nothing_but_a_name_and_versions(package: str) -> None:
    assert "environment.packages[0]: must be" in refusal(environment={"packages": [package]})


@pytest.mark.parametrize(
    "package", ["pandas", "pandas==2.3.*", "a>=1,<2", "a[b,c]~=1.0", 'a>1; python_version < "3.12"', "a == 1.0+local"]
)
def test_a_package_is_written_as_for_pip(package: str) -> None:
    assert Policy(environment={"packages": [package]}).environment.packages == (package,)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"environment": {"preload": ["os; x"]}}, "environment.preload[0]"),
        ({"environment": {"index": "ftp://x"}}, "environment.index"),
        ({"filesystem": {"outputs": ["/etc/x"]}}, "filesystem.outputs[0]"),
        ({"filesystem": {"outputs": ["../x"]}}, "filesystem.outputs[0]"),
        ({"filesystem": {"outputs": ["out/"]}}, "filesystem.outputs[0]"),
        ({"filesystem": {"outputs": ["./out"]}}, "filesystem.outputs[0]"),
        ({"filesystem": {"outputs": ["a//b"]}}, "filesystem.outputs[0]"),
        ({"filesystem": {"workspace": {"size": 1}}}, "filesystem.workspace.size"),
        ({"commands": {"enforce": "hope"}}, "commands.enforce"),
        ({"approvals": [{"tool": "shell", "when": "sometimes"}]}, "approvals[0].when"),
        ({"docker": {"host": "docker.sock"}}, "docker.host"),
        ({"docker": {"runtime": "--privileged"}}, "docker.runtime"),
        ({"docker": {"tls_cert": "/x"}}, "docker"),
        ({"image": "-v /:/host"}, "image"),
        ({"name": "two\nlines"}, "name"),
        ({"name": "\ud800"}, "name"),
        ({"name": "right\u202eleft"}, "name"),
        ({"strict": 1}, "strict"),
        ({"network": None}, "network"),
        ({"network": []}, "network"),
        ({"tests": [{"expect": "deny"}]}, "tests[0]"),
        ({"tests": [{"read": "/x", "write": "/x", "expect": "deny"}]}, "tests[0]"),
        ({"tests": [{"read": "../x", "expect": "deny"}]}, "tests[0].read"),
        ({"tests": [{"connect": "example.com", "expect": "deny"}]}, "tests[0].connect"),
        ({"tests": [{"connect": "example.com:65536", "expect": "deny"}]}, "tests[0].connect"),
        ({"tests": [{"connect": "example.com:0000443", "expect": "deny"}]}, "tests[0].connect"),
        ({"tests": [{"http": "example.com", "expect": "deny"}]}, "tests[0].http"),
        ({"tests": [{"resource": "memroy=1G", "expect": "deny"}]}, "tests[0].resource"),
        ({"tests": [{"read": "/x"}]}, "tests[0].expect"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_at_its_key(fields: dict[str, object], key: str) -> None:
    assert refusal(**fields).startswith(f"{key}: ")


def test_every_mistake_is_reported_at_once() -> None:
    with pytest.raises(PolicyError) as caught:
        Policy(nam="x", backend="dockr", resources={"memroy": "1G", "timeout": 0})
    assert sorted(caught.value.problems) == [
        "backend: must be one of auto, native, docker, gvisor, microvm (got 'dockr'); did you mean docker?",
        "nam: unknown key (got 'x'); did you mean name?",
        "resources.memroy: unknown key (got '1G'); did you mean memory?",
        "resources.timeout: a duration goes from 1ms to 720h and is written like 500ms, 30s, 2m, 1h or 2.5 (got 0)",
    ]


def test_an_unknown_key_like_no_other_is_answered_with_all_of_them() -> None:
    assert refusal(filesystem={"zzz": 1}).endswith("; the keys here are mounts, workspace, outputs")
    assert refusal(filesystem={"mounts": [{"tagret": "/x", "source": "/y", "target": "/z"}]}).endswith(
        "did you mean target?"
    )


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"memory": "1G"}, "memory: unknown key (got '1G'); did you mean resources.memory?"),
        ({"mounts": []}, "mounts: unknown key; did you mean filesystem.mounts?"),
        ({"resources": {"packages": ["x"]}}, "resources.packages: unknown key; did you mean environment.packages?"),
    ],
)
def test_a_key_in_the_wrong_place_is_answered_with_the_right_one(fields: dict[str, object], advice: str) -> None:
    assert refusal(**fields) == advice


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"network": {"allow": ["example.com"]}}, "write {host: example.com, ports: [443]}"),
        ({"network": {"allow": ["db.example:5432"]}}, "write {host: db.example, ports: [5432]}"),
        ({"filesystem": {"mounts": ["./data"]}}, "write {source: ./data, target: /data}"),
        ({"filesystem": {"mounts": ["/srv:/in"]}}, "write {source: /srv, target: /in}"),
        ({"filesystem": {"mounts": ["/srv:/in:rw"]}}, "write {source: /srv, target: /in, mode: rw}"),
        ({"approvals": ["shell"]}, "write {tool: shell}"),
    ],
)
def test_a_word_in_place_of_a_mapping_is_answered_with_the_mapping(fields: dict[str, object], advice: str) -> None:
    assert refusal(**fields).endswith(f"; {advice}")


def test_an_override_changes_only_what_it_names() -> None:
    policy = Policy(name="a", resources={"memory": "1G", "cpus": 2}, filesystem=mounts("/data"))
    changed = policy.override({"resources": {"memory": "2G"}, "strict": True})
    assert changed == Policy(name="a", strict=True, resources={"memory": "2G", "cpus": 2}, filesystem=mounts("/data"))
    assert policy.resources.memory == 1024**3


def test_an_override_is_checked_like_a_file() -> None:
    with pytest.raises(PolicyError, match=r"resources\.memroy: unknown key \(got '1G'\); did you mean memory\?"):
        Policy().override({"resources": {"memroy": "1G"}})


def test_no_copy_escapes_the_checks_or_keeps_the_digest_of_another() -> None:
    policy = Policy()
    assert policy.digest != policy.model_copy(update={"strict": True}).digest
    with pytest.raises(PolicyError, match="strict"):
        policy.model_copy(update={"strict": "no"})


def test_a_policy_survives_every_way_of_being_passed_on() -> None:
    policy = Policy(network=rule(methods=["GET"]), secrets=secret(), filesystem=mounts("/data"), tests=[])
    assert Policy.model_validate_json(policy.model_dump_json()) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert copy.deepcopy(policy).digest == policy.digest
    assert hash(copy.copy(policy)) == hash(policy)


def test_the_workspace_holds_what_the_disk_may_unless_it_says_otherwise() -> None:
    assert Policy(resources={"disk": "1M"}).workspace_bytes == 1024**2
    assert Policy(filesystem={"workspace": {"size": "2M"}}).workspace_bytes == 2 * 1024**2


def test_controls_name_what_a_backend_must_be_able_to_enforce() -> None:
    policy = Policy(
        name="x",
        backend="native",
        network=rule(),
        filesystem={**mounts("/data"), "outputs": ["out/**"]},
        resources={"cpu_time": 5, "memory": "512M"},
        environment={"packages": ["pandas"]},
        secrets=secret(),
        commands={"allow": ["ls"], "deny": ["git push"]},
        approvals=[{"tool": "shell"}],
        docker={"runtime": "runsc", "image": "python:3.12"},
        image="python",
    )
    assert controls(policy) == [
        *("filesystem.mounts", "filesystem.outputs", "network.allow", "resources.cpu_time", "environment.packages"),
        *("secrets", "commands", "docker", "image"),
    ]


def test_an_empty_list_of_commands_is_a_control() -> None:
    assert controls(Policy(commands={"allow": []})) == ["commands"]


def test_a_policy_is_described_line_by_line() -> None:
    lines = describe(Policy(network=rule(methods=["GET"], paths=["/x"]), secrets=secret(), filesystem=mounts("/data")))
    for line in (
        "backend: auto",
        "strict: off",
        "filesystem.mounts: /srv/data at /data (ro)",
        "network: example.com:443 (GET, /x)",
        "timeout: 30s",
        "memory: 512M",
        "cpus: 1",
        "secrets: TOKEN from variable TOKEN, sent to api.github.com as Authorization: Bearer {}",
        "commands.allow: any",
    ):
        assert line in lines
    assert "network: none" in describe(Policy())


def test_importing_the_package_does_not_import_yaml() -> None:
    code = "import sys, fumehood.policy; fumehood.policy.Policy().digest; sys.exit('yaml' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": os.pathsep.join(sys.path)})
