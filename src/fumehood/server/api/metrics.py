"""Numbers for Prometheus, in its text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from fumehood.server.shipping.shipper import ShippingState

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """What this process counts itself."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: Counter[tuple[str, str]] = Counter()

    def add_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is the pattern of the path, of which there are few, and not the path."""
        self._requests[method, route, status] += 1
        self._seconds[method, route] += seconds  # pyright: ignore[reportArgumentType]  # a Counter adds floats as well

    def lines(self) -> Iterable[str]:
        yield from _family("fumehood_requests_total", "counter", "Requests that were answered.")
        for (method, route, status), count in sorted(self._requests.items()):
            labels = (("method", method), ("route", route), ("status", str(status)))
            yield sample("fumehood_requests_total", labels, count)
        yield from _family("fumehood_request_seconds_total", "counter", "Time that answers took.")
        for (method, route), seconds in sorted(self._seconds.items()):
            yield sample("fumehood_request_seconds_total", (("method", method), ("route", route)), seconds)


def shipping_lines(states: Sequence[ShippingState]) -> Iterable[str]:
    """How each sink of audit records is."""
    families: tuple[tuple[str, str, str, Callable[[ShippingState], float]], ...] = (
        ("sent_total", "counter", "Records that have arrived.", lambda state: state.sent),
        ("missed_total", "counter", "Records that were pruned before they could be sent.", lambda state: state.missed),
        ("waiting", "gauge", "Records that have not arrived.", lambda state: state.waiting),
        ("failures", "gauge", "Attempts in a row that failed.", lambda state: state.failures),
    )
    for name, kind, help_text, read in families:
        yield from _family(f"fumehood_shipping_{name}", kind, help_text)
        for state in states:
            yield sample(f"fumehood_shipping_{name}", (("sink", state.sink),), read(state))


def gauge(name: str, help_text: str, samples: Iterable[tuple[Labels, float]]) -> Iterable[str]:
    yield from _family(name, "gauge", help_text)
    for labels, value in samples:
        yield sample(name, labels, value)


def sample(name: str, labels: Labels, value: float) -> str:
    text = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels)
    return f"{name}{{{text}}} {value:.17g}\n" if labels else f"{name} {value:.17g}\n"


def _family(name: str, kind: str, help_text: str) -> Iterable[str]:
    yield f"# HELP {name} {help_text}\n"
    yield f"# TYPE {name} {kind}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
