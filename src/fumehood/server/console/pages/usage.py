"""Usage: what was used, by the hour or the day, what of the quotas is left, and what models cost; also as a table."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.responses import Response

from fumehood.audit.store import Query
from fumehood.audit.words import dollars
from fumehood.frozen import frozen
from fumehood.server.console.page_request import PageRequest
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.source import RecordReader
from fumehood.server.console.tenant_source import TenantSource
from fumehood.server.console.threads import LogThreads
from fumehood.server.identity.principals import Scope
from fumehood.server.tenants.quotas import read_state
from fumehood.server.tenants.usage import CPU, EGRESS, MEMORY, OPENINGS, RUNS, usage_by_hour

if TYPE_CHECKING:
    from fumehood.server.lifetime import ServerState

_HOUR, _DAY = 3600, 86400
_PERIODS = {"24h": 24, "7d": 7 * 24, "30d": 30 * 24}
_MOST_RECORDS = 50_000
_TOKENS_IN, _TOKENS_OUT, _COST = "input tokens of models", "output tokens of models", "cost of models"
_UNPRICED = "answers of models without a price"
_OF_MODELS = ("model.answered", "approval.reviewed")
_DOLLARS = "$"
_LEAST_TOLD = 0.001
_TITLES = {
    RUNS: ("Runs", ""),
    OPENINGS: ("Sandboxes opened", ""),
    CPU: ("Processor time", "s"),
    MEMORY: ("Memory held", "GiB h"),
    EGRESS: ("Network", "MiB"),
    _TOKENS_IN: ("Tokens read by models", ""),
    _TOKENS_OUT: ("Tokens written by models", ""),
    _COST: ("Cost of models", _DOLLARS),
    _UNPRICED: ("Answers of models whose price is not known", ""),
}
_UNIT_SIZES = {MEMORY: 2**30 * _HOUR, EGRESS: 2**20}
_WIDTH, _HEIGHT = 480, 72

Amounts = Iterable[tuple[float, str, float]]
"""Beginning of the hour, name, amount."""


@frozen
class Bar:
    x: float
    y: float
    width: float
    height: float
    label: str


@frozen
class Series:
    """One plot: an amount for each hour, or for each day of a longer time."""

    title: str
    unit: str
    total: str
    highest: str
    per: str
    """The time of one bar, in words."""
    bars: tuple[Bar, ...]
    begin: float
    end: float


async def show(page: PageRequest) -> Response:
    period = page.query("period") if page.query("period") in _PERIODS else "24h"
    amounts = await _read(page, _PERIODS[period])
    quotas = None
    if isinstance(page.source, TenantSource):
        quotas = await read_state(page.source.server.database, page.principal.tenant, time.time())
    return await page.page(
        "usage.html",
        series=plots(amounts, _PERIODS[period]),
        period=period,
        periods=list(_PERIODS),
        quotas=quotas,
        width=_WIDTH,
        height=_HEIGHT,
    )


async def export(page: PageRequest) -> Response:
    period = page.query("period") if page.query("period") in _PERIODS else "24h"
    amounts = await _read(page, _PERIODS[period])
    await page.viewed("export", f"usage of {period}", None)
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(("hour", "name", "amount"))
    writer.writerows((_iso(hour), name, f"{amount:.6g}") for hour, name, amount in amounts)
    headers = {"Content-Disposition": 'attachment; filename="usage.csv"'}
    return Response(file.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


async def _read(page: PageRequest, hours: int) -> list[tuple[float, str, float]]:
    """What a server charges is in its database; one user's log has the ends of runs, which say the same."""
    if isinstance(page.source, TenantSource):
        return await _of_tenant(page.source.server, page.principal.tenant, hours)
    log, begin = page.source.log, time.time() - hours * _HOUR
    kinds = (*_OF_MODELS, "run.finished", "sandbox.opened")
    return await page.blocking(lambda: _from_log(log, begin, kinds))


async def _of_tenant(server: ServerState, tenant: str, hours: int) -> list[tuple[float, str, float]]:
    """What models cost is in the tenant's log alone."""
    end = time.time()
    begin = end - hours * _HOUR
    async with server.database.transaction(tenant) as transaction:
        used = await usage_by_hour(transaction, tenant, begin, end)
    if not server.chains.has_log_of(tenant):
        return used
    log = server.chains.log_of(tenant)
    return used + await LogThreads(tenant)(lambda: _from_log(log, begin, _OF_MODELS))


