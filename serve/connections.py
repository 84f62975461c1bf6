"""Connections: a client that sends nothing, half a request, or does not read its answer, does not keep one for ever.

A connection beyond the limit is accepted. Its requests have `crowded` in the scope's state, and the application refuses
them.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol


class Limited(H11Protocol):
    """Uvicorn's protocol with limits of the time to send a head and the time to read an answer.

    It also marks connections beyond a maximum as crowded.
    """

    seconds: ClassVar[float]
    """since a connection began, or the first byte of a head came; and since an answer was written"""
    most: ClassVar[int]
    """connections at once"""
    _receiving: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the head of a request."""
        super().connection_made(transport)
        self.app_state = self.app_state | {"crowded": len(self.connections) > self.most}
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        if self._unread is not None and not self.transport.get_write_buffer_size():
            self._unread.cancel()  # the last answer has been read
            self._unread = None
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel()  # the head is there; the application limits the time of the body
        elif self._receiving is None:  # part of a head, or the rest of a body that was refused
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait until the answer has been read."""
        super().on_response_complete()
        if self._unread is None and self.transport.get_write_buffer_size():
            self._unread = self.loop.call_later(self.seconds, self._drop_unread)

    def _await_head(self) -> None:
        self._receiving = self.loop.call_later(self.seconds, self.transport.abort)

    def _cancel(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    def _drop_unread(self) -> None:
        self._unread = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def limited(seconds: float, most: int) -> type[Limited]:
    """Return the protocol class. seconds: both time limits. most: connections beyond this number are crowded."""
    return type("LimitedProtocol", (Limited,), {"seconds": seconds, "most": most})
