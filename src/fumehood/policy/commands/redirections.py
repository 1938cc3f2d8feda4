"""Where the shell itself may write: redirections need no program, so no rule about programs holds them."""

from __future__ import annotations

import posixpath
import re

from fumehood.policy.commands.script import Redirection
from fumehood.policy.commands.verdict import RefusedError
from fumehood.policy.commands.words import Word

_READING = frozenset({"<", "<<<", "<<", "<<-", "<&"})
_DEVICES = re.compile(r"/dev/(?:null|stdout|stderr|tty|zero|full|fd/[0-9]+)")
_NETWORK = ("/dev/tcp/", "/dev/udp/")
_SYSTEM = re.compile(r"/(?:etc|usr|bin|sbin|lib\w*|proc|sys|dev|boot|root|opt|run|var/(?!tmp))(?:/|$)")
# Programs take orders from these when they start.
_STARTUP = re.compile(
    r"\.(?:bash|zsh|ksh|csh|tcsh)\w*|\.profile|\.z\w*env|\.zlogin|\.zlogout|\.login|\.logout|\.inputrc|\.\w*rc|\.\w*profile|\.gitconfig"
    r"|\.gitattributes|\.gitmodules|\.netrc|\.pythonstartup|\.vim|\.ssh|\.gnupg|\.git|\.hg|\.svn|\.config|\.local|\.docker|\.kube|\.aws"
    r"|\.cargo|\.m2|\.gradle|\.npm|\.emacs(?:\.d)?|\.env|\.envrc|\.mailcap|\.pam_environment|\.xprofile|\.xsession|\.husky|crontab"
)  # fmt: skip
_ENDING = re.compile(r".*(\.[A-Za-z0-9]{1,8})", re.DOTALL)


def check_redirection(redirection: Redirection) -> None:
    """Raises RefusedError."""
    target = redirection.target
    if target is None:
        return
    text = target.text if target.text is not None else target.prefix
    if text.startswith(_NETWORK) and redirection.operator != "<<<":
        _refuse(redirection, "the shell would open a network connection", "use a program that the policy allows")
    if redirection.operator in _READING:
        return
    path = _known_path(target)
    if path is None:
        _refuse(
            redirection, "it cannot be known which file this writes", "write the file's name out, or end it in .txt"
        )
    elif _DEVICES.fullmatch(path):
        return
    elif _SYSTEM.match(path):
        _refuse(redirection, "this is a file of the system", "write into the workspace or /tmp")
    elif any(_STARTUP.fullmatch(part) for part in path.split("/")):
        _refuse(redirection, "programs take orders from this file when they start", "choose another file")


def _known_path(target: Word) -> str | None:
    """As far as it matters: the whole, or what comes after `~`, or the ending of a name that is made while it runs."""
    if target.text is not None:
        return posixpath.normpath(target.text) if target.text else None
    if target.prefix == "~" and len(target.pieces) == 3:
        return target.suffix.lstrip("/") or None
    # What comes before may turn out to be nothing, so that the ending may be the whole path.
    return target.suffix if _ENDING.fullmatch(target.suffix) and not target.is_many else None


def _refuse(redirection: Redirection, why: str, remedy: str) -> None:
    raise RefusedError(redirection.start, redirection.end, why, remedy)
