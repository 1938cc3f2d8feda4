"""Installs packages with uv: wheels only, copied, compiled, from the index that this user's configuration names.

uv is run with as little of the caller's environment as reaches an index: where its configuration and its cache are,
proxies, certificates, credentials, and uv's own variables about indexes. `PIP_*` variables are not among them, since uv
does not read them. A policy that names an index gets that index alone: no other variable, no configuration file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from fumehood.environments.children import run_child
from fumehood.environments.wishes import Wishes
from fumehood.errors import DeniedError, FumehoodError, StepFailedError, UsageError

_STEP = "building the environment"
_INSTALL_UV = "pip install 'fumehood[environments]'"

_KEPT = frozenset(
    {
        # Where uv finds its configuration and keeps its cache.
        *("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_CACHE_HOME", "TMPDIR", "UV_CACHE_DIR"),
        # How to reach an index, and to be believed by it. PATH is for a keyring program.
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_INSECURE_HOST"),
        *("NETRC", "UV_KEYRING_PROVIDER", "PATH"),
        *("UV_OFFLINE", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_CONCURRENT_DOWNLOADS"),
    }
)
# Which index: not looked at when the policy names one.
_INDEX_VARIABLE = re.compile(
    r"UV_(?:DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|INDEX_STRATEGY|CONFIG_FILE|NO_CONFIG"
    r"|INDEX_[A-Z0-9_]+_(?:USERNAME|PASSWORD))"
)
_INTERESTING = re.compile(r"(?:Resolved|Downloading|Downloaded|Prepared|Installed|Bytecode compiled) ")
# How uv draws a chain of reasons, in its older releases and in its newer ones.
_REASON_START = re.compile(r"^\s*(?:error: |\u00d7 )", re.MULTILINE)
_REASON_NEXT = re.compile(r":?\s*(?:\n\s*cause: |╰─▶ |├─▶ )")
_NO_SOLUTION = "No solution found when resolving dependencies: "


def find_uv() -> str:
    try:
        import uv

        return uv.find_uv_bin()
    except (ImportError, FileNotFoundError):
        raise UsageError(f"environment.packages needs uv to install packages: run `{_INSTALL_UV}`") from None


def install(
    wishes: Wishes,
    folder: Path,
    *,
    variables: Mapping[str, str],
    held: int,
    progress: Callable[[str], None],
    heartbeat: Callable[[], None],
) -> None:
    """Into `folder/packages`. The descriptor `held` stays open as long as anything of the installation lives."""
    packages, asked = folder / "packages", folder / "asked.txt"
    packages.mkdir()
    asked.write_text("".join(f"{package}\n" for package in wishes.packages), encoding="utf-8")
    ended = run_child(
        install_argv(find_uv(), wishes, asked, packages),
        python=wishes.interpreter.executable,
        variables=installer_variables(variables, wishes),
        held=held,
        on_line=lambda line: progress(line) if _INTERESTING.match(line) else None,
        heartbeat=heartbeat,
    )
    if ended.code != 0:
        raise explain(ended.said, ended.code)
    asked.unlink()
    # uv's own lock on the folder, open to everybody.
    (packages / ".lock").unlink(missing_ok=True)


def install_argv(uv: str, wishes: Wishes, asked: Path, packages: Path) -> list[str]:
    argv = [uv, "pip", "install", "--color", "never", "--python", wishes.interpreter.executable]
    argv += ["--target", str(packages), "-r", str(asked)]
    # Links into uv's cache would let whoever writes there change a finished environment.
    argv += ["--only-binary", ":all:", "--link-mode", "copy"]
    if wishes.target is not None:
        argv += ["--python-version", ".".join(map(str, wishes.target.version))]
        argv += ["--python-platform", wishes.target.platform]
    # Bytecode is of use to the release that made it alone.
    if wishes.target is None or wishes.target.version == wishes.interpreter.version:
        argv.append("--compile-bytecode")
    if wishes.are_hashed:
        argv.append("--require-hashes")
    if wishes.index is not None:
        argv += ["--no-config", "--default-index", wishes.index]
    return argv


def installer_variables(caller: Mapping[str, str], wishes: Wishes) -> dict[str, str]:
    kept = {
        name: value
        for name, value in caller.items()
        if name in _KEPT or (wishes.index is None and _INDEX_VARIABLE.fullmatch(name))
    }
    # Nothing in a read-only folder changes, so bytecode need not be compared with its source at every import.
    return {**kept, "PYC_INVALIDATION_MODE": "UNCHECKED_HASH"}


def explain(said: str, code: int) -> FumehoodError:
    """uv's words, by who has to act on them."""
    reason = _reason(said) or f"uv ended with code {code} and said nothing"
    if "no usable wheels" in said or "building from source is disabled" in said:
        return DeniedError(
            f"{_STEP}: {reason} Only wheels are installed, because building from source runs the package's code; "
            "choose another release or package."
        )
    if "network was disabled" in said:
        return StepFailedError(_STEP, reason.rstrip("."), remedy="Unset UV_OFFLINE.")
    if any(words in said for words in ("No solution found", "Failed to parse", "Couldn't parse")):
        return UsageError(f"{_STEP}: {reason} Check environment.packages and environment.requirements of the policy.")
    if "Hash mismatch" in said:
        return DeniedError(
            f"{_STEP}: {reason} The index has something else than what environment.requirements pins: find out which "
            "is right before you change the hash."
        )
    if "require-hashes" in said or "Hash-checking is required" in said:
        return UsageError(
            f"{_STEP}: {reason} With hashes, environment.requirements must list every package, dependencies included, "
            "pinned with == and with its hash."
        )
    return StepFailedError(_STEP, reason.rstrip("."), remedy="Check that this machine reaches its index and has space.")


def _reason(said: str) -> str:
    """Without the progress before it and the hints after it, in one line."""
    start = _REASON_START.search(said)
    error = said[start.end() :] if start else said[-1000:]
    chain = _REASON_NEXT.sub(": ", error.split("\n\nhint:")[0].replace("│", " "))
    words = " ".join(chain.split()).removeprefix(_NO_SOLUTION).removeprefix("Because ")
    words = words.replace(", we can conclude that your requirements are unsatisfiable", "")
    return words if not words or words.endswith(".") else f"{words}."
