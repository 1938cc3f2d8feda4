"""The program inside the boundary: enters the isolation, starts runs, reports how they ended.

Owns everything between "a cell was started" and "the user's first line of code", and the wire format that the
host speaks to it. Must not know policies, the host's API or anything outside the standard library: inside a sandbox
it is imported as the top-level package `guest`, from its own folder alone.

Read it in this order, which is the order of one run:
`cell` (enters namespaces) -> `rootfs` (what can be seen) -> `service` (keeps runs on standby) -> `supervision` (starts,
watches and ends a run) -> `standby` (the run's process) -> `isolation` (what it gives up) -> `program` (becomes the
user's code) -> `ending` (how that ends). In a container `relay` takes the place of the first half.
"""
