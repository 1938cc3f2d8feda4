"""Decides what of a root file system stays in an image. Pure.

What a program could use against others, or to bring more of it in, goes: package managers, programs that fetch things,
compilers that no wanted language needs, every set-uid and set-gid bit, every file capability, devices. So do files
that no program needs to run: caches, logs, manuals. And the packages of the policy that a base image was made for.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fumehood.host.interpreter import PACKAGES_PLACE
from fumehood.images import dpkg
from fumehood.images.root import Root

_PROGRAM_FOLDERS = frozenset(
    {
        "bin",
        "sbin",
        "usr/bin",
        "usr/sbin",
        "usr/local/bin",
        "usr/local/sbin",
        "usr/games",
        "opt/bin",
        "etc/alternatives",
    }
)
_PERMISSIONS = 0o777
NOTHING = r"(?!)"
_STICKY = 0o1777


@dataclass(frozen=True, slots=True)
class UnwantedKind:
    """Things of one kind: programs by name, packages of Debian by name, folders by path; kept for some languages."""

    programs: str
    packages: str = NOTHING
    """A regular expression."""
    folders: tuple[str, ...] = ()
    languages: frozenset[str] = frozenset()


PACKAGE_MANAGERS = UnwantedKind(
    programs="apt apt-* dpkg dpkg-* pip pip[0-9]* easy_install* pipx uv uvx conda mamba apk rpm rpm2* yum dnf dnf-* "
    "microdnf zypper pacman opkg snap flatpak brew npm npx yarn yarnpkg pnpm corepack gem cargo",
    packages=r"apt|apt-utils|libapt-pkg.*|dpkg|dpkg-dev|libdpkg-perl|python3-pip.*|python3-venv|npm|cargo|snapd",
    folders=(
        "usr/lib/apt", "usr/lib/dpkg", "etc/apt", "etc/dpkg", "usr/share/python-wheels",
        "*/ensurepip", "*/site-packages/pip", "*/site-packages/pip-*", "*/dist-packages/pip", "*/dist-packages/pip-*",
        "*/node_modules/npm", "*/node_modules/corepack", "usr/share/nodejs/npm", "opt/yarn-*", "lib/apk", "usr/lib/rpm",
    ),
)  # fmt: skip
DOWNLOADERS = UnwantedKind(
    programs="curl wget wget2 aria2c nc nc.* ncat netcat socat telnet ftp tftp sftp scp ssh ssh-* rsync lynx w3m",
    packages=r"curl|wget|wget2|aria2|netcat-.*|ncat|socat|telnet|inetutils-.*|ftp|openssh-client|rsync|lynx|w3m",
)
COMPILERS = (
    UnwantedKind(
        programs="cc c89* c99* gcc gcc-* g++ g++-* c++ cpp cpp-* clang clang-* clang++* tcc gfortran* as ld ld.* gold "
        "*-linux-*-as *-linux-*-ld *-linux-*-ld.* *-linux-*-gcc* *-linux-*-g++* *-linux-*-cpp* make gmake cmake ninja",
        packages=r"gcc|gcc-\d+|g\+\+|g\+\+-\d+|cpp|cpp-\d+|clang.*|binutils.*|libc6-dev|libc-dev-bin|linux-libc-dev|make"
        r"|build-essential|libgcc-\d+-dev|libstdc\+\+-\d+-dev|gfortran.*|cmake|ninja-build",
        folders=("usr/lib/gcc", "usr/libexec/gcc", "usr/include", "usr/local/include"),
        languages=frozenset({"c", "c++", "rust"}),
    ),
    UnwantedKind(
        programs="rustc rustdoc rust-* clippy-driver",
        packages=r"rustc|libstd-rust-dev|rust-.*",
        folders=("usr/local/cargo", "usr/local/rustup"),
        languages=frozenset({"rust"}),
    ),
    UnwantedKind(
        programs="go gofmt", packages=r"golang.*", folders=("usr/local/go", "usr/lib/go-*"), languages=frozenset({"go"})
    ),
    UnwantedKind(programs="javac jshell jlink", packages=r".*-jdk(?:-.*)?", languages=frozenset({"java"})),
)

# Made anew by the engine, or of no use to a program.
_EMPTIED = (
    "dev", "proc", "sys", "run", "tmp", "var/tmp", "var/log", "var/cache", "var/lib/apt", "var/backups", "root", "boot",
    "usr/share/man", "usr/share/info", "usr/share/lintian", "usr/share/doc-base", "usr/share/locale", "usr/share/bug",
)  # fmt: skip
_UNWANTED = frozenset(
    {
        *(".dockerenv", "etc/hostname", "etc/resolv.conf", "etc/machine-id", "var/lib/dbus/machine-id"),
        # No user logs in or has keys in a sandbox.
        *("etc/shadow", "etc/gshadow", "etc/ssl/private"),
        *("etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/subuid-", "etc/subgid-", "etc/.pwd.lock"),
    }
)


@dataclass(frozen=True, slots=True)
class FilteredContent:
    kept: list[str]
    changed: dict[str, bytes]
    """Files that stay with another content."""
    packages: list[dpkg.DebianPackage]
    """The Debian packages that stay."""


def filter_content(root: Root, languages: tuple[str, ...], scaffolding: str = NOTHING) -> FilteredContent:
    """`scaffolding` is a regular expression for further packages of Debian that are to go."""
    kinds = unwanted_kinds(languages)
    packages = re.compile("|".join((scaffolding, *(kind.packages for kind in kinds))))
    stay, gone = dpkg.split(root, lambda name: packages.fullmatch(name) is not None)
    kept = [name for name in root.entries if name not in gone and not _is_unwanted(root, name, kinds)]
    changed = {dpkg.STATUS: dpkg.record_of(stay)} if dpkg.STATUS in root.entries else {}
    return FilteredContent(_without_dead_links(root, kept), changed, stay)


def unwanted_kinds(languages: tuple[str, ...]) -> tuple[UnwantedKind, ...]:
    return (PACKAGE_MANAGERS, DOWNLOADERS, *(kind for kind in COMPILERS if not kind.languages & set(languages)))


def mode_of(mode: int, *, is_folder: bool) -> int:
    return mode & (_STICKY if is_folder else _PERMISSIONS)


def _is_unwanted(root: Root, name: str, kinds: tuple[UnwantedKind, ...]) -> bool:
    entry = root.entries[name]
    if entry.isdev() or name in _UNWANTED or _is_in(name, PACKAGES_PLACE.lstrip("/")):
        return True
    if any(name.startswith(f"{folder}/") for folder in _EMPTIED) or _is_of_dpkg(name) or _is_paper(name, entry.isdir()):
        return True
    folder, program = posixpath.split(name)
    if folder in _PROGRAM_FOLDERS and any(
        fnmatchcase(program, each) for kind in kinds for each in kind.programs.split()
    ):
        return True
    return any(_is_in(name, pattern) for kind in kinds for pattern in kind.folders)


def _is_of_dpkg(name: str) -> bool:
    """Its records stay, for those who look for weaknesses in an image or make another of it."""
    is_list = name == dpkg.INFO or (name.startswith(f"{dpkg.INFO}/") and name.endswith(".list"))
    is_status = name in (dpkg.STATUS, dpkg.STATUS_FOLDER) or name.startswith(f"{dpkg.STATUS_FOLDER}/")
    return name.startswith("var/lib/dpkg/") and not (is_list or is_status)


def _is_paper(name: str, is_folder: bool) -> bool:
    """Documentation, but not the licences."""
    return name.startswith("usr/share/doc/") and not is_folder and posixpath.basename(name) != "copyright"


def _is_in(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}/*")


def _without_dead_links(root: Root, kept: list[str]) -> list[str]:
    """The names without links to removed files; links that were dead in the image before are kept."""
    names = set(kept)
    return [name for name in kept if not (root.entries[name].issym() and _has_died(root, name, names))]


def _has_died(root: Root, name: str, kept: set[str]) -> bool:
    target = root.resolve(name)
    return target in root.entries and target not in kept
