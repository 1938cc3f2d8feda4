"""Where packages come from: the indexes and folders that a policy or this user's configuration of uv names.

uv itself is asked what its configuration means, with nothing to install and without a network. What it answers is taken
apart here, because the sandbox of an installation needs the hosts to allow, and the credentials to withhold.
"""

from __future__ import annotations

import re
import subprocess
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from netrc import NetrcParseError, netrc
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from fumehood.environments.spec import EnvironmentSpec
from fumehood.errors import StepFailedError, UsageError
from fumehood.policy.hosts import check_host

_ASK_SECONDS = 30.0
_PORTS = {"http": 80, "https": 443}
# How uv writes an index into a requirements file -> the option that says the same to `uv pip install`.
_OPTIONS = {"--index-url": "--default-index", "--extra-index-url": "--index", "--find-links": "--find-links"}
_FALSE = ("", "0", "false", "f", "no", "n", "off")
# Which index: not looked at when the policy names one.
_INDEX_VARIABLE = re.compile(
    r"UV_(?:DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS|CONFIG_FILE|NO_CONFIG)|HOME|XDG_CONFIG_(?:HOME|DIRS)"
)


@dataclass(frozen=True, slots=True)
class Site:
    """An index, or a page of links, that is reached by the network."""

    url: str
    """The URL that the installer gets."""
    host: str
    port: int
    is_secure: bool
    login: str | None = field(default=None, repr=False)
    """`Basic` credentials in base64, for requests to this host, which the installer is not to know."""


@dataclass(frozen=True, slots=True)
class PackageSource:
    option: str
    """What it is to uv: --default-index, --index or --find-links."""
    place: Site | Path

    @property
    def is_index(self) -> bool:
        return self.option != "--find-links"


def find_sources(uv: str, spec: EnvironmentSpec, variables: Mapping[str, str]) -> tuple[PackageSource, ...]:
    """The policy's index alone, or all that uv is configured to use."""
    if spec.index is not None:
        return (PackageSource("--default-index", _site(spec.index, variables)),)
    said = _ask(uv, spec.interpreter.executable, variables)
    # uv itself does not read this variable, in which a person has said what must not be asked.
    no_index = variables.get("UV_NO_INDEX", "").lower() not in _FALSE
    found = _read_answer(said.splitlines(), variables)
    return tuple(source for source in found if not (no_index and source.is_index))


def _ask(uv: str, python: str, variables: Mapping[str, str]) -> str:
    argv = [uv, "pip", "compile", "--quiet", "--offline", "--no-cache", "--no-header", "--color", "never"]
    argv += ["--python", python, "--emit-index-url", "--emit-find-links", "-"]
    known = {name: value for name, value in variables.items() if _INDEX_VARIABLE.fullmatch(name)}
    step = "reading uv's configuration"
    try:
        # From the root: a program that looks for a project's configuration in the parents of its folder finds none.
        asked = subprocess.run(
            argv, input=b"", capture_output=True, env=known, cwd="/", timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepFailedError(step, str(error), remedy="Check that uv works.") from error
    if asked.returncode != 0:
        said = " ".join(asked.stderr.decode("utf-8", "replace").split())
        raise StepFailedError(step, said.rstrip("."), remedy="Check uv.toml and the variables that start with UV_.")
    return asked.stdout.decode("utf-8", "replace")


def _read_answer(lines: Iterable[str], variables: Mapping[str, str]) -> Iterator[PackageSource]:
    for line in filter(None, map(str.strip, lines)):
        word, _, value = line.partition(" ")
        if word not in _OPTIONS:
            raise StepFailedError(
                "reading uv's configuration", f"it says {line!r}", remedy="Use another release of uv."
            )
        yield PackageSource(_OPTIONS[word], _place(value.strip(), variables))


def _place(value: str, variables: Mapping[str, str]) -> Site | Path:
    if value.startswith(("http://", "https://")):
        return _site(value, variables)
    folder = Path(unquote(urlsplit(value).path)) if value.startswith("file://") else Path(value)
    if not folder.is_absolute() or not folder.exists():
        raise UsageError(f"the index {value!r} of uv's configuration is no address and no folder; write its whole path")
    return folder


def _site(url: str, variables: Mapping[str, str]) -> Site:
    parts = urlsplit(url)
    try:
        host, port = check_host(parts.hostname or ""), parts.port or _PORTS[parts.scheme]
    except ValueError as error:
        raise UsageError(f"the host of the package index {_shown(parts)} cannot be used: it {error}") from None
    _refuse_proxies(parts.scheme, host, variables)
    if parts.scheme != "https":
        # A password that is sent without TLS is public.
        return Site(url, host, port, is_secure=False)
    return Site(_shown(parts), host, port, is_secure=True, login=_login(parts, host, variables))


def _shown(parts: SplitResult) -> str:
    """Without a user and a password."""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _login(parts: SplitResult, host: str, variables: Mapping[str, str]) -> str | None:
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not user and not password:
        user, password = _from_netrc(host, variables)
    return b64encode(f"{user}:{password}".encode()).decode() if user or password else None


def _from_netrc(host: str, variables: Mapping[str, str]) -> tuple[str, str]:
    file = variables.get("NETRC") or f"{variables.get('HOME', '')}/.netrc"
    try:
        entry = netrc(file).authenticators(host)
    except (OSError, NetrcParseError, UnicodeDecodeError):
        return "", ""
    return (entry[0], entry[2]) if entry else ("", "")


def _refuse_proxies(scheme: str, host: str, variables: Mapping[str, str]) -> None:
    """The gateway goes straight to where it is allowed to go; a proxy could be asked for anything."""
    names = [name for kind in (scheme, "all") for name in (f"{kind}_proxy", f"{kind}_proxy".upper())]
    used = next((name for name in names if variables.get(name)), None)
    exempt = (variables.get("no_proxy") or variables.get("NO_PROXY") or "").split(",")
    if used and not any(_means(name.strip().lower(), host) for name in exempt):
        raise UsageError(
            f"{used} is set, but packages are installed in a sandbox whose only way out leads straight to {host}; "
            f"add {host} to NO_PROXY if this machine reaches it, or set UV_DEFAULT_INDEX to an index that it does"
        )


def _means(exempt: str, host: str) -> bool:
    """Whether an entry of NO_PROXY covers a host, as in curl: a name covers its subdomains too."""
    return exempt == "*" or host == exempt or (bool(exempt) and host.endswith(f".{exempt.lstrip('.')}"))
