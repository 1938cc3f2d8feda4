"""One line of the table."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line: `value` against `against`, both in `unit`."""

    name: str
    value: float = 0.0
    unit: str = "ms"
    against: float | None = None
    budget: str = ""
    missing: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.against is None else self.value / self.against

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "ratio": self.ratio}
