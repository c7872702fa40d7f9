"""Who may erase, and which lines erasing and exporting leave behind."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from overrun.collector.access.audit import Audit
from tests.collector.conftest import PROTOBUF, body, span
from tests.conftest import StartServer

ENVIRONMENT = {
    "OVERRUN_INGEST_TOKEN": "in-token",
    "OVERRUN_READ_TOKEN": "read-token",
    "OVERRUN_ERASE_TOKEN": "erase-token",
}


def asked(method: str, url: str, token: str | None = None, **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.request(
        method,
        url,
        headers=headers | more.pop("headers", {}),
        trust_env=False,
        timeout=60,
        **more,
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_only_the_erase_token_erases_and_each_attempt_is_a_line(
    tmp_path: Path, start_server: StartServer
) -> None:
    server = start_server(tmp_path / "t.db", environment=ENVIRONMENT)
    one = body([span(1, 1, attributes={"tenant.id": "acme-marker"})])
    asked("POST", f"{server.http}/v1/traces", "in-token", content=one, headers=PROTOBUF)
    forget, whom = f"{server.http}/v1/forget", {"tenant": "acme-marker"}
    for token, status, part in (
        (None, 401, "erase token"),
        ("wrong", 401, "erase token"),
        ("in-token", 403, "the ingest token does not permit erasing"),
        ("read-token", 403, "OVERRUN_ERASE_TOKEN"),
    ):
        answer = asked("POST", forget, token, json=whom)
        assert (answer.status_code, part in answer.json()["error"]) == (status, True)
    assert asked("POST", forget, "erase-token", json=whom).json()["traces"] == 1
    export = f"{server.http}/api/v1/export/spans?since=1h&format=csv"
    assert asked("GET", export, "erase-token").status_code == 401
    assert asked("GET", export, "read-token").status_code == 200
    assert server.stop() == 0
    log = tmp_path / "t.db.audit.jsonl"
    found = lines(log)
    assert [(e["action"], e["token"], e["status"]) for e in found] == [
        ("forget", "none", 401),
        ("forget", "unknown", 401),
        ("forget", "ingest", 403),
        ("forget", "read", 403),
        ("forget", "erase", 200),
        ("export", "read", 200),
    ]
    assert {e["from"] for e in found} == {"127.0.0.1"}
    assert found[4]["counts"]["spans"] == 1
    assert found[5]["what"] == {"kind": "spans", "since": "1h", "format": "csv"}
    assert found[5]["counts"] == {"rows": 0}
    assert "acme-marker" not in log.read_text(), "the log of an erasing must not keep the name"


def test_nobody_erases_where_tokens_are_set_and_none_is_for_erasing(
    tmp_path: Path, start_server: StartServer
) -> None:
    server = start_server(tmp_path / "t.db", environment={"OVERRUN_TOKEN": "both"})
    answer = asked("POST", f"{server.http}/v1/forget", "both", json={"user": "a"})
    assert answer.status_code == 403
    assert "OVERRUN_ERASE_TOKEN" in answer.json()["error"]


def test_what_a_server_makes_is_for_its_user_alone(
    tmp_path: Path, start_server: StartServer
) -> None:
    server = start_server(tmp_path / "t.db", environment={"OVERRUN_AUDIT_LOG": "who.jsonl"})
    asked("POST", f"{server.http}/v1/traces", content=body([span(1, 1)]), headers=PROTOBUF)
    asked("POST", f"{server.http}/v1/forget", json={"user": "a"})
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert {"t.db", "t.db.wal", "t.db.server", "who.jsonl"} <= set(modes)
    assert set(modes.values()) == {0o600}


def test_a_log_that_cannot_be_written_goes_to_the_server_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit = Audit(tmp_path / "no folder" / "a.jsonl")
    audit.write("forget", token="erase", peer="::1", what={}, status=200)
    assert "cannot be written" in caplog.text
    assert '"action": "forget"' in caplog.text


def test_the_log_has_a_greatest_size_and_the_one_before_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overrun.collector.access.audit.MAX_BYTES", 2_000)
    audit = Audit(tmp_path / "a.jsonl")
    for number in range(100):
        audit.write("export", token="read", peer="::1", what={"n": str(number)}, status=200)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["a.jsonl", "a.jsonl.1"]
    assert all(file.stat().st_size < 2_300 for file in files)
    assert json.loads(files[0].read_text().splitlines()[-1])["what"] == {"n": "99"}
