"""What a server's own store gives the runner: the conditions of a recorded incident, and a message with its cause and a slow request."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from overrun.analysis.assembly.assemble import assemble
from overrun.analysis.front.alerts.incidents import Incident, Notice
from overrun.analysis.front.alerts.messages import describe, text
from overrun.analysis.front.alerts.runner import KEY
from overrun.analysis.front.alerts.serving import _Watch
from overrun.analysis.front.file_import import import_files
from overrun.collector.config import CollectorSettings, Settings
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.store.database import open_store
from tests.conftest import ROOT

END = datetime.fromisoformat("2026-11-20T10:01:10+00:00").timestamp()


def test_a_recorded_incident_is_a_condition_and_a_message(tmp_path: Path) -> None:
    settings = Settings(collector=CollectorSettings(db=str(tmp_path / "x.db")))
    recording = ROOT / "sample_traces" / "recordings" / "sim-slow-vector-store"
    import_files([recording], settings, url=None, progress=lambda at, total: None)
    store = open_store(tmp_path / "x.db", create=False)
    pipeline = Pipeline(store, settings.collector, settings.privacy, assemble, settings.words)
    try:
        watch = _Watch(pipeline, settings, None, "900s")
        seen = watch.look(END)
        report, slowest = watch.details(END)
        watch.note("{}")
        assert store.meta(KEY) == "{}"
    finally:
        pipeline.close()
    [budget] = [c for c in seen.conditions if c.key.startswith("budget_")]
    assert (budget.group, budget.key, budget.severity) == (
        "requests",
        "budget_retrieval",
        "warning",
    )
    assert seen.unknown == frozenset()
    assert len(slowest) == 32
    incident = Incident(
        id="overrun-requests-1",
        group="requests",
        severity="warning",
        began=END - 600,
        held=END,
        keys=[budget.key],
        summary=budget.summary,
    )
    message = describe(
        Notice(event="fired", incident=incident, at=END), report, slowest, "https://o.example"
    )
    assert message.details["cause"] == "slow_dependency"
    assert message.details["stage"] == "retrieval"
    assert message.trace_id in message.trace_link
    assert "Set a timeout of 300 ms" in text(message)
