"""The authority of a cluster: a folder with the keys that make members, and the members that were removed.

Who has this folder is the cluster's owner. It is needed to make join tokens and to admit those who bring one; servers
without it place sandboxes all the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from fumehood.cluster import claims, permissions, stream_accounts
from fumehood.cluster.certificates import MEMBER_VALID, ClusterCertificates, key_pem, make_key
from fumehood.cluster.credentials import MemberCredentials, write_private
from fumehood.cluster.folder import FOLDER
from fumehood.cluster.nkeys import KeyKind, SigningPair, is_public_key
from fumehood.cluster.permissions import Permissions
from fumehood.cluster.subjects import check_member_name
from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.host.locks import lock_exclusive

_FILE = "authority.json"
CLUSTER, SYSTEM = "FUMEHOOD", "SYS"
_CLUSTER_DISK_BYTES = 1 << 30
_TENANT_DISK_BYTES = 4 << 30
"""A space of runtimes reserves a quarter of it for publications."""
_ADMINISTRATION = timedelta(minutes=5)
# NATS compares it with the time at which a token was issued, by a clock that may have been ahead of ours.
_FOR_EVER = 2**53
_TENANT = "tenant-"
_ROLES = {"worker": permissions.of_worker, "server": permissions.of_server}


@frozen
class Member:
    """One that has credentials: `role` is worker, server, or runtime for a process of a tenant's agents."""

    name: str
    role: str
    public: str
    account: str
    tenants: tuple[str, ...] = ()
    """Those that a worker serves, if not all."""

    @property
    def id(self) -> str:
        """Its name in the cluster; tenants name their runtimes as they like."""
        return self.name if self.account == CLUSTER else f"{self.account.removeprefix(_TENANT)}/{self.name}"


