"""What a large fleet needs, costs, and runs out of first: arithmetic, then a simulation with a fixed seed.

python report.py [--scale SHARE] [--seconds N] [--seed N] [--host-hour PRICE]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from figures import Figures, read_figures
from fleet import Fleet, Load, Outcome, Simulation

# Of a record in an audit log, and how many a run has on average with what surrounds it.
RECORD_BYTES, RECORDS_A_RUN = 555, 3.5
MESSAGES_A_RUN, COMMITS_A_RUN = 4, 2
IDLE_SESSIONS = 100_000
HOST_MEMORY_GIB = 120.0
IDLE_FLEET, IDLE_SECONDS = Fleet(hosts=40, idle_seconds=2700), 4500.0  # as long as it takes to fill
USABLE = 0.7  # of a host's memory, and of its cores
# What one of each can do: a core of nats-server, and a connection to PostgreSQL.
MESSAGES_A_SECOND, COMMITS_A_SECOND = 6_000.0, 1_400.0
GIB, TIB = 1 << 30, 1 << 40


@dataclass(frozen=True)
class Need:
    what: str
    needed: float
    there: float
    unit: str

    @property
    def breaks_at(self) -> float:
        """Times today's load."""
        return self.there / self.needed


def needs(load: Load, fleet: Fleet, figures: Figures) -> list[Need]:
    """At the peak; memory for the idle sessions of a whole fleet."""
    runs = load.per_second * load.runs
    session_gib = (figures.session_mib + fleet.data_mib) / 1024
    return [
        Need("cores", runs * (figures.run_cpu_seconds + load.mean_cpu), fleet.hosts * fleet.cores * USABLE, "cores"),
        Need("memory of idle sessions", IDLE_SESSIONS * session_gib, fleet.hosts * HOST_MEMORY_GIB * USABLE, "GiB"),
        Need("NATS messages", runs * MESSAGES_A_RUN, MESSAGES_A_SECOND, "a second"),
        Need("database commits", runs * COMMITS_A_RUN, COMMITS_A_SECOND, "a second"),
    ]


def print_arithmetic(load: Load, fleet: Fleet, figures: Figures, host_hour: float) -> None:
    print(f"{load.sandboxes_a_day:,} sandboxes a day of {load.tenants:,} tenants, {IDLE_SESSIONS:,} idle sessions,")
    print(f"on {fleet.hosts} hosts of {fleet.cores} cores and {HOST_MEMORY_GIB:.0f} GiB\n")
    print(f"{'at the peak':26s} {'needed':>12s} {'there':>12s}  breaks at")
    for need in sorted(needs(load, fleet, figures), key=lambda need: need.breaks_at):
        print(f"{need.what:26s} {need.needed:12,.0f} {need.there:12,.0f}  {need.breaks_at:.1f} x this load")
    audit_bytes = load.sandboxes_a_day * load.runs * RECORDS_A_RUN * RECORD_BYTES
    ours = figures.run_cpu_seconds / (figures.run_cpu_seconds + load.mean_cpu)
    cells = load.tenants * load.policies * figures.cell_mib * (1 << 20)
    print(f"audit records: {audit_bytes / GIB:.0f} GiB a day, {audit_bytes * 90 / TIB:.1f} TiB for 90 days")
    print(f"share of the CPU that is ours, not the programs': {ours:.0%}")
    print(f"a warm cell for every policy of every tenant: {cells / GIB:.0f} GiB, so most are cold")
    if host_hour:
        thousand = host_hour * fleet.hosts * 24 / load.sandboxes_a_day * 1000
        print(f"at {host_hour:g} for an hour of a host: {thousand:.2f} for a thousand sandboxes")


def print_simulations(load: Load, figures: Figures, scale: float, seconds: float, seed: int) -> None:
    def simulate(fleet: Fleet, load: Load = load) -> Outcome:
        return Simulation(load, fleet, figures, scale=scale, seconds=seconds, seed=seed).run()

    print(f"\n{'placement':32s} {'cold':>5s} {'open p50':>9s} {'p99':>6s} {'CPU':>5s} {'memory':>8s}  lost with a host")
    for placement in ("random", "two", "least", "home"):
        _print_outcome(placement, simulate(Fleet(placement=placement)))
    _print_outcome("home, cold cell 30 ms", simulate(Fleet(cold_seconds=0.03)))
    _print_outcome("home, closed after 60 s", simulate(Fleet(idle_seconds=60)))

    idle = Simulation(load, IDLE_FLEET, figures, scale=scale, seconds=max(seconds, IDLE_SECONDS), seed=seed).run()
    print(f"\nsessions kept for 45 minutes on {IDLE_FLEET.hosts} hosts: {idle.most_sessions:,} at once,")
    print(f"{idle.memory_gib:.0f} GiB on the fullest host, {idle.lost_with_host:,} lost with it; cold {idle.cold:.2f}")

    print("\none tenant opens 40 x the usual for 10 s: how long the others wait for a core")
    for queue in ("first-come", "fair"):
        waited = simulate(Fleet(queue=queue, hosts=6), replace(load, flood=40)).other_wait_p999
        print(f"{queue:32s} p99.9 {waited * 1000:6.0f} ms")


def _print_outcome(name: str, outcome: Outcome) -> None:
    print(
        f"{name:32s} {outcome.cold:5.2f} {outcome.open_p50 * 1000:6.0f} ms {outcome.open_p99 * 1000:3.0f} ms"
        f" {outcome.cpu:5.2f} {outcome.memory_gib:4.0f} GiB  {outcome.lost_with_host}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.25, help="share of the load and of the hosts (0.25)")
    parser.add_argument("--seconds", type=float, default=900, help="that are simulated (900)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--host-hour", type=float, default=0, metavar="PRICE", help="of one host, in any currency")
    arguments = parser.parse_args()
    load, figures = Load(), read_figures()
    print_arithmetic(load, Fleet(hosts=40), figures, arguments.host_hour)
    print_simulations(load, figures, arguments.scale, arguments.seconds, arguments.seed)


if __name__ == "__main__":
    main()
