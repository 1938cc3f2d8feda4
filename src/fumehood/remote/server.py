"""`fumehood.connect`: a server that opens sandboxes for this program."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack
from urllib.parse import urlsplit

from fumehood.errors import DeniedError, UsageError
from fumehood.guest.contract.frames import Header
from fumehood.host.loopback import is_loopback
from fumehood.keywords import known_keywords
from fumehood.policy import AnyPolicy, Mount, Seconds, deny_all, read_policy, read_seconds
from fumehood.policy.arguments import add_packages
from fumehood.remote.carrier import CarrierLostError, MessageCarrier
from fumehood.remote.connection import SandboxConnection
from fumehood.remote.login import CA_VARIABLE, KEY_VARIABLE, URL_VARIABLE, find_login
from fumehood.remote.mounts import mounts_of, pack_mount
from fumehood.remote.named import RemoteNamedSandboxes
from fumehood.remote.policies import pack_policy, wanted_policy
from fumehood.remote.requests import ServerRequests
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.remote.websocket import HandshakeError, dial
from fumehood.results import RunResult
from fumehood.sandbox.interface import Opener, SandboxOptions
from fumehood.sandbox.request import RunOptions
from fumehood.snapshots.records import Snapshot, checked_name


class Server:
    """Opens sandboxes elsewhere. Each has a connection of its own; the server object itself holds none."""

    def __init__(self, url: str, key: str, ca_file: str | os.PathLike[str] | None = None) -> None:
        self.url = _checked_url(url)
        self._key = _checked_key(key)
        self._times: dict[str, float] = {}
        self._metadata: dict[str, str] = {}
        self._context = _make_context(self.url, ca_file)
        self._requests = ServerRequests(self.url, self._key, self._context)

    def __repr__(self) -> str:
        return f"Server({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing of its own is open: each sandbox is closed by its block."""

    def with_sandboxes(
        self, *, lifetime: Seconds | None = None, idle: Seconds | None = None, metadata: Mapping[str, str] | None = None
    ) -> Server:
        """The same server, whose sandboxes end after `lifetime`, or `idle` without use, whatever happens in them.

        The server has its own for both, and these may be shorter. Lists of sandboxes show their `metadata`.
        """
        other = copy(self)
        given = (("lifetime", lifetime), ("idle", idle))
        times = {name: read_seconds(value, name) for name, value in given if value is not None}
        other._times, other._metadata = self._times | times, self._metadata | dict(metadata or {})
        return other

    @known_keywords(SandboxOptions)
    def sandbox(self, policy: AnyPolicy | None = None, **options: Unpack[SandboxOptions]) -> RemoteSandbox:
        """`async with server.sandbox("analyst") as box`: a policy of the tenant's catalogue by name, or one of yours.

        A policy of yours takes a key that may write policies; without a policy everything is denied. Files of this
        machine that it mounts are sent along, to be read.
        """
        given = pack_policy(deny_all()) if policy is None else wanted_policy(policy)
        own = None if policy is None or isinstance(given, str) else read_policy(policy)
        return self._sandbox({"policy": given}, options, () if own is None else mounts_of(own))

    @known_keywords(SandboxOptions)
    def open(
        self,
        name: str,
        policy: AnyPolicy | None = None,
        *,
        once: bool = False,
        create: bool = False,
        wait: bool = False,
        **options: Unpack[SandboxOptions],
    ) -> RemoteSandbox:
        """A sandbox with a name, of the tenant's; see `AsyncSandbox.open`."""
        if options.get("snapshot") is not None or options.get("packages"):
            raise UsageError("a sandbox with a name begins with its own state, and has the packages of its policy")
        named = {"name": checked_name(name), "once": once, "create": create, "wait": wait}
        return self._sandbox({"policy": None if policy is None else wanted_policy(policy), **named}, options)

    @property
    def named(self) -> RemoteNamedSandboxes:
        """The tenant's named sandboxes and snapshots, while they are not open. Its methods block."""
        return RemoteNamedSandboxes(self._requests)

    def whoami(self) -> Mapping[str, object]:
        """The tenant, the name and the scopes of the key. Blocks."""
        return self._requests.call("GET", "whoami")

    def _sandbox(self, requested: Header, options: SandboxOptions, mounts: Sequence[Mount] = ()) -> RemoteSandbox:
        packages, snapshot = options.get("packages", ()), options.get("snapshot")
        add_packages(deny_all(), packages)  # which says what is wrong with them
        requested |= {
            "packages": list(packages),
            "snapshot": snapshot.id if isinstance(snapshot, Snapshot) else snapshot,
            "times": self._times,
            "metadata": self._metadata,
            **{name: bool(options.get(name)) for name in ("session", "learn", "gated", "keep_tmp")},
        }
        prepare = partial(self._send_mounts, mounts) if mounts else None
        connection = SandboxConnection(self.url, self._dial, requested, options.get("progress"), prepare)
        return RemoteSandbox(connection, keep_tmp=options.get("keep_tmp", False))

    async def _send_mounts(self, mounts: Sequence[Mount]) -> Header:
        def send(mount: Mount) -> str:
            return str(self._requests.post_bytes("mounts", content=pack_mount(mount))["id"])

        return {"mounts": {mount.target: await asyncio.to_thread(send, mount) for mount in mounts}}

    async def run(
        self,
        code: str | bytes | None = None,
        policy: AnyPolicy | None = None,
        *,
        packages: Sequence[str] = (),
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """Run code in a fresh sandbox, and close that."""
        async with self.sandbox(policy, packages=packages) as box:
            return await box.run(code, **options)

    async def _dial(self) -> MessageCarrier:
        try:
            return await dial(self.url, self._key, self._context)
        except HandshakeError as error:
            raise _refusal(self.url, error) from None


def _refusal(url: str, error: HandshakeError) -> Exception:
    detail = error.detail or f"it answered {error.status}"
    if error.status in (401, 403) and error.detail:
        return DeniedError(f"{url} refuses this key: {detail}")
    if error.status in (401, 403, 404, 426):
        return UsageError(f"{url} is not the address of a Fumehood server, to which no /v1 belongs: {detail}")
    return CarrierLostError(f"{url} cannot serve now: {detail}")  # it may be able to in a moment


def connect(url: str | None = None, key: str | None = None, *, ca_file: str | os.PathLike[str] | None = None) -> Server:
    """A server by its URL and a key; by default those of FUMEHOOD_SERVER and FUMEHOOD_KEY, or of `hood login`.

    `ca_file` has the certificates of a private authority, and is FUMEHOOD_SERVER_CA by default.
    """
    if url and key:
        return Server(url, key, ca_file or os.environ.get(CA_VARIABLE) or None)
    login = find_login({**os.environ, **({URL_VARIABLE: url} if url else {}), **({KEY_VARIABLE: key} if key else {})})
    if login is None:
        raise UsageError(f"which server? Give its URL, set {URL_VARIABLE}, or run `hood login URL`")
    return Server(login.url, login.key, ca_file or login.ca_file)


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{url!r} is not the URL of a server; write https://hood.example or http://127.0.0.1:8440")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise UsageError(f"{url!r} would send the key in the clear; use https, or a tunnel to this machine's loopback")
    return url.rstrip("/")


def _checked_key(key: str) -> str:
    """The libraries show a header that they refuse, and with it the key. A key from a file may end with a newline."""
    word = key.strip()
    if not word.isascii() or not word.isprintable() or " " in word:
        raise UsageError("the server's key is not a key, which is one word such as fh_...")
    return word


def _make_context(url: str, ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext | None:
    if not url.startswith("https"):
        return None
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else os.fspath(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the certificates in {ca_file} cannot be used: {error}") from error


if TYPE_CHECKING:
    # That it is what the protocol asks for, and its sandboxes are, is proved by the type checker.
    _opener: Opener = Server("", "")
