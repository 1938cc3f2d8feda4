"""What a client is told beside its answers: log messages, as many as it wants, and that its resources have changed."""

from __future__ import annotations

from typing import get_args

from mcp.server.connection import allowed_log_levels
from mcp.server.subscriptions import ResourcesListChanged, SubscriptionBus
from mcp_types import LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParams

from fumehood.integrations.mcp.contexts import RequestContext, is_modern

LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
"""From what few want to know to what all must."""
_LOGGER = "fumehood"


async def log(context: RequestContext, wanted: LoggingLevel, level: LoggingLevel, text: str) -> None:
    """`wanted` is the least that this client asked for; since 2026-07-28 each request says so itself."""
    allowed = allowed_log_levels(context.protocol_version, context.meta)
    if level not in allowed or (not is_modern(context) and LEVELS.index(level) < LEVELS.index(wanted)):
        return
    params = LoggingMessageNotificationParams(level=level, logger=_LOGGER, data=text)
    await context.session.send_notification(LoggingMessageNotification(params=params), context.request_id)


async def tell_of_resources(context: RequestContext, listeners: SubscriptionBus) -> None:
    if is_modern(context):
        await listeners.publish(ResourcesListChanged())
    else:
        await context.session.send_resource_list_changed()
