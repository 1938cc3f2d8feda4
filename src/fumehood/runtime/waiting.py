"""Who waits for whom: the wait-for graph of the handlers under way, in which a circle is a deadlock.

A handler waits for the handlers that answer its questions, and, where a question or a publication of its own has to
wait for its place in a queue, for those that keep that agent busy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fumehood.runtime.census import Census
from fumehood.runtime.residents import Job, Resident


class WaitGraph:
    def __init__(self, census: Census, answering: Mapping[str, Job]) -> None:
        """`answering` has the jobs of direct messages, by the id of the message."""
        self._census, self._answering = census, answering

    def would_close(self, asker: Job, recipient: Resident) -> bool:
        """Whether the recipient takes nothing more from its queue before the asker is done."""
        return recipient.is_full_of_work and all(self._waits_for(job, asker) for job in recipient.jobs)

    def _waits_for(self, job: Job, other: Job) -> bool:
        """Directly, or through others."""
        seen: set[Job] = set()
        todo = [job]
        while todo:
            each = todo.pop()
            if each is other:
                return True
            if each not in seen:
                seen.add(each)
                todo.extend(self._next(each))
        return False

    def _next(self, job: Job) -> Iterator[Job]:
        for message_id, agent in job.asked.items():
            if (answering := self._answering.get(message_id)) is not None:
                yield answering
            elif (resident := self._census.find(agent)) is not None and message_id not in resident.questions:
                yield from resident.jobs
        for agent in job.crowds:
            if (resident := self._census.find(agent)) is not None:
                yield from resident.jobs
