"""Policies from files and texts: every mistake is named with file, line and key, and nothing else ever comes out."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fumehood.errors import PolicyError
from fumehood.policy import Policy, controls

WHOLE_FORMAT = """\
version: 1
name: analyst
backend: auto                  # the whole format in one file
strict: true
filesystem:
  mounts: [{source: ./snapshots, target: /data, mode: ro}]
  workspace: {size: 256M}
  outputs: ["out/**"]
network:
  allow:
    - {host: api.github.com, ports: [443], methods: [GET], paths: ["/repos/**"]}
    - {host: "*.internal.example", ports: [5432], protocol: tcp, private: true, max_bytes: 1G, max_connections: 5,
       max_rate: 0.5}
resources: {timeout: 30s, cpu_time: 5, memory: 512M, cpus: 0.5, processes: 64, disk: 256M, inodes: 1000, output: 1M,
            open_files: 256, artifacts: 10, artifacts_size: 1M}
environment: {packages: [pandas==2.3.*], requirements: req.txt, preload: [pandas], allow_sdists: false,
              index: "https://packages.example/simple"}
secrets:
  - {name: GITHUB_TOKEN, from_env: GITHUB_TOKEN,
     inject: {host: api.github.com, header: Authorization, format: "Bearer {}"}}
  - {name: OTHER, from_file: other.txt, inject: {host: api.github.com, header: X-Key, format: "{}"}}
commands: {allow: [ls, cat, grep, "git status", "git log"], deny: ["git push"], enforce: kernel}
approvals: [{tool: shell, when: always, risk: high, pattern: "rm *"}]
docker: {host: "tcp://engine:2376", image: "python:3.12", runtime: runsc, interpreter: "python:3.12",
         tls_ca: ca, tls_cert: cert, tls_key: key}
image: registry.example/python:3.12
tests:
  - {connect: "api.github.com:443", expect: allow}
  - {connect: "[::1]:80", expect: deny}
  - {http: "GET https://api.github.com/repos/x", expect: allow}
  - {read: /etc/shadow, expect: deny}
  - {write: /data/x, expect: deny}
  - {command: "git -C /x push", expect: deny}
  - {resource: memory=1G, expect: deny}
