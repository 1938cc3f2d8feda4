"""What stays of a root file system, and what does not."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from unit.images.archives import file, folder, hard_link, link, special, write_archive

from fumehood.images.archive import Layer
from fumehood.images.content_filter import filter_content
from fumehood.images.root import open_root

USEFUL = ["usr/bin/python3.11", "usr/bin/env", "usr/lib/x86_64-linux-gnu/libgcc_s.so.1", "usr/bin/asan", "usr/bin/pipe"]
UNWANTED = {
    "apt": "usr/bin/apt-get",
    "dpkg": "usr/bin/dpkg",
    "pip": "usr/local/bin/pip3.11",
    "pip's modules": "usr/local/lib/python3.11/site-packages/pip/__init__.py",
    "pip's bundle": "usr/lib/python3.11/ensurepip/_bundled/pip.whl",
    "npm": "usr/local/lib/node_modules/npm/index.js",
    "curl": "usr/bin/curl",
    "wget": "bin/wget",
    "netcat": "usr/bin/nc.openbsd",
    "ssh": "usr/bin/ssh",
    "cc": "usr/bin/x86_64-linux-gnu-gcc-12",
    "the linker": "usr/bin/ld.bfd",
    "the compiler's parts": "usr/lib/gcc/x86_64-linux-gnu/12/cc1",
    "headers": "usr/include/stdio.h",
    "rust": "usr/bin/rustc",
    "go": "usr/local/go/bin/go",
    "javac": "usr/bin/javac",
    "logs": "var/log/dpkg.log",
    "caches": "var/cache/apt/pkgcache.bin",
    "root's files": "root/.bashrc",
    "the host's name": "etc/hostname",
    "passwords": "etc/shadow",
    "another policy's packages": "opt/environment/numpy/__init__.py",
}
STATUS = """\
Package: gcc-12
Status: install ok installed
Architecture: amd64
Version: 12.2.0-14

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9
Description: C library
 more of it

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


def kept(tmp_path: Path, *entries: tuple[tarfile.TarInfo, bytes], languages: tuple[str, ...] = ()) -> list[str]:
    with open_root(write_archive(tmp_path / "root.tar", *entries)) as root:
        return filter_content(root, languages).kept


@pytest.mark.parametrize("name", UNWANTED.values(), ids=UNWANTED.keys())
def test_what_could_be_used_against_others_goes(tmp_path: Path, name: str) -> None:
    assert kept(tmp_path, file(f"./{name}"), *map(file, USEFUL)) == USEFUL


@pytest.mark.parametrize(
    ("language", "name"),
    [
        ("c", "usr/bin/gcc"),
        ("rust", "usr/bin/rustc"),
        ("rust", "usr/bin/ld"),
        ("go", "usr/bin/go"),
        ("java", "usr/bin/javac"),
    ],
)
def test_a_compiler_stays_for_its_language_alone(tmp_path: Path, language: str, name: str) -> None:
    assert kept(tmp_path, file(name), languages=(language,)) == [name]
    assert kept(tmp_path, file(name), languages=("javascript",)) == []


def test_devices_go(tmp_path: Path) -> None:
    entries = [special(f"usr/share/{kind[0]}", kind) for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)]
    assert kept(tmp_path, *entries) == []


def test_links_to_what_went_go_and_others_stay(tmp_path: Path) -> None:
    entries = [
        *(file("usr/bin/gcc"), link("usr/bin/compiler", "gcc"), link("etc/x", "/usr/bin/gcc")),
        *(link("etc/mtab", "../proc/mounts"), file("usr/bin/env"), link("usr/bin/envy", "env")),
    ]
    assert kept(tmp_path, *entries) == ["etc/mtab", "usr/bin/env", "usr/bin/envy"]


