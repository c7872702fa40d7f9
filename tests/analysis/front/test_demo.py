"""Does the demo ask for windows that a person can read in a time field?"""

import json
import subprocess
import time
from types import SimpleNamespace

import httpx
import pytest

from overrun.analysis.front import demo
from overrun.collector.errors import CollectorError


def test_windows_are_widened_to_whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"name": "chat", "from": "2026-11-20T09:59:59.000001Z", "to": "2026-11-20T10:00:00.250000Z"}
    ]
    monkeypatch.setattr(
        subprocess,
        "run",
        lambda command, **_: subprocess.CompletedProcess(
            command, 0, json.dumps({"recordings": rows}), ""
        ),
    )
    assert demo._send("http://127.0.0.1:1", ("chat",)) == [
        {"name": "chat", "from": "2026-11-20T09:59:59Z", "to": "2026-11-20T10:00:01Z"}
    ]


def test_the_demo_waits_for_a_slow_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([httpx.ReadTimeout("slow"), httpx.ReadTimeout("slow"), httpx.Response(200)])

    def get(*_: object, **__: object) -> httpx.Response:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(httpx, "get", get)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert demo._asked(_server(code=None), "/readyz", {}).status_code == 200
    assert capsys.readouterr().err.count("still waiting") == 2


def test_a_server_that_has_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(*_: object, **__: object) -> httpx.Response:
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(httpx, "get", get)
    with pytest.raises(CollectorError, match="exit code 9"):
        demo._asked(_server(code=9), "/readyz", {})


def _server(code: int | None) -> demo.Server:
    return demo.Server(SimpleNamespace(poll=lambda: code), "http://127.0.0.1:1")
