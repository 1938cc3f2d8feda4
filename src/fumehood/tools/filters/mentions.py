"""What a text asks for, or talks about, that no sandbox gives: places of the host, credentials, hosts that are closed.

Signs and not proof: a page about `/etc/passwd` mentions it as well. That is why they are only recorded unless the
policy says otherwise; what keeps a program from these things is the sandbox.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress

from fumehood.policy import Policy
from fumehood.policy.hazards import path_hazards
from fumehood.policy.hosts import covers
from fumehood.policy.paths import is_inside
from fumehood.secret_scan.values import TextSpan

HOST_PATH, CREDENTIAL, NETWORK = "host path", "credential", "address"

_PATH = re.compile(r"(?<![\w.:/~$}*])(?:~[\w.-]*)?/[\w.@+~/-]{2,}")
_WINDOWS = re.compile(r"(?i:\b[a-z]:\\(?:users|windows|programdata)\\[^\s\"'<>|]{0,200})")
_HOME, _HOMES = "/home/somebody", ("/home", "/Users", "/root")
# Every sandbox has its own of these.
_OWN = (
    *(
        "/tmp",
        "/var/tmp",
        "/workspace",
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/dev/shm",
    ),
    *(
        "/dev/fd",
        "/dev/stdin",
        "/dev/stdout",
        "/dev/stderr",
        "/proc/self",
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/proc/stat",
    ),
)
_CROWDED = ("/", "/var", "/var/lib", "/run", "/var/run", "/dev", "/proc", "/sys", "/etc")
_NAMES = re.compile(
    r"\b(?:[A-Z][A-Z0-9]*_)*(?:SECRET|TOKEN|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|ACCESS_KEY|CREDENTIALS?)(?:_[A-Z0-9]+)*\b"
    r"|(?<![\w/])(?:id_(?:rsa|dsa|ecdsa|ed25519)|\.env|\.netrc|\.git-credentials|\.pgpass|kubeconfig)\b(?!\.\w)"
)
_FEWEST_WORDS = 2
_URL = re.compile(r"(?i)\b(?:https?|wss?|ftp)://(?:[^\s/@\"'<>]{1,200}@)?(\[[0-9a-f:.]+\]|[a-z0-9._-]+)")
_METADATA = re.compile(r"(?<![\d.])169\.254\.169\.254(?![\d.])|\bmetadata\.google\.internal\b|\bfd00:ec2::254\b")
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def find_host_paths(text: str, policy: Policy) -> Iterator[TextSpan]:
    own = (*_OWN, *(mount.target for mount in policy.filesystem.mounts))
    for match in _PATH.finditer(text):
        written = match[0].rstrip(".")
        path = posixpath.normpath(re.sub(r"^~[\w.-]*", _HOME, written))
        if path in _CROWDED or any(is_inside(path, folder) for folder in own):
            continue
        if any(path_hazards(path, _HOME)) or any(is_inside(path, folder) for folder in _HOMES):
            yield TextSpan(match.start(), match.start() + len(written), HOST_PATH)
    for match in _WINDOWS.finditer(text):
        yield TextSpan(*match.span(), HOST_PATH)


def find_credentials(text: str, policy: Policy) -> Iterator[TextSpan]:
    for match in _NAMES.finditer(text):
        if match[0][0] in "i.k" or match[0].count("_") >= _FEWEST_WORDS - 1:
            yield TextSpan(*match.span(), CREDENTIAL)


def _is_open(pattern: str, host: str) -> bool:
    with suppress(ValueError):  # something like 1.2.3, which is neither a name nor an address
        return covers(pattern, host)
    return False


def find_addresses(text: str, policy: Policy) -> Iterator[TextSpan]:
    for match in _URL.finditer(text):
        host = match[1].strip("[]").lower().rstrip(".")
        if host not in _LOOPBACK and not any(_is_open(rule.host, host) for rule in policy.network.allow):
            yield TextSpan(*match.span(), NETWORK)
    for match in _METADATA.finditer(text):
        yield TextSpan(*match.span(), NETWORK)
