"""The host's end of a run, over descriptors: pipes for its streams, a socket for its answer, a link to what is inside.

Every backend whose guest speaks this way uses it: `descriptors` makes them, `pump` moves bytes, `feed` fills standard
input, `execution` is a run under way, `session` one that lives on, `file_service` the door to the sandbox's files,
`places` a sandbox made of all that. Must not know how the guest came to be, or what lies between it and us.
"""
