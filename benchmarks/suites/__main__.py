"""`python -m benchmarks.suites FRAMEWORK FOLDER`: run a framework's own tests with our adapter."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks.suites import autogen, openai_agents, smolagents
from benchmarks.suites.plugin import SuitePlugin
from benchmarks.suites.suite import BACKENDS, Suite

SUITES = {"autogen": autogen.SUITE, "openai-agents": openai_agents.SUITE, "smolagents": smolagents.SUITE}
_STATE = ("FUMEHOOD_AUDIT", "FUMEHOOD_APPROVALS", "FUMEHOOD_TRUST", "FUMEHOOD_SANDBOXES")
_PLUGINS = "--disable-plugin-autoload -p pytest_asyncio.plugin -p pytest_timeout -p no:cacheprovider"
_SETTINGS = "--timeout=120 --import-mode=importlib -o addopts= -o asyncio_mode=auto -rfE"


def archive(suite: Suite, folder: Path) -> Path:
    release = version(suite.distribution)
    place = folder / f"{suite.folder}-{release}"
    if not (place / "tests").is_dir():
        raise SystemExit(
            f"{place} is not there: unpack the source archive of {suite.distribution} {release} in {folder}"
        )
    return place


def run(suite: Suite, place: Path, backend: str, options: list[str]) -> int:
    suite.prepare(backend)
    plugin = SuitePlugin(suite, backend)
    files = [str(place / "tests" / file) for file in suite.files]
    config = [*_PLUGINS.split(), *_SETTINGS.split(), "-c", str(place / "pyproject.toml"), "--rootdir", str(place)]
    status = pytest.main([*config, *options, *files], plugins=[plugin])
    print_counts(suite, backend, plugin)
    return int(status)


def print_counts(suite: Suite, backend: str, plugin: SuitePlugin) -> None:
    passed, expected, failed = (plugin.count(outcome) for outcome in ("passed", "expected", "failed"))
    total = passed + expected + failed
    print(f"{suite.distribution} {version(suite.distribution)}, {backend}: {passed} of {total} passed")
    print(f"{expected} failed as expected, {failed} failed, {plugin.count('skipped')} skipped")
    for reason, number in plugin.not_applicable.items():
        print(f"{number} not applicable: {reason}")


def package_variables(wheels: Path | None, empty: Path) -> dict[str, str]:
    """No index is asked, whatever this machine has configured: some tests want packages that do not exist."""
    found = {} if wheels is None else {"UV_FIND_LINKS": str(wheels)}
    return {"UV_OFFLINE": "1", "UV_DEFAULT_INDEX": empty.as_uri(), **found}


def main() -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.suites", description=__doc__)
    parser.add_argument("framework", choices=SUITES)
    parser.add_argument("folder", type=Path, help="has the source archives, unpacked")
    parser.add_argument("--backend", choices=BACKENDS, default="native")
    parser.add_argument(
        "--wheels",
        type=lambda text: Path(text).resolve(),
        help="a folder with wheels of what the tests install in sandboxes",
    )
    options, others = parser.parse_known_args()
    place = archive(SUITES[options.framework], options.folder.resolve())
    # The tests import each other, and some work in the folder that they are started in.
    sys.path.insert(0, str(place))
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as state:
        os.chdir(work)
        os.environ |= {name: os.path.join(state, name.lower()) for name in _STATE}
        os.environ |= package_variables(options.wheels, Path(state))
        return run(SUITES[options.framework], place, options.backend, others)


if __name__ == "__main__":
    sys.exit(main())
