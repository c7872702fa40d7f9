"""Deployments that were reported by OTLP: kept without being requests, listed, named beside an onset, and a time for `overrun fix apply`."""

import json
import re
import subprocess
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from typer.testing import CliRunner

from overrun import cli
from overrun.analysis.diagnosis.verdict import Verdict
from overrun.analysis.front import report as reports
from overrun.analysis.front.alerts import messages
from overrun.analysis.front.file_import import import_files
from overrun.analysis.incident import deployments
from overrun.analysis.incident.deployments import Deployment
from overrun.analysis.numbers.window import Window, query
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.config import load
from overrun.collector.decode import otlp_json
from overrun.collector.dialects import cicd
from overrun.collector.normalise import stages
from overrun.collector.sources import log_events
from overrun.collector.store.database import open_store

AT = datetime(2026, 11, 26, 10, tzinfo=UTC)
NS = int(AT.timestamp()) * 10**9
REVISION = "9d59409acf479dfa0df1aa568182e43e43df8bbe"


def attributes(values: dict[str, str]) -> list[KeyValue]:
    return [KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in values.items()]


def logs(*records: tuple[str, dict[str, str]], service: str = "shop") -> bytes:
    """A logs request of one service, an event name and attributes a record, a minute apart."""
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    resource.resource.attributes.extend(attributes({"service.name": service}))
    scope = resource.scope_logs.add()
    for minute, (name, values) in enumerate(records):
        record = scope.log_records.add(time_unix_nano=NS + minute * 60 * 10**9, event_name=name)
        record.attributes.extend(attributes(values))
        record.body.string_value = "the person who pressed the button"
    return request.SerializeToString()


