"""Which links of a tree may be copied with it: those that can lead nowhere but into the copy. Lexical."""

from __future__ import annotations


def stays_inside(link: str, target: str) -> bool:
    """`link` is the link's path below the top of the tree.

    A target goes up first and then down by names, never up again: then no other link on its way can turn a step up into
    one that leaves. Links that all do so cannot be combined to leave, either.
    """
    parts = target.split("/")
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    names = parts[ups:]
    return bool(names) and ups <= link.count("/") and all(name not in ("", ".", "..") for name in names)
