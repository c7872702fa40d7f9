"""What a server's own store gives the runner: the conditions of a recorded incident, and a message with its cause and a slow request."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import cast

import numpy as np

from overrun.analysis.assembly.assemble import assemble
from overrun.analysis.front.alerts.incidents import Condition, Incident, Notice
from overrun.analysis.front.alerts.messages import describe, text
from overrun.analysis.front.alerts.runner import KEY
from overrun.analysis.front.alerts.serving import _Watch
from overrun.analysis.front.alerts.settings import AlertSettings
from overrun.analysis.front.file_import import import_files
from overrun.collector.config import CollectorSettings, Settings
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.store.database import open_store
from tests.analysis.builders import at, gauge, insert, requests, store
from tests.conftest import ROOT

END = datetime.fromisoformat("2026-11-20T10:01:10+00:00").timestamp()


def test_a_recorded_incident_is_a_condition_and_a_message(tmp_path: Path) -> None:
    settings = Settings(collector=CollectorSettings(db=str(tmp_path / "x.db")))
    recording = ROOT / "sample_traces" / "recordings" / "sim-slow-vector-store"
    import_files([recording], settings, url=None, progress=lambda at, total: None)
    opened = open_store(tmp_path / "x.db", create=False)
    pipeline = Pipeline(opened, settings.collector, settings.privacy, assemble, settings.words)
    try:
        watch = _Watch(pipeline, settings, None, AlertSettings())
        seen = watch.look(END)
        report, slowest = watch.details(END)
        watch.note("{}")
        assert opened.meta(KEY) == "{}"
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


def test_a_learned_warning_that_is_on_is_a_condition_before_anything_is_slow() -> None:
    """Breaches of the past hour began 30 s after the KV cache had filled; it is full again, and no request is slow yet."""
    con = store()
    seconds = np.arange(0.0, 3_600.0, 0.5)
    onsets = (600.0, 1_500.0, 2_400.0, 3_300.0)
    slow = np.any([(seconds >= at) & (seconds < at + 60.0) for at in onsets], axis=0)
    insert(con, requests(len(seconds), start_s=seconds, prefill_ms=np.where(slow, 4_000.0, 100.0)))

    def usage(second: float) -> float:
        full = any(at - 30.0 <= second < at + 30.0 for at in (*onsets, 3_610.0))
        return 0.95 if full else 0.5 + 0.01 * (second % 7)

    gauge(con, "kv_cache_usage", {float(s): usage(s) for s in np.arange(0.0, 3_600.0, 5.0)})
    settings = Settings(slo={"e2e": 1000})
    now = at(3_600).timestamp()

    def early(every_s: float, before_s: float = 0.0) -> Condition | None:
        watch = _Watch(cast("Pipeline", None), settings, None, AlertSettings(every_s=every_s))
        watch._early(con, watch._question(now), now)
        later = now - before_s
        return watch._early(con, watch._question(later), later)

    found = early(20.0)
    assert found is not None
    assert (found.group, found.key, found.severity) == ("early", "kv_cache_usage", "info")
    assert "rose to 95" in found.summary
    # Not while it is low, and not where the breach would be there before the next look.
    assert early(20.0, before_s=120.0) is None
    assert early(60.0) is None