def spans(*made: tuple[str, dict[str, str]]) -> bytes:
    """A traces request of a pipeline, a name and attributes a span of ten seconds."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.extend(attributes({"service.name": "ci"}))
    scope = resource.scope_spans.add()
    for number, (name, values) in enumerate(made, 1):
        span = scope.spans.add(name=name, kind=1, trace_id=b"t" * 16, span_id=bytes([number] * 8))
        span.start_time_unix_nano, span.end_time_unix_nano = NS, NS + 10 * 10**9
        span.attributes.extend(attributes(values))
    return request.SerializeToString()


EVENT = {"deployment.name": "deploy-shop", "service.version": "1.4.2"}
PIPELINE = {
    "cicd.pipeline.name": "Deploy production",
    "cicd.pipeline.result": "failure",
    "vcs.ref.head.revision": REVISION,
}
TASK = {"cicd.pipeline.task.type": "deploy", "cicd.pipeline.task.name": "rollout"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("deployments")
    (root / "a.logs.pb").write_bytes(
        logs(("deployment", EVENT), ("deployment", EVENT | {"deployment.status": "failed"}))
    )
    build = {"cicd.pipeline.task.type": "build", "cicd.pipeline.task.name": "compile"}
    (root / "b.traces.pb").write_bytes(spans(("run", PIPELINE), ("job", TASK), ("job", build)))
    db = root / "d.db"
    files = sorted(root.glob("*.pb"))
    import_files(files, load(flags={"collector.db": str(db)}), url=None, progress=lambda *_: None)
    return db


def test_logs_and_spans_are_listed_and_are_no_requests(store: Path) -> None:
    with closing(open_store(store, create=False)) as opened:
        con = opened.cursor()
        found = deployments.deployments(con, Window()).deployments
        requests = con.execute("select count(*) from v_requests").fetchall()
    minute, ended = timedelta(minutes=1), AT + timedelta(seconds=10)
    assert found == [
        Deployment(at=AT, name="deploy-shop", version="1.4.2", service="shop"),
        Deployment(at=ended, name="rollout", version=REVISION[:12], service="ci"),
        Deployment(
            at=AT + minute, name="deploy-shop", version="1.4.2", service="shop", failed=True
        ),
    ]
    assert requests == [(0,)]


def test_a_record_that_comes_twice_is_one_deployment_and_its_text_is_left_out() -> None:
    body = logs(("deployment", EVENT))
    assert log_events.calls(body) == log_events.calls(body)
    assert log_events.calls(body)[0] == 1
    assert b"button" not in log_events.calls(body)[1]


CASES: list[tuple[str, dict[str, str], bool]] = [
    ("deployment", {"deployment.name": "x"}, True),
    ("app.deployed", {"deployment.id": "1208"}, True),
    ("order.placed", {"deployment.name": "x"}, False),  # on all that a program sends
    ("deployment", {"deployment.environment.name": "production"}, False),
    ("", {"deployment.status": "succeeded"}, True),
    ("job", {"cicd.pipeline.task.type": "Deploy"}, True),
    ("deploy", {"cicd.pipeline.task.type": "test", "deployment.name": "x"}, False),
    ("run", {"cicd.pipeline.name": "deploy", "cicd.pipeline.result": "success"}, True),
    ("run", {"cicd.pipeline.name": "tests", "cicd.pipeline.result": "success"}, False),
]


@pytest.mark.parametrize(("name", "values", "right"), CASES)
def test_what_reports_a_deployment(name: str, values: dict[str, str], right: bool) -> None:
    assert cicd.is_deployment(name, values) is right


def test_builds_and_other_spans_do_not_use_up_the_rows_of_deployments(tmp_path: Path) -> None:
    (tmp_path / "a.traces.pb").write_bytes(
        spans(*((f"{n} {name}", values) for n, (name, values, _) in enumerate(CASES)))
    )
    db = tmp_path / "d.db"
    settings = load(flags={"collector.db": str(db)})
    import_files([tmp_path / "a.traces.pb"], settings, url=None, progress=lambda *_: None)
    with closing(open_store(db, create=False)) as opened:
        rows = opened.cursor().execute(query("deployments"), {"start": None, "end": None})
        names = [row[3] for row in rows.fetchall()]
    assert sorted(names) == [f"{n} {name}" for n, (name, _, right) in enumerate(CASES) if right]


def test_ordinary_logs_stay_ordinary() -> None:
    assert log_events.calls(logs(("order.placed", {"deployment.environment": "p"}), ("", {}))) == (
        0,
        b"",
    )


@pytest.mark.parametrize(
    ("onset", "named"),
    [
        (AT + timedelta(minutes=8), ["rollout 9d59409acf47", "deploy-shop 1.4.2 (failed)"]),
        (AT + timedelta(minutes=30), []),
        (AT - timedelta(minutes=5), []),
        (None, []),
    ],
)
def test_the_last_ones_before_an_onset_are_changes(
    store: Path, onset: datetime | None, named: list[str]
) -> None:
    with closing(open_store(store, create=False)) as opened:
        found = deployments.beside(opened.cursor(), onset)
    assert [one.after for one in found] == named


def test_a_name_or_a_version_finds_the_last_one() -> None:
    first = Deployment(at=AT, name="shop", version="1")
    second = Deployment(at=AT + timedelta(hours=1), name="shop", version="2")
    assert deployments.named([first, second], "shop") == second
    assert deployments.named([first, second], "1") == first
    with pytest.raises(AnalysisError, match="shop"):
        deployments.named([first, second], "shopp")
    with pytest.raises(AnalysisError, match="none was reported"):
        deployments.named([], "shop")


def test_a_name_is_found_as_it_is_printed_and_a_commit_by_its_whole_id() -> None:
    made = Deployment(at=AT, name="[prod] shop", version=REVISION[:12])
    unversioned = Deployment(at=AT + timedelta(hours=1), name="shop")
    for name in ("[prod] shop", "(prod) shop", REVISION, REVISION[:12]):
        assert deployments.named([made, unversioned], name) == made
    for name in ("", "unnamed"):
        with pytest.raises(AnalysisError, match="is called"):
            deployments.named([made, unversioned], name)


def test_an_unknown_name_is_answered_in_one_printable_line_of_a_few() -> None:
    sent = [Deployment(at=AT, name=f"\x1b]0;{n}\x07{'n' * 200}") for n in range(1_000)]
    with pytest.raises(AnalysisError) as raised:
        deployments.named(sent, "shop")
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 1_000


def asked(*words: str) -> Any:
    return CliRunner().invoke(cli.app, list(words))


def test_the_command_lists_them_and_applied_takes_one(store: Path, tmp_path: Path) -> None:
    shown = asked("deployments", "--db", str(store), "--service", "shop")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[0] == "2026-11-26T10:00:00Z  deploy-shop 1.4.2  shop"
    ledger = ["--ledger", str(tmp_path / "l.jsonl"), "--db", str(store), "--output", "json"]
    made = asked("applied", "replicas", "--deployment", "rollout", *ledger)
    assert made.exit_code == 2  # the time was found, and no request before it
    assert "no deployment" not in made.output
    unknown = asked("applied", "replicas", "--deployment", "roll-out", *ledger)
    assert (unknown.exit_code, "rollout" in unknown.output) == (2, True)
    assert "--at TIME" in asked("applied", "replicas", *ledger).output
    doctor = json.loads(asked("doctor", "--db", str(store), "--output", "json").stdout)
    assert [one["unplaced_spans"] for one in doctor["services"]] == [0, 0]
    listed = json.loads(asked("deployments", "--db", str(store), "--output", "json").stdout)
    assert len(listed["deployments"]) == 3


@pytest.mark.parametrize("cause", [None, "long_outputs"])
def test_a_report_names_the_deployment_and_rolls_it_back_where_no_cause_is_known(
    store: Path, cause: str | None
) -> None:
    verdict = Verdict(
        status="over_budget",
        sentence="",
        cause=cause,
        onset=AT + timedelta(minutes=8),
        mitigation="Cap answers.",
        rollback="Take the cap away.",
    )
    made = SimpleNamespace(verdict=verdict)
    with closing(open_store(store, create=False)) as opened:
        reports._name_deployments(opened.cursor(), made)  # type: ignore[arg-type]
    assert [change.what for change in verdict.changed] == ["deployment", "deployment"]
    rolled = "Roll back what changed at the onset (deployment, now deploy-shop 1.4.2 (failed)) if that is quick. Else: Cap answers."
    assert verdict.mitigation == ("Cap answers." if cause else rolled)
    good = SimpleNamespace(ratio=None)
    told = SimpleNamespace(verdict=verdict, goodput=good, findings=[], explanation=None)
    details = messages._details(told, None)  # type: ignore[arg-type]
    assert details["changed"].endswith("; deployment deploy-shop 1.4.2 (failed)")


def test_the_line_of_the_documents_reports_a_deployment(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "TELEMETRY.md").read_text(encoding="utf-8")
    [line] = re.findall(r"^curl [^`]*?-d (.*?)\n```", page, re.DOTALL | re.MULTILINE)
    printed = subprocess.run(
        ["bash", "-c", f"printf %s {line}"], capture_output=True, check=True, text=True
    ).stdout
    body = otlp_json.from_document("logs", json.loads(printed))
    (tmp_path / "a.traces.pb").write_bytes(log_events.calls(body)[1])
    db = tmp_path / "d.db"
    settings = load(flags={"collector.db": str(db)})
    import_files([tmp_path / "a.traces.pb"], settings, url=None, progress=lambda *_: None)
    shown = asked("deployments", "--db", str(db))
    assert shown.stdout.endswith("deploy-shop 1.4.2  shop\n")
    windows = asked("compare", "--deployment", "1.4.2", "--db", str(db), "--output", "json")
    # The time was found; there is no request around it.
    assert (windows.exit_code, json.loads(windows.stdout)["before"]["requests"]) == (0, 0)
    both = asked("compare", "--deployment", "1.4.2", "--before", "-2h..-1h", "--db", str(db))
    assert "leave those out" in both.output


@pytest.mark.parametrize(
    ("other", "named"),
    [("gen_ai.request.model", "genai"), ("http.route", "cicd"), ("acme.id", "cicd")],
)
def test_a_deployments_name_on_a_model_call_makes_it_no_pipeline(other: str, named: str) -> None:
    keys = ("deployment.name", other)
    found = [place for key in keys if (place := stages.dialect_of(key)) is not None]
    assert stages.dialects()[min(found)[1]].name == named


def test_what_a_sender_wrote_cannot_command_a_terminal() -> None:
    told = deployments.Deployments(
        deployments=[
            Deployment(at=AT, name="a\x1b[2Jb", version="\x07", service="shop\x1b]0;x\x07\n2026")
        ]
    )
    assert deployments.render(told).isprintable()
