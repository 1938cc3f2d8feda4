"""Where the log of a user lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood.audit.location import find_folder
from fumehood.errors import UsageError


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"FUMEHOOD_AUDIT": "/var/log/hood", "XDG_STATE_HOME": "/state"}, "/var/log/hood"),
        ({"XDG_STATE_HOME": "/state"}, "/state/fumehood/audit"),
        ({"FUMEHOOD_AUDIT": "", "XDG_STATE_HOME": "relative"}, str(Path.home() / ".local/state/fumehood/audit")),
    ],
)
def test_the_variables_say_where(variables: dict[str, str], folder: str) -> None:
    assert find_folder(variables) == Path(folder)


def test_it_can_be_turned_off() -> None:
    assert find_folder({"FUMEHOOD_AUDIT": "off"}) is None


def test_a_relative_path_is_no_place() -> None:
    with pytest.raises(UsageError, match="must be an absolute path, or `off`"):
        find_folder({"FUMEHOOD_AUDIT": "log"})
