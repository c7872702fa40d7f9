"""How is the dashboard started? As a process of its own: Streamlit on loopback, told by the environment which server to ask.

Nothing leaves the machine: usage statistics are off, fonts and scripts come with Streamlit.
"""

from __future__ import annotations

import errno
import os
import random
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import httpx

from overrun.dashboard.theme import DARK, LIGHT

DEFAULT_PORT: Final = 8501
DEFAULT_HOST: Final = "127.0.0.1"
URL_VARIABLE: Final = "OVERRUN_URL"
ARTIFACT_VARIABLE: Final = "OVERRUN_ARTIFACT"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_START_S: Final = 60.0
# Free ports are looked for below those that systems give to outgoing connections: one of these could take it before the dashboard listens.
_FREE_PORTS: Final = range(20_000, 32_000)
_PORTS_TRIED: Final = 50


class DashboardError(Exception):
    """The dashboard cannot be started; the sentence says what to do."""


def pick_port(port: int = DEFAULT_PORT, host: str = DEFAULT_HOST) -> int:
    """Return the port if it is free, a free one for 0.

    Raises:
        DashboardError: it is taken, or `host` is no address of this machine.
    """
    tried = [port] if port else random.sample(_FREE_PORTS, _PORTS_TRIED)
    for candidate in tried:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, candidate, type=socket.SOCK_STREAM
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                return candidate
        except OSError as error:
            if error.errno != errno.EADDRINUSE or candidate == tried[-1]:
                raise DashboardError(
                    f"the dashboard's port {host}:{candidate} cannot be used ({(error.strerror or '').lower()}): choose another port"
                ) from error
    raise AssertionError("at least one port must be tried")


def command(port: int = DEFAULT_PORT, host: str = DEFAULT_HOST) -> list[str]:
    """Return the command line of the dashboard's process; which server it asks stands in its environment (see `environment`)."""
    options: dict[str, str] = {
        "browser.gatherUsageStats": "false",
        "server.showEmailPrompt": "false",
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.address": host,
        "server.port": str(port),
        "server.maxMessageSize": "20",
        "server.enableWebsocketCompression": "true",
        "server.disconnectedSessionTTL": "60",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": "false",
        "global.disableWidgetStateDuplicationWarning": "true",
        "logger.level": "warning",
        "logger.hideWelcomeMessage": "true",
    }
    for theme in (LIGHT, DARK):
        options |= {
            f"theme.{theme.mode}.primaryColor": theme.accent,
            f"theme.{theme.mode}.backgroundColor": theme.background,
            f"theme.{theme.mode}.secondaryBackgroundColor": theme.surface,
            f"theme.{theme.mode}.textColor": theme.ink,
            f"theme.{theme.mode}.borderColor": theme.line,
        }
    flags = [f"--{name}={value}" for name, value in options.items()]
    if host in _LOOPBACK:
        # Another site's page must not reach this server through a name that it makes point here.
        flags += [f"--server.allowedHosts={name}" for name in ("127.0.0.1", "localhost", "[::1]")]
    return [
        sys.executable,
        "-m",
        "overrun.dashboard.bounded",
        "run",
        str(Path(__file__).with_name("asgi.py")),
        *flags,
    ]


def environment(url: str, artifact: Path | None = None) -> dict[str, str]:
    """Return this process's environment with the server to ask and the predictor to show; tokens are inherited from it, never passed as arguments.

    Should compiled code fail, its log says where.
    """
    return {**os.environ, URL_VARIABLE: url, "PYTHONFAULTHANDLER": "1"} | (
        {ARTIFACT_VARIABLE: str(artifact.resolve())} if artifact else {}
    )


def run(
    url: str, port: int = DEFAULT_PORT, host: str = DEFAULT_HOST, artifact: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start the dashboard of the server at `url` (such as http://127.0.0.1:4318) and return its process at once.

    Raises:
        DashboardError: the port is taken, or Streamlit is not installed.
    """
    pick_port(port, host)
    if not _installed():
        raise DashboardError("the dashboard needs Streamlit and Plotly: install overrun[dashboard]")
    return subprocess.Popen(
        command(port, host),
        env=environment(url, artifact),
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )


def wait_ready(
    process: subprocess.Popen[bytes],
    port: int = DEFAULT_PORT,
    host: str = DEFAULT_HOST,
    *,
    timeout_s: float = _START_S,
) -> str:
    """Wait until the dashboard answers and return its URL.

    Raises:
        DashboardError: its process ended, or it did not answer in time.
    """
    shown = f"[{host}]" if ":" in host else host
    # A server that listens on every address is asked on this machine's own.
    asked = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(shown, shown)  # noqa: S104
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise DashboardError(
                f"the dashboard ended while starting (exit code {process.returncode}): its last messages are above"
            )
        try:
            if (
                httpx.get(
                    f"http://{asked}:{port}/_stcore/health", timeout=2.0, trust_env=False
                ).status_code
                == httpx.codes.OK
            ):
                return f"http://{asked}:{port}"
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise DashboardError(f"the dashboard did not answer at {asked}:{port} within {timeout_s:.0f} s")


class Started:
    """A dashboard on a free port, shown in the person's browser once it answers."""

    def __init__(self, url: str, timeout_s: float = _START_S) -> None:
        self._port, self._timeout_s = pick_port(0), timeout_s
        self._process = run(url, self._port)

    def open(self, query: Mapping[str, str]) -> str:
        """Wait for it and return its address with these parameters, opened already where there is a screen.

        Raises:
            DashboardError: its process ended, or it did not answer in time.
        """
        page = f"{wait_ready(self._process, self._port, timeout_s=self._timeout_s)}/?{urlencode(query)}"
        if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            webbrowser.open(page)
        return page

    def wait(self) -> int:
        """Wait for its end; returns the exit code."""
        return self._process.wait()

    def terminate(self) -> None:
        """End it."""
        self._process.terminate()


def _installed() -> bool:
    from importlib.util import find_spec

    return all(find_spec(name) is not None for name in ("streamlit", "plotly"))
