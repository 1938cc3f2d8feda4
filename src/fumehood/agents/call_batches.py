"""Carrying out the calls of one answer: at once where their tools allow it, with results in the model's order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

import anyio

from fumehood.agents.messages import CallRequest
from fumehood.tools.result import ToolResult


def batches(requests: Sequence[CallRequest], is_parallel: Callable[[CallRequest], bool]) -> Iterator[list[CallRequest]]:
    """Neighbours that may be carried out together. What is not parallel comes after all before it, and alone."""
    together: list[CallRequest] = []
    for request in requests:
        if is_parallel(request):
            together.append(request)
            continue
        if together:
            yield together
        yield [request]
        together = []
    if together:
        yield together


async def call_together(
    requests: Sequence[CallRequest],
    call: Callable[[CallRequest], Awaitable[ToolResult]],
    keep: Callable[[CallRequest, ToolResult], None],
    most: int,
) -> None:
    """`keep` is given the results in the order of the requests: those that there are, also when it is cancelled.

    The first error ends the others, and is raised as it is.
    """
    results: dict[str, ToolResult] = {}
    errors: list[Exception] = []
    free = anyio.CapacityLimiter(most)

    async def carry_out(request: CallRequest) -> None:
        async with free:
            try:
                results[request.call_id] = await call(request)
            except Exception as error:
                errors.append(error)
                group.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as group:
            for request in requests:
                group.start_soon(carry_out, request)
    finally:
        for request in requests:
            if request.call_id in results:
                keep(request, results[request.call_id])
    if errors:
        raise errors[0]
