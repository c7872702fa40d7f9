"""The collector tells how it is: metrics, readiness, logs, and spans of its own work to another collector."""

import json
import logging
from pathlib import Path

import pytest

from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import TRACES
from overrun.collector.process import logs, tracing
from overrun.collector.receive import health
from tests.collector.conftest import body, collecting, held, plain_body, span
from tests.conftest import StartServer
from tests.waiting import LIMIT_S, until


def test_every_metric_has_its_help_and_type_and_a_number(pipeline: Pipeline) -> None:
    odd = span(1, 1)
    odd.end_time_unix_nano = 0
    pipeline.writer.submit(TRACES, body([odd, span(1, 2)])).result(LIMIT_S)
    pipeline.writer.tally.count(
        "refused_requests", protocol="http", signal="traces", reason="bad_payload"
    )
    lines = health.metric_lines(pipeline)
    found = {
        line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if not line.startswith("#")
    }
    assert (
        found["overrun_spans_total"],
        found["overrun_quarantined_spans_total"],
        found["overrun_store_writable"],
    ) == (1, 1, 1)
    assert (
        found[
            'overrun_refused_requests_total{protocol="http",signal="traces",reason="bad_payload"}'
        ]
        == 1
    )
    assert found["overrun_db_bytes"] > 0
    families = {line.split(" ")[2] for line in lines if line.startswith("# TYPE")}
    assert (
        {name.partition("{")[0] for name in found}
        == families
        == {line.split(" ")[2] for line in lines if line.startswith("# HELP")}
    )


def test_it_is_not_ready_while_the_queue_is_full_or_the_store_refuses(tmp_path: Path) -> None:
    with collecting(tmp_path / "t.db", queue_mib=1) as collector:
        pipeline = collector.pipeline
        assert health.readiness(pipeline)[0]
        with held(pipeline.writer):
            done = pipeline.writer.submit(
                TRACES, body([span(1, i, name="n" * 250) for i in range(1, 5_000)])
            )
            assert health.readiness(pipeline)[1]["status"] == "queue full"
        done.result(LIMIT_S)
        pipeline.writer.call(lambda c: c.execute("alter table bodies rename to elsewhere")).result()
        assert pipeline.writer.submit(TRACES, plain_body()).exception(LIMIT_S) is not None
        fine, said = health.readiness(pipeline)
        assert (fine, said["status"].startswith("store refuses: ")) == (False, True)
        pipeline.writer.call(lambda c: c.execute("alter table elsewhere rename to bodies")).result()
        assert pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S).items == 1
        assert health.readiness(pipeline)[0]
    fine, said = health.readiness(pipeline)  # it has been closed
    assert (fine, said["status"].startswith("nothing is stored any more")) == (False, True)


def test_logs_are_lines_of_text_or_of_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, ours = logging.getLogger(), logging.getLogger("overrun")
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    before = root.level, ours.level
    try:
        for form in logs.FORMS:
            logs.configure(form)
            try:
                raise ValueError("no")
            except ValueError:
                logging.getLogger("overrun.test").exception("it failed: %d", 7)
            logging.getLogger("somebody.else").info("chatter")
    finally:
        root.setLevel(before[0])
        ours.setLevel(before[1])
    text, _, structured = capsys.readouterr().err.partition("{")
    assert " error overrun.test: it failed: 7\nTraceback" in text
    event = json.loads("{" + structured)
    assert (event["level"], event["logger"], event["message"]) == (
        "error",
        "overrun.test",
        "it failed: 7",
    )
    assert event["exception"].endswith("ValueError: no")


@pytest.mark.parametrize(
    ("environment", "goes"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.example:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9999"}, True),
        (
            {
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://other:4318/v1/traces",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318",
            },
            True,
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:4318", "OTEL_SDK_DISABLED": "true"}, False),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:4318", "OTEL_TRACES_EXPORTER": "none"},
            False,
        ),
    ],
)
def test_own_spans_go_to_another_endpoint_only(environment: dict[str, str], goes: bool) -> None:
    assert (tracing.endpoint(environment, ["127.0.0.1:4317", "127.0.0.1:4318"]) is not None) == goes


def test_a_server_sends_spans_of_its_work_to_another_collector(
    tmp_path: Path, start_server: StartServer
) -> None:
    with collecting(tmp_path / "other.db") as other:
        named = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": other.http,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_SERVICE_NAME": "overrun-7",
        }
        server = start_server(tmp_path / "t.db", environment=named)
        import httpx

        sent = httpx.post(
            f"{server.http}/v1/traces",
            content=plain_body(),
            headers={"content-type": "application/x-protobuf"},
            trust_env=False,
            timeout=LIMIT_S,
        )
        assert sent.status_code == 200
        commits = "select distinct service, name from v_spans where name = 'commit'"
        assert until(lambda: other.rows(commits)) == [("overrun-7", "commit")]
        assert server.stop() == 0
