"""What is to be installed decides the key, all of it and nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from unit.environments.making import spec

from fumehood.environments import EnvironmentSpec
from fumehood.errors import DeniedError, UsageError
from fumehood.host.interpreter import Interpreter, own_interpreter
from fumehood.policy import Policy

HASH = "--hash=sha256:" + "ab" * 32


def of(**section: object) -> EnvironmentSpec:
    return EnvironmentSpec.of(Policy(environment=section).environment)


def test_the_key_of_the_same_wishes_stays_the_same_from_release_to_release() -> None:
    assert spec("six", "iniconfig==2.*").key == "a029725db27f45932b1a7f507bc028a9f24519515afa8b1af8cd401d63ccd2e0"


def test_the_order_of_packages_says_nothing() -> None:
    assert spec("a", "b").key == spec("b", "a").key
    assert of(packages=["six", "iniconfig"]).key == of(packages=["iniconfig", "six"]).key


@pytest.mark.parametrize(
    "change",
    [
        {"packages": ("six==1.17.0",)},
        {"packages": ()},
        {"packages": ("six", "iniconfig")},
        {"are_hashed": True},
        {"index": "https://packages.example/simple"},
        {"tag": "cpython 3.12.0 .so glibc 2.36"},
        {"interpreter": Interpreter("/usr/bin/python3", "/usr", (3, 11))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_that_decides_what_is_installed_changes_the_key(change: dict[str, object]) -> None:
    assert dataclasses.replace(spec("six"), **change).key != spec("six").key


def test_modules_to_preload_do_not_change_the_key() -> None:
    assert of(packages=["six"], preload=["six"]).key == of(packages=["six"]).key


def test_a_requirements_file_counts_by_its_content_and_not_by_its_name(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text(f"# ours\nsix==1.17.0 \\\n    {HASH}\n")
    second.write_text(f"six==1.17.0 {HASH}")
    assert of(requirements=first).key == of(requirements=second).key
    second.write_text(f"six==1.17.0 {HASH[:-1]}c")
    assert of(requirements=first).key != of(requirements=second).key


def test_hashes_in_the_file_are_required_for_everything(tmp_path: Path) -> None:
    file = tmp_path / "r.txt"
    file.write_text(f"six==1.17.0 {HASH}\n")
    assert of(requirements=file).are_hashed
    with pytest.raises(UsageError, match=r"iniconfig has no hash.*move the package into that file"):
        of(requirements=file, packages=["iniconfig"])


def test_a_file_without_hashes_goes_together_with_packages(tmp_path: Path) -> None:
    file = tmp_path / "r.txt"
    file.write_text("six\n")
    assert of(requirements=file, packages=["iniconfig"]).packages == ("iniconfig", "six")


def test_building_from_source_is_denied() -> None:
    with pytest.raises(DeniedError, match=r"environment.allow_sdists: .*runs its code"):
        of(packages=["six"], allow_sdists=True)


def test_the_interpreter_is_the_one_that_sandboxes_use() -> None:
    assert of(packages=["six"]).interpreter == own_interpreter()
    assert ".venv" not in own_interpreter().executable
