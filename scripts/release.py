"""Makes what a release consists of, below dist/: wheel, source archive, bill of materials, provenance, digests.

Both archives are built twice, from two clean copies of the commit, in other folders, time zones and file modes; they
must come out the same, byte for byte. `make release` runs it; what is made can be uploaded as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("requirements.lock", "requirements-dev.lock")
STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:fumehood:make-release:1"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="an empty or new folder (dist)")
    out: Path = parser.parse_args().out
    if git("status", "--porcelain"):
        return refuse("there are changes that are not committed: a release is made of a commit")
    if out.exists() and any(out.iterdir()):
        return refuse(f"{out} is not empty: move away what an earlier release left there")
    commit, epoch = git("rev-parse", "HEAD"), git("log", "-1", "--format=%ct")
    with tempfile.TemporaryDirectory(prefix="hood-release-") as name:
        first = build(commit, epoch, Path(name, "first"), umask=0o022, zone="UTC")
        second = build(commit, epoch, Path(name, "another", "second"), umask=0o077, zone="Asia/Kathmandu")
        if differing := [path.name for path, other in zip(first, second, strict=True) if digest(path) != digest(other)]:
            return refuse(f"two builds of the same commit differ: {', '.join(differing)}")
        out.mkdir(parents=True, exist_ok=True)
        archives = [Path(shutil.copy(path, out)) for path in first]
    wheel = next(path for path in archives if path.suffix == ".whl")
    bill = write_bill_of_materials(out / f"{wheel.stem}.cdx.json", epoch)
    provenance = out / f"{wheel.stem}.provenance.json"
    provenance.write_text(json.dumps(make_provenance(archives, commit, epoch), indent=1) + "\n", encoding="utf-8")
    files = [*archives, bill, provenance]
    (out / "SHA256SUMS").write_text("".join(f"{digest(path)}  {path.name}\n" for path in files), encoding="utf-8")
    print(f"{out}: {', '.join(path.name for path in files)}, SHA256SUMS; two builds were the same")
    return 0


def refuse(why: str) -> int:
    print(f"make release: {why}", file=sys.stderr)
    return 1


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def build(commit: str, epoch: str, folder: Path, *, umask: int, zone: str) -> list[Path]:
    """The source archive and the wheel, from a copy of the commit."""
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x"], cwd=folder, input=archive, check=True, umask=umask)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "TZ": zone, "PYTHONHASHSEED": str(umask)}
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder / "built")]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, umask=umask)
    return sorted((folder / "built").iterdir())


def write_bill_of_materials(path: Path, epoch: str) -> Path:
    """CycloneDX, of the releases that the package is tested with."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    options = ["--pyproject", "pyproject.toml", "--mc-type", "library", "--output-reproducible", "-o", str(path)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    command = [tool, "requirements", "requirements.lock", *options]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return path


def make_provenance(archives: Sequence[Path], commit: str, epoch: str) -> dict[str, Any]:
    """SLSA's form, not signed: whoever publishes signs it, on a machine of their own."""
    materials = [{"uri": f"file:{name}", "digest": {"sha256": digest(ROOT / name)}} for name in LOCKS]
    return {
        "_type": STATEMENT,
        "subject": [{"name": path.name, "digest": {"sha256": digest(path)}} for path in archives],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"command": "make release", "commit": commit, "SOURCE_DATE_EPOCH": epoch},
                "resolvedDependencies": [{"uri": "git:fumehood", "digest": {"gitCommit": commit}}, *materials],
            },
            "runDetails": {"builder": {"id": BUILD_TYPE}, "metadata": {"invocationId": commit}},
        },
    }


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
