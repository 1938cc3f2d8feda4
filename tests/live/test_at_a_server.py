"""Commands, examples, MCP and adapters at a real `hood serve`, by the environment or a login, unchanged."""

from __future__ import annotations

import os
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from live.cli_host import open_terminal
from live.loaded_hood import handover, run_hood, run_python
from unit.server.test_serve import served, until

from fumehood import Policy, Sandbox
from fumehood.audit import AuditLog, Query

ROOT = Path(__file__).resolve().parents[2]


class Place(NamedTuple):
    state: Path
    variables: dict[str, str]

    def runs(self) -> int:
        """That the tenant has on record."""
        folder = self.state / "tenants" / "acme" / "audit"
        if not folder.exists():
            return 0  # the server makes it, for itself alone
        log = AuditLog.at(folder)
        return len(list(log.find(Query(kind="run.finished"))))

    def hood(self, *words: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return run_hood(*words, given=given, env={**os.environ, **self.variables, **variables})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    state = tmp_path_factory.mktemp("at") / "state"
    settings = state.parent / "server.yaml"
    settings.write_text("strict: false\n")
    with served(state, "--init", "acme", "--config", str(settings)) as (server, output):
        lines = until(output, "listening at")
        yield Place(state, dict(each.removeprefix("export ").split("=", 1) for each in lines if "export " in each))
        server.send_signal(signal.SIGTERM)


EXAMPLES = {
    "agent/solve.py": ("Read-only file system", "On record: 4 tasks"),  # its policy mounts files of the client
    "agent/fibonacci_team.py": ("APPROVED",),
    "agent/shell.py": ("water the plants",),
    "agent/analyst.py": ("out/units.png: image/png",),
    "agent/messages.py": ("338350",),
    "analyst/analyse.py": ("out/revenue.png: image/png", "Read-only file system"),
    "autogen/agent.py": (),
    "inspect_ai/evaluate.py": (),
}
WITH_FOLDER = ("agent/analyst.py", "analyst/analyse.py")


@pytest.mark.timeout(300)  # two of them install packages
@pytest.mark.some_parameters
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_agents_and_teams(place: Place, name: str, tmp_path: Path) -> None:
    before = place.runs()
    folder = [tmp_path] if name in WITH_FOLDER else []
    done = run_python(ROOT / "examples" / name, *folder, env={**os.environ, **place.variables}, timeout=280)
    assert done.returncode == 0, done.stderr
    assert [words for words in EXAMPLES[name] if words not in done.stdout] == []
    assert place.runs() > before


def test_a_login_takes_commands_to_the_server_and_a_logout_takes_them_back(place: Place, tmp_path: Path) -> None:
    file = {"FUMEHOOD_LOGIN": str(tmp_path / "login.json")}
    url, key = place.variables["FUMEHOOD_SERVER"], place.variables["FUMEHOOD_KEY"]
    here = Place(place.state, file)
    wrong = here.hood("login", url, given="fh_aaaaaaaa_wrong\n")
    assert (wrong.returncode != 0, (tmp_path / "login.json").exists()) == (True, False)
    assert "of acme" in here.hood("login", url, given=f"{key}\n").stdout
    assert oct((tmp_path / "login.json").stat().st_mode & 0o777) == "0o600"
    before = place.runs()
    assert here.hood("run", "-c", "print(6 * 7)").stdout == "42\n"
    assert place.runs() == before + 1
    assert url in here.hood("whoami").stdout
    assert here.hood("run", "-c", "print(1)", FUMEHOOD_SERVER="").stdout == "1\n"
    assert here.hood("logout").returncode == 0
    assert "this machine" in here.hood("whoami").stdout
    assert place.runs() == before + 1


def test_named_sandboxes_have_every_verb(place: Place, tmp_path: Path) -> None:
    hood, tar = place.hood, tmp_path / "work.tar"
    (tmp_path / "p.yaml").write_text("version: 1\nfilesystem: {outputs: ['out/**']}\n")
    assert hood("sandbox", "create", "work", "--policy", str(tmp_path / "p.yaml")).returncode == 0
    made = hood("sandbox", "exec", "work", "--", "sh", "-c", "mkdir out; echo 1 > out/a; echo 2 > b")
    assert made.returncode == 0, made.stderr
    assert hood("sandbox", "exec", "work", "-c", "print(open('b').read())").stdout == "2\n\n"
    (tmp_path / "c").write_text("3")
    assert hood("sandbox", "cp", str(tmp_path / "c"), "work:out/").returncode == 0
    assert hood("sandbox", "cp", "work:out/c", str(tmp_path / "d")).returncode == 0
    assert (tmp_path / "d").read_text() == "3"
    assert hood("sandbox", "fork", "work", "copy").returncode == 0
    assert len(hood("sandbox", "snapshot", "work", "base").stdout.strip()) == 64
    assert hood("sandbox", "export", "work", str(tar)).returncode == 0
    with tarfile.open(tar) as archive:
        assert "b" not in archive.getnames()
    assert hood("sandbox", "import", str(tar), "back").returncode == 0
    assert hood("sandbox", "create", "begun", "--from", "base").returncode == 0
    listed = hood("sandbox", "list").stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["back", "begun", "copy", "work"]
    assert "base" in hood("sandbox", "show", "work").stdout
    assert hood("sandbox", "rm", "work", "copy", "back", "begun").returncode == 0
    assert hood("sandbox", "rm", "--snapshot", "base").returncode == 0
    gone = hood("sandbox", "exec", "work", "--", "true")
    assert (gone.returncode != 0, "no such named sandbox" in gone.stderr) == (True, True)


def test_a_shell_has_its_terminal_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in place.variables.items():
        monkeypatch.setenv(name, value)
    with open_terminal("shell", "--env", "PS1=$ ", "--", "bash", "--norc", "-i") as terminal:
        terminal.wait_for(b"$ ")
        terminal.type(b"tty > /dev/null && echo $((6 * 7))\n")
        terminal.wait_for(b"42\r\n")
        terminal.type(b"exit 9\n")
        assert terminal.wait_for_end() == 9


@pytest.mark.anyio
async def test_mcp_and_adapters_open_their_sandboxes_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp import Client, StdioServerParameters

    from fumehood.integrations.langchain import SandboxBackend

    for name, value in place.variables.items():
        monkeypatch.setenv(name, value)
    before = place.runs()
    command, *words = handover("mcp")
    environment = {**os.environ, **place.variables}
    async with Client(StdioServerParameters(command=command, args=[*words, "mcp"], env=environment)) as client:
        answer = await client.call_tool("python", {"code": "print(6 * 7)"})
        assert "42" in str(answer.content)
    with SandboxBackend() as backend:
        assert backend.execute("echo 42").output.strip() == "42"
    with Sandbox(Policy()) as box:
        assert box.enforcement["place"].startswith(place.variables["FUMEHOOD_SERVER"])
    assert place.runs() >= before + 2
