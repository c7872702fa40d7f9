"""What is stored of a span is what the slow, obvious reading of it says, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector import decode, decode_upb
from collector.normalize import Normalized, Rules, normalize
from collector.stages import ROLES, STAGES
from tests.collector import oracle
from tests.collector import oracle_otlp as otlp

SETTINGS = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=150, phases=(Phase.explicit, Phase.generate))
RULES = Rules(salt=b"salt")


def _same(stored: Any, expected: Any) -> bool:
    return bool(otlp.comparable(stored) == otlp.comparable(expected))


def _same_map(stored: Sequence[tuple[str, str]], expected: dict[str, str]) -> bool:
    return len(dict(stored)) == len(stored) and dict(stored) == expected


def _check(stored: Normalized, bodies: Sequence[bytes], rules: Rules) -> None:
    expected = oracle.rows(bodies, rules)
    good = [row for row in expected if row.ok]
    rejected: dict[int, int] = {}
    for row in expected:
        if not row.ok:
            rejected[row.body] = rejected.get(row.body, 0) + 1
    assert stored.rejected == rejected
    spans = stored.spans.to_pylist()
    assert len(spans) == len(good)
    sources = dict(stored.sources)
    for span, row in zip(spans, good, strict=True):
        wrong = {c: (span[c], v) for c, v in row.columns.items() if not _same(span[c], v)}
        assert not wrong, (row.columns["name"], wrong)
        assert (ROLES[span["role"]], STAGES[span["stage"]]) in row.said
        assert span["dialect"] in row.dialects
        rest = list(zip(stored.shapes[span["shape"]], span["attribute_values"], strict=True))
        assert _same_map(rest, row.attributes), (rest, row.attributes)
        source = sources[span["source_id"]]
        assert {c: source[c] for c in row.source} == row.source
    _check_parts(stored, good)


def _check_parts(stored: Normalized, good: Sequence[oracle.Row]) -> None:
    events = [(row, e) for row in good for e in row.events]
    assert stored.events.num_rows == len(events)
    for event, (row, (time_ns, name, attributes)) in zip(stored.events.to_pylist(), events, strict=True):
        assert (event["trace_hi"], event["trace_lo"], event["span_id"]) == tuple(row.columns[c] for c in ("trace_hi", "trace_lo", "span_id"))
        assert (event["time_ns"], event["name"]) == (time_ns, name)
        assert _same_map(event["attributes"], attributes)
    links = [(row, x) for row in good for x in row.links]
    assert stored.links.num_rows == len(links)
    for link, (row, (trace_id, span_id, attributes)) in zip(stored.links.to_pylist(), links, strict=True):
        assert link["span_id"] == row.columns["span_id"]
        assert link["linked_trace_hi"] << 64 | link["linked_trace_lo"] == int.from_bytes(trace_id, "big")
        assert link["linked_span_id"] == int.from_bytes(span_id, "big")
        assert _same_map(link["attributes"], attributes)


@pytest.mark.parametrize("store_text", [False, True])
@pytest.mark.parametrize("name", otlp.RECORDINGS)
def test_recorded_spans_are_stored_as_the_oracle_reads_them(name: str, store_text: bool) -> None:
    bodies = otlp.bodies(name)
    rules = Rules(store_text=store_text, salt=b"salt")
    _check(normalize(decode.decode_spans(bodies), rules), bodies, rules)


@pytest.mark.parametrize("name", otlp.RECORDINGS)
def test_the_slow_decoder_can_serve_the_same_rows(name: str) -> None:
    bodies = otlp.bodies(name)
    fast, slow = normalize(decode.decode_spans(bodies), RULES), normalize(decode_upb.decode_spans(bodies), RULES)
    assert fast.spans.equals(slow.spans)
    assert fast.events.equals(slow.events)
    assert fast.links.equals(slow.links)
    assert (fast.sources, fast.shapes) == (slow.sources, slow.shapes)


@SETTINGS
@given(st.lists(otlp.requests(), max_size=3), st.booleans(), st.booleans())
def test_any_spans_are_stored_as_the_oracle_reads_them(requests: list[ExportTraceServiceRequest], store_text: bool, hash_users: bool) -> None:
    bodies = [request.SerializeToString() for request in requests]
    rules = Rules(store_text=store_text, hash_users=hash_users, salt=b"salt")
    _check(normalize(decode.decode_spans(bodies), rules), bodies, rules)
