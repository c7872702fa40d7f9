"""By which names may a browser ask this server? A Host header with another name is refused: DNS rebinding brings one.

A page of another site can make its own name point to 127.0.0.1 and then read what a server there answers. Its Host header still carries that name.
Beyond loopback every port asks for a token, which such a page does not have, so there the names are checked once `[collector] allowed_hosts` lists some.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from overrun.collector.access.auth import is_loopback

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
# How containers name the machine that they run on. No outsider can register a name below .internal (reserved by ICANN in 2024).
_OF_CONTAINERS = frozenset({"host.docker.internal", "host.containers.internal"})


def is_known(host: str | None, bound: str, allowed: Iterable[str]) -> bool:
    """Whether a server that listens at `bound` answers a request with this Host header. None: the client sent none, so it is no browser."""
    names = {name.lower().strip("[]") for name in allowed}
    if host is None or (not names and not is_loopback(bound)):
        return True
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return is_loopback(name) or name in names | _OF_CONTAINERS | {bound.lower().strip("[]")}


def guarded(
    app: App, bound: str, allowed: Iterable[str], refused: Callable[[], None] = lambda: None
) -> App:
    """`app`, answering 421 to a request for another name; `refused` is called for each."""
    allowed = tuple(allowed)

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        host = _host(scope) if scope["type"] == "http" else None
        if is_known(host, bound, allowed):
            await app(scope, receive, send)
            return
        refused()
        sentence = f"the Host {(host or '')[:100]!r} is not a name of this server: use {_shown(bound)}, or add the name to [collector] allowed_hosts (or OVERRUN_ALLOWED_HOSTS)"
        body = json.dumps({"error": sentence}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 421, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return guard


def _host(scope: Scope) -> str | None:
    """The Host header; several are read as one that matches no name."""
    found = [value.decode("latin-1") for key, value in scope["headers"] if key == b"host"]
    return ",".join(found) if found else None


def _shown(bound: str) -> str:
    try:
        at = ipaddress.ip_address(bound)
    except ValueError:
        return bound
    return "one of its addresses" if at.is_unspecified else bound
