"""The commands `pip` and `uv` of a sandbox, as files for its root: they install into the HOME of its programs.

Both are uv, from the host, shown read-only. What they install comes through the gateway like everything else, from
where the policy lets programs go. Where the network is closed they refuse, and say what the policy would need.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from fumehood.frozen import frozen
from fumehood.guest.contract.paths import USER_BASE
from fumehood.host import uv
from fumehood.policy import Policy

PLACE = "/etc/python"
"""Where no mount can cover it."""
COMMANDS = f"{PLACE}/bin"
MODULES = f"{PLACE}/site-packages"
PROGRAM = f"{PLACE}/uv"
_NAMES = ("pip", "pip3")

# What uv has no word for and does anyway, or has no use for.
_PIP = f"""#!/bin/sh
skip=
for word do
    shift
    if [ -n "$skip" ]; then skip=; continue; fi
    case $word in
        --user|--no-input|--no-warn-script-location|--root-user-action=*|--progress-bar=*) ;;
        --root-user-action|--progress-bar) skip=1 ;;
        *) set -- "$@" "$word" ;;
    esac
done
case $1 in
    -V|--version) exec {COMMANDS}/uv --version ;;
esac
exec {COMMANDS}/uv pip "$@"
"""
_UV = f"""#!/bin/sh
if [ -z "$UV_CONFIG_FILE" ]; then
    if [ -n "$VIRTUAL_ENV" ]; then UV_CONFIG_FILE={PLACE}/uv.toml; else UV_CONFIG_FILE={PLACE}/home.toml; fi
    export UV_CONFIG_FILE
fi
# What the gateway refuses stays refused.
export UV_HTTP_RETRIES="${{UV_HTTP_RETRIES-1}}"
exec {PROGRAM} "$@"
"""
# Another pip or uv of the system may do what needs no network.
_REFUSAL = f"""#!/bin/sh
case " $* " in
    *" install "*|*" download "*|*" sync "*|*" add "*)
        echo "${{0##*/}}: nothing can be installed here: the network of this sandbox is closed." >&2
        echo "Add %s to network.allow of its policy," >&2
        echo "or name the packages when it opens: packages=[...], or hood run --with PACKAGE." >&2
        exit 1 ;;
esac
PATH=${{PATH#*{COMMANDS}:}}
exec "${{0##*/}}" "$@"
"""
_MODULE = f"""import os, sys
os.execv("{COMMANDS}/pip", ["{COMMANDS}/pip", *sys.argv[1:]])
"""


@frozen
class PackageCommands:
    files: dict[str, str]
    programs: dict[str, str]
    """Scripts that can be executed."""
    installer: str | None
    """The file of the host to show at PROGRAM."""


def package_commands(policy: Policy, python: str, *, is_open: bool) -> PackageCommands:
    """`python` is what uv installs for; `is_open` if programs can go out at all."""
    module = {f"{MODULES}/pip/__init__.py": "", f"{MODULES}/pip/__main__.py": _MODULE}
    installer = uv.find_uv() if is_open else None
    if installer is None:
        refusal = _REFUSAL % rule_for(policy.environment.index)
        return PackageCommands(module, {f"{COMMANDS}/{name}": refusal for name in (*_NAMES, "uv")}, None)
    usual = _configuration(policy.environment.index)
    files = {f"{PLACE}/uv.toml": usual, f"{PLACE}/home.toml": usual + _own_folder(python)}
    programs = {**{f"{COMMANDS}/{name}": _PIP for name in _NAMES}, f"{COMMANDS}/uv": _UV}
    return PackageCommands({**module, **files}, programs, installer)


def rule_for(index: str | None) -> str:
    """The rule that opens an index, as a policy has it."""
    parts = urlsplit(index or "https://packages.example")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    plain = "" if parts.scheme == "https" else ", protocol: http"
    return f"{{host: {parts.hostname}, ports: [{port}]{plain}}}"


def _configuration(index: str | None) -> str:
    """Nothing is kept besides what is installed, and no other Python is fetched."""
    lines = ["no-cache = true", 'link-mode = "copy"', 'python-downloads = "never"']
    if index is not None:
        lines += ["[[index]]", f"url = {json.dumps(_without_login(index))}", "default = true"]
    return "\n".join(lines) + "\n"


def _own_folder(python: str) -> str:
    """Wheels only, as everywhere; `--only-binary :none:` builds what has none, in this sandbox."""
    return f'[pip]\nprefix = "{USER_BASE}"\npython = {json.dumps(python)}\nonly-binary = [":all:"]\n'


def _without_login(index: str) -> str:
    parts = urlsplit(index)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
