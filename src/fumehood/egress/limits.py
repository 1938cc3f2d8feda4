"""What one sandbox may ask of the gateway at most, whatever its policy says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Times are in seconds. The defaults are documented in docs/network.md."""

    connections: int = 1024
    """At a time, for one sandbox; one more is reset. Less where the process may have few descriptors."""
    hello_seconds: float = 10.0
    """For a TLS handshake or the head of a request, from its first moment to its last byte."""
    connect_seconds: float = 10.0
    """For finding and reaching a server, all its addresses together."""
    idle_seconds: float = 900.0
    """For a connection on which nothing moves in either direction."""
    look_ups: int = 8
    """At a time, for one sandbox; further ones wait."""
    new_names: int = 100
    """Names below a wildcard that may be new at once ..."""
    new_names_a_second: float = 2.0
    """... and how fast that fills up again: a name that nobody used before may carry data in itself."""
    names: int = 4096
    """That a sandbox may ever use."""
    denials: int = 200
    allowed: int = 4096
    """That are told apart in one run; what comes after is only counted."""
