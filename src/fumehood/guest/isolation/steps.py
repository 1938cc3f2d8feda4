"""Names for what is being done, so that a failure says which step failed and not only which system call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class StepError(Exception):
    """A step of setting up the isolation failed; nothing of the user's has run."""

    def __init__(self, step: str, detail: str) -> None:
        super().__init__(f"{step}: {detail}")
        self.step, self.detail = step, detail

    def as_message(self) -> dict[str, str]:
        return {"failed": self.step, "detail": self.detail}


@contextmanager
def step(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise StepError(name, f"{error.strerror or error}{where}") from error
