"""The folder that `git clone` makes where no other is named: git takes its name from the URL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fumehood.policy.commands.syntax import ONE, Word, known
from fumehood.policy.commands.variables import names

CLONING = frozenset({"git clone", "gh repo clone", "gh gist clone"})
# Of others git takes blanks and control characters away, and more.
_PLAIN = re.compile(r"[A-Za-z0-9_.@:/~+%-]+")
_PORT = re.compile(r":[0-9]*\Z")
_ENDINGS = names(".git .bundle")


def cloned_folders(remote: Word) -> Iterator[Word]:
    """Each that it may be, since the ending that goes away depends on what is there; one that is not known otherwise.

    The steps are those of `git_url_basename` in git's dir.c, in their order.
    """
    if remote.text is None or not _PLAIN.fullmatch(remote.text):
        yield Word((ONE,), remote.start, remote.end, remote.raw)
        return
    last = _last_part(remote.text)
    for name in sorted({last, *map(last.removesuffix, _ENDINGS)}):
        yield known(name, remote.start, remote.end)


def _last_part(url: str) -> str:
    host, slash, path = (url.partition("://")[2] or url).partition("/")
    rest = (host.rpartition("@")[2] + slash + path).rstrip("/")
    if len(rest) > len("/.git") and rest.endswith("/.git"):
        rest = rest.removesuffix("/.git").rstrip("/")
    if "/" not in rest:
        rest = _PORT.sub("", rest)
    return re.split("[/:]", rest)[-1]
