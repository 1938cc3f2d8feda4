"""Host names in a policy: one spelling for each, wildcards only where they can be understood.

A name that two programs could read differently (numbers that some parse as addresses, scripts that look alike) is
refused here, so that the gateway never has to guess.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

from fumehood.policy.section import Text

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_EXACT = 1000
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


def check_host(text: str) -> str:
    """A name without wildcard, or an address, in its one spelling."""
    host = check_host_pattern(text)
    if "*" in host or "/" in host:
        raise ValueError("must be one host, without a wildcard or a block of addresses")
    return host


def covers(pattern: str, host: str) -> bool:
    """Whether a pattern covers a host: `*` and `*.name` cover names only, `*.name` not `name`; a block, addresses."""
    if "/" in pattern:
        return is_address(host) and ipaddress.ip_address(host) in ipaddress.ip_network(pattern)
    if pattern == "*":
        return not is_address(host)
    return host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]))


def specificity(pattern: str) -> int:
    """How exactly a pattern means the hosts that it covers; of two that cover the same host, the narrower has more."""
    if "/" in pattern:
        return ipaddress.ip_network(pattern).prefixlen
    if pattern.startswith("*"):
        return len(pattern)
    return _EXACT


def is_address(host: str) -> bool:
    """Whether a checked host is an address; a checked name never looks like one."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def is_localhost(host: str) -> bool:
    """Whether a name means the loopback whatever a resolver says (RFC 6761, 6.3)."""
    return host == "localhost" or host.endswith(".localhost")


def check_host_pattern(text: str) -> str:
    """A name, `*.name`, `*`, an address or a block of addresses, in its one spelling: lower case, no final dot."""
    address = _address(text) or _block(text)
    if address is not None:
        return address
    if text == "*":
        return text
    # Before lower(), which turns some foreign letters (the Kelvin sign) into ASCII ones.
    if not text.isascii():
        raise ValueError("must be written in its ASCII form (xn--...), so that look-alikes can be told apart")
    name = text.lower().removesuffix(".")
    _check_name(name.removeprefix("*."))
    return name


def endpoint(host: str, port: int) -> str:
    """`host:port`, with the brackets that an IPv6 address needs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_endpoint(text: str) -> tuple[str, int]:
    """The host and port of `host:port`."""
    host, _, port = text.rpartition(":")
    if _PORT.fullmatch(port) is None or int(port) > 65535:
        raise ValueError("must be host:port, such as api.github.com:443")
    return check_host(host.removeprefix("[").removesuffix("]")), int(port)


def check_endpoint(text: str) -> str:
    """`host:port` in its one spelling."""
    return endpoint(*split_endpoint(text))


def _address(text: str) -> str | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        raise ValueError("must not name a network interface")
    # The kernel connects to the IPv4 address within, so that is what it is.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _block(text: str) -> str | None:
    address, slash, length = text.partition("/")
    if not slash or _address(address) is None:
        return None
    try:
        block = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"is no block of addresses: {error}; write it like 10.0.0.0/8") from None
    if not length.isdigit() or (isinstance(block, ipaddress.IPv6Network) and block.subnet_of(_MAPPED)):
        raise ValueError("must be a plain block of addresses, such as 10.0.0.0/8 or 2001:db8::/32")
    return str(block.network_address) if block.num_addresses == 1 else str(block)


def _check_name(name: str) -> None:
    if "/" in name or ":" in name:
        raise ValueError("must be a bare name such as api.github.com; ports and paths have keys of their own")
    if "*" in name:
        raise ValueError("may have a wildcard only as its whole first label, such as *.example.com")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels) or _NUMERIC.fullmatch(labels[-1]):
        raise ValueError("is no host name and no address; write it like api.github.com, *.example.com or 10.0.0.1")


Host = Annotated[Text, AfterValidator(check_host)]
HostPattern = Annotated[Text, AfterValidator(check_host_pattern)]
Endpoint = Annotated[Text, AfterValidator(check_endpoint)]
