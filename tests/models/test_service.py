"""`overrun length serve`: the predictor's own answers over HTTP, clear refusals, a newer artifact taken over while it runs."""

import asyncio
import json
import math
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from overrun.models.errors import RequestError
from overrun.models.predict import Predictor
from overrun.models.service import MAX_BATCH, MAX_BODY, MAX_CONNECTIONS, Service, application
from overrun.models.train import TrainReport, TrainSettings, train_to_folder
from tests import programs
from tests.conftest import ROOT
from tests.models import synthetic
from tests.waiting import LIMIT_S, until

ROW = {"route": "chat", "input_tokens": 800}


class Running:
    """The command in a process of its own, on a free port."""

    def __init__(self, folder: Path, *arguments: str, token: str = "") -> None:
        command = ["length", "serve", "--artifact", str(folder), "--port", "0", *arguments]
        environment = {"PATH": "/usr/bin:/bin", "OVERRUN_TOKEN": token}
        self.process = programs.start(command, ROOT, environment)
        self.said = self.process.stderr.readline()
        self.url = "http://" + self.said.strip().rpartition("http=")[2]

    def ask(self, method: str, path: str, content: Any = None, **headers: str) -> httpx.Response:
        body = (
            content
            if isinstance(content, bytes)
            else json.dumps(content).encode()
            if content is not None
            else None
        )
        return httpx.request(
            method, self.url + path, content=body, headers=headers, trust_env=False, timeout=LIMIT_S
        )

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(LIMIT_S)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.fixture(scope="module")
def folder(small_report: TrainReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(
        shutil.copytree(small_report.folder, tmp_path_factory.mktemp("service") / "artifact")
    )


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Running]:
    made = Running(folder)
    yield made
    assert made.stop() == 0


def test_it_answers_like_the_predictor_in_process(running: Running, folder: Path) -> None:
    assert running.url.startswith("http://127.0.0.1:")
    predictor = Predictor.load(folder)
    assert running.ask("POST", "/predict", ROW).json() == predictor.predict(ROW)
    rows = [ROW, {"route": "noise"}, {}]
    assert running.ask("POST", "/predict", rows).json() == predictor.predict_batch(rows)
    assert running.ask("POST", "/predict", []).json() == []


def test_what_has_finished_becomes_history(running: Running) -> None:
    row = {"id": "a", "route": "fresh"}
    before = running.ask("GET", "/healthz").json()
    assert running.ask("POST", "/predict", row).json()["source"] == "global"
    assert running.ask("POST", "/observe", [row | {"output_tokens": 333}] * 10).json() == {
        "observed": 10
    }
    assert running.ask("POST", "/observe", row | {"output_tokens": 333}).json() == {"observed": 1}
    answer = running.ask("POST", "/predict", row).json()
    assert (answer["source"], answer["p50"]) == ("route", 333.0)
    after = running.ask("GET", "/healthz").json()
    assert (
        after["status"],
        after["observed"] - before["observed"],
        after["predicted"] - before["predicted"],
    ) == ("ok", 11, 2)


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "words"),
    [
        ("POST", "/predict", b"{", 400, "not JSON"),
        ("POST", "/predict", b'{"input_tokens": NaN}', 400, "not JSON"),
        ("POST", "/predict", b"\xff\xfe", 400, "not JSON"),
        ("POST", "/predict", b"[" * 100_000, 400, "not JSON"),
        ("POST", "/predict", b"7", 400, "not an object"),
        ("POST", "/predict", b"[[]]", 400, "not an object"),
        (
            "POST",
            "/predict",
            {"input_tokens": "secret words"},
            400,
            "input_tokens is text; expected a number",
        ),
        ("POST", "/predict", [{}] * (MAX_BATCH + 1), 400, "201 rows; expected at most 200"),
        ("POST", "/observe", {}, 400, "output_tokens is missing"),
        ("POST", "/observe", {"output_tokens": -1}, 400, "output_tokens is out of range"),
        ("POST", "/predict", b'"' + b"x" * MAX_BODY + b'"', 413, "over 1,048,576 bytes"),
        ("GET", "/predict", None, 405, "use POST"),
        ("POST", "/healthz", {}, 405, "use GET"),
        ("GET", "/nothing", None, 404, "POST /predict, POST /observe and GET /healthz"),
    ],
)
def test_bad_requests_get_a_sentence_and_hurt_nobody(
    running: Running, method: str, path: str, content: Any, status: int, words: str
) -> None:
    answer = running.ask(method, path, content)
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text
    assert "secret" not in answer.text
    assert running.ask("POST", "/predict", ROW).status_code == 200


def test_a_newer_artifact_is_taken_over_and_a_broken_one_is_not(
    running: Running, folder: Path, tmp_path: Path
) -> None:
    old = running.ask("GET", "/healthz").json()["version"]
    newer = train_to_folder(
        synthetic.trace(900, seed=8), tmp_path / "a", settings=TrainSettings(max_rounds=10)
    )
    golden = (newer.folder / "golden.jsonl").read_bytes()
    (newer.folder / "golden.jsonl").write_bytes(golden[:-1])
    shutil.rmtree(folder)
    newer.folder.rename(folder)
    health = until(lambda: (found := healthy(running))["reload_error"] and found)
    assert "golden.jsonl is damaged" in health["reload_error"]
    assert running.ask("POST", "/predict", ROW).json()["version"] == old
    (folder / "golden.jsonl").write_bytes(golden)
    health = until(lambda: (found := healthy(running))["version"] != old and found)
    assert (health["version"], health["reload_error"]) == (newer.version, None)
    assert running.ask("POST", "/predict", ROW).json()["version"] == newer.version


