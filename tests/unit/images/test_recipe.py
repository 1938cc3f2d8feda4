"""What may be asked of a build."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood import Policy, UsageError
from fumehood.images import Recipe
from fumehood.images.debian import mmdebstrap_argv

PIN = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (Policy(), "fumehood:latest"),
        (Policy(image="analyst:2"), "analyst:2"),
        (Policy(docker={"image": "analyst"}), "analyst:latest"),
        (Policy(image=f"registry.example:5000/team/analyst@{PIN}"), "registry.example:5000/team/analyst:latest"),
    ],
)
def test_an_image_gets_the_name_that_its_policy_looks_for(policy: Policy, name: str) -> None:
    assert Recipe.of(policy).name == name


def test_a_policy_cannot_name_two_images() -> None:
    with pytest.raises(UsageError, match="keep one of them"):
        Recipe.of(Policy(image="one", docker={"image": "two"}))
    assert Recipe.of(Policy(image="one", docker={"image": "one"})).name == "one:latest"


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"base": "x", "suite": "trixie"}, "not both"),
        ({"suite": "--customize-hook=touch /tmp/x"}, "one word"),
        ({"suite": "../../etc"}, "Debian release"),
        ({"mirror": "--setup-hook=id"}, "one word"),
        ({"mirror": "deb http://x y main"}, "one word"),
        ({"name": "-x"}, "cannot be the name"),
        ({"name": "UPPER"}, "lower case"),
        ({"languages": ("cobol",)}, "unknown language 'cobol'"),
    ],
)
def test_a_wish_that_makes_no_sense_is_one_clear_error(wish: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Recipe.of(Policy(), **wish)  # type: ignore[arg-type]


def test_a_language_brings_its_packages() -> None:
    recipe = Recipe.of(Policy(), languages=("js", "c", "javascript"))
    assert recipe.languages == ("c", "javascript")
    assert {"python3", "gcc", "libc6-dev", "nodejs"} <= set(recipe.debian_packages)


def test_the_words_for_mmdebstrap_are_its_own(tmp_path: Path) -> None:
    argv = mmdebstrap_argv(Recipe.of(Policy(), suite="trixie"), "s390x", tmp_path / "root.tar", is_root=False)
    assert "--mode=unshare" in argv
    assert "--architectures=s390x" in argv
    assert argv[-2:] == ["trixie", str(tmp_path / "root.tar")]
