"""`memory=1G`: a resource and how much of it, as tests and questions name them."""

from __future__ import annotations

import re
from typing import NamedTuple

from fumehood.policy.resources import Resources
from fumehood.policy.section import Leaf, leaves

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?", re.ASCII)


class Amount(NamedTuple):
    name: str
    number: float


def parse_amount(text: str) -> Amount:
    """In the units of the resource's own key: bytes, seconds or a count."""
    name, _, amount = text.partition("=")
    leaf = next((leaf for leaf in leaves(Resources()) if leaf.key == name), None)
    if leaf is None or not amount:
        known = ", ".join(Resources.model_fields)
        raise ValueError(f"must be a resource and an amount, such as memory=1G; the resources are {known}")
    return Amount(name, leaf.quantity.parse(amount) if leaf.quantity else _parse_number(amount, leaf))


def check_amount(text: str) -> str:
    parse_amount(text)
    return text


def _parse_number(text: str, leaf: Leaf) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"must be a resource and a number, such as {leaf.key}=4")
    if isinstance(leaf.value, int) and "." in text:
        raise ValueError(f"must be a whole number of {leaf.key}")
    return float(text)
