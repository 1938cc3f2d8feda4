"""Puts our classes into a framework's tests, and sorts what happens: passed, failed as expected, failed.

A test that is expected to fail has to fail, with the words that its reason goes with.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from types import ModuleType
from typing import Any, TypeVar, cast

import pytest

from benchmarks.suites.suite import Difference, Suite

_Entry = TypeVar("_Entry")
_COUNTED = ("passed", "expected", "failed", "skipped")


class SuitePlugin:
    def __init__(self, suite: Suite, backend: str) -> None:
        self._suite, self._backend = suite, backend
        self._left_open = ExitStack()
        self.outcomes: dict[str, str] = {}
        self.not_applicable: Counter[str] = Counter()

    def count(self, outcome: str) -> int:
        assert outcome in _COUNTED, outcome
        return sum(found == outcome for found in self.outcomes.values())

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        for module in {item.getparent(pytest.Module) for item in items}:
            if module is not None:
                self._suite.substitute(cast("ModuleType", module.obj), self._backend, self._left_open)
        left = [item for item in items if self._is_ours(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in left])
        items[:] = left

    def _is_ours(self, item: pytest.Item) -> bool:
        function, fixtures = _function(item), cast("list[str]", getattr(item, "fixturenames", []))
        text = " ".join([item.nodeid, *fixtures, inspect.getsource(function)])
        if not re.search(self._suite.concerns, text):
            return False
        reason = _entry(item, self._suite.not_applicable)
        if reason is not None:
            self.not_applicable[reason] += 1
        return reason is None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        difference = _entry(item, self._suite.differences)
        if difference is not None and self._backend in difference.backends:
            _expect_failure(report, difference)
        self._note(report)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        self._left_open.close()

    def _note(self, report: pytest.TestReport) -> None:
        if hasattr(report, "wasxfail"):
            self.outcomes[report.nodeid] = "expected"
        elif report.failed:
            self.outcomes[report.nodeid] = "failed"
        elif report.skipped or report.when == "call":
            self.outcomes.setdefault(report.nodeid, report.outcome)


def _expect_failure(report: pytest.TestReport, difference: Difference) -> None:
    if report.failed and re.search(difference.pattern, report.longreprtext):
        report.outcome = "skipped"
        report.wasxfail = difference.reason
    elif report.passed and report.when == "call":
        report.outcome = "failed"
        report.longrepr = f"it passes, and was expected to fail: {difference.reason}"


def _function(item: pytest.Item) -> Any:
    return inspect.unwrap(cast("Any", item).function)


def _entry(item: pytest.Item, entries: Mapping[str, _Entry]) -> _Entry | None:
    """By the name with parameters, or without, or with the file's."""
    name = item.name.partition("[")[0]
    for key in (item.name, name, f"{item.path.stem}::{name}"):
        if key in entries:
            return entries[key]
    return None
