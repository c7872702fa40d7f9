"""The Python API: its names, and that it answers as the commands do."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

import overrun
from overrun.analysis.front.python_api import Recording
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.errors import StoreMissing
from tests import programs
from tests.conftest import ROOT

RECORDING = ROOT / "sample_traces" / "recordings" / "sim-slow-vector-store"


@pytest.fixture(scope="module")
def recording() -> Iterator[Recording]:
    with overrun.read(RECORDING) as held:
        yield held


NAMES = {"AnalysisError", "CollectorError", "Html", "Recording", "Report"} | {
    *("connect", "diagnose", "open", "read")
}
METHODS = {"report", "html", "facts", "requests", "trace", "compare", "whatif", "doctor", "frame"}


def test_these_names_are_exported_and_no_others() -> None:
    assert set(overrun.__all__) == set(dir(overrun)) == NAMES | {"__version__"}
    for name in overrun.__all__:
        assert getattr(overrun, name) is not None
    methods = {
        name for name, _ in inspect.getmembers(Recording, inspect.isfunction) if name[0] != "_"
    }
    assert methods == METHODS | {"close"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        overrun.nothing  # noqa: B018


def test_the_names_are_documented() -> None:
    page = (ROOT / "docs" / "PYTHON.md").read_text(encoding="utf-8")
    for name in NAMES | METHODS:
        assert f"{name}(" in page or f"`{name}`" in page or f"overrun.{name}" in page, name


def test_importing_the_package_loads_nothing() -> None:
    code = "import sys, overrun; print([m for m in sys.modules if m.startswith('overrun.')])"
    done = programs.fresh(code)
    assert (done.returncode, done.stdout.strip()) == (0, "[]")


def test_a_recording_answers_as_the_commands_do(recording: Recording) -> None:
    report = recording.report(route="/rag/ask", slo="ttft:1500 e2el:3000")
    assert (report.verdict.cause, report.window.requests) == ("slow_dependency", 385)
    assert repr(report) == f"<Report over_budget: {report.verdict.sentence}>"
    assert repr(recording).endswith("recordings/sim-slow-vector-store>")
    fix = report.findings[0].fix
    assert fix is not None
    assert fix.whatif is not None
    assert recording.whatif(fix.whatif, **fix.parameters).fix == fix.whatif
    frame = recording.frame("requests")
    assert frame.height == 385
    [slowest] = recording.requests(limit=1).rows
    assert recording.trace(slowest.trace_id).trace_id == slowest.trace_id
    assert recording.html()._repr_html_().startswith("<!doctype html>")
    assert recording._repr_html_() == recording.html()


def test_a_misspelt_name_is_refused_with_the_nearest_known_one(recording: Recording) -> None:
    for ask in (recording.report, recording.facts, recording.doctor, recording.frame):
        with pytest.raises(AnalysisError, match="'sinse': nearest known is 'since'"):
            ask(sinse="1h")
    with pytest.raises(AnalysisError, match="'max_token': nearest known is 'max_tokens'"):
        recording.whatif("cap", max_token=9)
    with pytest.raises(AnalysisError, match="slo must be a text or a number"):
        recording.report(slo=["ttft:1"])  # type: ignore[arg-type]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(StoreMissing, match=r"there is no database at nowhere\.db"):
        overrun.open("nowhere.db")