class ClusterAuthority:
    """What is in the file counts, whichever process has changed it: each change reads it first, under a lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._data = self._load()
        self._operator = SigningPair.of_seed(self._data["operator"])
        self.certificates = ClusterCertificates(self._data["ca"], self._data["ca_key"])

    def _load(self) -> dict[str, Any]:
        try:
            return {"removed": {}, **json.loads((self.folder / _FILE).read_text())}
        except FileNotFoundError:
            raise UsageError(
                f"there is no authority of a cluster in {self.folder}; `hood cluster init` makes one"
            ) from None
        except (OSError, ValueError) as error:
            raise UsageError(f"the authority in {self.folder} cannot be read: {error}") from error

    @classmethod
    def create(cls, folder: Path, urls: Sequence[str]) -> ClusterAuthority:
        """UsageError if there is one already: its members would be lost."""
        FOLDER.make(folder)
        if (folder / _FILE).exists():
            raise UsageError(f"there is a cluster in {folder} already; choose another folder with --folder")
        certificates, signing_key = ClusterCertificates.generate()
        data = {
            "urls": list(urls),
            "ca": certificates.pem,
            "ca_key": signing_key,
            "operator": SigningPair.generate(KeyKind.OPERATOR).seed,
            "accounts": {name: _new_account() for name in (*_with_streams(CLUSTER), SYSTEM)},
            "members": {},
            "removed": {},
            "revoked": {},
        }
        write_private(folder / _FILE, json.dumps(data))
        return cls(folder)

    @staticmethod
    def is_at(folder: Path) -> bool:
        return (folder / _FILE).exists()

    @contextmanager
    def _changed(self) -> Iterator[dict[str, Any]]:
        """What the block has changed is saved, unless it was left with an error."""
        with closing(lock_exclusive(self.folder / f"{_FILE}.lock")):
            data = self._load()
            yield data
            write_private(self.folder / _FILE, json.dumps(data))
            self._data = data

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(self._data["urls"])

    @property
    def operator_token(self) -> str:
        return claims.operator_token(self._operator, self.account(SYSTEM).public)

    @property
    def accounts(self) -> tuple[str, ...]:
        return tuple(self._data["accounts"])

    def account(self, name: str) -> SigningPair:
        return SigningPair.of_seed(self._data["accounts"][name])

    def account_token(self, name: str) -> str:
        revoked: Mapping[str, int] = self._data["revoked"].get(name, {})
        of, streams, _ = name.partition(stream_accounts.SUFFIX)
        shared = stream_accounts.OF_CLUSTER if of == CLUSTER else () if of == SYSTEM else stream_accounts.OF_RUNTIMES
        store = None if streams or of == SYSTEM else self.account(f"{name}{stream_accounts.SUFFIX}").public
        disk = _CLUSTER_DISK_BYTES if of == CLUSTER else _TENANT_DISK_BYTES
        return claims.account_token(
            self._operator,
            self.account(name).public,
            name,
            disk_bytes=disk if streams else 0,
            revoked=revoked,
            exports=[each.exported() for each in shared] if streams else (),
            imports=[] if store is None else [each.imported(store) for each in shared],
        )

    def ensure_account(self, tenant: str) -> list[str]:
        """The account of a tenant's runtimes, and that of their streams."""
        names = _with_streams(f"{_TENANT}{check_member_name(tenant)}")
        if not set(names) <= set(self.accounts):
            with self._changed() as data:
                for name in names:
                    data["accounts"].setdefault(name, _new_account())
        return names

    def members(self) -> list[Member]:
        return [_member(given) for given in self._data["members"].values()]

    def make_member(self, name: str, role: str, tenants: Sequence[str] = ()) -> MemberCredentials:
        """A server or a worker whose keys are made here, on the host that has the authority."""
        return self._make(name, role, CLUSTER, _ROLES[role](name), tenants)

    def make_runtime(self, name: str, tenant: str, allowed: Permissions) -> MemberCredentials:
        """A process of a tenant's agents, in the account of that tenant."""
        account, _ = self.ensure_account(tenant)
        return self._make(name, "runtime", account, allowed, ())

    def _make(
        self, name: str, role: str, account: str, allowed: Permissions, tenants: Sequence[str]
    ) -> MemberCredentials:
        user, key = SigningPair.generate(KeyKind.USER), make_key()
        member = Member(check_member_name(name), role, user.public, account, tuple(tenants))
        self._add(member)
        return MemberCredentials(
            name=name,
            urls=self.urls,
            ca=self.certificates.pem,
            certificate=self.certificates.issue(key.public_key(), name),
            key=key_pem(key),
            user=self._user_token(member, allowed),
            seed=user.seed,
            observer=self._observer_token(member),
        )

    def make_administrator(self) -> MemberCredentials:
        """For some minutes: a user of the system account that gives NATS accounts, and does nothing else."""
        made = self._make_passing("administrator", SYSTEM, permissions.of_administrator("administrator"))
        return replace(made, user="", observer=made.user)

    def make_space_maker(self, tenant: str) -> MemberCredentials:
        """For some minutes: a user that makes the streams of a tenant's runtimes, and does nothing else."""
        account, _ = self.ensure_account(tenant)
        return self._make_passing("space-maker", account, permissions.of_space_maker("space-maker"))

    def _make_passing(self, name: str, account: str, allowed: Permissions) -> MemberCredentials:
        user, key = SigningPair.generate(KeyKind.USER), make_key()
        expires = time.time() + _ADMINISTRATION.total_seconds()
        return MemberCredentials(
            name=name,
            urls=self.urls,
            ca=self.certificates.pem,
            certificate=self.certificates.issue(key.public_key(), name, valid=_ADMINISTRATION),
            key=key_pem(key),
            user=claims.user_token(self.account(account), user.public, name, allowed, expires=expires),
            seed=user.seed,
        )

    def admit(self, member: Member, request_pem: str) -> dict[str, str]:
        """What a newcomer that made its own keys is given: its tokens and its certificate."""
        if not is_public_key(member.public, KeyKind.USER):
            raise UsageError("the key of the NATS user is not valid")
        certificate = self.certificates.issue_for(request_pem, member.name)
        self._add(member)
        return {
            "certificate": certificate,
            "user": self._user_token(member, _ROLES[member.role](member.name)),
            "observer": self._observer_token(member),
        }

    def check_new(self, name: str, tenants: Sequence[str]) -> None:
        """UsageError for a name that another has, or has had as a worker of tenants that these are not.

        A worker shows its token with each announcement, and servers know the tenants from it. NATS proves the name of
        the one who announces, so that an earlier token of that name would be as good as the new one.
        """
        if name in self._data["members"]:
            raise UsageError(f"there is a member {name} already; `hood cluster remove {name}` removes it")
        before = self._data["removed"].get(name)
        if before is not None and _reaches_beyond(before["tenants"], tenants):
            earlier = ", ".join(before["tenants"]) or "all tenants"
            raise UsageError(
                f"there was a member {name} for {earlier}, whose token could be shown again by one that has its name; "
                "choose another name"
            )

    def _add(self, member: Member) -> None:
        check_member_name(member.name)
        with self._changed() as data:
            self._data = data
            self.check_new(member.id, member.tenants)
            others = (given["public"] for given in data["members"].values())
            if member.public in others or any(member.public in each for each in data["revoked"].values()):
                # Removing either would cut off both.
                raise UsageError("the key of the NATS user is, or was, another member's: each makes its own")
            data["members"][member.id] = asdict(member)

    def _user_token(self, member: Member, allowed: Permissions) -> str:
        expires = time.time() + MEMBER_VALID.total_seconds()
        return claims.user_token(
            self.account(member.account),
            member.public,
            member.name,
            allowed,
            expires=expires,
            tenants=member.tenants,
        )

    def _observer_token(self, member: Member) -> str:
        if member.role != "server":
            return ""
        allowed = permissions.of_observer(member.name, self.account(CLUSTER).public)
        expires = time.time() + MEMBER_VALID.total_seconds()
        return claims.user_token(self.account(SYSTEM), member.public, member.name, allowed, expires=expires)

    def revoke(self, name: str) -> list[str]:
        """Its tokens are not valid any more. Returns the accounts whose tokens NATS has to be given again.

        Also of one that was removed before: NATS may not have been there then.
        """
        with self._changed() as data:
            given = data["members"].pop(name, None) or data["removed"].get(name)
            if given is None:
                raise UsageError(f"there is no member {name!r}; `hood cluster status` lists them")
            member = _member(given)
            accounts = [member.account, *([SYSTEM] if member.role == "server" else [])]
            for account in accounts:
                data["revoked"].setdefault(account, {})[member.public] = _FOR_EVER
            both = data["removed"].get(name, given)["tenants"], given["tenants"]
            data["removed"][name] = given | {"tenants": sorted({*both[0], *both[1]}) if all(both) else []}
        return accounts


def _reaches_beyond(earlier: Sequence[str], tenants: Sequence[str]) -> bool:
    """Empty is all of them."""
    return bool(tenants) and (not earlier or not set(earlier) <= set(tenants))


def _member(given: Mapping[str, Any]) -> Member:
    return Member(given["name"], given["role"], given["public"], given["account"], tuple(given["tenants"]))


def _with_streams(account: str) -> list[str]:
    return [account, f"{account}{stream_accounts.SUFFIX}"]


def _new_account() -> str:
    return SigningPair.generate(KeyKind.ACCOUNT).seed
