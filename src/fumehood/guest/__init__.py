"""The program inside the boundary: enters the isolation, starts runs, reports how they ended.

Owns everything between "a cell was started" and "the user's first line of code", and the wire format that the
host speaks to it. Must not know policies, the host's API or anything outside the standard library: inside a sandbox
it is imported as the top-level package `guest`, from its own folder alone.

Read it in this order, which is the order of one run: `cell.main` (enters namespaces) -> `isolation.rootfs` (what can be
seen) -> `cell.service` (keeps runs on standby) -> `cell.supervision` (starts, watches and ends a run) -> `cell.standby`
(the run's process) -> `isolation.run` (what it gives up) -> `program.start` (becomes the user's code) ->
`program.shutdown` (how that ends). In a container `relay` takes the place of `cell`. The host imports `contract` alone.
"""