def healthy(running: Running) -> Any:
    return running.ask("GET", "/healthz").json()


def test_with_a_token_only_health_is_open(small_report: TrainReport) -> None:
    running = Running(small_report.folder, token="let-me-in")
    try:
        assert running.ask("POST", "/predict", ROW).status_code == 401
        assert (
            running.ask(
                "POST", "/observe", ROW | {"output_tokens": 1}, authorization="Bearer guess"
            ).status_code
            == 401
        )
        assert (
            running.ask("POST", "/predict", ROW, authorization="Bearer let-me-in").status_code
            == 200
        )
        assert running.ask("GET", "/healthz").status_code == 200
    finally:
        assert running.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "0.0.0.0"), "is reachable from other machines: set OVERRUN_TOKEN"),
        (("--artifact", "no/such"), "is not a folder"),
        (("--port", "BUSY"), "cannot be used (address already in use"),
    ],
)
def test_what_cannot_start_says_why_with_status_2(
    small_report: TrainReport, arguments: tuple[str, ...], words: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        given = [str(busy.getsockname()[1]) if word == "BUSY" else word for word in arguments]
        command = ["length", "serve", "--artifact", str(small_report.folder), *given]
        done = programs.run(command, ROOT, {"PATH": "/usr/bin:/bin"})
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    "wrong", [{"output_tokens": "x"}, {}, {"output_tokens": 5, "input_tokens": -1}]
)
def test_of_an_array_with_a_wrong_row_nothing_is_taken_in(
    small_report: TrainReport, wrong: dict[str, object]
) -> None:
    service = Service(small_report.folder)
    with pytest.raises(RequestError):
        service.observe(
            json.dumps([{"route": "fresh", "output_tokens": 5}] * 15 + [wrong]).encode()
        )
    with pytest.raises(RequestError):
        service.predict(json.dumps([{}, {"route": 5}]).encode())
    assert (service.observed, service.predicted, len(service._recent)) == (0, 0, 0)
    assert json.loads(service.predict(b'{"route":"fresh"}'))["source"] == "global"


def test_a_new_artifact_hears_what_finished_after_its_training(
    small_report: TrainReport, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(small_report.folder, tmp_path / "a"))
    service = Service(folder)
    late, early = small_report.end.timestamp() + 60, small_report.start.timestamp()
    for moment, route in ((late, "late"), (early, "early"), (math.nan, "timeless")):
        row = {"route": route, "output_tokens": 5, "prompt": "not kept"} | (
            {} if math.isnan(moment) else {"time": moment}
        )
        for _ in range(10):
            service.observe(json.dumps(row).encode())
    assert "not kept" not in repr(service._recent)
    assert service.reload() is False
    newer = train_to_folder(
        synthetic.trace(1_500, seed=9), tmp_path / "b", settings=TrainSettings(max_rounds=10)
    )
    shutil.rmtree(folder)
    newer.folder.rename(folder)
    assert service.reload() is True
    sources = {
        route: json.loads(service.predict(json.dumps({"route": route}).encode()))["source"]
        for route in ("late", "early", "timeless")
    }
    assert sources == {"late": "route", "early": "global", "timeless": "global"}


def test_a_body_that_does_not_come_is_given_up(
    small_report: TrainReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overrun.models.service.BODY_S", 0.05)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(3600)
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/predict", "method": "POST", "headers": []}
    asyncio.run(application(Service(small_report.folder))(scope, receive, send))
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


def test_bodies_that_arrive_are_bounded_together(
    small_report: TrainReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overrun.models.service.MAX_ARRIVING", 100)
    app = application(Service(small_report.folder))
    status: list[int] = []

    async def ask(size: int, waits: asyncio.Event | None = None) -> None:
        parts = [{"body": b" " * size, "more_body": True}, {"body": b"{}"}]

        async def receive() -> dict[str, Any]:
            if waits is not None and len(parts) == 1:
                await waits.wait()
            return parts.pop(0)

        async def send(message: Any) -> None:
            status.append(message.get("status", 0))

        scope = {"type": "http", "path": "/predict", "method": "POST", "headers": []}
        await app(scope, receive, send)

    async def run() -> None:
        let_go = asyncio.Event()
        first = asyncio.create_task(ask(80, let_go))
        await asyncio.sleep(0)
        await ask(30)  # no room beside the first one
        let_go.set()
        await first
        await ask(90)  # which has given its room back

    asyncio.run(run())
    assert status[::2] == [503, 200, 200]


def test_idle_connections_make_room_for_who_asks(running: Running) -> None:
    host, port = running.url.removeprefix("http://").split(":")
    held = [socket.create_connection((host, int(port))) for _ in range(MAX_CONNECTIONS + 40)]
    try:
        assert running.ask("GET", "/healthz").status_code == 200
        held[0].settimeout(LIMIT_S)
        assert held[0].recv(100).startswith(b"HTTP/1.1 503")
        held[-1].sendall(b"GET /healthz HTTP/1.1\r\nhost: " + host.encode() + b"\r\n\r\n")
        held[-1].settimeout(LIMIT_S)
        assert held[-1].recv(100).startswith(b"HTTP/1.1 200")
    finally:
        for connection in held:
            connection.close()
