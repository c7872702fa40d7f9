"""Who gets in from outside: TLS on every port, tokens for each side, reading on a port of its own."""

import json
import ssl
from pathlib import Path

import grpc
import httpx
import pytest
from typer.testing import CliRunner

from overrun.analysis.front.client import Client
from overrun.analysis.front.question_table import REPORT
from overrun.cli import app
from overrun.collector.access.tls import Certificates
from overrun.collector.config import CollectorSettings
from overrun.collector.errors import ConfigError
from tests.collector.conftest import PROTOBUF, plain_body
from tests.conftest import ServerProcess, StartServer

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
# An authority and certificates of 127.0.0.1 for a server and a client, made once with openssl for a hundred years; they protect nothing.
PKI = Path(__file__).parents[1] / "data" / "pki"


@pytest.fixture
def secured(tmp_path: Path, start_server: StartServer) -> ServerProcess:
    """A server with certificates that asks for the client's."""
    named = {
        "OVERRUN_TLS_CERT": "server.pem",
        "OVERRUN_TLS_KEY": "server.key",
        "OVERRUN_TLS_CLIENT_CA": "ca.pem",
    }
    return start_server(tmp_path / "t.db", environment={k: str(PKI / v) for k, v in named.items()})


def test_both_ports_speak_tls_and_only_to_clients_of_the_authority(secured: ServerProcess) -> None:
    trusting = ssl.create_default_context(cafile=str(PKI / "ca.pem"))
    known = ssl.create_default_context(cafile=str(PKI / "ca.pem"))
    known.load_cert_chain(PKI / "client.pem", PKI / "client.key")
    url = f"https://{secured.address}/v1/traces"
    assert (
        httpx.post(
            url, content=plain_body(), headers=PROTOBUF, verify=known, trust_env=False, timeout=30
        ).status_code
        == 200
    )
    for wrong in ({"verify": trusting}, {"verify": True}):
        with pytest.raises(httpx.HTTPError):
            httpx.post(
                url, content=plain_body(), headers=PROTOBUF, trust_env=False, timeout=30, **wrong
            )  # type: ignore[arg-type]
    with pytest.raises(httpx.HTTPError):
        httpx.post(
            url.replace("https", "http"),
            content=plain_body(),
            headers=PROTOBUF,
            trust_env=False,
            verify=False,
            timeout=30,
        )
    ca, key, cert = ((PKI / name).read_bytes() for name in ("ca.pem", "client.key", "client.pem"))
    with grpc.secure_channel(
        secured.grpc,
        grpc.ssl_channel_credentials(ca, key, cert),
        options=[("grpc.enable_http_proxy", 0)],
    ) as channel:
        assert channel.unary_unary(EXPORT)(plain_body(), timeout=30) == b""
    with (
        grpc.secure_channel(
            secured.grpc, grpc.ssl_channel_credentials(ca), options=[("grpc.enable_http_proxy", 0)]
        ) as channel,
        pytest.raises(grpc.RpcError),
    ):
        channel.unary_unary(EXPORT)(plain_body(), timeout=5)
    assert (
        json.loads((secured.db.parent / "t.db.server").read_text())["url"]
        == f"https://{secured.address}"
    )


def test_the_commands_reach_such_a_server_with_an_authority_and_a_certificate(
    secured: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = ["report", "--url", f"https://{secured.address}", "--output", "json"]
    refused = CliRunner().invoke(app, question)
    assert (refused.exit_code, "cannot be reached" in refused.stderr) == (2, True)
    for name, file in {
        "CA": "ca.pem",
        "CLIENT_CERT": "client.pem",
        "CLIENT_KEY": "client.key",
    }.items():
        monkeypatch.setenv(f"OVERRUN_TLS_{name}", str(PKI / file))
    answered = CliRunner().invoke(app, question)
    assert (answered.exit_code, "verdict" in json.loads(answered.stdout)) == (0, True)
    client = Client(f"https://{secured.address}")
    assert client.ask(REPORT).verdict is not None
    client.close()
    monkeypatch.setenv("OVERRUN_TLS_CA", str(PKI / "gone.pem"))
    broken = CliRunner().invoke(app, question)
    assert (broken.exit_code, "OVERRUN_TLS_CA" in broken.stderr) == (2, True)


def test_certificates_that_do_not_fit_stop_the_start(tmp_path: Path) -> None:
    assert Certificates.of(CollectorSettings()) is None
    (tmp_path / "broken.pem").write_text("no certificate")
    good = PKI / "server.key"
    for cert, key in (
        (PKI / "server.pem", ""),
        (PKI / "server.pem", PKI / "ca.key"),
        (tmp_path / "broken.pem", good),
        (tmp_path / "gone", good),
    ):
        with pytest.raises(ConfigError, match="TLS"):
            Certificates.of(CollectorSettings(tls_cert=str(cert), tls_key=str(key)))


def test_reading_has_a_port_and_a_token_of_its_own(
    tmp_path: Path, start_server: StartServer
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("ingest=of-those-who-send\nread=reader\n")
    server = start_server(
        tmp_path / "t.db",
        "--grpc-port",
        "0",
        "--http-port",
        "0",
        "--api-port",
        "0",
        "--token-file",
        str(tokens),
    )
    ingest, read = f"http://{server.address}", f"http://{server.api}"

    def ask(method: str, url: str, token: str | None, **more: object) -> int:
        headers = (PROTOBUF if method == "POST" else {}) | (
            {"authorization": f"Bearer {token}"} if token else {}
        )
        return httpx.request(
            method, url, headers=headers, trust_env=False, verify=False, timeout=30, **more
        ).status_code  # type: ignore[arg-type]

    assert [
        ask("POST", f"{ingest}/v1/traces", t, content=plain_body())
        for t in ("of-those-who-send", "reader", None)
    ] == [200, 401, 401]
    for path in ("/api/v1/report", "/metrics"):
        assert [ask("GET", f"{read}{path}", t) for t in ("reader", "of-those-who-send", None)] == [
            200,
            401,
            401,
        ]
        assert ask("GET", f"{ingest}{path}", "reader") == 404
    assert ask("POST", f"{read}/v1/traces", "of-those-who-send", content=plain_body()) in (404, 405)
    assert [
        ask("GET", f"{at}{path}", None) for at in (ingest, read) for path in ("/healthz", "/readyz")
    ] == [200] * 4
    with grpc.insecure_channel(server.grpc, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary(EXPORT)
        assert (
            call(plain_body(), timeout=30, metadata=[("authorization", "Bearer of-those-who-send")])
            == b""
        )
        with pytest.raises(grpc.RpcError, match="bearer token"):
            call(plain_body(), timeout=30, metadata=[("authorization", "Bearer reader")])
    assert "of-those-who-send" not in "".join(server.said)
    assert json.loads((tmp_path / "t.db.server").read_text())["url"] == read
