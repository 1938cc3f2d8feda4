"""The names that one sandbox uses, and the address inside of it that stands for each.

An address from 127.64.0.0/10 means nothing outside. A connection to one tells which name the program meant, whatever
that name leads to now.
"""

from __future__ import annotations

import threading
from ipaddress import IPv4Address, IPv4Network

from fumehood.egress.buckets import Bucket
from fumehood.egress.limits import Limits

_BLOCK = IPv4Network("127.64.0.0/10")


class Names:
    """Thread-safe: questions arrive in any thread. A name keeps its address for as long as the sandbox is open."""

    def __init__(self, limits: Limits) -> None:
        self._most = limits.names
        self._new = Bucket(limits.new_names, limits.new_names_a_second)
        self._addresses: dict[str, IPv4Address] = {}
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()

    def admit(self, name: str, *, listed: bool) -> tuple[IPv4Address | None, str]:
        """The address of an allowed name, or None and why it may not have one. `listed`: a rule spells it out."""
        with self._lock:
            if (known := self._addresses.get(name)) is not None:
                return known, ""
            if len(self._addresses) >= self._most:
                return None, f"the sandbox has used {self._most} names already, which is the most it may"
            if not listed and not self._new.take():
                return None, "too many new names below a wildcard in a short time, which could carry data out"
            address = _BLOCK[len(self._addresses) + 1]
            self._addresses[name], self._names[str(address)] = address, name
            return address, ""

    def host_at(self, address: str) -> str:
        """What a program means by an address: the name that it stands for, or the address itself."""
        return self._names.get(address, address)

    def name_at(self, address: str) -> str | None:
        """The name that an address stands for."""
        return self._names.get(address)
