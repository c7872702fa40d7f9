"""Recordings of real engines: the right stage, cause and advice, without an engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests import programs
from tests.conftest import ROOT
from tests.lab import recordings, score
from tests.lab.drawn import named


@pytest.fixture(autouse=True)
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands need not import everything anew."""
    monkeypatch.setattr(score, "overrun", lambda *words: programs.run(words, ROOT, os.environ))


@pytest.mark.parametrize("name", ["prefix", "drawn_110", "seats"])
def test_the_verdict_on_a_recorded_fault_is_right(name: str, tmp_path: Path) -> None:
    capture, *_ = recordings.unpack([name], tmp_path)  # one repetition will do
    healthy, fault = (score.read(capture, phase) for phase in ("healthy", "fault"))
    db = score.store(capture, "healthy", "fault")
    report = score.report_of(db, fault, score.limits(healthy))
    right = named(name)
    assert right is not None
    assert report["verdict"]["stage"] == right.stage
    assert report["verdict"]["cause"] in right.causes
    assert score.advised(report["findings"])[0] in right.advice


def test_an_engine_at_the_called_address_is_no_provider(tmp_path: Path) -> None:
    """llama.cpp's server: no spans, and a page without a model's name that counts waiting calls."""
    (capture,) = recordings.unpack(["slots"], tmp_path)
    healthy, fault = (score.read(capture, phase) for phase in ("healthy", "fault"))
    db = score.store(capture, "healthy", "fault")
    report = score.report_of(db, fault, score.limits(healthy))
    assert (report["verdict"]["stage"], report["verdict"]["cause"]) == ("queue", "too_few_seats")
    assert not [f for f in report["findings"] if f["rule"].startswith("provider")]


def test_paths_of_the_machine_are_not_recorded() -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    for key in ("code.filepath", "code.function", "gen_ai.request.model"):
        span.attributes.add(key=key).value.string_value = "/srv/engine.py"
    kept = ExportTraceServiceRequest.FromString(
        recordings.without_paths(request.SerializeToString())
    )
    attributes = kept.resource_spans[0].scope_spans[0].spans[0].attributes
    assert [attribute.key for attribute in attributes] == ["gen_ai.request.model"]


def test_no_recording_is_of_an_unknown_experiment() -> None:
    recorded = {path.name for path in recordings.FOLDER.iterdir()}
    assert all(map(named, recorded))
    assert recorded
