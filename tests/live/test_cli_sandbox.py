"""`hood sandbox`: files that stay between commands, and a state that is old or new, whenever the process is killed."""

from __future__ import annotations

import json
import random
import select
import subprocess
import tarfile
from pathlib import Path

import pytest
import sampling
from live.cli_host import HOOD, hood, open_terminal

from fumehood.audit import AuditLog, Query
from fumehood.snapshots import SnapshotStore
from fumehood.snapshots.garbage import collect

pytestmark = pytest.mark.timeout(600)
COPIED = ("file.in", "file.out", "request.denied")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUMEHOOD_SANDBOXES", str(tmp_path / "sandboxes"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ok(*arguments: str) -> str:
    done = hood("sandbox", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_files_stay_and_codes_and_streams_are_those_of_the_command() -> None:
    ok("create", "work")
    done = hood("sandbox", "exec", "work", "--", "sh", "-c", "cat > f; echo out; echo err >&2; exit 7", stdin=b"in\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert ok("exec", "work", "cat", "f") == "in\n"
    assert ok("exec", "work", "-c", "import sys; print(open('f').read(), sys.argv[1:])", "--", "x") == "in\n ['x']\n"
    assert hood("sandbox", "exec", "work", "-e", "A=1", "ls").returncode == 2
    assert [each["name"] for each in json.loads(ok("list", "--json"))] == ["work"]


def test_copies_snapshots_and_archives_have_the_files(place: Path) -> None:
    ok("create", "one")
    ok("exec", "one", "sh", "-c", "mkdir d; echo 1 > d/f; ln -s /etc/passwd out")
    identifier = ok("snapshot", "one", "first").strip()
    ok("fork", "one", "two", "three")
    ok("exec", "two", "sh", "-c", "echo 2 > d/f")
    ok("create", "four", "--from", identifier[:10])
    assert [ok("exec", name, "cat", "d/f") for name in ("one", "two", "three", "four")] == ["1\n", "2\n", "1\n", "1\n"]
    assert b"--all" in hood("sandbox", "export", "one", "one.tar").stderr
    assert b"'out' is a link that leads out" in hood("sandbox", "export", "--all", "one", "one.tar").stderr
    with tarfile.open("one.tar") as archive:
        assert archive.getnames() == ["d", "d/f"]
    ok("import", "one.tar", "five")
    assert ok("exec", "five", "cat", "d/f") == "1\n"
    assert hood("sandbox", "export", "--all", "one", "one.tar").returncode == 2
    ok("rm", "one", "two", "three", "four", "five")
    ok("rm", "--snapshot", "first")
    collect(SnapshotStore.open_default())
    assert {path.name for path in (place / "sandboxes").rglob("*") if path.is_file()} == {"lock", "commit"}


def test_files_are_copied_in_and_out_as_the_policy_allows(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_AUDIT", str(place / "log"))
    (place / "policy.yaml").write_text("filesystem: {outputs: ['out/**']}\n")
    (place / "tree" / "below").mkdir(parents=True)
    (place / "tree" / "below" / "a").write_text("1")
    (place / "b").write_text("22")
    ok("create", "--policy", "policy.yaml", "work")
    assert ok("cp", "tree", "work:") == "1 file, 1B\n"
    assert ok("cp", "b", "work:tree") == "1 file, 2B\n"  # into the folder that is there
    assert ok("cp", "b", "work:out/c") == "1 file, 2B\n"
    assert ok("exec", "work", "cat", "tree/below/a", "tree/b", "out/c") == "12222"
    assert ok("cp", "work:out", "got") == "1 file, 2B\n"
    assert (place / "got" / "c").read_text() == "22"
    denied = hood("sandbox", "cp", "work:tree/b", "mine")
    assert denied.returncode == 126
    assert b"filesystem.outputs" in denied.stderr
    assert not (place / "mine").exists()
    assert b"exists" in hood("sandbox", "cp", "work:out/c", "b").stderr
    assert (place / "b").read_text() == "22"
    kinds = [record.kind for record in AuditLog.at(place / "log").find(Query())]
    assert [kind for kind in kinds if kind in COPIED] == ["file.in", "file.in", "file.in", "file.out", "request.denied"]
    for wrong in (("b", "c"), ("work:b", "work:c"), ("gone", "work:"), ("b", "nowhere:b"), ("b", "work:../b")):
        assert hood("sandbox", "cp", *wrong).returncode == 2
    assert hood("sandbox", "cp", "-", "work:b").returncode == 2
    assert b"./- is a file of that name" in hood("sandbox", "cp", "work:out/c", "-").stderr
    assert not (place / "-").exists()


def test_a_policy_stays_until_another_one_is_given(place: Path) -> None:
    Path("more.yaml").write_text("resources: {open_files: 99}\n")
    count = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    ok("create", "work", "--policy", "more.yaml")
    Path("more.yaml").write_text("resources: {open_files: 88}\n")
    assert ok("exec", "work", "-c", count) == "99\n"
    assert ok("exec", "work", "--policy", "more.yaml", "-c", count) == "88\n"
    assert ok("exec", "work", "-c", count) == "88\n"
    kinds = [
        json.loads(line)["record"]["kind"]
        for line in hood("audit", "search", "--json", "--since", "1h").stdout.splitlines()
    ]
    assert kinds.count("sandbox.policy") >= 1
    assert {"sandbox.created", "snapshot.restored", "sandbox.saved"} <= set(kinds)


def test_options_are_for_one_use_and_the_policy_stays() -> None:
    ok("create", "work")
    before = json.loads(ok("show", "work", "--json"))["policy_digest"]
    slow = hood("sandbox", "exec", "work", "--timeout", "100ms", "--", "sleep", "60")
    assert (slow.returncode, b"raise --timeout" in slow.stderr) == (124, True)
    limit = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0)"
    assert ok("exec", "work", "--memory", "1G", "-c", f"{limit}; open('f', 'w').write('kept')") == "True\n"
    assert ok("exec", "work", "cat", "f") == "kept"
    assert json.loads(ok("show", "work", "--json"))["policy_digest"] == before


def test_a_shell_in_a_named_sandbox_leaves_its_files() -> None:
    ok("create", "work")
    with open_terminal("sandbox", "shell", "work") as terminal:
        terminal.wait_for(b"(hood) ~ $ ")
        terminal.type(b"echo kept > f; exit 3\n")
        assert terminal.wait_for_end() == 3
    assert ok("exec", "work", "cat", "f") == "kept\n"
    assert ok("ls").startswith("work  ")


def test_one_process_at_a_time_uses_a_sandbox() -> None:
    ok("create", "work")
    command = [*HOOD, "sandbox", "exec", "work", "sh", "-c", "echo up; read line; echo $line > f"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        busy = hood("sandbox", "exec", "work", "true")
        assert (busy.returncode, f"in use by process {process.pid}".encode() in busy.stderr) == (2, True)
        assert hood("sandbox", "rm", "work").returncode == 2
        process.stdin.write(b"done\n")
        process.stdin.close()
        assert ok("exec", "--wait", "work", "cat", "f") == "done\n"


_STEP = "import os\nfor n in range(20): open(f'f{n}', 'w').write(%r * 3000)\nprint(%r)"


def test_a_kill_at_any_moment_leaves_the_old_state_or_the_new_one() -> None:
    ok("create", "work")
    ok("exec", "work", "-c", _STEP % ("0", "0"))
    state, chance = 0, random.Random(17)
    for attempt in range(1, 1 + sampling.amount(8, whole=30)):
        value = str(attempt % 10)
        with subprocess.Popen([*HOOD, "sandbox", "exec", "work", "-c", _STEP % (value, value)], stdout=-1) as process:
            assert process.stdout is not None
            if attempt % 2:  # while it opens, runs or saves; otherwise once the program has run
                select.select([process.stdout], [], [], chance.uniform(0, 1.5))
            else:
                process.stdout.readline()
                select.select([process.stdout], [], [], chance.uniform(0, 0.1))
            process.kill()
            was_acknowledged = process.wait() == 0
        state = _check_state(old=state, new=int(value), was_acknowledged=was_acknowledged)
    store = SnapshotStore.open_default()
    assert collect(store).problem is None
    assert len(list(store.blobs.digests())) == 1
    assert len(list((store.root / "manifests").iterdir())) == 1


def _check_state(*, old: int, new: int, was_acknowledged: bool) -> int:
    store = SnapshotStore.open_default()
    manifest = store.manifest(store.find("work").snapshot)
    (content,) = {store.read(entry, manifest.id) for entry in manifest.files}
    assert len(manifest.files) == 20
    assert content in {str(value).encode() * 3000 for value in ({new} if was_acknowledged else {old, new})}
    return int(content[:1])
