"""The credentials of one member, in a file for its user alone: where NATS is, a certificate and a user of NATS."""

from __future__ import annotations

import base64
import json
import os
import ssl
import stat
from dataclasses import asdict, fields
from pathlib import Path
from typing import cast

from fumehood.cluster.nkeys import SigningPair
from fumehood.errors import UsageError
from fumehood.frozen import frozen


@frozen
class MemberCredentials:
    name: str
    urls: tuple[str, ...]
    """`tls://host:port` of the cluster's NATS servers."""
    ca: str
    certificate: str
    key: str
    user: str
    """The token of its NATS user, which its account has signed."""
    seed: str
    observer: str = ""
    """Of a server: the token of a second user with the same key, of NATS's system account."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> MemberCredentials:
        """UsageError if it is not there, not valid, or if others can read it."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            with os.fdopen(descriptor) as file:
                mode, text = os.fstat(descriptor).st_mode, file.read()
        except (OSError, ValueError) as error:
            raise UsageError(f"the credentials {os.fspath(path)} cannot be read: {error}") from error
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(f"the credentials {os.fspath(path)} are open to others; run `chmod 600 {os.fspath(path)}`")
        return cls.of_text(text, os.fspath(path))

    @classmethod
    def of_text(cls, text: str, place: str) -> MemberCredentials:
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            given = None
        names = {field.name for field in fields(cls)}
        if not isinstance(given, dict) or set(cast("dict[str, object]", given)) != names:
            raise UsageError(f"{place} does not hold the credentials of a member of a cluster")
        found = cast("dict[str, object]", given)
        urls = found.pop("urls")
        if not isinstance(urls, list) or not all(isinstance(value, str) for value in found.values()):
            raise UsageError(f"{place} does not hold the credentials of a member of a cluster")
        return cls(urls=tuple(map(str, cast("list[object]", urls))), **cast("dict[str, str]", found))

    def to_text(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def write(self, path: Path) -> None:
        write_private(path, self.to_text())

    def context(self) -> ssl.SSLContext:
        """TLS that shows this member's certificate, and accepts those of the cluster's authority alone."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=self.ca)
        # The standard library takes keys from files only; this one has no name and lives in memory.
        descriptor = os.memfd_create("fumehood", os.MFD_CLOEXEC)
        with open(descriptor, "w") as file:
            file.write(self.certificate + self.key)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        return context

    def sign(self, nonce: str) -> bytes:
        """The answer to NATS's challenge."""
        return base64.b64encode(SigningPair.of_seed(self.seed).sign(nonce.encode()))


def write_private(path: Path, text: str) -> None:
    """An atomic write of a file with mode 0600."""
    draft = path.with_name(f".{path.name}-{os.urandom(6).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
