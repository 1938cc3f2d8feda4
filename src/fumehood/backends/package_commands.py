"""The commands `pip` and `uv` of a sandbox, as files for its root: they install into the HOME of its programs.

Both are uv, from the host, shown read-only. What they install comes through the gateway like everything else, from
where the policy lets programs go. Where the network is closed they install what is there already, such as wheels in a
mount. When an installation fails for want of a rule for its index, which uv itself is asked for, they print that rule.
"""

from __future__ import annotations

import json
import os
import re
from urllib.parse import urlsplit

from fumehood.frozen import frozen
from fumehood.guest.contract.paths import USER_BASE
from fumehood.host import uv
from fumehood.host.interpreter import Interpreter
from fumehood.policy import Policy

PLACE = "/etc/python"
"""Where no mount can cover it."""
COMMANDS = f"{PLACE}/bin"
MODULES = f"{PLACE}/site-packages"
PROGRAM = f"{PLACE}/uv"
_NAMES = ("pip", "pip3")
# Debian's own pip, which lies beside all its packages, installs nothing into a Python of Debian's.
_DEBIANS_MAIN = "/usr/lib/python3/dist-packages/pip/__main__.py"

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
_SETTINGS = f"""#!/bin/sh
if [ -z "$UV_CONFIG_FILE" ]; then
    if [ -n "$VIRTUAL_ENV" ]; then UV_CONFIG_FILE={PLACE}/uv.toml; else UV_CONFIG_FILE={PLACE}/home.toml; fi
    export UV_CONFIG_FILE
fi
# Where memory is limited by addresses (no cgroups), each thread's arena of glibc takes 64 MiB of them.
export MALLOC_ARENA_MAX="${{MALLOC_ARENA_MAX-1}}"
"""
# uv itself says of a host that is refused no more than that it cannot be reached.
_UV = f"""{_SETTINGS}
# What the gateway refuses stays refused.
export UV_HTTP_RETRIES="${{UV_HTTP_RETRIES-1}}"
[NETWORK]
case " $* " in
    *" install "*|*" sync "*|*" add "*|*" lock "*) ;;
    *) exec {PROGRAM} "$@" ;;
esac
index= before=
for word do
    case $before in -i|--index-url|--default-index) index=$word ;; esac
    case $word in --index-url=*|--default-index=*) index=${{word#*=}} ;; esac
    before=$word
done
if [ -z "$index" ]; then
    index=$({PROGRAM} pip compile --quiet --offline --no-header --emit-index-url - </dev/null 2>/dev/null)
    index=${{index##*--index-url }}
    index=${{index%%
*}}
fi
host=${{index#*://}} host=${{host%%/*}} host=${{host##*@}} host=${{host:-HOST}}
case $host in
    *:*) port=${{host##*:}} host=${{host%:*}} ;;
    *) case $index in http://*) port=80 ;; *) port=443 ;; esac ;;
esac
case $host:$port in
    [OPENED]) exec {PROGRAM} "$@" ;;
esac
case $index in http://*) plain=", protocol: http" ;; *) plain= ;; esac
{PROGRAM} "$@"
code=$?
[ $code = 0 ] && exit
cat >&2 <<END

[REASON] Name packages when it opens:
    hood run --with PACKAGE ...         packages=["PACKAGE"] in Python
or open their index, for pip in the sandbox:
    hood run --allow $host:$port ...
    {{host: $host, ports: [$port]$plain}} in network.allow of its policy
If the index keeps its files at another host, the next refusal names that.
END
exit $code
"""
_CLOSED = "The network of this sandbox is closed."
_REFUSED = "The policy that this sandbox was opened with has no rule for $host:$port."
_NO_UV = """#!/bin/sh
echo "${0##*/}: nothing can be installed here, because the host has no uv" >&2
exit 1
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
    installer = uv.find_uv()
    if installer is None:
        return PackageCommands(module, {f"{COMMANDS}/{name}": _NO_UV for name in (*_NAMES, "uv")}, None)
    usual = _configuration(policy.environment.index)
    files = {f"{PLACE}/uv.toml": usual, f"{PLACE}/home.toml": usual + _own_folder(python)}
    programs = {**{f"{COMMANDS}/{name}": _PIP for name in _NAMES}, f"{COMMANDS}/uv": _uv(policy, is_open=is_open)}
    return PackageCommands({**module, **files}, programs, installer)


def _uv(policy: Policy, *, is_open: bool) -> str:
    """The command `uv`. A host that a rule may mean counts as open: what is refused there has another reason."""
    rules = [rule for rule in policy.network.allow if is_open]
    opened = [f"{'*' if '/' in rule.host else rule.host}:{port}" for rule in rules for port in rule.ports]
    words = {
        "[NETWORK]": "" if is_open else "export UV_OFFLINE=1",
        "[OPENED]": "|".join(opened) or "''",
        "[REASON]": _REFUSED if is_open else _CLOSED,
    }
    return re.sub("|".join(map(re.escape, words)), lambda word: words[word[0]], _UV)


def covers(interpreter: Interpreter) -> dict[str, str]:
    """What lies beside the interpreter -> what is shown in its place, for `python -m pip`."""
    places = {interpreter.site_packages: MODULES}
    if interpreter.prefix == "/usr":
        places[_DEBIANS_MAIN] = f"{MODULES}/pip/__main__.py"
    return {path: cover for path, cover in places.items() if os.path.exists(path)}


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
