"""How the dashboard's process is started: on loopback, silent towards the world, and with a sentence when it cannot."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from overrun.dashboard import launch, nav
from overrun.dashboard.bounded import MAX_CONNECTIONS
from tests.conftest import ROOT
from tests.waiting import LIMIT_S


def test_nothing_is_reported_to_anyone_and_only_this_machine_is_served() -> None:
    flags = launch.command(8600)
    assert "--browser.gatherUsageStats=false" in flags
    assert "--server.address=127.0.0.1" in flags
    assert "--server.port=8600" in flags
    assert "--client.showErrorDetails=none" in flags
    assert "--server.allowedHosts=localhost" in flags


def test_beyond_loopback_any_name_is_served() -> None:
    assert not any("allowedHosts" in flag for flag in launch.command(8600, "0.0.0.0"))


def test_a_busy_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(launch.DashboardError, match=f"cannot be used.*another port|{port}"):
            launch.pick_port(port)
        with pytest.raises(launch.DashboardError, match="choose another port"):
            launch.run("http://127.0.0.1:1", port)


def test_port_0_is_a_free_one() -> None:
    assert launch.pick_port(0) in range(1024, 32_768), (
        "an outgoing connection may take one of the others"
    )


def test_a_host_that_is_not_ours_is_named() -> None:
    with pytest.raises(launch.DashboardError, match=r"203\.0\.113\.7"):
        launch.pick_port(0, "203.0.113.7")


def test_the_address_travels_in_the_environment_and_tokens_never_in_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OVERRUN_READ_TOKEN", "secret-token")
    assert launch.environment("http://127.0.0.1:4318")["OVERRUN_URL"] == "http://127.0.0.1:4318"
    assert not any("secret-token" in part for part in launch.command())


def test_a_process_that_ends_while_starting_is_an_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(launch.DashboardError, match="exit code 3"):
        launch.wait_ready(process, launch.pick_port(0), timeout_s=LIMIT_S)


def test_a_dashboard_bounds_its_connections_and_leaves_its_port_when_it_is_ended() -> None:
    port = launch.pick_port(0)
    held: list[socket.socket] = []
    command = [
        sys.executable,
        "-m",
        "overrun",
        "dashboard",
        "--port",
        str(port),
        "--url",
        "http://127.0.0.1:1",
    ]
    started = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        assert started.stderr is not None
        assert f"dashboard: http://127.0.0.1:{port}" in next(
            line for line in started.stderr if line.startswith("dashboard")
        )
        # Connections without a request make room for others, or they take every file that the process may open.
        for _ in range(MAX_CONNECTIONS + 1):
            held.append(socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S))
        assert held[0].recv(100).startswith(b"HTTP/1.1 503")
        started.send_signal(signal.SIGTERM)
        assert started.wait(LIMIT_S) == 0
        for one in held:
            one.close()
        assert launch.pick_port(port) == port
    finally:
        for one in held:
            one.close()
        started.kill()
        started.communicate()


def test_a_page_is_found_under_its_name_however_it_is_spelled() -> None:
    from overrun.dashboard.asgi import OwnAddresses

    def asked(path: str, query: bytes = b"") -> str:
        sent: list[Any] = []

        async def behind(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def keep(message: Any) -> None:
            sent.append(message)

        asyncio.run(
            OwnAddresses(behind)({"type": "http", "path": path, "query_string": query}, None, keep)
        )  # type: ignore[arg-type]
        return dict(sent[0]["headers"])[b"location"].decode() if sent[0]["status"] == 307 else path

    assert asked("/verdict", b"since=6h&route=%2Fask") == "/?since=6h&route=%2Fask"
    assert [
        asked(path)
        for path in (
            "/Budget",
            "/budget/",
            "/data-health",
            "/Data%20health",
            "/what-if",
            "//traces",
        )
    ] == ["/budget", "/budget", "/health", "/Data%20health", "/whatif", "/traces"]
    for kept in (
        "/",
        "/_stcore/health",
        "/nowhere",
        "/static/budget",
        *(f"/{place.name}" for place in nav.PLACES[1:]),
    ):
        assert asked(kept) == kept
