"""The host's end of a run, over descriptors: pipes for its streams, a socket for its answer, a link to what is inside.

Every backend whose guest uses this protocol shares it: `descriptors` makes them, `run_io` moves bytes, `stdin` fills
standard input, `execution` is a running program, `session` one that keeps its state, `file_service` reads and writes
the sandbox's files, `sandbox` is made of all that. Must not know how the guest was started, or what lies between.
"""
