"""A session inside the boundary: one interpreter whose state lives on between runs, and whose results are shown.

Owns what happens between "here is some source" and "it ended so", in a process that is already isolated. Must not know
how that process came to be, nor who is at the other end of the conversation.

Read it in this order: `loop` (the conversation) -> `plain` and `ipython` (two shells, one interface) -> `interrupts`
(when an interrupt may strike) -> `displays`, `figures` (values as media types) -> `publisher`,
`contract.bundle` (on the wire).

The host sends `{"do": "execute", "run": n, "source_bytes": k}` with the source and then the standard input as the body.
The guest says `{"ready": shell}` once, and for each run `{"started": n}`, any number of displays (see `bundle`), and
`{"done": n, "ended": "ok" | "error" | "exit" | "interrupted", "code": c, "exhausted": ""}`. SIGINT interrupts the run
when it arrives between "started" and "done", and is ignored at any other time. Who interrupts should do so again until
the run is done: Python does not see an interrupt in the moment before a system call blocks.
"""

from .loop import serve as serve
