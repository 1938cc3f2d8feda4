"""A cluster from nothing, by the commands of docs/many-machines.md, on three hosts: network namespaces of our own."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import cluster_nats
import pytest
import sampling
from hood_cluster import wait_until
from requirements import require

HOOD = [sys.executable, "-m", "fumehood"]
_HUB = "192.0.2.1"
_SECONDS = 60
SLEEP = "import time; print('begun', flush=True); time.sleep(60)"


class Host:
    """A network namespace with an address of its own, and folders of its own."""

    def __init__(self, name: str, address: str, folder: Path) -> None:
        self.name, self.address, self._folder = name, address, folder / name
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("FUMEHOOD_")},
            "XDG_STATE_HOME": str(folder / name),
            "FUMEHOOD_KEEPER": "off",
        }
        (folder / name).mkdir(mode=0o700)

    def _command(self, words: list[str]) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.name}", *words]

    def run(self, *words: str, **variables: str) -> str:
        done = subprocess.run(
            self._command([*HOOD, *words]),
            env=self._environment | variables,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def has_records_of(self, tenant: str) -> bool:
        """Whether the worker of this host has opened sandboxes of the tenant."""
        return (self._folder / "fumehood" / "cluster" / "worker" / "tenants" / tenant / "audit").exists()

    def set_wire(self, state: str) -> None:
        """`up`, or `down`: nothing gets in or out, and none of those who are connected is told."""
        _ip("-n", self.name, "link", "set", "wire", state)

    def fails(self, *words: str) -> str:
        command = self._command([*HOOD, *words])
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=_SECONDS)
        assert done.returncode != 0
        return done.stderr

    @contextmanager
    def started(self, *words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """A command of hood that ends by itself within the block."""
        process = subprocess.Popen(
            self._command([*HOOD, *words]),
            env=self._environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
            process.wait(_SECONDS)
        finally:
            process.kill()
            process.communicate()

    @contextmanager
    def staying(self, *words: str, until: str) -> Iterator[list[str]]:
        """A command that runs until it is ended; yields what it has said by then."""
        process = subprocess.Popen(
            self._command(list(words)),
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            yield _read(process.stdout, until)
        finally:
            process.terminate()
            process.communicate(timeout=_SECONDS)
        # nats-server says 1 when it is ended; a worker that was removed has ended by itself, with 125.
        assert process.returncode in (0, 1, 125), words


def _read(output: IO[str], until: str) -> list[str]:
    lines: list[str] = []
    for line in output:
        lines.append(line)
        if until in line:
            return lines
    raise AssertionError("".join(lines))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    """Three, on one wire: a bridge in the first. The addresses are for documentation, and lead nowhere else."""
    require(os.geteuid() == 0 and shutil.which("ip"), "needs root and ip")
    require(cluster_nats.PROGRAM, "needs nats-server")
    names = [f"hood{os.getpid()}{letter}" for letter in "abc"]
    with ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("-n", name, "link", "set", "lo", "up")
        hub = names[0]
        _ip("-n", hub, "link", "add", "wire", "type", "bridge")
        _ip("-n", hub, "addr", "add", f"{_HUB}/24", "dev", "wire")
        _ip("-n", hub, "link", "set", "wire", "up")
        for number, name in enumerate(names[1:], 2):
            _ip("-n", hub, "link", "add", f"to{number}", "type", "veth", "peer", "name", "wire", "netns", name)
            _ip("-n", hub, "link", "set", f"to{number}", "master", "wire", "up")
            _ip("-n", name, "addr", "add", f"192.0.2.{number}/24", "dev", "wire")
            _ip("-n", name, "link", "set", "wire", "up")
        yield [Host(name, f"192.0.2.{number}", tmp_path) for number, name in enumerate(names, 1)]


def test_three_hosts_from_nothing(hosts: list[Host], tmp_path: Path) -> None:
    first, second, third = hosts
    printed = first.run("cluster", "init", "--host", _HUB)
    config = next(line for line in printed.splitlines() if line.startswith("nats-server")).split()[-1]
    folder = str(Path(config).parent.parent)
    serve = [*HOOD, "serve", "--cluster", folder, "--init", "acme", "--listen", "127.0.0.1:8440"]
    with ExitStack() as stack:
        stack.enter_context(first.staying(str(cluster_nats.PROGRAM), "-c", config, until="Server is ready"))
        said = "".join(stack.enter_context(first.staying(*serve, until="listening at")))
        for number, host in enumerate((second, third), 1):
            token = tmp_path / f"w{number}.token"
            first.run("cluster", "token", f"w{number}", "--output", str(token))
            assert stat.S_IMODE(token.stat().st_mode) == 0o600
            join = [*HOOD, "worker", "--join", str(token), "--label", f"zone={number}"]
            stack.enter_context(host.staying(*join, until="is ready"))
        again = ["cluster", "join", "--folder", str(tmp_path / "x"), str(tmp_path / "w2.token")]
        assert "was used before" in first.fails(*again)
        variables = dict(line.removeprefix("export ").split("=", 1) for line in said.splitlines() if "export" in line)
        assert first.run("run", "-c", "import socket; print(6 * 7)", **variables) == "42\n"
        listed = first.run("workers")
        assert [line.split()[:2] for line in listed.splitlines()] == [["w1", "ready"], ["w2", "ready"]]
        status = first.run("cluster", "status")
        assert status.splitlines()[-1].endswith("answers")
        # From the first on the third: the worker of the second is taken out of service.
        first.run("workers", "--drain", "w1")
        assert first.run("run", "-c", "print('on the third')", **variables) == "on the third\n"
        assert third.has_records_of("acme")
        first.run("cluster", "remove", "w2")
        assert "w2" not in first.run("cluster", "status")
        first.run("cluster", "remove", "w2")  # NATS might have been away
        assert "there is no member" in first.fails("cluster", "remove", "w9")
        assert "joined already" in second.fails("cluster", "join", str(token))


@pytest.mark.skipif(not sampling.is_whole(), reason="takes as long as a lease: in make test-all")
def test_a_host_that_is_cut_off_loses_its_runs_and_comes_back_in_a_new_epoch(hosts: list[Host], tmp_path: Path) -> None:
    """Its wire goes down in silence. The run ends with a cause, on both sides, before the wire is up again."""
    first, second, _ = hosts
    config = next(
        line for line in first.run("cluster", "init", "--host", _HUB).splitlines() if line.startswith("nats-server")
    ).split()[-1]
    serve = [*HOOD, "serve", "--cluster", str(Path(config).parent.parent), "--init", "acme", "--listen"]
    with ExitStack() as stack:
        stack.enter_context(first.staying(str(cluster_nats.PROGRAM), "-c", config, until="Server is ready"))
        said = "".join(stack.enter_context(first.staying(*serve, "127.0.0.1:8440", until="listening at")))
        variables = dict(line.removeprefix("export ").split("=", 1) for line in said.splitlines() if "export" in line)
        token = tmp_path / "w1.token"
        token.write_text(first.run("cluster", "token", "w1"))
        stack.enter_context(second.staying(*HOOD, "worker", "--join", str(token), "--drain", "1s", until="is ready"))
        with first.started("run", "-c", SLEEP, **variables) as run:
            assert run.stdout is not None
            assert run.stdout.readline() == "begun\n"
            second.set_wire("down")
            output = run.stdout.read()
        assert "has not been heard" in output, output
        second.set_wire("up")
        wait_until(lambda: first.run("workers").startswith("w1  ready"))
        assert first.run("run", "-c", "print(6 * 7)", **variables) == "42\n"


def test_a_cluster_is_for_this_machine_or_for_others(tmp_path: Path) -> None:
    command = [*HOOD, "cluster", "init", "--folder", str(tmp_path / "c")]
    for options in ([], ["--here", "--host", "hood.example"]):
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=_SECONDS)
        assert (done.returncode, "--here for this machine alone" in done.stderr) == (2, True)
    assert not (tmp_path / "c").exists()


def test_a_removal_of_which_nats_was_not_told_says_so(tmp_path: Path) -> None:
    """The account that NATS has still lets the member in, until it is given the new one."""
    folder = ["--folder", str(tmp_path / "c")]
    made = ["cluster", "init", "--here", "--listen", f"127.0.0.1:{cluster_nats.free_port()}", *folder]
    subprocess.run([*HOOD, *made], check=True, capture_output=True, timeout=_SECONDS)
    for _ in range(2):
        done = subprocess.run(
            [*HOOD, "cluster", "remove", "server", *folder], capture_output=True, text=True, timeout=_SECONDS
        )
        assert done.returncode != 0
        assert "run `hood cluster remove server` again" in done.stderr
