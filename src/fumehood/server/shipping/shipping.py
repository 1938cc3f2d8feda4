"""All sinks of a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import assert_never

from fumehood.server.shipping.ocsf import OcsfFileSink, OcsfHttpSink
from fumehood.server.shipping.settings import AnySinkSettings, OcsfSettings, SyslogSettings, WebhookSettings
from fumehood.server.shipping.shipper import Shipper, ShippingState
from fumehood.server.shipping.sinks import Sink
from fumehood.server.shipping.syslog import SyslogSink
from fumehood.server.shipping.webhook import WebhookSink


class AuditShipping:
    def __init__(self, sinks: Mapping[str, AnySinkSettings], state: Path) -> None:
        """UsageError for a secret that cannot be read."""
        self._shippers = [Shipper(name, _sink(given), given.wants, state) for name, given in sinks.items()]

    def start(self) -> None:
        for shipper in self._shippers:
            shipper.start()

    def stop(self) -> None:
        for shipper in self._shippers:
            shipper.stop()

    def states(self) -> list[ShippingState]:
        return [shipper.state for shipper in self._shippers]


def _sink(settings: AnySinkSettings) -> Sink:
    match settings:
        case SyslogSettings():
            return SyslogSink(settings)
        case WebhookSettings():
            return WebhookSink(settings)
        case OcsfSettings():
            return OcsfHttpSink(settings) if settings.file is None else OcsfFileSink(settings.file)
        case _:
            assert_never(settings)
