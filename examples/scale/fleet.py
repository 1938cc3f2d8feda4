"""A fleet of hosts as a discrete-event simulation.

Sandboxes arrive for tenants whose sizes follow Zipf's law. Each is opened on one host and stays there, and its runs
wait for a core of that host. What is measured comes from figures.py; everything in `Load` and `Fleet` is an assumption.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from figures import Figures

GAUGE_SECONDS = 1.0  # how old the placer's knowledge of a host is at most
FULL = 0.8  # of a host's cores: from here a sandbox goes elsewhere than home
DAY = 86_400


@dataclass(frozen=True)
class Load:
    tenants: int = 10_000
    sandboxes_a_day: int = 1_000_000
    peak: float = 3.0  # times the mean
    zipf: float = 1.05
    policies: int = 2  # of each tenant
    runs: float = 8.0  # of a sandbox, on average
    think_seconds: float = 20.0  # between two runs
    cpu_median: float = 0.05  # seconds of a program, lognormal
    cpu_sigma: float = 1.6
    cpu_most: float = 30.0
    flood: float = 0.0  # the largest tenant opens so many times the usual, for FLOOD_SECONDS

    @property
    def per_second(self) -> float:
        return self.sandboxes_a_day / DAY * self.peak

    @property
    def mean_cpu(self) -> float:
        return self.cpu_median * math.exp(self.cpu_sigma**2 / 2)


FLOOD_SECONDS = 10.0


@dataclass(frozen=True)
class Fleet:
    hosts: int = 24
    cores: int = 32
    placement: str = "home"  # or random, two, least
    queue: str = "fair"  # or first-come
    data_mib: float = 24.0  # what a program keeps in its session
    idle_seconds: float = 600.0  # after which a session is closed
    cell_seconds: float = 60.0  # that a cell stays warm without a session
    hop_seconds: float = 0.0015  # server to host and back
    cold_seconds: float | None = None  # instead of the measured one


@dataclass(frozen=True)
class Job:
    tenant: int
    cpu: float
    asked: float
    sandbox: Sandbox


@dataclass
class Sandbox:
    host: Host
    tenant: int
    runs_left: int


@dataclass
class Host:
    cores: int
    busy: int = 0
    cpu: float = 0.0
    sessions: int = 0
    most_sessions: int = 0
    most_cells: int = 0
    load: float = 0.0  # as the placer last saw it
    cells: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])  # until when each is warm
    queues: dict[int, deque[Job]] = field(default_factory=dict[int, deque[Job]])
    turns: deque[int] = field(default_factory=deque[int])

    def wait(self, queue: int, job: Job) -> None:
        if queue not in self.queues:
            self.queues[queue] = deque()
            self.turns.append(queue)
        self.queues[queue].append(job)

    def next_job(self) -> Job | None:
        """Round robin over the queues: one for each tenant, or one for all."""
        if not self.turns:
            return None
        queue = self.turns.popleft()
        job = self.queues[queue].popleft()
        if self.queues[queue]:
            self.turns.append(queue)
        else:
            del self.queues[queue]
        return job

    def look(self, now: float) -> None:
        self.load = (self.busy + sum(map(len, self.queues.values()))) / self.cores
        self.cells = {key: until for key, until in self.cells.items() if until > now}
        self.most_cells = max(self.most_cells, len(self.cells))


@dataclass(frozen=True)
class Outcome:
    opened: int
    cold: float  # share of openings
    open_p50: float
    open_p99: float
    other_wait_p999: float  # for a core, of all tenants but the largest
    most_sessions: int
    lost_with_host: int
    memory_gib: float  # of the fullest host
    cpu: float  # of the busiest host, as a share


class Simulation:
    def __init__(self, load: Load, fleet: Fleet, figures: Figures, *, scale: float, seconds: float, seed: int) -> None:
        self.load, self.fleet, self.figures, self.scale, self.seconds = load, fleet, figures, scale, seconds
        self.random = random.Random(seed)
        self.rate = load.per_second * scale
        self.hosts = [Host(fleet.cores) for _ in range(max(2, round(fleet.hosts * scale)))]
        self.cold_seconds = figures.cold_seconds if fleet.cold_seconds is None else fleet.cold_seconds
        self.sizes = list(itertools.accumulate((rank + 1) ** -load.zipf for rank in range(load.tenants)))
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.numbers = itertools.count()
        self.openings: list[float] = []
        self.cold = 0
        self.sessions = self.most_sessions = 0
        self.other_waits: list[float] = []

    def run(self) -> Outcome:
        self._at(0, self._arrive)
        self._at(GAUGE_SECONDS, self._look)
        if self.load.flood:
            self._at(self.seconds / 2, self._flood)
        while self.events and self.events[0][0] <= self.seconds:
            now, _, event = heapq.heappop(self.events)
            event(now)
        return self._outcome()

    def _at(self, when: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self.events, (when, next(self.numbers), event))

    def _arrive(self, now: float) -> None:
        self._open(now, self.random.choices(range(self.load.tenants), cum_weights=self.sizes)[0])
        self._at(now + self.random.expovariate(self.rate), self._arrive)

    def _flood(self, now: float) -> None:
        for _ in range(int(self.rate * self.load.flood * FLOOD_SECONDS)):
            self._at(now + self.random.random() * FLOOD_SECONDS, lambda then: self._open(then, 0))

    def _open(self, now: float, tenant: int) -> None:
        policy = self.random.randrange(self.load.policies)
        host = self._place(tenant, policy)
        is_cold = host.cells.get((tenant, policy), -1.0) < now
        self.cold += is_cold
        took = self.fleet.hop_seconds + self.figures.open_seconds + (self.cold_seconds if is_cold else 0)
        self.openings.append(took)
        sandbox = Sandbox(host, tenant, 1 + min(200, int(self.random.expovariate(1 / self.load.runs))))
        life = sandbox.runs_left * self.load.think_seconds + self.fleet.idle_seconds
        host.cells[tenant, policy] = now + life + self.fleet.cell_seconds
        host.sessions += 1
        host.most_sessions = max(host.most_sessions, host.sessions)
        self.sessions += 1
        self.most_sessions = max(self.most_sessions, self.sessions)
        self._at(now + took, lambda then: self._ask(then, sandbox))

    def _place(self, tenant: int, policy: int) -> Host:
        first, second = self.random.choice(self.hosts), self.random.choice(self.hosts)
        freer = min(first, second, key=lambda host: host.load)
        match self.fleet.placement:
            case "random":
                return first
            case "two":
                return freer
            case "least":
                return min(self.hosts, key=lambda host: host.load)
            case "home":
                home = min((self.hosts[i] for i in homes(tenant, policy, len(self.hosts))), key=lambda host: host.load)
                return home if home.load < FULL else freer
            case other:
                raise SystemExit(f"there is no placement {other!r}: random, two, least, home")

    def _ask(self, now: float, sandbox: Sandbox) -> None:
        cpu = min(self.load.cpu_most, self.random.lognormvariate(math.log(self.load.cpu_median), self.load.cpu_sigma))
        job = Job(sandbox.tenant, self.figures.run_cpu_seconds + cpu, now, sandbox)
        if sandbox.host.busy < sandbox.host.cores:
            self._begin(now, job)
        else:
            sandbox.host.wait(sandbox.tenant if self.fleet.queue == "fair" else 0, job)

    def _begin(self, now: float, job: Job) -> None:
        host = job.sandbox.host
        host.busy += 1
        host.cpu += job.cpu
        if job.tenant:
            self.other_waits.append(now - job.asked)
        self._at(now + job.cpu, lambda then: self._end(then, job.sandbox))

    def _end(self, now: float, sandbox: Sandbox) -> None:
        sandbox.host.busy -= 1
        sandbox.runs_left -= 1
        if sandbox.runs_left:
            pause = self.random.expovariate(1 / self.load.think_seconds)
            self._at(now + pause, lambda then: self._ask(then, sandbox))
        else:
            self._at(now + self.fleet.idle_seconds, lambda _: self._close(sandbox))
        if (job := sandbox.host.next_job()) is not None:
            self._begin(now, job)

    def _close(self, sandbox: Sandbox) -> None:
        sandbox.host.sessions -= 1
        self.sessions -= 1

    def _look(self, now: float) -> None:
        for host in self.hosts:
            host.look(now)
        self._at(now + GAUGE_SECONDS, self._look)

    def _outcome(self) -> Outcome:
        return Outcome(
            opened=len(self.openings),
            cold=self.cold / len(self.openings),
            open_p50=quantile(self.openings, 0.5),
            open_p99=quantile(self.openings, 0.99),
            other_wait_p999=quantile(self.other_waits, 0.999),
            most_sessions=round(self.most_sessions / self.scale),
            lost_with_host=max(host.most_sessions for host in self.hosts),
            memory_gib=max(map(self._memory_gib, self.hosts)),
            cpu=max(host.cpu for host in self.hosts) / (self.fleet.cores * self.seconds),
        )

    def _memory_gib(self, host: Host) -> float:
        sessions = host.most_sessions * (self.figures.session_mib + self.fleet.data_mib)
        return (sessions + host.most_cells * self.figures.cell_mib) / 1024


@cache
def homes(tenant: int, policy: int, hosts: int) -> tuple[int, int]:
    """The two hosts that come first for a policy of a tenant, by rendezvous hashing."""
    order = sorted(range(hosts), key=lambda host: zlib.crc32(b"%d/%d/%d" % (tenant, policy, host)), reverse=True)
    return order[0], order[1]


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0