def _from_log(log: RecordReader, begin: float, kinds: Sequence[str]) -> list[tuple[float, str, float]]:
    totals: dict[tuple[float, str], float] = {}
    since = datetime.fromtimestamp(begin, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    for kind in kinds:
        for record in log.find(Query(kind=kind, since=since, newest_first=True, limit=_MOST_RECORDS)):
            moment = datetime.fromisoformat(record.time).timestamp()
            for name, amount in _of_record(kind, record.data):
                key = moment - moment % _HOUR, name
                totals[key] = totals.get(key, 0.0) + amount
    return sorted((hour, name, amount) for (hour, name), amount in totals.items())


def _of_record(kind: str, data: dict[str, object]) -> list[tuple[str, float]]:
    def number(name: str) -> float:
        value = data.get(name)
        return float(value) if isinstance(value, int | float) else 0.0

    if kind == "model.answered":
        used = [(_TOKENS_IN, number("input_tokens")), (_TOKENS_OUT, number("output_tokens"))]
        is_priced = "cost_microdollars" in data
        return [*used, (_COST, number("cost_microdollars") / 1e6) if is_priced else (_UNPRICED, 1.0)]
    if kind == "approval.reviewed":
        return [(_COST, _dollars(data.get("cost")))]
    if kind == "sandbox.opened":
        return [(OPENINGS, 1.0)]
    held = number("peak_memory_bytes") * number("duration_us") / 1e6
    return [(RUNS, 1.0), (CPU, number("cpu_us") / 1e6), (MEMORY, held)]


def _dollars(text: object) -> float:
    """As records of reviews have it; 0 if that is not known."""
    try:
        return float(text) if isinstance(text, str) else 0.0
    except ValueError:
        return 0.0


async def read_usage(server: ServerState, tenant: str, hours: int) -> list[Series]:
    return plots(await _of_tenant(server, tenant, hours), hours)


def plots(amounts: Amounts, hours: int) -> list[Series]:
    """One for each name of which anything was used, in the order of the titles."""
    step = _HOUR if hours <= _PERIODS["24h"] else _DAY
    now = time.time()
    last = now - now % step
    count = hours * _HOUR // step
    slots = [last - (count - 1 - number) * step for number in range(count)]
    found: dict[str, dict[float, float]] = {}
    for hour, name, amount in amounts:
        slot = hour - hour % step
        per_slot = found.setdefault(name, {})
        per_slot[slot] = per_slot.get(slot, 0.0) + amount / _UNIT_SIZES.get(name, 1)
    return [_series(name, found[name], slots, step) for name in _TITLES if any(found.get(name, {}).values())]


def _series(name: str, per_slot: dict[float, float], slots: list[float], step: int) -> Series:
    title, unit = _TITLES[name]
    values = [per_slot.get(slot, 0.0) for slot in slots]
    highest = max(values) or 1.0
    wide = _WIDTH / len(slots)
    bars = tuple(
        Bar(
            x=round(number * wide + 0.5, 2),
            y=round(_HEIGHT - _HEIGHT * value / highest, 2),
            width=round(max(1.0, wide - 1), 2),
            height=round(_HEIGHT * value / highest, 2),
            label=f"{_iso(slot)}: {_told(value, unit)}",
        )
        for number, (slot, value) in enumerate(zip(slots, values, strict=True))
        if value
    )
    return Series(
        title=title,
        unit=unit,
        total=_told(sum(values), unit),
        highest=_told(max(values), unit),
        per="an hour" if step == _HOUR else "a day",
        bars=bars,
        begin=slots[0],
        end=slots[-1] + step,
    )


def _told(value: float, unit: str) -> str:
    if unit == _DOLLARS:
        return dollars(round(value * 1e6))
    if 0 < value < _LEAST_TOLD:
        return f"< {_LEAST_TOLD} {unit}".rstrip()
    text = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")


MODULE = PageModule(
    (
        ConsoleRoute("/usage", show, (Scope.AUDIT, Scope.OPERATE), nav="Usage", key="u"),
        ConsoleRoute("/usage.csv", export, (Scope.AUDIT, Scope.OPERATE)),
    ),
    {},
)
