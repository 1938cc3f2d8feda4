"""The half that has the sandbox: what a client asks for in conversations is done with it.

Each call is one conversation. It is done with the sandbox's own methods, so everything that holds for a local caller
holds here: the policy, the gateway, the audit log, limits. A client that is gone ends what it had under way.
"""

from __future__ import annotations

import asyncio
import logging
import time

from fumehood.errors import FumehoodError, UsageError
from fumehood.guest.contract.frames import FrameError
from fumehood.remote.conversations import Conversations, RemoteConversation
from fumehood.remote.failures import pack_failure
from fumehood.remote.handlers import background, files, ports, sandbox, sessions, snapshots
from fumehood.remote.handlers.parts import Handlers, Parts, SandboxOwner
from fumehood.remote.link import LinkClosedError
from fumehood.remote.memory import MemoryAccount
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.sandbox.async_sandbox import AsyncSandbox

_PARTS = (sandbox, background, sessions, files, snapshots, ports)
HANDLERS = {name: handler for part in _PARTS for name, handler in part.HANDLERS.items()}
"""Every call that there is."""
_log = logging.getLogger(__name__)


class SandboxService:
    """Serves one open sandbox to one client. The sandbox may itself be elsewhere: on a worker of a cluster.

    `own_handlers` are for calls that this client may make besides those of every client; `account` bounds what messages
    of several clients hold together.
    """

    def __init__(
        self,
        box: AsyncSandbox | RemoteSandbox,
        owner: SandboxOwner,
        own_handlers: Handlers | None = None,
        account: MemoryAccount | None = None,
    ) -> None:
        self._handlers = HANDLERS | (own_handlers or {})
        self.conversations = Conversations(self._begun, is_client=False, account=account)
        self._owner, self._parts = owner, Parts(box, owner, self._close_for_client)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        """The call that closes the sandbox; its answer is the last thing that the link carries."""
        self.last_call = time.monotonic()
        """When the last call ended."""

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return bool(self._tasks)

    async def close(self) -> None:
        """Ends all that is under way for the client; the sandbox itself is closed by its owner."""
        self.conversations.lose(LinkClosedError("the sandbox is closed"))
        await _end(self._tasks)

    async def _close_for_client(self, is_failing: bool) -> None:
        self._closing = asyncio.current_task()
        await _end({task for task in self._tasks if task is not self._closing})
        await self._owner.close_for_client(is_failing)

    def _begun(self, conversation: RemoteConversation) -> None:
        task = asyncio.ensure_future(self._answer(conversation))
        self._tasks.add(task)
        conversation.when_lost = task.cancel
        task.add_done_callback(lambda task: self._done(task, conversation))

    def _done(self, task: asyncio.Task[None], conversation: RemoteConversation) -> None:
        """Also of a task that was cancelled before it began, whose client waits for the word that it is over."""
        self._tasks.discard(task)
        conversation.finish()
        if self._closing is task:
            self.conversations.link.close()
        self.last_call = time.monotonic()

    async def _answer(self, conversation: RemoteConversation) -> None:
        try:
            await self._do(conversation)
        except FrameError as error:
            await conversation.send({"failed": pack_failure(UsageError(str(error)))})
        except FumehoodError as error:
            await conversation.send({"failed": pack_failure(error)})
        except LinkClosedError:
            pass
        except Exception as error:
            _log.exception("a call of a client failed")
            await conversation.send({"failed": pack_failure(error)})
        if not conversation.is_abandoned:
            conversation.end()  # with the answer, in one message of the carrier

    async def _do(self, conversation: RemoteConversation) -> None:
        message = await conversation.receive()
        if message is None:
            return
        handler = self._handlers.get(str(message.header.get("do")))
        if handler is None:
            raise UsageError(f"the server does not know {message.header.get('do')!r}; is it older than the client?")
        await self._owner.admit_call(str(message.header["do"]))
        await handler(self._parts, conversation, message)


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
