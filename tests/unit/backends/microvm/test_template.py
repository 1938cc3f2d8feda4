"""Which template a machine continues from: its own, and never one of another build, processor or image."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from fumehood.backends.microvm import template
from fumehood.backends.microvm.confinement import Confinement
from fumehood.backends.microvm.image import VARIABLE, MachineImage, make_folder
from fumehood.backends.microvm.machine import Emulator, MachineDescription, describe, qemu_argv
from fumehood.backends.native.host_facts import detect
from fumehood.backends.relay import bootstrap

MIB = 1024 * 1024
EMULATOR = Emulator("/usr/bin/qemu-system-x86_64", "a build")
MACHINE = describe(EMULATOR, 64 * MIB)
IMAGE = MachineImage(
    name="x:latest",
    folder=Path("/nowhere"),
    digest="sha256:1",
    release="6.1",
    user=(1000, 1000),
    python=(3, 11),
    environment=None,
    languages=(),
)


@pytest.mark.parametrize(
    "other",
    [
        replace(MACHINE, emulator=replace(EMULATOR, build="another build")),
        replace(MACHINE, cpu="Haswell"),
        replace(MACHINE, ram_bytes=2 * MACHINE.ram_bytes),
    ],
)
def test_another_build_processor_or_size_is_another_template(other: object) -> None:
    assert template.template_key(IMAGE, other) != template.template_key(IMAGE, MACHINE)  # type: ignore[arg-type]


def another_guest(*_: object) -> bytes:
    return b"another guest"


def test_another_image_or_guest_is_another_template(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = template.template_key(IMAGE, MACHINE)
    assert template.template_key(replace(IMAGE, digest="sha256:2"), MACHINE) != usual
    monkeypatch.setattr(bootstrap, "packed", another_guest)
    assert template.template_key(IMAGE, MACHINE) != usual


def kept(folder: Path) -> Path:
    """As a machine leaves it: mostly empty memory, and a state."""
    ram, state = os.memfd_create("ram"), os.memfd_create("state")
    os.ftruncate(ram, MACHINE.ram_bytes)
    os.pwrite(ram, b"content", 5 * MIB)
    os.write(state, b"state")
    template.save_template(folder, "key", template.MachineTemplate(MACHINE, ram, state))
    os.close(ram)
    os.close(state)
    return folder / "key"


def test_a_template_is_loaded_as_it_was_saved_and_cannot_be_written(tmp_path: Path) -> None:
    found = template.load_template(kept(tmp_path), MACHINE)
    assert found is not None
    assert os.pread(found.ram, 7, 5 * MIB) == b"content"
    assert os.fstat(found.ram).st_size == MACHINE.ram_bytes
    assert os.fstat(found.ram).st_blocks * 512 < MIB
    for descriptor in (found.ram, found.state):
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
    found.close()


def test_a_template_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a loss of power there would be files of the right size with nothing in them, and they would be loaded."""
    synced: list[tuple[str, bool]] = []
    usual = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((path.name, path.parent.name.startswith(".draft-")))
        usual(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    kept(tmp_path)
    assert set(synced) == {(name, True) for name in (template.RAM, template.STATE, template.FACTS)}


@pytest.mark.parametrize("damage", ["no facts", "other facts", "no memory", "half a memory", "half a state"])
def test_a_template_that_is_not_whole_is_not_loaded(tmp_path: Path, damage: str) -> None:
    place = kept(tmp_path)
    match damage:
        case "no facts":
            (place / template.FACTS).unlink()
        case "other facts":
            (place / template.FACTS).write_text(json.dumps({"ram_bytes": 1, "state_bytes": 5}))
        case "no memory":
            (place / template.RAM).unlink()
        case "half a memory":
            os.truncate(place / template.RAM, MACHINE.ram_bytes // 2)
        case _:
            (place / template.STATE).chmod(0o600)
            (place / template.STATE).write_bytes(b"st")
    assert template.load_template(place, MACHINE) is None
    # Nor does it stay: otherwise every process would boot a machine of its own from then on.
    loaded = template.load_template(kept(tmp_path), MACHINE)
    assert loaded is not None
    loaded.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(MACHINE, emulator=replace(EMULATOR, build="another build")), id="build"),
        pytest.param(replace(MACHINE, cpu="Haswell"), id="processor"),
    ],
)
async def test_what_another_build_or_processor_left_is_not_loaded_but_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: MachineDescription
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    folder = make_folder("templates")
    kept(folder).rename(folder / template.template_key(IMAGE, MACHINE))
    confinement = Confinement(detect())
    templates = template.MachineTemplates(confinement)
    try:
        found = await templates.get(IMAGE, MACHINE)
        assert os.pread(found.ram, 7, 5 * MIB) == b"content"
        # It boots, for which there is no kernel here.
        with pytest.raises(FileNotFoundError, match="/nowhere"):
            await templates.get(IMAGE, other)
    finally:
        await templates.close()
        confinement.close()


def test_a_machine_has_two_disks_two_ports_and_no_network() -> None:
    words = qemu_argv(MACHINE, boots=False)
    devices = [word.partition(",")[0] for before, word in pairwise(words) if before == "-device"]
    assert devices == ["virtio-serial-pci", "virtserialport", "virtserialport", "virtio-blk-pci", "virtio-blk-pci"]
    assert {"-nodefaults", "-no-user-config"} <= set(words)
    assert not {"-netdev", "-nic", "-net", "-virtfs", "-fsdev"} & set(words)
    assert all("read-only=on" in word for before, word in pairwise(words) if before == "-blockdev")
    assert "share=off" in " ".join(words)


@pytest.mark.parametrize("boots", [True, False])
def test_a_machines_memory_is_merged_with_no_others_and_written_to_no_dump(boots: bool) -> None:
    chipset = next(word for before, word in pairwise(qemu_argv(MACHINE, boots=boots)) if before == "-M")
    assert {"mem-merge=off", "dump-guest-core=off"} <= set(chipset.split(","))
