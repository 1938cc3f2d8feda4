"""The user that programs are in an image. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.images.root import Root

NAME = "sandbox"
_FIRST_ID = 1000
_PASSWD, _GROUP = "etc/passwd", "etc/group"


@dataclass(frozen=True, slots=True)
class Account:
    number: int
    files: dict[str, bytes]
    """What the image is to have in place of its own."""

    @property
    def user(self) -> str:
        return f"{self.number}:{self.number}"


def add_account(root: Root) -> Account:
    """With a number that nobody else in the image has, so that it owns nothing there; one that is called so already
    gives way."""
    passwd, group = (_others(root, name) for name in (_PASSWD, _GROUP))
    taken = {_number(line) for line in (*passwd, *group)}
    number = next(each for each in range(_FIRST_ID, _FIRST_ID + len(taken) + 1) if each not in taken)
    passwd.append(f"{NAME}:x:{number}:{number}::/workspace:/bin/sh")
    group.append(f"{NAME}:x:{number}:")
    return Account(number, {_PASSWD: _text(passwd), _GROUP: _text(group)})


def _others(root: Root, name: str) -> list[str]:
    lines = (root.read(name) or b"").decode("utf-8", "replace").splitlines()
    return [line for line in lines if line and not line.startswith(f"{NAME}:")]


def _number(line: str) -> int | None:
    fields = line.split(":")
    return int(fields[2]) if len(fields) > 2 and fields[2].isdigit() else None


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
