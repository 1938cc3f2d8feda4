"""`box.install` and `pip` inside: where the policy opens the index, for the sandbox's own programs and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live.package_index import PackageIndex, make_wheel, open_index

from fumehood import DeniedError, Policy, Sandbox, UsageError
from fumehood.environments import EnvironmentSpec
from fumehood.environments.installer import find_uv
from fumehood.environments.sources import Site, find_sources
from fumehood.policy import Environment

GREETER = make_wheel("greeter", {"greeter.py": "def main():\n    print('hello')\n"})
LATER = make_wheel("later", {"later.py": "WORD = 'there'\n"}, requires="greeter")
# Modules of the guest, one that no process of ours has imported, and those that Python imports by itself.
SHADOWS = ("hashlib", "json", "socket", "guest", "errno", "colorsys", "sitecustomize", "usercustomize")
EVIL = make_wheel(
    "evil",
    {
        **{f"{name}.py": "open('/workspace/ran', 'a').write(__name__ + ' ')\n" for name in SHADOWS},
        "evil.pth": "import os; open('/workspace/ran', 'a').write('pth ')\n",
        "evil.py": "",
    },
)
TRY_THEN_INSTALL = """
import subprocess, sys
try:
    import greeter
except ImportError:
    subprocess.run(["pip", "install", "-q", "--user", "greeter"], check=True)
    import greeter
greeter.main()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_HOME", str(tmp_path / "hood"))


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    with open_index(GREETER, LATER, EVIL, ("source-1.0.tar.gz", b"never read")) as index:
        yield index


@pytest.fixture
def box(index: PackageIndex, make_policy: Callable[..., Policy]) -> Iterator[Sandbox]:
    rule = {"host": "127.0.0.1", "ports": [index.server_address[1]], "protocol": "http", "private": True}
    policy = make_policy(
        network={"allow": [rule]}, environment={"index": index.url}, filesystem={"outputs": ["*.txt", "ran"]}
    )
    with Sandbox(policy) as box:
        yield box


def test_what_is_installed_is_there_for_the_session_under_way_and_for_later_runs(box: Sandbox) -> None:
    lines: list[str] = []
    with box.session() as session:
        assert "No module named 'later'" in session.run("import later").stderr
        assert box.install("later", "greeter==1.*", progress=lines.append).installed == ("greeter==1.0", "later==1.0")
        assert session.run("import later; print(later.WORD)").stdout == "there\n"
    assert "+ later==1.0" in lines
    assert box.run("import later, greeter; print(later.WORD)").stdout == "there\n"
    assert box.run("python3 -c 'import later'; greeter-tool", language="sh").stdout == "hello\n"
    assert box.install("later").installed == ()


@pytest.mark.one_container
def test_a_program_installs_what_it_lacks_and_imports_it(box: Sandbox) -> None:
    assert box.run(TRY_THEN_INSTALL).stdout == "hello\n"
    assert box.run("uv pip install later && uv pip list", language="sh").stdout.split()[-2:] == ["later", "1.0"]
    missing = box.run("import no_such").detail
    assert missing.endswith("packages=['bs'], or box.install('bs'), or `pip install bs` in it".replace("bs", "no_such"))


@pytest.mark.one_container
def test_the_installers_threads_reserve_no_arenas_of_their_own(box: Sandbox) -> None:
    """An ordinary user's memory is limited by addresses, 64 MiB of which each took: uv panicked now and then."""
    assert box.run("uv run --no-project printenv MALLOC_ARENA_MAX", language="sh").stdout == "1\n"


@pytest.mark.one_container
def test_a_package_that_cannot_be_installed_is_an_error_with_the_installers_reason(box: Sandbox) -> None:
    with pytest.raises(UsageError, match="nothing-here was not found in the package registry"):
        box.install("nothing-here")
    with pytest.raises(DeniedError, match=r"no usable wheels.*allow_sdists=True"):
        box.install("source")
    with pytest.raises(UsageError, match="must be a package"):
        box.install("--index-url=http://evil.example")


@pytest.mark.one_container
def test_without_a_rule_the_refusal_says_which_one_to_add(make_policy: Callable[..., Policy]) -> None:
    index = {"index": "https://packages.example/simple"}
    rule = r"\{host: packages.example, ports: \[443\]\} to network.allow"
    with Sandbox(make_policy(environment=index)) as box:
        with pytest.raises(DeniedError, match=rule):
            box.install("greeter")
        assert box.files.list() == []
        for command in ("pip install greeter", "uv pip install greeter"):
            refused = box.run(command, language="sh")
            assert refused.exit_code == 1
            assert "--allow packages.example:443" in refused.stderr
            assert "{host: packages.example, ports: [443]} in network.allow of its policy" in refused.stderr
    other = {"allow": [{"host": "other.example", "ports": [443]}, {"host": "*.packages.example", "ports": [443]}]}
    with Sandbox(make_policy(environment=index, network=other)) as box:
        with pytest.raises(DeniedError, match=rule):
            box.install("greeter")
        refused = box.run("pip install greeter", language="sh")
        assert "has no rule for packages.example:443" in refused.stderr
        assert "{host: packages.example, ports: [443]} in network.allow of its policy" in refused.stderr
        assert [denial.host for denial in refused.denials] == ["packages.example"]


@pytest.mark.one_container
def test_an_index_that_a_rule_opens_is_not_called_refused(box: Sandbox) -> None:
    missing = box.run("pip install nothing-here", language="sh")
    assert missing.exit_code == 1
    assert "no rule" not in missing.stderr
    assert "network.allow" not in missing.stderr


@pytest.mark.one_container
def test_without_an_index_of_the_policys_the_refusal_names_the_one_that_uv_would_use(
    make_policy: Callable[..., Policy],
) -> None:
    (source,) = find_sources(find_uv(), EnvironmentSpec.of(Environment()), {})
    assert isinstance(source.place, Site)
    with Sandbox(make_policy()) as box:
        refused = box.run("pip install greeter", language="sh").stderr
        named = box.run("pip install -i http://me:word@other.example:8080/simple greeter", language="sh").stderr
    assert f"{{host: {source.place.host}, ports: [{source.place.port}]}} in network.allow" in refused
    assert "{host: other.example, ports: [8080], protocol: http} in network.allow" in named
    assert "word" not in named


@pytest.mark.one_container
def test_a_wheel_that_is_there_is_installed_without_a_network(make_policy: Callable[..., Policy]) -> None:
    name, wheel = GREETER
    with Sandbox(make_policy()) as box:
        box.files.write(name, wheel)
        box.run(argv=["pip", "install", f"./{name}"]).check()
        assert box.run("import greeter; greeter.main()").stdout == "hello\n"


def test_a_hostile_package_runs_in_programs_of_the_sandbox_and_in_no_process_of_ours(box: Sandbox) -> None:
    box.install("evil")
    with box.session() as session:
        session.run("import json, hashlib, socket, colorsys; from email import message").check()
        box.files.write("mine.txt", "1")
        assert box.files.read("mine.txt") == b"1"
    box.run("import json, hashlib, errno, colorsys").check()
    assert "ran" not in {entry.name for entry in box.files.list()}
    # As with any Python, it is the program's own choice to start one that looks there.
    box.run(argv=["python3", "-c", "pass"]).check()
    assert re.fullmatch(r"pth (site|user)customize( usercustomize)? ", box.files.read("ran").decode())
