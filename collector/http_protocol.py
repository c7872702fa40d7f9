"""How is a sender kept from holding a connection with a request that never begins? uvicorn's HTTP protocol with limits on a request's head."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MAX_HEAD_BYTES = 65_536  # request line and headers
HEAD_TIMEOUT_S = 20.0


class GuardedProtocol(HttpToolsProtocol):
    """Closes a connection whose request line and headers are too long (431) or take too long to come (408)."""

    _head_bytes = 0
    _in_head = True
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_TIMEOUT_S, self._refuse, 408)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(431)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._late is None:
            self._late = self.loop.call_later(HEAD_TIMEOUT_S, self._refuse, 408)
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def _end_head(self) -> None:
        self._in_head = False
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, status: int) -> None:
        self._end_head()
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()
