"""Faults of processes and of NATS, on real ones: every request has one typed end, and no effect is had twice."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
import random
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.abc
import nats_server
import pytest
from live.nats_process import NOTES, Done, Job, Note, Place, kill, process, register
from sampling import amount

from fumehood import UsageError
from fumehood.runtime import AgentId, AgentLostError, DeliveryError, Message, MessageError, Reason, handles
from fumehood.runtime.nats import NatsConnection, NatsRuntime

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

LEASE = 3.0


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def nats() -> Iterator[nats_server.NatsServer]:
    with nats_server.running() as server:
        yield server


@pytest.fixture
def place(nats: nats_server.NatsServer, tmp_path: Path) -> Place:
    return Place(nats.url, secrets.token_hex(4), LEASE, str(tmp_path))


@asynccontextmanager
async def application(place: Place) -> AsyncIterator[NatsRuntime]:
    async with place.runtime("application") as runtime:
        for each in (Job, Done, Note):
            runtime.messages.add(each)
        yield runtime


async def wait_until(condition: Callable[[], bool]) -> None:
    """The event is in another process."""
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def ask_until_answered(runtime: NatsRuntime, job: Job, to: str = "worker") -> Done:
    """What was not delivered has had no effect and may be sent again."""
    with anyio.fail_after(60):
        while True:
            try:
                return await runtime.send(job, to=to, reply=Done)
            except AgentLostError:
                raise
            except DeliveryError:
                await anyio.sleep(0.1)


async def test_a_request_whose_home_is_killed_has_a_typed_end_and_its_effect_once(place: Place) -> None:
    async with application(place) as runtime:
        for number in range(amount(1, whole=25)):
            async with process(place, f"first-{number}") as first:
                async with anyio.create_task_group() as group:
                    group.start_soon(expect_lost, runtime, Job(number=number, hang=True))
                    await wait_until(lambda number=number: len(place.lines()) == number + 1)
                    kill(first)
                letter = runtime.dead_letters.take()[-1]
                assert (letter.reason, letter.target) == (Reason.LOST, AgentId("worker"))
        # Nothing is done again by a process that takes over.
        async with process(place, "second"):
            done = await ask_until_answered(runtime, Job(number=999))
            assert (done.by, done.handled) == ("second", 1)
    assert [line.split()[0] for line in place.lines()] == [*map(str, range(amount(1, whole=25))), "999"]


async def expect_lost(runtime: NatsRuntime, job: Job) -> None:
    with pytest.raises(AgentLostError):
        await ask_until_answered(runtime, job)


async def test_a_process_that_was_stopped_is_not_the_home_any_more_when_it_goes_on(place: Place) -> None:
    async with application(place) as runtime, process(place, "stopped") as stopped:
        assert stopped.pid is not None
        async with anyio.create_task_group() as group:
            group.start_soon(expect_lost, runtime, Job(number=1, hang=True))
            await wait_until(lambda: len(place.lines()) == 1)
            os.kill(stopped.pid, signal.SIGSTOP)
            async with process(place, "other"):
                await wait_until(lambda: home_of(runtime) == "other")
                done = await ask_until_answered(runtime, Job(number=2))
                assert (done.by, done.handled) == ("other", 1)
                os.kill(stopped.pid, signal.SIGCONT)
                # It ends what it was handling, as soon as it finds that its lease is over.
                await wait_until(lambda: place.lines("cancelled") == ["1 stopped"])
                done = await runtime.send(Job(number=3), to="worker", reply=Done)
                assert (done.by, done.handled) == ("other", 2)
    assert [line.split()[0] for line in place.lines()] == ["1", "2", "3"]


async def test_publications_survive_a_nats_server_that_is_killed_and_none_is_handled_twice(tmp_path: Path) -> None:
    count, kills = amount(150, whole=1500), amount(2, whole=20)
    with nats_server.running() as server:
        place = Place(server.url, "faults", 10.0, str(tmp_path))
        acknowledged: list[int] = []
        async with place.runtime("home") as home, application(place) as runtime:
            await register(home, place)

            async def publish() -> None:
                for number in range(count):
                    await runtime.publish(Note(number=number), topic=f"notes/{number % 5}", deadline=60)
                    acknowledged.append(number)

            async with anyio.create_task_group() as group:
                group.start_soon(publish)
                for number in range(kills):
                    await wait_until(lambda number=number: len(acknowledged) >= count * (number + 1) // (kills + 1))
                    server.kill()
                    server.start()
            with anyio.fail_after(60):
                await home.idle()
    numbers = [int(line.split()[0]) for line in place.lines("notes")]
    assert Counter(numbers) == Counter(acknowledged) == Counter(range(count))
    by_agent = [[number for number in numbers if number % 5 == key] for key in range(5)]
    assert by_agent == [sorted(each) for each in by_agent]


@pytest.mark.parametrize("redeliver", [False, True], ids=["at most once", "at least once"])
async def test_publications_whose_process_is_killed(place: Place, redeliver: bool) -> None:
    count, chance = 60, random.Random(7)
    async with application(place) as runtime, process(place, "second", redeliver=redeliver):
        for number in range(amount(1, whole=10)):
            async with process(place, f"first-{number}", redeliver=redeliver) as first:
                handled = len(place.lines("notes"))  # of what was lost with an earlier process there is no line
                for each in range(count):
                    await runtime.publish(Note(number=number * count + each), topic=f"notes/{each}")
                at_least = handled + chance.randrange(1, count // 2)
                await wait_until(lambda least=at_least: len(place.lines("notes")) >= least)
                kill(first)
        total = amount(1, whole=10) * count
        numbers = [f"{number}" for number in range(total)]
        await runtime.publish(Note(number=total), topic="notes")
        await wait_until(lambda: any(line.startswith(f"{total} ") for line in place.lines("notes")))
        if redeliver:
            await wait_until(lambda: set(numbers) <= {line.split()[0] for line in place.lines("notes")})
    seen = Counter(line.split()[0] for line in place.lines("notes"))
    if not redeliver:
        assert set(seen.values()) == {1}


async def test_after_nats_was_gone_for_longer_than_a_lease_agents_begin_anew(tmp_path: Path) -> None:
    with nats_server.running() as server:
        place = Place(server.url, "gone", LEASE, str(tmp_path))
        async with place.runtime("home") as home, application(place) as runtime:
            await register(home, place)
            assert (await runtime.send(Job(number=1), to="worker", reply=Done)).handled == 1
            async with anyio.create_task_group() as group:
                group.start_soon(expect_lost, runtime, Job(number=2, hang=True))
                await wait_until(lambda: len(place.lines()) == 2)
                server.kill()
                await wait_until(lambda: place.lines("cancelled") == ["2 home"])
                server.start()
            await wait_until(lambda: home._homes.is_member and runtime._homes.is_member)
            await wait_until(lambda: runtime._directory.home(AgentId("worker")) == home._homes.address)
            done = await ask_until_answered(runtime, Job(number=3))
            assert (done.by, done.handled) == ("home", 1)
            assert Reason.LOST in {letter.reason for letter in home.dead_letters}
    assert [line.split()[0] for line in place.lines()] == ["1", "2", "3"]


def home_of(runtime: NatsRuntime) -> str | None:
    home = runtime._directory.home(AgentId("worker"))
    return None if home is None else home.process


async def test_a_cluster_whose_leader_is_killed_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    count, kills = amount(40, whole=400), amount(1, whole=20)
    with nats_server.running_cluster() as servers:
        urls = [server.url for server in servers]
        place = Place(urls[0], "cluster", 15.0, str(tmp_path))

        async with opened(urls, "home") as home, opened(urls, "application") as runtime:
            for each in (Job, Done, Note):
                runtime.messages.add(each)
            await register(home, place)
            acknowledged: list[int] = []

            async def publish() -> None:
                for number in range(count):
                    await runtime.publish(Note(number=number), topic="notes", deadline=100)
                    acknowledged.append(number)

            async with anyio.create_task_group() as group:
                group.start_soon(publish)
                for number in range(kills):
                    await wait_until(lambda number=number: len(acknowledged) >= count * (number + 1) // (kills + 1))
                    leader = await stream_leader(runtime)
                    servers[int(leader.removeprefix("n"))].kill()
                    servers[int(leader.removeprefix("n"))].start()
            await home.idle()
    assert Counter(int(line.split()[0]) for line in place.lines("notes")) == Counter(range(count))


@asynccontextmanager
async def opened(urls: list[str], name: str) -> AsyncIterator[NatsRuntime]:
    """When the cluster has elected those that lead it."""
    async with AsyncExitStack() as stack:
        for _ in range(100):
            made = NatsRuntime(NatsConnection(urls), space="cluster", process=name, replicas=3, audit=False)
            try:
                yield await stack.enter_async_context(made)
                return
            except (DeliveryError, UsageError):
                await anyio.sleep(0.2)


async def stream_leader(runtime: NatsRuntime) -> str:
    """After an election, which takes some seconds, and longer on a busy machine."""
    assert runtime._link is not None
    question = f"$JS.API.STREAM.INFO.{runtime._subjects.publication_stream}"
    with anyio.fail_after(60):
        while True:
            with suppress(DeliveryError):
                info = await runtime._link.call(question, b"")
                if leader := info["cluster"].get("leader"):
                    return leader
            await anyio.sleep(0.1)


async def test_ten_thousand_idle_agents_cost_the_directory_nothing(place: Place) -> None:
    count, place = (
        amount(300, whole=10_000),
        replace(place, lease=15.0),
    )  # it takes a while to begin all of them at once
    async with place.runtime("home") as home, application(place) as runtime:
        await register(home, place)
        before = len(list(home._directory.types()))
        async with anyio.create_task_group() as group:
            limiter = anyio.CapacityLimiter(50)

            async def ask(number: int) -> None:
                async with limiter:
                    await runtime.send(Job(number=number), to=f"worker/{number}")

            for number in range(count):
                group.start_soon(ask, number)
        assert len(list(home._registry.mailboxes())) == count
        assert len(list(home._directory.types())) == before
        assert (await runtime.send(Job(number=0), to="worker/7", reply=Done)).handled == 2


async def test_a_message_that_differs_between_processes_is_not_sent(place: Place) -> None:
    class Newer(Message, name="Job"):
        number: int
        colour: str

    @handles
    async def newer(message: Newer) -> None: ...

    async with place.runtime("home") as home, place.runtime("newer") as runtime:
        await register(home, place)
        runtime.messages.add(Newer)
        with pytest.raises(MessageError, match="Job is another message where worker/default is: its fields differ"):
            await runtime.send(Newer(number=1, colour="red"), to="worker")
        with pytest.raises(UsageError, match="another process has registered 'worker' with other messages"):
            await runtime.register("worker", newer, grants=NOTES)
    assert place.lines() == []


async def test_clocks_that_jump_change_no_home(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    jumps, real = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: real() + jumps[-1])
    async with place.runtime("home") as home, application(place) as runtime:
        await register(home, place)
        for jump in (3600.0, -7200.0):
            jumps.append(jump)
            assert (await runtime.send(Job(number=1), to="worker", reply=Done)).by == "home"
        assert home._membership.is_valid
        assert (await runtime.send(Job(number=1), to="worker", reply=Done)).handled == 3


async def test_the_team_of_the_agents_examples_by_one_changed_line(
    nats: nats_server.NatsServer, tmp_path: Path
) -> None:
    """Of an example that has a LocalRuntime, another line opens the runtime, and nothing else is changed."""
    example = Path(__file__).parents[2] / "examples" / "agent" / "messages.py"
    local = "async with LocalRuntime() as runtime:"
    there = f"async with NatsRuntime({nats.url!r}, space='{secrets.token_hex(4)}') as runtime:"
    text = example.read_text()
    assert text.count(local) == 1
    changed = tmp_path / example.name
    changed.write_text(text.replace(local, f"from fumehood.runtime.nats import NatsRuntime\n    {there}"))
    outputs = [(await anyio.run_process([sys.executable, str(path)])).stdout for path in (example, changed)]
    assert outputs[0] == outputs[1] != b""


async def test_the_example_of_a_team_in_three_processes(nats: nats_server.NatsServer) -> None:
    example = Path(__file__).parents[2] / "examples" / "processes" / "team.py"

    async def start(*words: str) -> anyio.abc.Process:
        return await anyio.open_process([sys.executable, str(example), *words], stderr=None)

    members = [await start(role, nats.url) for role in ("writer", "editor")]
    try:
        for member in members:
            assert member.stdout is not None
            assert (await member.stdout.receive()).strip() == b"ready"
        told = await anyio.run_process([sys.executable, str(example), "ask", nats.url])
        assert told.stdout == b"Fume hoods: a text\n"
    finally:
        for member in members:
            member.kill()
            await member.wait()
    alone = await anyio.run_process([sys.executable, str(example)])
    assert alone.stdout == told.stdout
