"""Refusals of the file service as errors for the caller: what, where, and what to do about it."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fumehood.backends.interface import Conversation
from fumehood.errors import DeniedError, FumehoodError, SandboxError, UsageError
from fumehood.guest.contract.limits import MAX_LISTING_BYTES, MOST_WATCHED
from fumehood.policy import Policy, format_size
from fumehood.sandbox.files.paths import shown

# A program has moved, replaced or removed it since we learned that it is there.
VANISHED = frozenset({"ENOENT", "ENOTDIR", "ELOOP", "ENXIO", "outside", "changed", "not a file", "EISDIR"})
UNREADABLE = frozenset({"EACCES", "EPERM"})
TOO_LONG = "too long to list"


class FileRefusal(Exception):
    """The service's own word, after which the conversation can go on."""

    def __init__(self, details: Mapping[str, Any]) -> None:
        self.reason = str(details.get("reason"))[:100]
        super().__init__(self.reason)
        self.size = details.get("size")
        self.kind = str(details.get("kind"))[:100]


Converse = Callable[[], AbstractAsyncContextManager[Conversation]]
"""Opens a conversation with the file service inside the sandbox."""


@asynccontextmanager
async def explained(converse: Converse, action: str, path: str, policy: Policy) -> AsyncIterator[Conversation]:
    """A conversation whose refusals are raised as errors for the caller; `action` is a verb, such as "read"."""
    refusal: FileRefusal | None = None
    async with converse() as conversation:
        try:
            yield conversation
        except FileRefusal as error:
            refusal = error
    if refusal is not None:
        raise _explain(refusal, action, path, policy) from None


def _explain(refusal: FileRefusal, action: str, path: str, policy: Policy) -> FumehoodError:
    error = _explained(refusal, action, path, policy)
    error.errno = _ERRORS.get(refusal.reason) or getattr(errno, refusal.reason, None)
    return error


def _explained(refusal: FileRefusal, action: str, path: str, policy: Policy) -> FumehoodError:
    subject = shown(path)
    if refusal.reason in _USAGE:
        return UsageError(_USAGE[refusal.reason](refusal, action, subject))
    if refusal.reason in ("ENOSPC", "EDQUOT"):
        return DeniedError(_full(action, path, policy))
    if refusal.reason in _DENIED:
        return DeniedError(f"{subject} cannot be used to {action}: {_DENIED[refusal.reason]}")
    if refusal.reason == "digest":
        return SandboxError(f"{subject} did not arrive as it was sent (the digests differ), so it was dropped")
    return SandboxError(f"to {action} {subject} failed in the sandbox: {refusal.reason}")


def _full(action: str, path: str, policy: Policy) -> str:
    if path.startswith("/"):
        return f"there is no room to {action} {shown(path)}: the disk that holds it is full"
    size, inodes = format_size(policy.workspace_bytes), policy.resources.inodes
    return (
        f"there is no room to {action} {shown(path)}: the workspace is full: it holds {size} in {inodes} files and "
        "folders; raise filesystem.workspace.size or resources.inodes, or remove something"
    )


def _is_a_folder(refusal: FileRefusal, action: str, subject: str) -> str:
    advice = "name a file in it" if action in ("write", "upload") else "list it, or download it as a whole"
    return f"{subject} is a folder; {advice}"


def _too_large(refusal: FileRefusal, action: str, subject: str) -> str:
    size = format_size(refusal.size) if isinstance(refusal.size, int) else "more"
    return f"{subject} has {size}, too much to {action} at once; download it, or raise max_bytes"


_USAGE: dict[str, Callable[[FileRefusal, str, str], str]] = {
    "ENOENT": lambda refusal, action, subject: f"{subject} does not exist in the sandbox, so one cannot {action} it",
    "ENOTDIR": lambda refusal, action, subject: f"{subject} is not a folder, or a part of its path is not",
    "EISDIR": _is_a_folder,
    "EEXIST": lambda refusal, action, subject: f"{subject} exists already in the sandbox",
    "ENOTEMPTY": lambda refusal, action, subject: (
        "the new name is that of a folder that is not empty; remove it first"
        if action == "rename"
        else f"{subject} is a folder that is not empty; say recursive=True to remove all that is in it"
    ),
    "EXDEV": lambda refusal, action, subject: (
        f"{subject} is not on the disk of its new name, such as /tmp and the workspace; copy it and remove it"
    ),
    "ENAMETOOLONG": lambda refusal, action, subject: f"{subject} has a name of more than 255 bytes",
    "ELOOP": lambda refusal, action, subject: f"{subject} is a link that leads nowhere, or around in a circle",
    "outside": lambda refusal, action, subject: (
        f"{subject} leads out of the workspace by a link; name the place itself by its absolute path"
    ),
    "changed": lambda refusal, action, subject: (
        f"{subject} was moved or filled by a program of the sandbox meanwhile; try again"
    ),
    "not a file": lambda refusal, action, subject: f"{subject} is a {refusal.kind}; one can only {action} files",
    "too large": _too_large,
    TOO_LONG: lambda refusal, action, subject: (
        f"{subject} has names and links of more than {format_size(MAX_LISTING_BYTES)} together, too much to {action}; "
        "remove some of them"
    ),
    "too many to watch": lambda refusal, action, subject: (
        f"{subject} has more than {MOST_WATCHED} files and folders, too many to watch; watch a folder in it"
    ),
    "the top": lambda refusal, action, subject: f"{subject} itself always exists; one cannot {action} it",
}
# What the kernel would say, or comes nearest to it.
_ERRORS = {
    "outside": errno.EACCES,
    "changed": errno.EAGAIN,
    "not a file": errno.EINVAL,
    "too large": errno.EFBIG,
    TOO_LONG: errno.EFBIG,
}
_DENIED = {
    "EROFS": "it is read-only in the sandbox; use the workspace, or a mount with mode: rw",
    "EACCES": "its permissions in the sandbox do not allow it; use the workspace, or change its mode",
    "EPERM": "its permissions in the sandbox do not allow it; use the workspace, or change its mode",
    "EBUSY": "it is a mount of the policy's",
    "EFBIG": "it would be larger than a file may be in this sandbox; raise filesystem.workspace.size",
}
