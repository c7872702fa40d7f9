"""Under which names a server answers: a page of another site must not read it through a name that it makes point here."""

from pathlib import Path

import httpx
import pytest

from overrun.collector.access.hosts import is_known
from tests.conftest import StartServer


@pytest.mark.parametrize(
    ("host", "bound", "allowed", "known"),
    [
        ("127.0.0.1:4318", "127.0.0.1", (), True),
        ("localhost:4318", "127.0.0.1", (), True),
        ("LOCALHOST", "127.0.0.1", (), True),
        ("[::1]:4318", "::1", (), True),
        ("host.docker.internal:4318", "127.0.0.1", (), True),
        (None, "127.0.0.1", (), True),
        ("evil.example", "127.0.0.1", (), False),
        ("evil.example:4318", "localhost", (), False),
        ("localhost.evil.example", "127.0.0.1", (), False),
        ("127.0.0.1,evil.example", "127.0.0.1", (), False),
        ("", "127.0.0.1", (), False),
        ("[", "127.0.0.1", (), False),
        ("traces.corp", "127.0.0.1", ("Traces.corp",), True),
        # Beyond loopback a token is asked for; names are checked once some are listed.
        ("any.example", "0.0.0.0", (), True),
        ("any.example", "0.0.0.0", ("traces.corp",), False),
        ("10.0.0.4:4318", "10.0.0.4", ("traces.corp",), True),
        ("localhost", "0.0.0.0", ("traces.corp",), True),
    ],
)
def test_a_name_is_known_or_not(
    host: str | None, bound: str, allowed: tuple[str, ...], known: bool
) -> None:
    assert is_known(host, bound, allowed) is known


def test_every_route_of_every_port_refuses_a_foreign_name(
    tmp_path: Path, start_server: StartServer
) -> None:
    ports = ["--grpc-port", "0", "--http-port", "0", "--api-port", "0"]
    server = start_server(
        tmp_path / "t.db", *ports, environment={"OVERRUN_ALLOWED_HOSTS": "traces.corp"}
    )
    for address in (server.address, server.api):
        for method, path in (
            ("GET", "/api/v1/report"),
            ("GET", "/healthz"),
            ("POST", "/v1/traces"),
            ("POST", "/v1/forget"),
        ):
            answer = httpx.request(
                method,
                f"http://{address}{path}",
                headers={"host": "evil.example"},
                trust_env=False,
                timeout=30,
            )
            assert answer.status_code == 421
            assert "'evil.example'" in answer.json()["error"]
            assert "allowed_hosts" in answer.json()["error"]
        for name in ("traces.corp", "localhost"):
            assert (
                httpx.get(
                    f"http://{address}/healthz", headers={"host": name}, trust_env=False, timeout=30
                ).status_code
                == 200
            )
