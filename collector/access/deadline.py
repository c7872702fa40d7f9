"""How long may a server that we ask take altogether? An HTTP transport whose requests end by a deadline, whatever comes back.

httpx bounds each read and write by itself, so an answer of which a byte comes now and then lasts for ever, its head included.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpcore
import httpx


class Deadline:
    """When everything has to have come, on the monotonic clock; shared by the connections of one client."""

    def __init__(self, most_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._most_s, self._now = most_s, now
        self._until = now() + most_s

    def begin(self) -> None:
        """The time of a new request begins now."""
        self._until = self._now() + self._most_s

    @property
    def passed(self) -> bool:
        """Whether it has passed."""
        return self._now() >= self._until

    def left(self, timeout_s: float | None) -> float:
        """How long one step may take: as long as it would, but not beyond the deadline. Above zero, which would mean "at once" to a socket."""
        left = max(self._until - self._now(), 1e-3)
        return left if timeout_s is None else min(timeout_s, left)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._deadline.left(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadline.left(timeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadline.left(timeout)
        made = super().connect_tcp(host, port, left, local_address, socket_options)
        return _Stream(made, self._deadline)


class BoundedTransport(httpx.HTTPTransport):
    """httpx's transport, each of whose requests ends within `most_s` from its begin to the last byte of its answer: `httpx.TimeoutException` if it does not.

    Neither a proxy nor credentials of the environment are used. For one thread at a time.
    """

    def __init__(self, most_s: float, verify: ssl.SSLContext | bool) -> None:
        super().__init__(verify=verify, trust_env=False)
        self.deadline = Deadline(most_s)
        context = httpx.create_ssl_context(verify=verify, trust_env=False)
        # httpx has no argument for it.
        self._pool = httpcore.ConnectionPool(
            ssl_context=context, network_backend=_Backend(self.deadline)
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.deadline.begin()
        return super().handle_request(request)
