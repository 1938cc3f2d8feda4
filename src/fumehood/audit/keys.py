"""The key that signs checkpoints: made at first use, for its owner's eyes alone; its public half may go anywhere.

`cryptography` takes a while to import, so it is imported when something is signed or checked, and not before.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood.errors import AuditError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PRIVATE, PUBLIC = "key.pem", "key.pub"
_KEY_BYTES = 32


class SigningKey:
    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        return self._key.sign(statement)


def make_key(folder: Path) -> None:
    """Creates the key pair unless there is one. Of two processes at the same time, the second uses the first one's."""
    if (folder / PRIVATE).exists():
        return
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    draft = folder / f".key-{os.urandom(8).hex()}"
    try:
        write_durably(draft, [pem])
        with suppress(FileExistsError):
            os.link(draft, folder / PRIVATE)
    finally:
        draft.unlink(missing_ok=True)


def load_key(folder: Path) -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = folder / PRIVATE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            mode, pem = os.fstat(file.fileno()).st_mode, file.read()
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _unusable(path, f"others can read it, and may sign in your name. If none did, run `chmod 600 {path}`")
    try:
        key = load_pem_private_key(pem, password=None)
    except ValueError as error:
        raise _unusable(path, "it does not hold a key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable(path, "it is not an Ed25519 key")
    return SigningKey(key)


def public_pem(public: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = Ed25519PublicKey.from_public_bytes(public)
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_public(path: Path) -> bytes:
    """Reads a public key from a PEM file, as `hood audit key` prints it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise UsageError(f"the public key {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not a public key; `hood audit key` prints one") from error
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{path} is not an Ed25519 key; `hood audit key` prints one")
    return key.public_bytes_raw()


def is_signed(public: bytes, statement: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(public) != _KEY_BYTES:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except InvalidSignature:
        return False
    return True


def write_durably(path: Path, pieces: Iterable[bytes]) -> None:
    """A new file of mode 0600, on the disk when this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


def _unusable(path: Path, why: str) -> AuditError:
    return AuditError(
        f"the audit log's signing key {path} cannot be used: {why}. Restore it from a backup; or move the whole folder "
        "away, keep it as it is, and a new log with a new key is begun."
    )
