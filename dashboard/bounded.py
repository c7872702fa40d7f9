"""How many connections may the dashboard's port hold? `streamlit run` behind the same limits on heads and idle connections as the collector's ports.

A thousand connections without a request otherwise take all files that a process may open, and no page can be drawn any more.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import uvicorn.config
from streamlit.web import cli

from overrun.collector.receive.http_protocol import GuardedProtocol

# A browser holds up to six connections and a web socket.
MAX_CONNECTIONS: Final = 512


class Protocol(GuardedProtocol):
    """The protocol of the dashboard's connections."""

    max_connections: ClassVar[int] = MAX_CONNECTIONS
    _idle: ClassVar[dict[Any, None]] = {}


def main() -> None:
    """As `python -m streamlit`, which gives its server no choice of a protocol."""
    uvicorn.config.HTTP_PROTOCOLS["auto"] = "overrun.dashboard.bounded:Protocol"
    cli.main(prog_name="streamlit")


if __name__ == "__main__":
    main()
