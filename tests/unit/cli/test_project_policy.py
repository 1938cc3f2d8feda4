"""Where `hood.yaml` is looked for, and when it counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ordinary import ORDINARY
from requirements import require

from fumehood.cli import overrides, policy_choice, project_policy, trust
from fumehood.cli.commands import BY_NAME
from fumehood.cli.entry import run_command
from fumehood.errors import PolicyError, UsageError
from fumehood.policy import Policy

OPEN = b"network: {allow: [{host: www.example.com, ports: [443]}]}\n"
WIDE = b'network: {allow: [{host: "*", ports: [443]}]}\n'


@pytest.fixture(autouse=True)
def own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_TRUST", str(tmp_path_factory.mktemp("state") / "trust"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(folder: Path, content: bytes = OPEN, *, trusted: bool = True) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / policy_choice.NAME
    path.write_bytes(content)
    if trusted:
        trust.remember(str(path), content)
    return str(path)


def arguments(command: str, *words: str) -> overrides.Arguments:
    parser = BY_NAME[command].load().build_parser()
    return parser.parse_args(words, namespace=overrides.Arguments())


def refusal(path: str) -> str:
    with pytest.raises(UsageError) as caught:
        project_policy.load(path)
    return str(caught.value)


# The search


def test_the_nearest_file_is_found_from_below(project: Path) -> None:
    (project / "a/b").mkdir(parents=True)
    assert policy_choice.find(str(project / "a/b")) is None
    upper = write(project)
    assert policy_choice.find(str(project / "a/b")) == upper
    nearer = write(project / "a")
    assert policy_choice.find(str(project / "a/b")) == nearer


def test_the_search_ends_at_the_home_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project)
    home = project / "home"
    (home / "work").mkdir(parents=True)
    assert policy_choice.find(str(home / "work")) is not None
    monkeypatch.setenv("HOME", str(home))
    assert policy_choice.find(str(home / "work")) is None
    assert write(home) == policy_choice.find(str(home / "work"))


def test_the_search_ends_at_a_folder_that_all_users_share(project: Path) -> None:
    """/tmp is such a folder: any user could put a policy there for everything below it."""
    write(project)
    shared = project / "tmp"
    (shared / "mine").mkdir(parents=True)
    assert policy_choice.find(str(shared / "mine")) is not None
    shared.chmod(0o1777)
    write(shared, trusted=False)
    assert policy_choice.find(str(shared / "mine")) is None
    assert policy_choice.find(str(shared)) is None


def test_the_search_ends_at_the_border_of_a_file_system() -> None:
    assert list(policy_choice._folders("/proc/sys")) == ["/proc/sys", "/proc"]


def test_a_folder_that_is_gone_has_no_policy(project: Path) -> None:
    write(project)
    assert policy_choice.find(str(project / "removed")) is None


# What counts


def test_a_trusted_file_counts(project: Path) -> None:
    assert project_policy.load(write(project)) == Policy.loads(OPEN)


def test_a_file_that_was_never_trusted_is_refused_with_what_it_opens(project: Path) -> None:
    told = refusal(write(project, trusted=False))
    assert told.splitlines() == [
        f"{project}/hood.yaml is not trusted: you did not write it with `hood init`. It",
        "  opens www.example.com:443",
        "read it, then `hood policy trust`;",
        "--policy hood.yaml uses it once, --no-config does without",
    ]


def test_a_changed_file_is_refused_with_the_difference(project: Path) -> None:
    path = write(project)
    Path(path).write_bytes(WIDE)
    assert refusal(path).splitlines()[:3] == [
        f"{path} has changed since you trusted it. It now",
        "  closes www.example.com:443",
        "  opens *:443",
    ]
    Path(path).write_bytes(OPEN + b"# a remark\n")
    assert "changes nothing that is enforced" in refusal(path)
    Path(path).write_bytes(OPEN)
    assert project_policy.load(path) == Policy.loads(OPEN)


def test_trust_is_for_one_place(project: Path) -> None:
    write(project)
    assert "is not trusted" in refusal(write(project / "copy", trusted=False))


def test_a_long_list_of_changes_is_cut(project: Path) -> None:
    rules = ", ".join(f"{{host: h{number}.example.com, ports: [443]}}" for number in range(40))
    told = refusal(write(project, f"network: {{allow: [{rules}]}}\n".encode(), trusted=False))
    assert len(told.splitlines()) == 16
    assert "... and 28 more; `hood policy show hood.yaml`" in told


def test_a_trusted_file_with_a_mistake_is_told_by_line(project: Path) -> None:
    with pytest.raises(PolicyError, match=r"hood.yaml:1: netwrok: "):
        project_policy.load(write(project, b"netwrok: {}\n"))


@pytest.mark.parametrize("name", ["hood.yaml", ""])
def test_what_every_user_can_change_is_refused(name: str, project: Path) -> None:
    path = write(project)
    (project / name).chmod(0o666 if name else 0o777)
    assert refusal(path).startswith(f"every user can write to {(project / name)}")


@pytest.mark.parametrize("name", ["hood.yaml", ""])
def test_what_belongs_to_another_user_is_refused(name: str, project: Path) -> None:
    require(os.geteuid() == 0, "only root can give a file away")
    path = write(project)
    os.chown(project / name, ORDINARY, ORDINARY)
    assert f"belongs to another user (uid {ORDINARY})" in refusal(path)


def test_a_wider_policy_further_up_does_not_take_the_place_of_one_that_is_gone(project: Path) -> None:
    """What a program with the right to write to its project could do."""
    write(project, WIDE)
    inner = write(project / "inner")
    (project / "inner/hood.yaml").unlink()
    with pytest.raises(UsageError, match=f"{inner}, which you trusted, is gone"):
        policy_choice.find(str(project / "inner"))
    assert run_command(["policy", "distrust", inner]) == 0
    assert policy_choice.find(str(project / "inner")) == str(project / "hood.yaml")


def test_a_path_of_the_project_that_leads_out_of_it_is_refused(project: Path, tmp_path: Path) -> None:
    """A repository can hold links, and `source: data` looks harmless."""
    (tmp_path / "keys").mkdir()
    path = write(project, b"filesystem: {mounts: [{source: data/x, target: /data}]}\n")
    (project / "data").symlink_to("..")
    (project / "x").mkdir()
    assert f"names {project}/data/x, a link that leads out of the project to {tmp_path}/x" in refusal(path)
    (project / "data").unlink()
    (project / "data").symlink_to(".")
    assert project_policy.load(path).filesystem.mounts[0].source == f"{project}/data/x"


def test_odd_things_in_the_place_of_the_file_are_refused(project: Path) -> None:
    (project / "hood.yaml").mkdir()
    with pytest.raises(PolicyError, match="it is a folder"):
        project_policy.load(str(project / "hood.yaml"))
    (project / "hood.yaml").rmdir()
    (project / "hood.yaml").symlink_to("nowhere")
    assert policy_choice.find(str(project)) == str(project / "hood.yaml")
    with pytest.raises(PolicyError, match="there is no such file"):
        project_policy.load(str(project / "hood.yaml"))


# What commands make of it


def test_it_counts_where_no_policy_is_named(project: Path) -> None:
    path = write(project)
    assert overrides.load_policy(arguments("run")) == Policy.loads(OPEN)
    assert overrides.load_policy(arguments("run", "--no-config")) == Policy()
    assert overrides.load_policy(arguments("run", "--policy", "build")) == Policy.named("build")
    chosen = arguments("run", "--memory", "1G")
    assert overrides.load_policy(chosen) == Policy.loads(OPEN).override({"resources": {"memory": "1G"}})
    assert (chosen.policy, chosen.found) == (path, path)


def test_a_shell_stays_open_unless_the_policy_has_a_timeout_of_its_own(project: Path) -> None:
    default = Policy(resources={"timeout": "12h", "output": "1G"})
    write(project, b"resources: {timeout: 30s, memory: 1G}\n")
    resources = overrides.load_policy(arguments("shell"), default).resources
    assert (resources.timeout, resources.output, resources.memory) == (12 * 3600, 1024**3, 1024**3)
    assert overrides.load_policy(arguments("shell", "--timeout", "30s"), default).resources.timeout == 30
    write(project, b"resources: {timeout: 5m}\n")
    assert overrides.load_policy(arguments("shell"), default).resources.timeout == 300


# The store


def test_a_store_that_others_can_write_to_is_not_used(project: Path) -> None:
    path = write(project)
    Path(os.environ["FUMEHOOD_TRUST"]).chmod(0o777)
    assert "the folder of trusted policies, is open to others" in refusal(path)


def test_a_copy_of_another_path_is_not_this_ones(project: Path) -> None:
    mine, other = write(project), write(project / "other")
    os.replace(trust._copy_of(other), trust._copy_of(mine))
    assert "is not trusted" in refusal(mine)


def test_the_store_is_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(trust.find_folder({"XDG_STATE_HOME": "/s"})) == "/s/fumehood/trust"
    with pytest.raises(UsageError, match="FUMEHOOD_TRUST 'x' must be an absolute path"):
        trust.find_folder({"FUMEHOOD_TRUST": "x"})


# The verbs


def test_trust_tells_what_it_opens_and_dangers(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(project, WIDE, trusted=False)
    (project / "below").mkdir()
    os.chdir(project / "below")
    assert run_command(["policy", "trust"]) == 0
    told = capfd.readouterr().out.splitlines()
    assert told[:2] == [f"{path} is trusted as it is now. It", "  opens *:443"]
    assert told[2].startswith("danger: network.allow[0]: * opens every host")
    assert project_policy.load(path) == Policy.loads(WIDE)
    assert run_command(["policy", "trust", str(project)]) == 0
    assert capfd.readouterr().out.startswith(f"{path} is trusted as it is now; it opens nothing new\ndanger: ")


def test_trust_is_not_given_to_what_would_be_refused_anyway(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "trust"]) == 2
    assert "there is no hood.yaml here or above; `hood init` writes one" in capfd.readouterr().err
    path = write(project, b"filesystem: {mounts: [{source: data, target: /data}]}\n", trusted=False)
    (project / "data").symlink_to("/etc")
    assert run_command(["policy", "trust", path]) == 2
    assert "leads out of the project to /etc" in capfd.readouterr().err
    (project / "other.yaml").touch()
    assert run_command(["policy", "trust", "other.yaml"]) == 2
    assert "'other.yaml' is not called hood.yaml" in capfd.readouterr().err
    assert trust.trusted_content(path) is None


def test_the_packages_of_a_requirements_file_are_trusted_with_the_policy(project: Path) -> None:
    """Their names go to an index: a program that may write to the project could send whatever it likes there."""
    path = write(project, b"environment: {requirements: wanted.txt}\n", trusted=False)
    assert run_command(["policy", "trust"]) == 2  # it is not there
    (project / "wanted.txt").write_text("greeter==1.0\n")
    assert trust.trusted_content(path) is None
    assert run_command(["policy", "trust"]) == 0
    (project / "wanted.txt").write_text("# for greetings\ngreeter==1.0\n")
    assert project_policy.load(path).environment.requirements == f"{project}/wanted.txt"
    (project / "wanted.txt").write_text("greeter==1.0\nthe-secret-is-42\n")
    assert f"{project}/wanted.txt lists other packages than when you trusted {path}" in refusal(path)
    assert run_command(["policy", "trust"]) == 0
    project_policy.load(path)


def test_distrust_takes_it_back(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(project)
    assert run_command(["policy", "distrust"]) == 0
    assert "is trusted no more" in capfd.readouterr().out
    assert "is not trusted" in refusal(path)
    assert run_command(["policy", "distrust"]) == 1
