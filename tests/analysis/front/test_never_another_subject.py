"""Windows, times, ids and filters are checked against what is stored: the nearest name, the time that is stored, and exit code 2."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from overrun.analysis.words.errors import WindowError
from overrun.analysis.words.times import absolute, parse_time
from overrun.cli import app

NOW = datetime(2026, 11, 26, 5, 0, tzinfo=UTC)
START = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-20 10:04", "2026-11-20T09:04:00"),
        ("2026-11-20T10:04", "2026-11-20T09:04:00"),
        ("2026-07-20 10:04", "2026-07-20T08:04:00"),  # summer time
        ("2026-11-20", "2026-11-19T23:00:00"),
        ("2026/11/20 10:04:05", "2026-11-20T09:04:05"),
        ("2026-11-20 10:04:05,250", "2026-11-20T09:04:05.250000"),
        ("2026-11-20 10:04 UTC", "2026-11-20T10:04:00"),
        ("2026-11-20T10:04:05Z", "2026-11-20T10:04:05"),
        ("2026-11-20T10:04:05.123456789Z", "2026-11-20T10:04:05.123456"),
        ("2026-11-20 10:04:05+0200", "2026-11-20T08:04:05"),
        ("2026-11-20T10:04:05-05", "2026-11-20T15:04:05"),
        ("1795168800", "2026-11-20T10:00:00"),
        ("1795168800000", "2026-11-20T10:00:00"),
        ("1795168800000000", "2026-11-20T10:00:00"),
        ("now", "2026-11-26T05:00:00"),
        ("now-15m", "2026-11-26T04:45:00"),
        ("-1h30m", "2026-11-26T03:30:00"),
        ("1h", "2026-11-26T04:00:00"),
        ("05:30", "2026-11-26T04:30:00"),
        ("10:04", "2026-11-25T09:04:00"),  # today's is still to come
        ("25 Nov 20:41:38", "2026-11-25T19:41:38"),  # as reports print it
        ("25 Nov 20:41 UTC", "2026-11-25T20:41:00"),
        ("3 December 2025 10:04", "2025-12-03T09:04:00"),
        ("3 Dec", "2025-12-02T23:00:00"),  # this year's is still to come
    ],
)
@pytest.mark.usefixtures("berlin")
def test_times_are_read_as_people_write_them(text: str, utc: str) -> None:
    assert parse_time(text, NOW) == datetime.fromisoformat(utc).replace(tzinfo=UTC)
    told = absolute(text, NOW)  # what a server in another zone is asked
    assert parse_time(told, NOW) == pytest.approx(parse_time(text, NOW), abs=timedelta(seconds=1))


@pytest.mark.parametrize(
    "text",
    ["", "abc", "10", "2026-13-40 10:00", "1e9", "now-", "2026-11-20T10", "31 Feb 10:00", "1" * 20],
)
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(WindowError, match=r"write"):
        parse_time(text, NOW)


def spans() -> bytes:
    """Forty requests of two instances, a minute apart in seconds, as OTLP/JSON."""
    resources = []
    for instance in ("web-1", "web-2"):
        listed = []
        for at in range(20):
            start = int((START + timedelta(seconds=30 * at)).timestamp() * 1e9)
            slow = 4_000 if instance == "web-2" else 400
            listed.append(
                {
                    "traceId": f"{'a' if instance == 'web-1' else 'b'}{at:031x}",
                    "spanId": f"{at + 1:016x}",
                    "name": "chat gpt",
                    "kind": 3,
                    "startTimeUnixNano": str(start),
                    "endTimeUnixNano": str(start + slow * 1_000_000),
                    "attributes": [
                        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                        {"key": "gen_ai.request.model", "value": {"stringValue": "gpt"}},
                        {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "20"}},
                    ],
                }
            )
        attributes = [
            {"key": "service.name", "value": {"stringValue": "web"}},
            {"key": "service.instance.id", "value": {"stringValue": instance}},
        ]
        resources.append(
            {"resource": {"attributes": attributes}, "scopeSpans": [{"spans": listed}]}
        )
    return json.dumps({"resourceSpans": resources}).encode()


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    (folder / "t.json").write_bytes(spans())
    done = CliRunner().invoke(app, ["import", str(folder / "t.json"), "--db", str(folder / "o.db")])
    assert done.exit_code == 0, done.output
    return folder / "o.db"


def run(db: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments, "--db", str(db)])


def test_a_window_of_another_time_is_refused_with_the_time_that_is_stored(db: Path) -> None:
    for asked in (
        ["--from", "2026-11-21", "--to", "2026-11-22"],
        ["--to", "2026-11-19"],
        ["--since", "1s"],
    ):
        for command in (["report"], ["check"]):
            done = run(db, *command, *asked)
            assert done.exit_code == 2, (command, asked, done.output)
            assert "40 requests from 2026-11-20T10:00:00Z to 2026-11-20T10:09:34Z" in done.output
    inside = run(db, "report", "--from", "1795168800", "--to", "1795168860", "--output", "json")
    assert json.loads(inside.stdout)["window"]["requests"] == 4


def test_the_instance_is_a_filter_wherever_the_service_is(db: Path) -> None:
    one = json.loads(run(db, "report", "--instance", "web-2", "--output", "json").stdout)
    assert one["window"]["requests"] == 20
    assert one["latency"]["e2e_ms"]["p50"] == pytest.approx(4_000.0)
    doctor = json.loads(run(db, "doctor", "--instance", "web-1", "--output", "json").stdout)
    assert doctor["services"][0]["spans"] == 20
    for command in ("report", "check", "budget", "doctor"):
        wrong = run(db, command, "--instance", "web-3")
        assert wrong.exit_code == 2, (command, wrong.output)
        assert "nearest known is 'web-" in wrong.output


def test_a_trace_is_found_by_what_people_copy(db: Path) -> None:
    whole = "a" + f"{5:031x}"
    forms = (
        whole.upper(),
        f"00-{whole}-{6:016x}-01",
        f"1-{whole[:8]}-{whole[8:]}",
        f"{whole[:8]}-{whole[8:12]}-{whole[12:16]}-{whole[16:20]}-{whole[20:]}",
        f"tr-{whole}",
    )
    for form in forms:
        done = run(db, "report", "--trace", form, "--output", "json")
        assert done.exit_code == 0, (form, done.output)
        assert json.loads(done.stdout)["trace_id"] == whole


def test_an_unknown_trace_names_the_nearest_and_the_time_that_is_stored(db: Path) -> None:
    typo = run(db, "report", "--trace", "a" + f"{5:031x}".replace("0", "1", 1))
    assert typo.exit_code == 2
    assert f"nearest known is {'a' + f'{5:031x}'}" in typo.output
    assert "40 requests from" in typo.output
    assert "several traces begin with aaaa" not in run(db, "report", "--trace", "aaaa").output
    many = run(db, "report", "--trace", "a000")
    assert many.exit_code == 2
    assert "several traces begin with a000" in many.output
    assert run(db, "report", "--trace", "xyz").exit_code == 2


def test_every_command_refuses_a_filter_that_names_nothing_stored(db: Path) -> None:
    for command in (["report"], ["traces"], ["facts"], ["check"], ["budget"]):
        for flag, near in (("--service", "web"), ("--instance", "web-1"), ("--model", "gpt")):
            refused = run(db, *command, flag, f"{near}x")
            assert refused.exit_code == 2, (command, flag, refused.output)
            assert f"{near!r}" in refused.output or f"known are {near}" in refused.output