"""


def problems(text: str | bytes) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        Policy.loads(text, name="p.yaml")
    return caught.value.problems


def load_problem(path: str | Path) -> str:
    with pytest.raises(PolicyError) as caught:
        Policy.load(path)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{path}:")
    return problem


def test_the_whole_format_is_understood(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(WHOLE_FORMAT)
    policy = Policy.load(tmp_path / "p.yaml")
    assert policy.network.allow[0].methods == ("GET",)
    assert policy.resources.cpus == 0.5
    assert len(policy.tests) == 7
    assert len(controls(policy)) > 10


def test_relative_paths_start_from_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "p.yaml").write_text(WHOLE_FORMAT)
    monkeypatch.chdir(tmp_path)
    policy = Policy.load("sub/p.yaml")
    folder = tmp_path / "sub"
    assert policy.filesystem.mounts[0].source == str(folder / "snapshots")
    assert policy.environment.requirements == str(folder / "req.txt")
    assert policy.secrets[1].from_file == str(folder / "other.txt")
    assert policy.docker.tls_ca == str(folder / "ca")


def test_relative_paths_of_a_text_start_from_its_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "filesystem: {mounts: [{source: ../x, target: /x}]}"
    monkeypatch.chdir(tmp_path)
    assert Policy.loads(text, base="/srv/policies").filesystem.mounts[0].source == "/srv/x"
    assert Policy.loads(text).filesystem.mounts[0].source == str(tmp_path.parent / "x")


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "{}", b"", b"\xef\xbb\xbf", "--- {}\n...\n"])
def test_an_empty_file_denies_all(text: str | bytes) -> None:
    assert Policy.loads(text) == Policy()


def test_mistakes_name_file_line_key_value_and_the_nearest_key() -> None:
    text = "version: 1\nresources:\n  timeout: 30s\n  memroy: 1G\n  disk: 0\nfilesystem:\n  mounts:\n    - source: x\n"
    unknown, size, missing = problems(text)
    assert unknown == "p.yaml:4: resources.memroy: unknown key (got '1G'); did you mean memory?"
    assert size.startswith("p.yaml:5: resources.disk: a size is a whole number of bytes from 1 to 1024T, written like ")
    assert size.endswith("(got 0)")
    assert missing == "p.yaml:8: filesystem.mounts[0].target: is required"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b\n", "p.yaml:1: the file holds a list"),
        ("hello", "p.yaml:1: the file holds the single value 'hello'"),
        ("42", "p.yaml:1: the file holds the single value '42'"),
        ("~", "p.yaml:1: the file holds the single value '~'"),
        ("name: x\n\tstrict: true\n", "p.yaml:2: contains a tab"),
        ("name: a\nstrict: true\nname: b\n", "p.yaml:3: name: is given twice; the first is on line 1"),
        ("resources: {memory: 1G,\n memory: 2G}", "p.yaml:2: resources.memory: is given twice"),
        ("name: &a x\nimage: *a\n", "p.yaml:2: image: is an alias"),
        ("version: 1\n---\nversion: 1\n", "p.yaml:2: a second document"),
        ("1: x\n", "p.yaml:1: 1: this key is not text"),
        ("true: x\n", "p.yaml:1: true: this key is not text"),
        ("resources:\n  [a]: x\n", "p.yaml:2: resources: a key must be text"),
        ("name: x\nnetwork:\n  allow:\n", "p.yaml:3: network.allow: has no value"),
        ("network: ~\n", "p.yaml:1: network: has no value"),
        ("name: !!python/object/apply:os.system [x]\n", "p.yaml:1: name: has the tag"),
        ("!!map {name: x}\n", "p.yaml:1: has the tag"),
        ("name: [a\n", "p.yaml:2: is not valid YAML"),
        ('name: "\\UFFFFFFFF"\n', "p.yaml:1: contains an escape"),
        ("name: x\nimage: a\0b\n", "p.yaml:2: contains a control character"),
        (b"name: x\nimage: \xff\n", "p.yaml:2: is not UTF-8"),
        pytest.param("a: " + "[" * 100_000, "p.yaml:1: a[0][0]: nested deeper", id="deep"),
        ("strict: yes\n", "p.yaml:1: strict: must be true or false (got 'yes')"),
        ("name: 12:30:45\nstrict: 2020-01-01\n", "p.yaml:2: strict: must be true or false (got '2020-01-01')"),
        ("name: 5\n", "p.yaml:1: name: must be text; put quotes around it (got 5)"),
        pytest.param("name: x\n" + "#" * 1024 * 1024, "p.yaml:1: is larger than 1 MiB", id="large"),
        pytest.param(
            "resources: {processes: " + "9" * 5000 + "}",
            "p.yaml:1: resources.processes: must be a whole number",
            id="huge number",
        ),
        ("resources: {cpus: .nan}", "p.yaml:1: resources.cpus: must be a finite number"),
        ("filesystem:\n  mounts:\n  - {source: x, target: /etc/x}", "p.yaml:3: filesystem.mounts[0].target: is inside"),
        pytest.param("? " + "k" * 5000 + "\n: 1\n", "p.yaml:1: kkkkk", id="long key"),
        ('"a\\nb": 1\n', "p.yaml:1: 'a\\nb': unknown key"),
    ],
)
def test_a_text_that_is_no_policy_gives_one_clear_line(text: str | bytes, expected: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(expected)
    assert len(problem) < 400
    assert problem.isprintable()


def test_what_yaml_lets_pass_and_what_the_model_refuses_are_reported_together_in_order() -> None:
    lines = problems("bakend: native\nname: a\nname: b\nimage:\nstrict: 1\n")
    assert [line.split(": ")[1] for line in lines] == ["bakend", "name", "image", "strict"]
    assert [line.split(":")[1] for line in lines] == ["1", "3", "4", "5"]


def test_aliases_cannot_multiply() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10))
    assert any("l9" in line for line in problems(f"l0: &l0 [x]\n{levels}\n"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "there is no such file" in load_problem(tmp_path / "none.yaml")


def test_a_folder_is_no_policy(tmp_path: Path) -> None:
    assert "it is a folder" in load_problem(tmp_path)


def test_a_loop_of_links_is_no_policy(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "loop of symbolic links" in load_problem(tmp_path / "a")


def test_a_pipe_is_no_policy_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in load_problem(tmp_path / "pipe")


def test_an_endless_file_is_read_no_further_than_a_policy_can_be_long(tmp_path: Path) -> None:
    with (tmp_path / "p.yaml").open("wb") as file:
        file.truncate(10**12)
    assert "larger than 1 MiB" in load_problem(tmp_path / "p.yaml")


def test_a_path_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(PolicyError, match="cannot be read"):
        Policy.load("a\0b")
    with pytest.raises(PolicyError, match="cannot be read"):
        Policy.load("x" * 10_000)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(b"\x80\x81")
    assert "is not UTF-8" in load_problem(tmp_path / "p.yaml")


KEYS = st.sampled_from(sorted(set(re.findall(r"(\w+):", WHOLE_FORMAT))))
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    st.sampled_from(["256M", "30s", "/data", "*", "ro", "native", "allow", "api.github.com", "a:1", "GET"]),
)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


def expect_policy_or_refusal(text: str | bytes) -> None:
    lines: list[str] = []
    try:
        assert Policy.loads(text).digest.startswith("sha256:")
    except PolicyError as error:
        lines = error.problems or [""]
    assert all(line.startswith("<policy>:") and line.isprintable() for line in lines)


@given(st.text())
def test_any_text_is_a_policy_or_refused(text: str) -> None:
    expect_policy_or_refusal(text)


@given(st.binary())
def test_any_bytes_are_a_policy_or_refused(data: bytes) -> None:
    expect_policy_or_refusal(data)


@given(st.text(alphabet="abc:-?[]{}&*!|>'\"%@`#,~\\ \n\t\r.0123xU\u0085\ufeff", max_size=60))
def test_any_punctuation_is_a_policy_or_refused(text: str) -> None:
    expect_policy_or_refusal(text)


@given(st.dictionaries(KEYS, TREES, max_size=5), st.booleans())
def test_any_tree_of_known_keys_is_a_policy_or_refused(tree: dict[str, object], flow: bool) -> None:
    expect_policy_or_refusal(yaml.safe_dump(tree, default_flow_style=flow))


@given(st.dictionaries(KEYS, TREES, max_size=5))
def test_any_fields_make_a_policy_or_are_refused(fields: dict[str, object]) -> None:
    with contextlib.suppress(PolicyError):
        assert Policy(**fields).digest


@given(st.data())
def test_a_damaged_policy_is_a_policy_or_refused(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(WHOLE_FORMAT)))
    end = data.draw(st.integers(start, min(start + 20, len(WHOLE_FORMAT))))
    expect_policy_or_refusal(WHOLE_FORMAT[:start] + data.draw(st.text(max_size=5)) + WHOLE_FORMAT[end:])


@pytest.mark.parametrize("text", ['[resources]\nmemory = "1G"\n', 'memory = "1G"\n', "[[network.allow]]\nhost = 1\n"])
def test_toml_is_recognised(text: str) -> None:
    with pytest.raises(PolicyError, match=r"looks like TOML; a policy is YAML, such as `resources: "):
        Policy.loads(text)


def test_a_file_is_parsed_again_when_its_text_changes(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("resources: {memory: 64M}\n")
    before = Policy.load(file)
    assert Policy.load(file) is before
    details = file.stat()
    file.write_text("resources: {memory: 65M}\n")
    os.utime(file, ns=(details.st_atime_ns, details.st_mtime_ns))
    assert Policy.load(file).resources.memory == 65 * 1024**2
    file.write_text("resources: {memory: 64N}\n")
    for _ in range(2):
        with pytest.raises(PolicyError):
            Policy.load(file)
    file.unlink()
    with pytest.raises(PolicyError, match="no such file"):
        Policy.load(file)


def test_the_same_text_in_another_folder_means_other_paths(tmp_path: Path) -> None:
    sources: list[str] = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.yaml").write_text("filesystem: {mounts: [{source: data, target: /data}]}\n")
        sources.append(Policy.load(tmp_path / name / "policy.yaml").filesystem.mounts[0].source)
    assert sources == [str(tmp_path / "one" / "data"), str(tmp_path / "two" / "data")]


@pytest.mark.parametrize("home", ["~", r"\x7e"])
def test_a_home_is_looked_up_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f'filesystem: {{mounts: [{{source: "{home}/data", target: /data}}]}}\n')
    for name in ("/home/one", "/home/two"):
        monkeypatch.setenv("HOME", name)
        assert Policy.load(file).filesystem.mounts[0].source == f"{name}/data"
