"""Credentials taken out of what goes to a recording, a log or a terminal: known ones, and what looks like one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from fumehood.secret_scan.redaction import Redaction
from fumehood.secret_scan.values import SHORTEST, SecretValue, Text, replace_spans
from fumehood.tools.filters.tokens import find_tokens

# Shorter values of variables are settings, and would be found in ordinary words.
_SHORTEST_VARIABLE = 8
_SECRET_NAME = re.compile(r"(?i)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")


class CredentialRedactor:
    """Knows the variables that are called like a credential, and the `secrets` that it is given."""

    def __init__(self, variables: Mapping[str, str], secrets: Iterable[str]) -> None:
        named = [value for name, value in variables.items() if _SECRET_NAME.search(name)]
        values = {*(value for value in named if len(value) >= _SHORTEST_VARIABLE), *secrets}
        self._redaction = Redaction.of(values)
        self._known = [SecretValue("credential", value) for value in self._redaction.values if len(value) >= SHORTEST]

    def text(self, text: str) -> str:
        redacted = self._redaction.text(text)
        seen = Text(redacted)
        encoded = [span for known in self._known for span in seen.find(known)]
        return replace_spans(redacted, [*encoded, *find_tokens(redacted)])

    def data(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.data(item) for item in cast("list[object]", value)]
        if isinstance(value, dict):
            return {self.text(key): self.data(item) for key, item in cast("dict[str, object]", value).items()}
        return value
