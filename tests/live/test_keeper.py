"""The keeper: whom it serves, what it does when it dies, and that no client notices the difference.

Tests of `hood run` itself run both ways (`way` in conftest.py); here are those that are about the keeper.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pydantic
import pytest
import sampling
from live.cli_host import HOOD, UP_AND_WAITING, hood, open_hood, open_terminal, wait_for_line
from live.keepers import is_gone, lock_of_keeper, start_keeper, status, stop_keeper
from live.traces import descendants, is_alive, processes_with, wait_until
from requirements import require

import fumehood_client
from fumehood.cli.keeper import command
from fumehood.host import locks


@pytest.fixture
def keeper(module_keeper: None, monkeypatch: pytest.MonkeyPatch) -> int:
    """Its process; one that the test before has ended is started anew."""
    monkeypatch.setenv("FUMEHOOD_KEEPER", "on")
    wait_until(lambda: command.ask("status") or is_gone(), 30, "it serves, or is gone")
    return status()["process"] if command.ask("status") else start_keeper()


@pytest.fixture
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place without a keeper; one that the test starts ends with it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("FUMEHOOD_KEEPER", "on")
    yield tmp_path
    if lock_of_keeper().exists():
        stop_keeper()


def is_served(action: Callable[[], object]) -> bool:
    before = status()["served"]
    action()
    return status()["served"] > before


def test_the_first_run_leaves_a_keeper_which_does_the_next(own_place: Path) -> None:
    assert command.ask("status") is None
    start_keeper()
    assert is_served(lambda: hood("run", "-c", "pass"))
    told = hood("keeper", "status")
    assert (told.returncode, told.stdout.startswith(b"the keeper runs: process ")) == (0, True)
    assert hood("keeper", "stop").stdout.endswith(b" ends\n")
    wait_until(is_gone, 30, "it has ended")
    gone = hood("keeper", "status")
    assert (gone.returncode, gone.stdout) == (1, b"no keeper runs\n")


def test_a_mistake_leaves_no_keeper(own_place: Path) -> None:
    assert hood("run", "--polcy", "x").returncode == 2
    assert not lock_of_keeper().exists()


def test_a_keeper_that_is_stopped_lets_its_runs_end(own_place: Path) -> None:
    start_keeper()
    with open_hood("run", "-c", "print('up', flush=True); print(input())") as process:
        wait_for_line(process.stdout, b"up\n")
        assert hood("keeper", "stop").stdout.endswith(b" ends after 1 run under way\n")
        assert hood("run", "-c", "print('by itself')").stdout == b"by itself\n"
        assert process.communicate(b"last words\n", timeout=60) == (b"last words\n", b"")
        assert process.returncode == 0


@pytest.mark.serial
@pytest.mark.timeout(300)
def test_many_clients_at_once_start_one_keeper(own_place: Path) -> None:
    run_many()
    wait_until(lambda: command.ask("status"), 60, "it serves")
    folder = str(own_place / "fumehood")
    found = {each for each in processes_with("resident.main") if os.readlink(f"/proc/{each}/cwd") == folder}
    assert found - set(status()["workers"]) == {status()["process"]}


@pytest.mark.serial
@pytest.mark.timeout(300)
def test_many_clients_at_once_are_all_served_or_serve_themselves(keeper: int) -> None:
    assert is_served(run_many)
    assert status()["process"] == keeper


def run_many() -> None:
    clients = [
        subprocess.Popen([*HOOD, "run", "-c", f"print({number})"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for number in range(sampling.amount(12, whole=50))
    ]
    for number, client in enumerate(clients):
        assert client.communicate(timeout=240) == (b"%d\n" % number, b"")
        assert client.returncode == 0


# Surroundings of the client


def test_variables_are_the_clients_and_never_those_of_a_client_before(keeper: int, tmp_path: Path) -> None:
    show = ("run", "-e", "MINE", "-c", "import os; print(os.environ['MINE'])")
    assert hood(*show, env={**os.environ, "MINE": "first"}).stdout == b"first\n"
    assert hood(*show, env={**os.environ, "MINE": "second"}).stdout == b"second\n"
    told = hood(*show)
    assert (told.returncode, b"no such variable in your environment" in told.stderr) == (2, True)


def test_the_value_of_a_secret_is_the_clients(keeper: int, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "network: {allow: [{host: api.example, ports: [443], methods: [GET]}]}\n"
        "secrets: [{name: token, from_env: TOKEN_OF_CLIENT, inject: {host: api.example}}]\n"
    )
    run = ("run", "--policy", policy, "-c", "print(1)")
    done: list[subprocess.CompletedProcess[bytes]] = []
    assert is_served(lambda: done.append(hood(*run, env={**os.environ, "TOKEN_OF_CLIENT": "a" * 20})))
    assert (done[0].returncode, done[0].stdout) == (0, b"1\n"), done[0].stderr
    assert is_served(lambda: done.append(hood(*run)))
    assert (done[1].returncode, b"TOKEN_OF_CLIENT" in done[1].stderr) == (2, True)


def test_each_client_is_recorded_in_its_own_log(keeper: int, tmp_path: Path) -> None:
    for name in ("one", "two", "one"):
        log = tmp_path / name
        done = hood("run", "-c", f"print('{name}')", env={**os.environ, "FUMEHOOD_AUDIT": str(log)})
        assert (done.stdout, done.stderr) == (f"{name}\n".encode(), b"")
    for name, count in (("one", 2), ("two", 1)):
        listed = hood("audit", "tail", "--json", env={**os.environ, "FUMEHOOD_AUDIT": str(tmp_path / name)}).stdout
        assert listed.count(b"run.finished") == count


def test_logs_of_clients_before_do_not_pile_up(keeper: int, tmp_path: Path) -> None:
    def open_files() -> int:
        return max(len(os.listdir(f"/proc/{worker}/fd")) for worker in status()["workers"])

    for number in range(3):
        assert (
            hood("run", "-c", "pass", env={**os.environ, "FUMEHOOD_AUDIT": str(tmp_path / str(number))}).stderr == b""
        )
    before = open_files()
    for number in range(3, 8):
        hood("run", "-c", "pass", env={**os.environ, "FUMEHOOD_AUDIT": str(tmp_path / str(number))})
    assert open_files() <= before


def test_a_keeper_whose_lock_was_removed_leaves_the_next_its_socket(own_place: Path) -> None:
    first = start_keeper()
    folder = lock_of_keeper().parent
    for path in folder.iterdir():
        path.unlink()  # as a cleaner of /tmp does
    second = start_keeper()
    assert first != second
    os.kill(first, signal.SIGINT)
    wait_until(lambda: not is_alive(first), 30, "the first has ended")
    assert status()["process"] == second


def test_a_log_that_was_removed_is_begun_anew(keeper: int, tmp_path: Path) -> None:
    variables = {**os.environ, "FUMEHOOD_AUDIT": str(tmp_path / "log")}
    for _ in range(2):
        done = hood("run", "-c", "print(1)", env=variables)
        assert (done.stdout, done.stderr) == (b"1\n", b"")
        assert b"run.finished" in hood("audit", "tail", "--json", env=variables).stdout
        shutil.rmtree(tmp_path / "log")


def test_paths_are_relative_to_the_clients_folder(keeper: int, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("print(open('/data/y').read())")
    (tmp_path / "y").write_text("data")
    (tmp_path / "policy.yaml").write_text("filesystem: {mounts: [{source: ., target: /data}]}\n")
    done: list[bytes] = []
    assert is_served(lambda: done.append(hood("run", "--policy", "policy.yaml", "x.py", cwd=tmp_path).stdout))
    assert done == [b"data\n"]


def test_a_folder_that_was_removed_is_no_obstacle(keeper: int, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    script = f"rmdir {folder}; {shlex.join(HOOD)} run -c 'print(1)'"
    done = subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == (b"1\n", b"")


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_files_get_the_mode_that_the_clients_mask_allows(keeper: int, tmp_path: Path, mask: int) -> None:
    out = tmp_path / "out"
    assert is_served(lambda: hood("run", "--out", out, "-c", "open('x', 'w').close()", umask=mask))
    assert out.stat().st_mode & 0o777 == 0o777 & ~mask


def test_a_danger_is_told_to_every_client(keeper: int) -> None:
    for _ in range(2):
        assert hood("run", "-v", "/etc:/data", "-c", "pass").stderr.startswith(b"hood: danger: ")


def test_what_could_not_be_written_is_not_written_to_the_next_client(keeper: int) -> None:
    with open("/dev/full", "wb") as full:
        assert hood("run", "--json", "-c", "print('first')", stdout=full).returncode == 125
    assert hood("run", "-c", "print('second')").stdout == b"second\n"


def test_a_file_of_the_clients_own_descriptors_is_read_by_the_client(keeper: int) -> None:
    require(shutil.which("bash"), "needs bash")
    script = f"{shlex.join(HOOD)} run <(echo 'print(1)')"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")


@pytest.mark.parametrize("kind", ["pipe", "file", "null", "closed"])
def test_standard_input_of_every_kind_is_what_the_program_reads(keeper: int, kind: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"from a file")
    redirection = {"pipe": "", "file": f"<{tmp_path}/data", "null": "</dev/null", "closed": "<&-"}[kind]
    script = f"{shlex.join([*HOOD, 'run', '-c', 'import sys; print(sys.stdin.read())'])} {redirection}"
    expected = {"pipe": b"from a pipe\n", "file": b"from a file\n"}.get(kind, b"\n")
    done: list[bytes] = []
    shell = ["sh", "-c", script]
    assert is_served(lambda: done.append(subprocess.run(shell, input=b"from a pipe", stdout=-1, timeout=60).stdout))
    assert done == [expected]


def test_keys_of_a_terminal_reach_the_program(keeper: int) -> None:
    with open_terminal(
        "run", "-c", "print('name?'); print('hello', input()); import sys; print(sys.stdin.read())"
    ) as it:
        it.wait_for(b"name?\r\n")
        it.type(b"you\n")
        it.wait_for(b"hello you\r\n")
        it.type(b"end\n\x04")
        assert it.wait_for_end() == 0
    assert status()["runs"] == 0


def test_descriptors_of_the_client_keep_their_flags(keeper: int) -> None:
    reading, writing = os.pipe()
    try:
        before = fcntl.fcntl(writing, fcntl.F_GETFL)
        with (
            open(reading, "rb") as output,
            open_hood("run", "-c", "print('up', flush=True); input()", stdout=writing) as process,
        ):
            wait_for_line(output, b"up\n")
            assert fcntl.fcntl(writing, fcntl.F_GETFL) == before
            process.communicate(b"\n", timeout=60)
    finally:
        os.close(writing)


def test_a_keeper_holds_nothing_of_the_client_that_started_it(own_place: Path) -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen([*HOOD, "run", "-c", "pass"], pass_fds=(writing,))
    os.close(writing)
    assert process.wait(60) == 0
    wait_until(lambda: command.ask("status"), 60, "it serves")
    assert os.read(reading, 1) == b"", "the last copy of the other end is closed"
    os.close(reading)


# Clients that are slow, gone, stopped, or lie


def test_a_client_whose_output_is_not_read_keeps_no_other_waiting(keeper: int) -> None:
    with open_hood("run", "-c", "import os\nprint('up', flush=True)\nwhile True: os.write(1, b'x' * 4096)") as process:
        wait_for_line(process.stdout, b"up\n")
        done: list[bytes] = []
        assert is_served(lambda: done.append(hood("run", "-c", "print(2)").stdout))
        assert done == [b"2\n"]


def test_ctrl_z_stops_the_run_and_it_goes_on_when_the_client_does(keeper: int) -> None:
    def state(process: int) -> str:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]

    # A group of its own: the kernel stops none whose parents are all of another session, as ours may be.
    with open_hood("run", "-c", "print('up', flush=True); print(input())", process_group=0) as process:
        wait_for_line(process.stdout, b"up\n")
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: state(process.pid) == "T", 30, "the client has stopped")
        wait_until(lambda: "T" in map(state, status()["workers"]), 30, "the worker has stopped")
        process.send_signal(signal.SIGCONT)
        assert process.communicate(b"on\n", timeout=60) == (b"on\n", b"")
        assert process.returncode == 0


def test_a_stopped_client_that_is_killed_takes_its_run_with_it(keeper: int) -> None:
    mark = f"87654.{os.getpid()}"
    with open_hood("run", "--language", "sh", "-c", f"echo up; exec sleep {mark}") as process:
        wait_for_line(process.stdout, b"up\n")
        process.send_signal(signal.SIGTSTP)
        process.kill()
    wait_until(lambda: not processes_with(mark), 10, "all of the run is dead")
    wait_until(lambda: status()["runs"] == 0, 10, "no run is under way")


def test_a_run_whose_client_was_killed_is_recorded_to_its_end(keeper: int, tmp_path: Path) -> None:
    variables = {**os.environ, "FUMEHOOD_AUDIT": str(tmp_path)}
    tmp_path.chmod(0o700)
    with open_hood("run", "-c", UP_AND_WAITING, env=variables) as process:
        wait_for_line(process.stdout, b"up\n")
    wait_until(
        lambda: b"run.finished" in hood("audit", "tail", "--json", env=variables).stdout, 10, "its end is recorded"
    )


LIES = {
    "nothing": (b"{}", 0),
    "not JSON": (b"\xff", 0),
    "a request that it did not ask for": (b'{"do": "run"}', 5),
    "go before it asked": (b'{"do": "go"}', 0),
    "a signal for a process that is not its own": (b'{"do": "signal", "number": 9}', 0),
    "too much": (b"[" * 100_000, 5),
    "JSON that is too deep": (b"[" * 60_000, 5),
}


@pytest.mark.parametrize("message", LIES.values(), ids=LIES.keys())
def test_a_client_that_lies_is_refused_and_nothing_else_happens(keeper: int, message: tuple[bytes, int]) -> None:
    data, count = message
    folder = os.open("/", os.O_RDONLY)
    try:
        connection = socket.socket(fileno=fumehood_client.connect(os.environb).detach())
        with connection:
            connection.settimeout(60)
            socket.send_fds(connection, [data], [folder] * count)
            answer = connection.recv(1000)
            assert answer == b"" or json.loads(answer).keys() == {"no"}
    finally:
        os.close(folder)
    assert is_served(lambda: hood("run", "-c", "pass"))
    assert status()["process"] == keeper


def agree(connection: socket.socket, keeper: int) -> str:
    """Asks the keeper; the proof that it wants."""
    connection.send(b'{"do": "ask"}')
    return os.readlink(f"/proc/{keeper}/fd/{json.loads(connection.recv(1000))['yes']}")


@pytest.mark.parametrize("proof", ["", "/memfd:00000000000000000000000000000000 (deleted)"])
def test_a_client_that_may_not_look_into_the_keeper_is_not_served(keeper: int, proof: str) -> None:
    folder = os.open("/", os.O_RDONLY)
    connection = socket.socket(fileno=fumehood_client.connect(os.environb).detach())
    connection.settimeout(60)
    with connection:
        agree(connection, keeper)
        socket.send_fds(connection, [json.dumps({"do": "run", "proof": proof}).encode()], [folder] * 5)
        assert connection.recv(1000) == b""
    os.close(folder)
    assert is_served(lambda: hood("run", "-c", "pass"))


def test_a_client_that_has_proved_nothing_sends_no_signal_to_a_worker(keeper: int) -> None:
    """It would be stopped when the next client gets it, who then waits for the answer in vain."""
    connection = socket.socket(fileno=fumehood_client.connect(os.environb).detach())
    connection.settimeout(60)
    with connection:
        agree(connection, keeper)
        connection.send(json.dumps({"do": "signal", "number": signal.SIGSTOP}).encode())
        assert connection.recv(1000) == b""
    assert is_served(lambda: hood("run", "-c", "pass"))


# Opens no file from here on. Root needs no `no_new_privs` for that, so /proc does not show it.
LOCK_IN = """
import ctypes, os, struct, sys
call, rules = ctypes.CDLL(None).syscall, struct.pack("Q", 0x1fff)
descriptor = call(444, rules, len(rules), 0)
if os.geteuid():
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
assert call(446, descriptor, 0) == 0
try:
    print(os.readlink(f"/proc/{sys.argv[1]}/fd/0"))
