"""A fresh run and a cold command, against bubblewrap and `docker run`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from benchmarks import rivals
from fumehood.cli.bench.keepers import own_keeper, without_keeper
from fumehood.cli.bench.measurement import Row, command, in_turns
from fumehood.cli.bench.runs import hood_run, runner
from fumehood.sandbox.async_sandbox import AsyncSandbox


async def measure(rounds: int) -> AsyncIterator[Row]:
    few = max(3, rounds // 4)
    bubblewrap, docker, hood = rivals.bubblewrap(), rivals.docker(), hood_run()
    async with AsyncSandbox() as box:
        fresh = runner(box)
        for name, argv, budget in (
            ("fresh run / bubblewrap + python", bubblewrap, ""),
            ("fresh run / docker run", docker, "<= 1/40x"),
        ):
            if argv is None:
                yield Row(name, missing="not installed here")
                continue
            ours, baseline = await in_turns(few, fresh, command(argv))
            yield Row(name, ours, against=baseline, budget=budget)
    if hood is not None and docker is not None:
        ours, baseline = await in_turns(few, command(hood, without_keeper()), command(docker))
        yield Row("hood run, cold / docker run", ours, against=baseline, budget="<= 0.9x")
        async with own_keeper(hood) as variables:
            ours, baseline = await in_turns(few, command(hood, variables), command(docker))
        yield Row("hood run with a keeper / docker run", ours, against=baseline, budget="<= 0.15x")
