"""Join tokens: each lets one machine become a member, once, within its time.

A token is a user of NATS that may ask for credentials and do nothing else. The newcomer makes its keys by itself and
sends their public halves; a server of the cluster that has the authority signs them.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import secrets
import time
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fumehood.cluster import claims, permissions, subjects
from fumehood.cluster.authority import CLUSTER, ClusterAuthority, Member
from fumehood.cluster.certificates import key_pem, make_key, make_request
from fumehood.cluster.connection import close, connect
from fumehood.cluster.credentials import MemberCredentials, write_private
from fumehood.cluster.nkeys import KeyKind, SigningPair
from fumehood.errors import DeniedError, FumehoodError, LostError, UsageError

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_PREFIX = "hoodjoin_"
_FOLDER = "joins"
_ANSWER_SECONDS = 15
_MOST_BYTES = 64 * 1024


def make_token(authority: ClusterAuthority, name: str, role: str, seconds: float, tenants: Sequence[str] = ()) -> str:
    """A token for a member with this name. It is known to the authority until it is used."""
    for word in (name, *tenants):
        subjects.check_member_name(word)
    authority.check_new(name, tenants)
    identifier, expires = f"join-{secrets.token_hex(8)}", time.time() + seconds
    user, key = SigningPair.generate(KeyKind.USER), make_key()
    allowed = permissions.of_newcomer(identifier)
    newcomer = MemberCredentials(
        name=identifier,
        urls=authority.urls,
        ca=authority.certificates.pem,
        certificate=authority.certificates.issue(key.public_key(), identifier, valid=timedelta(seconds=seconds)),
        key=key_pem(key),
        user=claims.user_token(authority.account(CLUSTER), user.public, identifier, allowed, expires=expires),
        seed=user.seed,
    )
    (authority.folder / _FOLDER).mkdir(mode=0o700, exist_ok=True)
    wanted = {"name": name, "role": role, "tenants": list(tenants), "expires": expires}
    write_private(authority.folder / _FOLDER / identifier, json.dumps(wanted))
    packed = zlib.compress(newcomer.to_text().encode(), 9)
    return _PREFIX + base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def read_token(text: str) -> MemberCredentials:
    """A token, or the path of a file that holds one."""
    word = text.strip()
    if not word.startswith(_PREFIX):
        try:
            word = Path(word).read_text().strip()
        except (OSError, ValueError):
            raise UsageError("this is not a join token, nor a file with one; `hood cluster token` makes one") from None
    try:
        packed = base64.urlsafe_b64decode(word.removeprefix(_PREFIX) + "=" * (-(len(word) - len(_PREFIX)) % 4))
        data = zlib.decompressobj().decompress(packed, _MOST_BYTES)
    except (binascii.Error, zlib.error, ValueError):
        raise UsageError("the join token is not whole; copy all of it") from None
    return MemberCredentials.of_text(data.decode("utf-8", "replace"), "the join token")


async def join_cluster(token: str) -> MemberCredentials:
    """Credentials for a token. DeniedError says why it is refused, LostError that no server answers."""
    from nats.errors import Error, NoRespondersError

    newcomer = read_token(token)
    user, key = SigningPair.generate(KeyKind.USER), make_key()
    client = await connect(newcomer)
    question = json.dumps({"user": user.public, "request": make_request(key, newcomer.name)}).encode()
    try:
        message = await client.request(subjects.join(newcomer.name), question, timeout=_ANSWER_SECONDS)
    except NoRespondersError:
        raise LostError("no server that can admit members is running; start `hood serve --cluster` there") from None
    except Error as error:
        raise LostError(f"the server did not answer: {error}") from error
    finally:
        await close(client)
    answer: dict[str, str] = json.loads(message.data)
    if "refused" in answer:
        raise DeniedError(f"the cluster refuses the token: {answer['refused']}")
    return MemberCredentials(
        name=answer["name"],
        urls=newcomer.urls,
        ca=newcomer.ca,
        certificate=answer["certificate"],
        key=key_pem(key),
        user=answer["user"],
        seed=user.seed,
        observer=answer["observer"],
    )


class NewcomerAdmission:
    """Answers newcomers, where the authority is."""

    def __init__(self, authority: ClusterAuthority, send: Callable[[str, bytes], object]) -> None:
        self._authority, self._send = authority, send

    def answer(self, message: Msg) -> None:
        """Into an inbox of the newcomer's alone: a server may answer wherever a question says, the newcomer may not."""
        identifier = message.subject.rpartition(".")[2]
        if not message.reply.startswith(f"{subjects.inbox(identifier)}."):
            return
        try:
            given = self._admit(identifier, message.data)
        except FumehoodError as error:
            given = {"refused": str(error)}
        self._send(message.reply, json.dumps(given).encode())

    def _admit(self, identifier: str, data: bytes) -> dict[str, str]:
        question = _read_question(data)
        wanted = self._use_token(identifier)
        member = Member(wanted["name"], wanted["role"], question["user"], CLUSTER, tuple(wanted["tenants"]))
        return {"name": member.name, **self._authority.admit(member, question["request"])}

    def _use_token(self, identifier: str) -> dict[str, Any]:
        """Of two that bring one token, the first gets it: a file can be renamed once."""
        path = self._authority.folder / _FOLDER / identifier
        used = path.with_name(f"used-{identifier}")
        try:
            os.rename(path, used)
            wanted = json.loads(used.read_text())
            used.unlink()
        except FileNotFoundError:
            raise DeniedError("it was used before, or was never made here") from None
        if wanted["expires"] < time.time():
            raise DeniedError("it has expired")
        return wanted


def _read_question(data: bytes) -> dict[str, str]:
    try:
        question = json.loads(data[:_MOST_BYTES])
        return {name: str(question[name]) for name in ("user", "request")}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError("the question is not valid") from None
