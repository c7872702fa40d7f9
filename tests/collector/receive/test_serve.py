"""`overrun serve`: what it says, what it does when a port is taken, how it ends, and what it answers about itself and its data."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from overrun.collector.receive import converting
from overrun.collector.store.database import open_store
from tests.collector.conftest import PROTOBUF, body, chat, plain_body, trace_id
from tests.conftest import ROOT, ServerProcess, StartServer, settled
from tests.waiting import LIMIT_S, until

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
ANY = ("--grpc-port", "0", "--http-port", "0")


def post(server: ServerProcess, content: bytes) -> httpx.Response:
    return httpx.post(
        f"{server.http}/v1/traces",
        content=content,
        headers=PROTOBUF,
        trust_env=False,
        verify=False,
        timeout=LIMIT_S,
    )


def get(server: ServerProcess, path: str, **parameters: Any) -> httpx.Response:
    return httpx.get(
        f"{server.http}{path}",
        params=parameters or None,
        trust_env=False,
        verify=False,
        timeout=LIMIT_S,
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    made = ServerProcess(
        tmp_path_factory.mktemp("serve") / "t.db", environment={"OVERRUN_QUIET_S": "0.1"}
    )
    yield made
    assert made.stop() == 0


def test_without_data_it_says_how_to_point_an_application_and_an_engine_at_it(
    server: ServerProcess,
) -> None:
    said = "".join(server.said)
    assert f"OTEL_EXPORTER_OTLP_ENDPOINT={server.http}" in said
    assert f"vllm serve MODEL --otlp-traces-endpoint http://{server.grpc}" in said
    assert f"overrun report --url {server.http}" in said
    assert server.address.startswith("127.0.0.1:")


def test_what_was_sent_can_be_asked_for(server: ServerProcess) -> None:
    assert post(server, body(chat(1))).status_code == 200
    settled(server.http)
    trace = get(server, f"/api/v1/traces/{trace_id(1).hex()}").json()
    assert (trace["e2e_ms"], trace["route"], len(trace["spans"])) == (100.0, "/chat", 2)
    assert sum(trace["stages"].values()) == pytest.approx(100.0)
    window = {"from": "2026-09-01T00:00:00Z", "to": "2026-10-01T00:00:00Z"}
    report = get(server, "/api/v1/report", **window).json()
    assert (report["schema"], report["window"]["requests"]) == ("overrun.report/1", 1)
    assert get(server, "/api/v1/report", **window).json() == report
    assert post(server, body(chat(2))).status_code == 200
    settled(server.http)
    assert get(server, "/api/v1/report", **window).json()["window"]["requests"] == 2


def test_questions_that_cannot_be_answered_are_sentences(server: ServerProcess) -> None:
    for path, status, wanted in (
        ("/api/v1/traces/xyz", 400, "32 hexadecimal"),
        (f"/api/v1/traces/{'f' * 32}", 404, "no span of trace"),
        (f"/api/v1/traces/{'g' * 32}", 400, "32 hexadecimal"),
        ("/api/v1/report?sinse=1h", 400, "since"),
        ("/api/v1/report?since=yesterdayish", 400, "yesterdayish"),
        ("/api/v1/report?slo=tfft:1", 400, "ttft"),
        (f"/api/v1/traces/{trace_id(1).hex()}?since=1h", 400, "unknown parameter"),
    ):
        answer = get(server, path)
        assert (answer.status_code, wanted in answer.json()["error"]) == (status, True), answer.text


def test_it_says_that_it_lives_that_it_is_ready_and_what_it_counted(server: ServerProcess) -> None:
    assert get(server, "/healthz").json() == {"status": "ok"}
    assert get(server, "/readyz").json()["status"] == "ready"
    before = counted(server)
    content = plain_body(3)
    assert [post(server, c).status_code for c in (content, content, b"\xff")] == [200, 200, 400]
    after = counted(server)
    assert {k: after[k] - before[k] for k in ("bodies", "duplicates", "spans", "bad_bodies")} == {
        "bodies": 1,
        "duplicates": 1,
        "spans": 3,
        "bad_bodies": 1,
    }


def counted(server: ServerProcess) -> dict[str, float]:
    lines = [
        line.split()
        for line in get(server, "/metrics").text.splitlines()
        if not line.startswith("#")
    ]
    return {
        name.removeprefix("overrun_").removesuffix("_total"): float(value) for name, value in lines
    }


def test_a_slow_sender_does_not_hold_up_the_others(server: ServerProcess) -> None:
    host, port = server.address.split(":")
    slow = [socket.create_connection((host, int(port)), timeout=LIMIT_S) for _ in range(50)]
    for connection in slow:
        connection.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 1000\r\n\r\nabc"
        )
    assert post(server, plain_body()).status_code == 200
    for connection in slow:
        connection.close()


@pytest.mark.parametrize("taken", ["grpc", "http"])
def test_a_taken_port_is_named_and_the_other_one_runs(
    tmp_path: Path, start_server: StartServer, taken: str
) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        free = "http" if taken == "grpc" else "grpc"
        server = start_server(
            tmp_path / "t.db", f"--{taken}-port", str(port), f"--{free}-port", "0"
        )
    said = "".join(server.said)
    assert f"port 127.0.0.1:{port} cannot be used" in said
    assert f"--{taken}-port" in said
    if taken == "grpc":
        assert server.grpc == "-"
        assert post(server, plain_body()).status_code == 200
    else:
        assert server.address == "-"
        with grpc.insecure_channel(server.grpc, options=[("grpc.enable_http_proxy", 0)]) as channel:
            assert channel.unary_unary(EXPORT)(plain_body(), timeout=LIMIT_S) == b""
    assert server.stop() == 0


def test_sigterm_answers_what_was_sent_assembles_it_and_ends_with_0(
    tmp_path: Path, start_server: StartServer
) -> None:
    server = start_server(tmp_path / "t.db", *ANY)
    answers: list[int] = []
    ended = threading.Event()

    def send() -> None:
        with httpx.Client(
            base_url=server.http, headers=PROTOBUF, trust_env=False, verify=False, timeout=LIMIT_S
        ) as client:
            for trace in range(1, 10_000):
                try:
                    answers.append(client.post("/v1/traces", content=body(chat(trace))).status_code)
                except httpx.HTTPError:
                    break
        ended.set()

    sender = threading.Thread(target=send)
    sender.start()
    until(lambda: len(answers) >= 20)
    server.process.send_signal(signal.SIGTERM)
    assert server._end() == 0
    assert ended.wait(LIMIT_S)
    sender.join()
    stored = answers.count(200)
    store = open_store(tmp_path / "t.db", create=False)
    found = store.connection.execute(
        "select (select count(*) from v_requests), (select count(distinct trace_lo) from spans)"
    ).fetchall()
    store.close()
    assert set(answers) <= {200, 503}
    assert (
        found[0][0] == found[0][1] >= stored
    )  # everything stored is assembled; at most the one that was cut off is extra
    assert found[0][0] <= stored + 1
    assert not (tmp_path / "t.db.server").exists()


STUCK = """
import asyncio, time
from overrun.analysis.front import serve

async def main():
    stop = asyncio.Event()
    with serve._signals(stop):
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
        print("ready", flush=True)
        await stop.wait()

serve.run_loop(main())
"""


def test_a_stop_ends_whatever_still_runs() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUCK], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0


def test_bodies_are_converted_while_every_reader_is_busy() -> None:
    async def converted() -> int:
        free = threading.Event()
        loop = asyncio.get_running_loop()
        reports = [loop.run_in_executor(None, free.wait, LIMIT_S) for _ in range(64)]
        try:
            return await asyncio.wait_for(converting.run(len, b"body"), LIMIT_S / 2)
        finally:
            free.set()
            await asyncio.gather(*reports)

    assert asyncio.run(converted()) == 4
