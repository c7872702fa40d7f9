"""The open diagnosis of whole stores: its arithmetic, and the same answer from fewer requests, under other names, and beside other traffic."""

import json
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
import zstandard

from overrun.analysis.contrast.explain import explain, window_of
from overrun.analysis.contrast.read import read
from overrun.analysis.contrast.segments import per_request, segments
from overrun.analysis.front.file_import import import_files
from overrun.analysis.numbers.window import Window, load
from overrun.analysis.words.explanation import Explanation
from overrun.collector.config import load as settings_of
from tests.conftest import ROOT

CORPUS = ROOT / "tests" / "corpus"
Change = Callable[[dict[str, Any]], dict[str, Any]]


def _stored(case: str, work: Path, change: Change = lambda body: body) -> duckdb.DuckDBPyConnection:
    packed = (CORPUS / case / "traces.json.zst").read_bytes()
    body = change(json.loads(zstandard.ZstdDecompressor().decompress(packed)))
    (work / "traces.json").write_text(json.dumps(body))
    settings = settings_of(flags={"collector.db": f"{work}/store.db"})
    import_files([work / "traces.json"], settings, url=None, progress=lambda at, total: None)
    return duckdb.connect(f"{work}/store.db", read_only=True)


def _explained(con: duckdb.DuckDBPyConnection, metric: str, limit_ms: float | None) -> Explanation:
    rows = load(con, Window()).rows
    limits = None if limit_ms is None else np.full(rows.height, limit_ms)
    found = explain(con, [window_of(rows, metric, limits, 95.0)])
    assert isinstance(found, Explanation), found
    return found


def test_places_add_up_to_what_is_judged(tmp_path: Path) -> None:
    con = _stored("open-prompt-cache-expires", tmp_path)
    rows = load(con, Window()).rows.sort("start_us")
    spans = read(con, rows)
    assert spans is not None
    whole = per_request(segments(spans), rows.height).sum(axis=1)
    assert np.allclose(whole, rows["e2e_ms"].to_numpy(), atol=1e-6)
    # A trace that is listed twice gives each of its spans once.
    twice = read(con, pl.concat([rows, rows]))
    assert twice is not None
    assert np.array_equal(twice.request, spans.request)
    first = rows["ttft_ms"].to_numpy()
    until = per_request(segments(spans, first), rows.height).sum(axis=1)
    assert np.allclose(until, first, atol=1e-6)
    found = _explained(con, "ttft", 1000.0)
    assert found.onset is None
    assert found.mode == "some"
    assert [(one.where, one.stage) for one in found.places] == [("to_first_token", "first_token")]
    assert found.places[0].share == pytest.approx(1.0, abs=0.01)
    assert found.regularities[0].late_with == found.regularities[0].late
    assert found.regularities[0].others_with == 0
    assert found.mechanism is not None
    assert found.mechanism.id == "expiry_in_silence"


def _spans_of(body: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [scope["spans"] for one in body["resourceSpans"] for scope in one["scopeSpans"]]


def _half(body: dict[str, Any]) -> dict[str, Any]:
    """The first half of the time: every second request would leave firsts that were none."""
    starts = sorted(int(span["startTimeUnixNano"]) for spans in _spans_of(body) for span in spans)
    middle = starts[len(starts) // 2]
    late = {
        span["traceId"]
        for spans in _spans_of(body)
        for span in spans
        if int(span["startTimeUnixNano"]) > middle
    }
    for spans in _spans_of(body):
        spans[:] = [span for span in spans if span["traceId"] not in late]
    return body


def _other_names(body: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(body).replace("faas.instance", "acme.worker").replace("faas.", "acme.")
    found: dict[str, Any] = json.loads(text)
    return found


def _beside_others(body: dict[str, Any]) -> dict[str, Any]:
    """Another application's requests of the same time, a little slower each minute."""
    starts = [int(span["startTimeUnixNano"]) for spans in _spans_of(body) for span in spans]
    first, last = min(starts), max(starts)
    spans = []
    for at in range(300):
        begin = first + (last - first) * at // 300
        trace = f"{at + 1:032x}"
        common = {"traceId": trace, "startTimeUnixNano": str(begin)}
        end = str(begin + 900_000_000 + 7_000_000 * (at % 50))
        spans.append(
            common
            | {"spanId": f"{at + 1:016x}", "name": "POST /other", "kind": 2, "endTimeUnixNano": end}
        )
        call = {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}
        spans.append(
            common
            | {
                "spanId": f"{at + 9001:016x}",
                "parentSpanId": f"{at + 1:016x}",
                "name": "chat other",
            }
            | {"kind": 3, "endTimeUnixNano": end, "attributes": [call]}
        )
    name = {"key": "service.name", "value": {"stringValue": "other-app"}}
    body["resourceSpans"].append(
        {"resource": {"attributes": [name]}, "scopeSpans": [{"scope": {}, "spans": spans}]}
    )
    return body


@pytest.mark.parametrize("change", [_half, _other_names, _beside_others])
@pytest.mark.parametrize("limit_ms", [3000.0, None])
def test_the_first_call_of_an_instance_is_found_from_other_input(
    change: Change, limit_ms: float | None, tmp_path: Path
) -> None:
    con = _stored("open-first-call-of-an-instance", tmp_path, change)
    found = _explained(con, "e2e", limit_ms)
    place = found.places[0]
    assert (place.where, place.caller, place.callee) == ("edge", "portal", "chat-orchestrator")
    assert place.share > 0.9
    first = found.regularities[0]
    assert "irst of" in first.words
    assert (first.late_with, first.others_with) == (first.late, 0)
    assert any("time does not follow load" in one for one in found.advice.avoid)
    assert found.advice.undo is None


def test_a_release_is_the_change_and_the_onset_is_its_moment(tmp_path: Path) -> None:
    con = _stored("open-client-made-for-each-request", tmp_path)
    found = _explained(con, "e2e", None)
    assert found.onset is not None
    assert found.onset.astimezone(UTC).strftime("%H:%M") == "09:18"
    assert found.places[0].where == "between"
    assert found.changed[0].after == "2025.3.13"
    assert found.excluded.keys() >= {"client_throttled"}
    assert not any(one.startswith("rollback") for one in found.advice.avoid)