except PermissionError:
    print("refused")
"""


def test_a_process_in_landlock_may_not_look_into_the_keeper(keeper: int) -> None:
    told = subprocess.run([sys.executable, "-c", LOCK_IN, str(keeper)], capture_output=True, check=True, timeout=60)
    assert told.stdout == b"refused\n"


def test_signals_that_its_starter_ignored_reach_later_clients(own_place: Path) -> None:
    script = f"trap '' INT HUP; exec {shlex.join([*HOOD, 'run', '-c', 'pass'])}"
    subprocess.run(["sh", "-c", script], check=True, timeout=60)
    wait_until(lambda: command.ask("status"), 60, "the keeper serves")
    with open_hood("run", "-c", UP_AND_WAITING) as process:
        wait_for_line(process.stdout, b"up\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert status()["served"] == 1


def test_a_keeper_that_is_stopped_waits_for_no_run_without_a_client(own_place: Path) -> None:
    resident = start_keeper()
    unread, stdout = os.pipe()
    with open_hood("run", "--json", "-c", "print('x' * 10**6)", stdout=stdout) as process:
        wait_until(lambda: status()["runs"] == 1, 30, "it runs")
        assert hood("keeper", "stop").stdout.endswith(b" ends after 1 run under way\n")
        process.kill()
    wait_until(is_gone, 60, "it has ended")
    assert not is_alive(resident)
    os.close(unread)
    os.close(stdout)


@pytest.mark.parametrize("count", [0, 4, 5, 40])
def test_a_request_that_is_none_is_refused(keeper: int, count: int) -> None:
    folder = os.open("/", os.O_RDONLY)
    connection = socket.socket(fileno=fumehood_client.connect(os.environb).detach())
    connection.settimeout(60)
    with connection:
        proof = agree(connection, keeper)
        socket.send_fds(connection, [json.dumps({"do": "run", "proof": proof}).encode()], [folder] * count)
        assert json.loads(connection.recv(1000)).keys() == {"no"}
    os.close(folder)
    assert is_served(lambda: hood("run", "-c", "pass"))


# Death


def test_a_keeper_that_dies_ends_the_run_which_is_not_done_again(keeper: int, tmp_path: Path) -> None:
    code = "open('/seen/runs', 'a').write('x'); print('up', flush=True); input()"
    with open_hood("run", "-v", f"{tmp_path}:/seen:rw", "-c", code) as process:
        wait_for_line(process.stdout, b"up\n")
        family = descendants(keeper)
        os.kill(keeper, signal.SIGKILL)
        # Its standard input stays open until then: a program that reads the end of it would have an end of its own.
        assert process.wait(60) == 125
        assert process.communicate()[1].startswith(b"hood: the keeper died, and the program with it.")
    wait_until(lambda: not any(map(is_alive, family)), 10, "everything of it is dead")
    assert (tmp_path / "runs").read_text() == "x"
    assert hood("run", "-c", "print(1)").stdout == b"1\n"


@pytest.mark.parametrize("step", range(5), ids=["accepts", "agrees", "reads", "refuses", "is ready"])
def test_a_client_does_its_run_itself_until_it_has_said_go_and_never_after(own_place: Path, step: int) -> None:
    """What listens here dies after so many steps."""
    with listener(own_place) as listening, open_hood("run", "-c", "print('by itself')") as process:
        connection, _ = listening.accept()
        with connection:
            if step >= 1:
                assert connection.recv(1000) == b'{"do": "ask"}'
                connection.send(b'{"yes": 0}')
            if step >= 2:
                data, descriptors, _, _ = socket.recv_fds(connection, 1000, 10)
                assert json.loads(data) == {"do": "run", "proof": os.readlink("/proc/self/fd/0")}
                assert len(descriptors) == 5
                for descriptor in descriptors:
                    os.close(descriptor)
            if step >= 3:
                connection.send(b'{"no": "reason"}' if step == 3 else b'{"ready": true}')
            if step >= 4:
                assert connection.recv(1000) == b'{"do": "go"}'
        out, said = process.communicate(timeout=60)
    if step < 4:
        assert (process.returncode, out, said) == (0, b"by itself\n", b"")
    else:
        assert (process.returncode, out, said.startswith(b"hood: the keeper died")) == (125, b"", True)


def bind(listening: socket.socket, folder: Path) -> None:
    """Where a keeper's socket would be; its whole path may be too long for one."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        listening.bind(f"/proc/self/fd/{descriptor}/{fumehood_client.name_of_keeper()}.socket")
    finally:
        os.close(descriptor)


