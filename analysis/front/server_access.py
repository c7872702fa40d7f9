"""How is a running server reached? Its token, and how long it may take to answer."""

from __future__ import annotations

from overrun.collector.errors import CollectorError

TIMEOUT_S = 60.0


class ServerError(CollectorError):
    """A server that cannot be reached, or that refused."""


def bearer(token: str | None) -> dict[str, str]:
    """Return the header that shows a token, none without one."""
    return {"authorization": f"Bearer {token}"} if token else {}