def test_a_package_of_debian_goes_with_all_its_files(tmp_path: Path) -> None:
    entries = [
        *(link("bin", "usr/bin"), file("usr/bin/shared"), file("usr/lib/gcc-only.so"), file("usr/bin/odd-name")),
        file("var/lib/dpkg/status", STATUS.encode()),
        file("var/lib/dpkg/info/gcc-12.list", b"/.\n/usr/lib/gcc-only.so\n/bin/odd-name\n/usr/bin/shared\n"),
        file("var/lib/dpkg/info/libc6:amd64.list", b"/.\n/usr/bin/shared\n"),
        file("var/lib/dpkg/info/libc6:amd64.postinst"),
    ]
    with open_root(write_archive(tmp_path / "root.tar", *entries)) as root:
        hardened = filter_content(root, ())
    assert hardened.kept == ["bin", "usr/bin/shared", "var/lib/dpkg/status", "var/lib/dpkg/info/libc6:amd64.list"]
    assert [package.name for package in hardened.packages] == ["libc6"]
    record = hardened.changed["var/lib/dpkg/status"].decode()
    assert "Package: libc6\n" in record
    assert " more of it" in record
    assert "gcc-12" not in record


def test_a_package_whose_files_nobody_knows_stays_on_the_record(tmp_path: Path) -> None:
    with open_root(write_archive(tmp_path / "root.tar", file("var/lib/dpkg/status", STATUS.encode()))) as root:
        assert [package.name for package in filter_content(root, ()).packages] == ["gcc-12", "libc6"]


def layered(tmp_path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> dict[str, tarfile.TarInfo]:
    layer = Layer(1_700_000_000)
    with open_root(write_archive(tmp_path / "root.tar", *entries)) as root:
        layer.add_root(root, filter_content(root, ()).kept)
        layer.write(tmp_path / "layer.tar", lambda: None)
    with tarfile.open(tmp_path / "layer.tar") as archive:
        return {info.name: info for info in archive.getmembers()}


def test_no_file_gives_its_rights_to_whoever_starts_it(tmp_path: Path) -> None:
    capability = {"SCHILY.xattr.security.capability": "\x01\x00\x00\x02"}
    written = layered(
        tmp_path,
        *(file("usr/bin/su", mode=0o4755), file("usr/bin/wall", mode=0o2755), folder("var/mail", mode=0o2775)),
        *(file("usr/bin/ping", pax_headers=capability), folder("srv", mode=0o1777)),
    )
    assert {name: info.mode for name, info in written.items()} == {
        "usr/bin/su": 0o755,
        "usr/bin/wall": 0o755,
        "var/mail": 0o775,
        "usr/bin/ping": 0o755,
        "srv": 0o1777,
    }
    assert not any(info.pax_headers for info in written.values())


def test_a_hard_link_to_what_went_has_the_content_now(tmp_path: Path) -> None:
    written = layered(
        tmp_path,
        *(file("usr/bin/gcc", b"shared"), hard_link("usr/lib/other", "usr/bin/gcc")),
        *(file("usr/bin/one", b"12"), hard_link("usr/bin/another", "./usr/bin/one")),
    )
    assert (written["usr/lib/other"].isreg(), written["usr/lib/other"].size) == (True, 6)
    assert written["usr/bin/another"].linkname == "usr/bin/one"
    with tarfile.open(tmp_path / "layer.tar") as archive:
        stream = archive.extractfile("usr/lib/other")
        assert stream is not None
        assert stream.read() == b"shared"


def test_no_name_leads_out_of_the_root(tmp_path: Path) -> None:
    written = layered(tmp_path, file("../../etc/cron.d/x"), file("/etc/y"), file("./a/../../b"))
    assert sorted(written) == ["b", "etc/cron.d/x", "etc/y"]


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    entries = [file("etc/a", mtime=5.5), file("etc/b", mtime=2_000_000_000), folder("usr"), link("bin", "usr/bin")]
    written = []
    for order in (entries, entries[::-1]):
        layered(tmp_path, *order)
        written.append((tmp_path / "layer.tar").read_bytes())
    assert written[0] == written[1]