@contextmanager
def listener(place: Path) -> Iterator[socket.socket]:
    """A socket where a keeper's would be; no other keeper is started while it is there."""
    folder = place / "fumehood"
    folder.mkdir(mode=0o700)
    lock = locks.try_exclusive(lock_of_keeper())
    assert lock
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            bind(listening, folder)
            listening.listen()
            listening.settimeout(60)
            yield listening
    finally:
        lock.close()


def test_a_worker_that_dies_ends_its_run_alone(keeper: int) -> None:
    with open_hood("run", "-c", UP_AND_WAITING) as process:
        wait_for_line(process.stdout, b"up\n")
        for worker in status()["workers"]:
            os.kill(worker, signal.SIGKILL)
        assert process.wait(60) == 125
    wait_until(lambda: command.ask("status") or is_gone(), 30, "it serves, or is gone")
    assert hood("run", "-c", "print(1)").stdout == b"1\n"


def test_a_keeper_that_does_not_answer_is_as_good_as_none(own_place: Path) -> None:
    resident = start_keeper()
    os.kill(resident, signal.SIGSTOP)
    try:
        assert hood("run", "-c", "print(1)").stdout == b"1\n"
    finally:
        os.kill(resident, signal.SIGCONT)
    assert status()["served"] == 0, "what its client has done itself is not done again"


