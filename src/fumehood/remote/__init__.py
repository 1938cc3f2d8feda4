"""A sandbox that is elsewhere: the client's half, and the half that serves one.

Owns the protocol between them, whatever carries it: messages with numbers on a link that survives the loss of a
connection, conversations with windows on that link, and the calls of a sandbox in conversations. Knows nothing of
tenants, keys or placement: who may have which sandbox is decided before a link is made.
"""
