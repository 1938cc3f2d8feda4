"""An engine that goes away in the middle of a run and comes back: the run is lost, says so, and leaves nothing."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import engine
import pytest
from requirements import require

from fumehood import AsyncSandbox, Cause, Policy, Status

_SECONDS = 60
ENDLESS = "print('here', flush=True)\nimport signal\nsignal.pause()"


def wait_until(condition: Callable[[], object]) -> None:
    for _ in range(_SECONDS * 10):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"{condition} did not come true")


class OwnEngine:
    """With nobody else in it, so that it may be ended."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.start()

    def start(self) -> None:
        # A part of a killed one that nobody has buried would pass for alive.
        (self.place / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)
        with open(self.place / "log", "ab") as log:
            self.daemon = engine.start_daemon(self.place, log)
        wait_until(lambda: engine.answers(self.place))

    def end(self, number: int) -> None:
        self.daemon.send_signal(number)
        self.daemon.wait(_SECONDS)

    def containers(self) -> list[str]:
        done = engine.docker(self.place, "ps", "--all", "--quiet")
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def close(self) -> None:
        for container in self.containers():
            engine.docker(self.place, "rm", "--force", container)
        self.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def own_engine() -> Iterator[OwnEngine]:
    require(engine.missing() is None, engine.missing() or "")
    engine.use()  # makes the image's archive, if it is not there
    folder = Path(tempfile.mkdtemp(prefix="hood-", dir="/var/tmp"))
    place = folder / "own-engine"  # by which name tests that count mounts pass over them
    try:
        place.mkdir()
        started = OwnEngine(place)
        archive = place / "image.tar"
        subprocess.run(
            ["docker", "--host", engine.address(engine.folder()), "save", "-o", archive, engine.IMAGE], check=True
        )
        assert engine.docker(place, "load", "--input", str(archive)).returncode == 0
        yield started
        started.close()
    finally:
        # A daemon that was killed leaves it mounted, and the next one does not mind; others take it away themselves.
        subprocess.run(["umount", "--recursive", "--lazy", place / "data"], capture_output=True)
        shutil.rmtree(folder)


@pytest.mark.anyio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_run_is_lost_with_its_engine_and_leaves_nothing(own_engine: OwnEngine, number: int) -> None:
    policy = Policy(backend="docker", docker={"host": engine.address(own_engine.place)})
    async with AsyncSandbox(policy) as box:
        run = await box.start(ENDLESS)
        async for _ in run.stream():
            break
        own_engine.end(number)
        result = await run.wait()
        assert (result.status, result.cause) == (Status.ERROR, Cause.LOST)
        own_engine.start()
        wait_until(lambda: not own_engine.containers())
    async with AsyncSandbox(policy) as box:
        assert (await box.run("print(1)")).stdout == "1\n"