# Another's


STRANGERS = {
    "mount namespace": "unshare --mount",
    "network namespace": "unshare --net",
    "process namespace": "unshare --pid --fork --mount-proc",
    "host name": "unshare --uts",
    "user namespace": "unshare --user --map-current-user",
    "limits": "prlimit --nofile=1000:1000",
    "nice value": "nice -n 1",
    "processors": "taskset -c 0",
    "scheduling policy": "chrt --batch 0",
    "groups": "setpriv --groups 12345",
    "group": "setpriv --regid 12345 --clear-groups",
    "capabilities": "setpriv --bounding-set -sys_boot",
    "restriction": "setpriv --no-new-privs",
    "personality": "setarch --addr-no-randomize",
}
FOR_ROOT = {"mount namespace", "network namespace", "process namespace", "host name", "groups", "group"}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_client_with_other_rights_does_its_run_itself(keeper: int, stranger: str) -> None:
    if stranger in FOR_ROOT and os.geteuid() != 0:
        pytest.skip("only root can make such a client")
    prefix = STRANGERS[stranger]
    require(shutil.which(prefix.split()[0]), f"needs {prefix.split()[0]}")
    if stranger == "processors":
        require(len(os.sched_getaffinity(0)) > 1, "needs two processors")
    script = f"{prefix} {shlex.join([*HOOD, 'run', '-c', 'print(1)'])}"
    done: list[subprocess.CompletedProcess[bytes]] = []
    run = ["sh", "-c", script]
    assert not is_served(lambda: done.append(subprocess.run(run, capture_output=True, check=False, timeout=60)))
    assert done[0].stdout == b"1\n", done[0].stderr
    assert is_served(lambda: hood("run", "-c", "print(1)"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [("os.setgid(12345); os.setuid(12345)", "another user"), ("os.chroot('/var')", "another root folder")],
    ids=["user", "root folder"],
)
def test_a_client_that_changes_itself_is_refused(keeper: int, change: str, reason: str) -> None:
    require(os.geteuid() == 0, "needs root to become another")
    folder = Path(os.fsdecode(fumehood_client.folder_of_sockets(os.environb)))
    path = folder / f"{fumehood_client.name_of_keeper()}.socket"
    modes = [(each, each.stat().st_mode) for each in (path, folder, *list(folder.parents)[:4])]
    try:
        for each, _ in modes:
            each.chmod(0o777)
        code = (
            "import os, socket, sys; connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
            f"folder = os.open(sys.argv[1], os.O_PATH); os.chdir(folder); {change}; connection.connect(sys.argv[2]); "
            'connection.send(b\'{"do": "ask"}\'); print(connection.recv(1000).decode())'
        )
        told = subprocess.run(
            [sys.executable, "-c", code, folder, path.name], capture_output=True, check=True, timeout=60
        ).stdout
        assert json.loads(told) == {"no": reason}
    finally:
        for each, mode in modes:
            each.chmod(mode)


@pytest.mark.parametrize("planted", ["folder of another user", "folder open to others", "link", "file"])
def test_a_folder_that_is_not_ours_alone_is_not_used(own_place: Path, planted: str, tmp_path: Path) -> None:
    folder = own_place / "fumehood"
    match planted:
        case "folder of another user":
            require(os.geteuid() == 0, "needs root to make one")
            folder.mkdir(mode=0o700)
            os.chown(folder, 12345, 12345)
        case "folder open to others":
            folder.mkdir()
            folder.chmod(0o777)
        case "link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            folder.symlink_to(tmp_path / "elsewhere")
        case _:
            folder.touch()
    # What listens there would take any run, and never answer it.
    with suppress(NotADirectoryError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        bind(listening, folder)
        listening.listen()
    done = hood("run", "-c", "print(1)")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")
    with pytest.raises(OSError):
        fumehood_client.connect(os.environb)


LISTENERS = [
    *("setpriv --reuid 12345 --clear-groups", "unshare --mount", "unshare --user", "setpriv --no-new-privs"),
    *("setpriv --groups 12345", "setpriv --bounding-set -sys_boot"),
]


@pytest.mark.parametrize("stranger", LISTENERS)
def test_a_listener_that_is_not_our_keeper_gets_nothing(own_place: Path, stranger: str) -> None:
    """Its socket is in our own folder, which a container with our user's number may have been given."""
    require(os.geteuid() == 0, "needs root to make one")
    folder = own_place / "fumehood"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as bound:
        bind(bound, folder)
        # The kernel notes who calls listen().
        code = (
            "import socket; it = socket.socket(fileno=0); it.listen(); print(flush=True); "
            "print(len(it.accept()[0].recv(1)))"
        )
        command_line = [*stranger.split(), sys.executable, "-I", "-S", "-c", code]
        with subprocess.Popen(command_line, stdin=bound, stdout=subprocess.PIPE) as process:
            wait_for_line(process.stdout, b"\n")
            done = hood("run", "-c", "print(1)")
            assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")
            assert process.communicate(timeout=60)[0] == b"0\n", "it was sent nothing"


def test_a_full_disk_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(os.geteuid() == 0, "needs root for a small disk")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("FUMEHOOD_KEEPER", "on")
    mount = f"mount -t tmpfs -o size=4k,nr_inodes=1 none {tmp_path}"
    script = f"{mount} && {shlex.join([*HOOD, 'run', '-c', 'print(1)'])} && ls -A {tmp_path}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")


# Another version


@pytest.mark.timeout(300)
def test_code_that_has_changed_on_the_disk_is_what_runs(own_place: Path, tmp_path: Path) -> None:
    """An installation of its own, whose code is a copy and so can be changed."""
    source = Path(fumehood_client.__file__).parent
    shutil.copytree(source, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    venv.create(tmp_path / "venv", with_pip=False)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    ours = Path(pydantic.__file__).parent.parent
    (packages / "code.pth").write_text(f"{tmp_path / 'src'}\n{ours}\n")
    hood_of_copy = [tmp_path / "venv" / "bin" / "python", "-m", "fumehood"]

    def run(*arguments: str) -> str:
        done = subprocess.run([*hood_of_copy, *arguments], capture_output=True, text=True, check=False, timeout=120)
        assert done.stderr == ""
        return done.stdout

    run("run", "-c", "pass")
    wait_until(lambda: "the keeper runs" in run("keeper", "status"), 60, "it serves")
    assert run("run", "--help").startswith("usage: hood run")
    changed = tmp_path / "src" / "fumehood" / "cli" / "run.py"
    changed.write_text(changed.read_text().replace("Run a program in a fresh sandbox.", "Changed meanwhile."))
    assert "Changed meanwhile." in run("run", "--help")
    wait_until(lambda: run("keeper", "status") == "no keeper runs\n", 60, "the old one has ended")
    assert run("run", "-c", "print(1)") == "1\n"
    wait_until(lambda: "the keeper runs" in run("keeper", "status"), 60, "a new one serves")
    run("keeper", "stop")


# When there is one


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({b"FUMEHOOD_KEEPER": b"on", b"CI": b"1"}, None),
        ({b"FUMEHOOD_KEEPER": b"off"}, "FUMEHOOD_KEEPER is not on"),
        ({b"CI": b"true"}, "CI is set (FUMEHOOD_KEEPER=on uses one all the same)"),
        ({}, "you are root (FUMEHOOD_KEEPER=on uses one all the same)" if os.getuid() == 0 else None),
    ],
)
def test_when_a_keeper_is_used(variables: dict[bytes, bytes], reason: str | None) -> None:
    assert fumehood_client.reason_for_none(variables) == reason


def test_a_switch_that_is_neither_on_nor_off_is_a_mistake() -> None:
    done = hood("run", "-c", "print(1)", env={**os.environ, "FUMEHOOD_KEEPER": "yes"})
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"hood: FUMEHOOD_KEEPER 'yes' must be on or off\n"
