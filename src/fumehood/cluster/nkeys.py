"""Keys in the spelling of NATS (nkeys): Ed25519, as base32 with a prefix for the kind and a checksum."""

from __future__ import annotations

import base64
import binascii
import os
from enum import IntEnum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fumehood.errors import UsageError

_SEED = 18 << 3
_SEED_BYTES = 32


class KeyKind(IntEnum):
    """The first byte of a public key; in base32 its first letter is O, A or U."""

    ACCOUNT = 0
    OPERATOR = 14 << 3
    USER = 20 << 3


class SigningPair:
    """A key pair of an operator, an account or a user."""

    def __init__(self, kind: KeyKind, seed: bytes) -> None:
        self._kind, self._seed = kind, seed
        self._key = Ed25519PrivateKey.from_private_bytes(seed)

    @classmethod
    def generate(cls, kind: KeyKind) -> SigningPair:
        return cls(kind, os.urandom(_SEED_BYTES))

    @classmethod
    def of_seed(cls, text: str) -> SigningPair:
        """UsageError for what is not a seed."""
        data = _decode(text)
        try:
            kind = KeyKind((data[0] & 7) << 5 | data[1] >> 3)
        except (IndexError, ValueError):
            raise UsageError("the seed of a NATS key is not valid: its kind is not known") from None
        if data[0] & ~7 != _SEED or len(data) != 2 + _SEED_BYTES:
            raise UsageError("the seed of a NATS key is not valid; it begins with S and has 58 characters")
        return cls(kind, data[2:])

    @property
    def public(self) -> str:
        return _encode(bytes([self._kind]) + self._key.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        """For the file of its owner, and nothing else."""
        return _encode(bytes([_SEED | self._kind >> 5, (self._kind & 31) << 3]) + self._seed)

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)


def is_public_key(text: str, kind: KeyKind) -> bool:
    try:
        data = _decode(text)
    except UsageError:
        return False
    return len(data) == 1 + _SEED_BYTES and data[0] == kind


def verify_signature(public: str, data: bytes, signature: bytes) -> None:
    """ValueError if the owner of this public key has not signed the data."""
    try:
        Ed25519PublicKey.from_public_bytes(_decode(public)[1:]).verify(signature, data)
    except (InvalidSignature, UsageError) as error:
        raise ValueError("the signature is not valid") from error


def _encode(data: bytes) -> str:
    checked = data + binascii.crc_hqx(data, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _decode(text: str) -> bytes:
    try:
        checked = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise UsageError("a NATS key is not valid: it is not base32") from None
    data, checksum = checked[:-2], checked[-2:]
    if binascii.crc_hqx(data, 0).to_bytes(2, "little") != checksum:
        raise UsageError("a NATS key is not valid: its checksum is wrong")
    return data
