"""The gate of a cell: a run inherits the filter of its cell, which opens to a secret; what if it had the secret?

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| looking for the secret in one's own memory | a run gives its copy back before it sees any code | `gate-closed` |
| making namespaces and mounts with the secret | no user namespaces, no capabilities | `namespace-limit` |

Native alone has a gate. The secret is taken from the memory of the cell, which the host's root can read.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator

import anyio
import pytest

from escape.gates import copies, descendants, gates, holds, templates
from escape.laboratory import SCAN_MEMORY, attack, booty, lingering_attack, number_of, program
from fumehood import AsyncSandbox, Policy

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can read the memory of a cell"),
]

# While signals arrive, and objects are collected.
UNREST = """
    import gc
    signal.signal(signal.SIGALRM, lambda *_: gc.collect())
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
"""


@pytest.fixture
async def native() -> AsyncIterator[AsyncSandbox]:
    async with AsyncSandbox(Policy(backend="native", resources={"inodes": 39_999})) as opened:
        assert (await opened.run("pass")).exit_code == 0
        yield opened


def halves(secret: bytes) -> dict[str, bytes]:
    """In one piece it would be found in the attack's own source."""
    return {"head": secret[:4], "tail": secret[4:]}


async def test_a_program_has_no_copy_of_the_secret(native: AsyncSandbox, tries: Callable[[int], Iterator[int]]) -> None:
    secrets = {gate.secret for gate in gates()}
    assert secrets
    for secret in secrets:
        assert await attack(native, SCAN_MEMORY, **halves(secret)) == 0
        for _ in tries(20):
            assert await attack(native, UNREST + SCAN_MEMORY, **halves(secret)) == 0


async def test_a_session_has_no_copy_of_the_secret(native: AsyncSandbox) -> None:
    async with native.session() as session:
        for secret in {gate.secret for gate in gates()}:
            assert booty(await session.run(program(SCAN_MEMORY, **halves(secret)))) == 0


async def test_a_cell_and_the_process_that_forks_its_runs_have_the_secret_and_nobody_else(
    native: AsyncSandbox, tries: Callable[[int], Iterator[int]]
) -> None:
    await native.files.write("file", b"what the file service was asked to write")
    async with native.session() as session, lingering_attack(native, "found = os.getpid()"):
        await session.run("1")
        found_gates = gates()
        trees = {cell: {cell, *descendants(cell)} for cell, _ in found_gates}
        secrets = [secret for _, secret in found_gates]
        # Once: beside cells there may be engines and machines with gigabytes.
        assert [each for each in set(descendants()).difference(*trees.values()) if holds(each, secrets)] == []
        for cell, secret in found_gates:
            found: dict[int, int] = {}
            for _ in tries(100):  # until no standby is being set up
                found = {each: count for each in (cell, *descendants(cell)) if (count := copies(each, secret))}
                if found == dict.fromkeys([cell, *templates(cell)], 1):
                    break
                await anyio.sleep(0.01)
            (template,) = templates(cell)
            assert found == {cell: 1, template: 1}


WITH_THE_SECRET = {
    "a user namespace": ("unshare", "0x10000000", "ENOSPC"),
    "a user namespace and more": ("unshare", "0x7C020000", "ENOSPC"),
    "a mount namespace": ("unshare", "0x00020000", "EPERM"),
    "a network namespace": ("unshare", "0x40000000", "EPERM"),
    "joining a namespace of its own": ("setns", "os.open('/proc/self/ns/net', 0), 0", "EPERM"),
    "a mount": ("mount", "b'evil', b'/workspace', b'tmpfs', 0, 0", "EPERM"),
    "taking a mask off": ("umount2", "b'/proc/kallsyms', 2", "EPERM"),
    "a copy of a mount": ("open_tree", "-100, b'/', 0x8001", "EPERM"),
    "moving a mount": ("move_mount", "os.open('/workspace', 0), b'', -100, b'/tmp', 4", "EPERM"),
    "mount attributes": (
        "mount_setattr",
        "-100, b'/workspace', 0, struct.pack('QQQQ', 0, 1, 0, 0), 32",
        "EPERM",
    ),
    # With the secret of another cell such sockets do not exist at all.
    "seeing packets": ("socket", "17, 3, 0", "EAFNOSUPPORT"),
}


@pytest.mark.parametrize(("name", "arguments", "error"), WITH_THE_SECRET.values(), ids=WITH_THE_SECRET)
async def test_whoever_has_the_secret_still_gets_no(
    native: AsyncSandbox, name: str, arguments: str, error: str
) -> None:
    code = f"""
        filled = (*({arguments},), 0, 0, 0, 0, 0)[:5]
        found = outcome(lambda: call(number, *filled, secret))
    """
    for gate in gates():
        secret = int.from_bytes(gate.secret, "little", signed=True)
        assert await attack(native, code, secret=secret, number=number_of(name)) in (error, "EPERM")


async def test_the_secret_is_what_opens_the_gate(native: AsyncSandbox) -> None:
    """Or the attacks above would show nothing: with it the kernel itself answers, and without it the filter."""
    code = """
        found = [outcome(lambda: call(number, 0x10000000, 0, 0, 0, 0, word)) for word in (0, secret ^ 1, -1, secret)]
    """
    answers = [
        await attack(
            native, code, secret=int.from_bytes(gate.secret, "little", signed=True), number=number_of("unshare")
        )
        for gate in gates()
    ]
    assert [*["EPERM"] * 3, "ENOSPC"] in answers
