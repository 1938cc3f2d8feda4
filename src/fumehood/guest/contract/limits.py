"""Numbers that the host and the guest agree on."""

from __future__ import annotations

SANDBOX_UID = 1000
UID_RANGE = 65536
LOOPBACK = "127.0.0.1"

# The kernel's word for "no core dump, and no handler either": 0 still starts a handler that core_pattern names. A cell
# sets it for itself and all its runs before it installs the system call filter, which keeps everyone from changing it.
NO_CORE_DUMP = 1
# Of the host's 4,096, of which 1,024 are kept for its own programs.
MOST_TERMINALS = 64
# Version 1 of cgroups counts the buffers of internet sockets apart, and only when they have a limit of their own: this
# part of the limit on memory, on top of it.
SOCKET_PART_OF_MEMORY = 4
# An interpreter that waits for the specification of a cell ends by itself after this.
PRESTART_SECONDS = 60.0
# What a session has between the interrupt at its limit and its end. Within it the host has to learn that the run is
# over, and to say so, on a busy machine and through an engine, too: else a session that has obeyed loses its state.
INTERRUPT_GRACE_SECONDS = 1.0
# So many runs of a container start at once without taking from the number of processes that programs may have.
SUPERVISORS = 4

# Further connections of a container at the same time are refused. Each can hold a window of data at both ends.
MOST_CONNECTIONS = 256
MAX_DATAGRAM_BYTES = 4096
# Of a packet that no listener took.
SHOWN_BYTES = 64
MAX_LISTING_BYTES = 32 * 1024 * 1024
# What a watch of files follows: so many names, and so many changes in one message, with paths of so many bytes at most.
MOST_WATCHED = 20_000
MOST_CHANGES = 200
MAX_CHANGES_BYTES = 32 * 1024 * 1024
# How long the file service waits for a change before it answers that there is none.
WATCH_SECONDS = 5.0
