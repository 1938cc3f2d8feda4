"""The way in: ports of a sandbox, published at an address of the host's loopback that wants a token.

Owns what happens between a client of this machine and a server inside. Which ports may be published is the policy's
part; how a connection gets into a sandbox is the backends'. Everything happens in the gateway's thread, with its
parsers and its budgets of memory and connections. The server inside is trusted with nothing, the client with nothing
until it has shown the token.

    access       decides about a request: who asks, at which address, from which page; pure
    exchange     request by request: refused, or written anew and sent to the server inside
    server       the listener and its connections
    log          what was asked for and refused, for the audit log
"""
