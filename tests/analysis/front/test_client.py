"""The typed client against a small server with behaviour: what comes out is what went in, and failures are sentences."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from overrun.analysis.front import client as client_module
from overrun.analysis.front import question_table
from overrun.analysis.front.client import Client, ClientError, Refused, TooOld, Unreachable
from overrun.analysis.numbers.requests.request_list import Holdings, RequestList

HOLDINGS = Holdings(oldest=None, newest=None, requests=0, spans=False, values={"service": []})


class Server(ThreadingHTTPServer):
    """Answers every path with `status` and `body`, and remembers what it was asked."""

    daemon_threads = True
    status, body = 200, b"{}"
    pause_s = 0.0  # before each byte of the body; 0: the body at once

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, list[str]], str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.server.asked.append(
            (parts.path, parse_qs(parts.query), self.headers.get("authorization"))
        )
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        if not self.server.pause_s:
            self.wfile.write(self.server.body)
            return
        with suppress(OSError):  # the client leaves
            for byte in self.server.body:
                time.sleep(self.server.pause_s)
                self.wfile.write(bytes([byte]))

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    made = Client(server.url + "/", token="secret")
    yield made
    made.close()


def test_an_answer_comes_out_as_the_struct_that_went_in(server: Server, client: Client) -> None:
    server.body = msgspec.json.encode(HOLDINGS)
    assert (
        client.ask(question_table.HOLDINGS, {"since": "1h", "service": None, "route": ""})
        == HOLDINGS
    )
    assert server.asked == [("/api/v1/holdings", {"since": ["1h"]}, "Bearer secret")]


def test_parameters_are_sent_by_name(server: Server, client: Client) -> None:
    server.body = msgspec.json.encode(RequestList(sort="ttft", limit=5, total=0, rows=[]))
    asked = {"route": "/a&b=c"}
    client.ask(question_table.REQUESTS, asked, sort="ttft", limit=5, metric="ttft", min_ms=0.5)
    assert server.asked[0][1] == {
        "route": ["/a&b=c"],
        "sort": ["ttft"],
        "limit": ["5"],
        "metric": ["ttft"],
        "min_ms": ["0.5"],
    }


def test_a_pasted_trace_id_stays_one_segment_of_the_path(server: Server, client: Client) -> None:
    server.status, server.body = 404, b'{"error":"no span of it"}'
    with pytest.raises(Refused):
        client.ask(question_table.TRACE, trace_id="../report?since=1h")
    assert server.asked[0][0] == "/api/v1/traces/reportsince1h"


def test_a_refusal_carries_the_servers_sentence(server: Server, client: Client) -> None:
    server.status, server.body = 400, b'{"error":"SLO key is unknown"}'
    with pytest.raises(Refused, match="SLO key is unknown") as caught:
        client.ask(question_table.REPORT)
    assert caught.value.status == 400


@pytest.mark.parametrize("status", [401, 403])
def test_a_missing_token_names_the_variable_and_never_the_token(
    server: Server, client: Client, status: int
) -> None:
    server.status = status
    with pytest.raises(Refused, match="OVERRUN_READ_TOKEN") as caught:
        client.ask(question_table.REPORT)
    assert "secret" not in str(caught.value)


def test_a_server_without_the_endpoint_is_too_old(server: Server, client: Client) -> None:
    server.status, server.body = 404, b"Not Found"
    with pytest.raises(TooOld, match="update the server"):
        client.ask(question_table.SERIES, metric="e2e")


@pytest.mark.parametrize("body", [b"{}", b"not json", b'{"schema":"overrun.report/9"}', b""])
def test_an_answer_in_other_words_is_too_old(server: Server, client: Client, body: bytes) -> None:
    server.body = body
    with pytest.raises(TooOld, match="same version"):
        client.ask(question_table.REPORT)


def test_nobody_there_says_how_to_start_a_server(server: Server) -> None:
    server.server_close()
    with pytest.raises(Unreachable, match="overrun serve"):
        Client(server.url).ask(question_table.REPORT)


def test_an_answer_larger_than_any_of_ours_is_read_no_further(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MOST_BYTES", 1 << 20)
    server.body = b"x" * (8 << 20)
    with pytest.raises(Refused, match="more than 1 MiB: is it an Overrun server"):
        client.ask(question_table.HOLDINGS)


def test_an_answer_that_drips_is_given_up_on(server: Server) -> None:
    server.body = b"x" * 100
    server.pause_s = 0.05
    with (
        Client(server.url, timeout_s=0.3) as client,
        pytest.raises(Unreachable, match="did not answer in time"),
    ):
        client.ask(question_table.HOLDINGS)


def test_a_server_that_hangs_is_given_up_on() -> None:
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as silent,
        pytest.raises(Unreachable, match="in time"),
    ):
        Client(f"http://127.0.0.1:{silent.server_port}", timeout_s=0.2).ask(question_table.HOLDINGS)


@pytest.mark.parametrize("url", ["", "localhost", "ftp://127.0.0.1", "http://[::1"])
def test_an_address_that_is_none_is_a_client_error(url: str) -> None:
    with pytest.raises(ClientError):
        Client(url).ask(question_table.HOLDINGS)


def test_the_token_comes_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.body = msgspec.json.encode(HOLDINGS)
    monkeypatch.setenv("OVERRUN_TOKEN", "both")
    Client(server.url).ask(question_table.HOLDINGS)
    monkeypatch.setenv("OVERRUN_READ_TOKEN", "read")
    Client(server.url).ask(question_table.HOLDINGS)
    assert [asked[2] for asked in server.asked] == ["Bearer both", "Bearer read"]
