"""What is stored of a span is what the slow, obvious reading of it says, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.decode import otlp_spans, otlp_spans_upb
from overrun.collector.normalise.limits import Limits
from overrun.collector.normalise.packed_texts import unpacked
from overrun.collector.normalise.quarantine import MIN_TIME_NS
from overrun.collector.normalise.spans import MAX_NAME, Normalized, Rules, normalize
from overrun.collector.normalise.stages import ROLES, STAGES
from tests.collector import oracle
from tests.collector import oracle_otlp as otlp
from tests.collector.oracle_build import MS, Made, body, pairs

SETTINGS = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    max_examples=100,
    phases=(Phase.explicit, Phase.generate),
)
RULES = Rules(salt=b"salt")


def _same(stored: Any, expected: Any) -> bool:
    return bool(otlp.comparable(stored) == otlp.comparable(expected))


def _same_map(stored: Sequence[tuple[str, str]], expected: dict[str, str]) -> bool:
    return len(dict(stored)) == len(stored) and dict(stored) == expected


def _unpacked(row: dict[str, Any]) -> list[tuple[str, str]]:
    return list(
        zip(unpacked(row["attribute_keys"]), unpacked(row["attribute_values"]), strict=True)
    )


def _check(stored: Normalized, bodies: Sequence[bytes], rules: Rules) -> None:
    expected = oracle.rows(bodies, rules)
    good = [row for row in expected if row.ok]
    rejected: dict[int, int] = {}
    for row in expected:
        if not row.ok:
            rejected[row.body] = rejected.get(row.body, 0) + 1
    assert stored.rejected == rejected
    aside = [] if stored.aside is None else stored.aside.to_pylist()
    spans = stored.spans.to_pylist()
    assert (len(spans), len(aside)) == (
        len([r for r in good if not r.aside]),
        len([r for r in good if r.aside]),
    )
    sources = dict(stored.sources)
    for span, row in zip([*spans, *aside], sorted(good, key=lambda r: r.aside), strict=True):
        wrong = {c: (span[c], v) for c, v in row.columns.items() if not _same(span[c], v)}
        assert not wrong, (row.columns["name"], wrong)
        assert (ROLES[span["role"]], STAGES[span["stage"]]) in row.said
        assert span["dialect"] in row.dialects
        rest = list(
            zip(stored.shapes[span["shape"]], unpacked(span["attribute_values"]), strict=True)
        )
        assert _same_map(rest, row.attributes), (rest, row.attributes)
        source = sources[span["source_id"]]
        assert {c: source[c] for c in row.source} == row.source
    _check_parts(stored, good)


def _check_parts(stored: Normalized, good: Sequence[oracle.Row]) -> None:
    events = [(row, e) for row in good for e in row.events if not 0 < e[0] < MIN_TIME_NS]
    assert stored.events.num_rows == len(events)
    for event, (row, (time_ns, name, attributes)) in zip(
        stored.events.to_pylist(), events, strict=True
    ):
        assert (event["trace_hi"], event["trace_lo"], event["span_id"]) == tuple(
            row.columns[c] for c in ("trace_hi", "trace_lo", "span_id")
        )
        assert (event["time_ns"], event["name"]) == (time_ns, name)
        assert _same_map(_unpacked(event), attributes)
    links = [(row, x) for row in good for x in row.links]
    assert stored.links.num_rows == len(links)
    for link, (row, (trace_id, span_id, attributes)) in zip(
        stored.links.to_pylist(), links, strict=True
    ):
        assert link["span_id"] == row.columns["span_id"]
        assert link["linked_trace_hi"] << 64 | link["linked_trace_lo"] == int.from_bytes(
            trace_id, "big"
        )
        assert link["linked_span_id"] == int.from_bytes(span_id, "big")
        assert _same_map(_unpacked(link), attributes)


@pytest.mark.parametrize("store_text", [False, True])
@pytest.mark.parametrize("name", otlp.RECORDINGS)
def test_recorded_spans_are_stored_as_the_oracle_reads_them(name: str, store_text: bool) -> None:
    bodies = otlp.bodies(name)
    rules = Rules(store_text=store_text, salt=b"salt")
    _check(normalize(otlp_spans.decode_spans(bodies), rules), bodies, rules)


@pytest.mark.parametrize("name", otlp.RECORDINGS)
def test_the_slow_decoder_can_serve_the_same_rows(name: str) -> None:
    bodies = otlp.bodies(name)
    fast, slow = (
        normalize(otlp_spans.decode_spans(bodies), RULES),
        normalize(otlp_spans_upb.decode_spans(bodies), RULES),
    )
    assert fast.spans.equals(slow.spans)
    assert fast.events.equals(slow.events)
    assert fast.links.equals(slow.links)
    assert (fast.sources, fast.shapes) == (slow.sources, slow.shapes)


@SETTINGS
@given(st.lists(otlp.requests(), max_size=3), st.booleans(), st.booleans())
def test_any_spans_are_stored_as_the_oracle_reads_them(
    requests: list[ExportTraceServiceRequest], store_text: bool, hash_users: bool
) -> None:
    bodies = [request.SerializeToString() for request in requests]
    rules = Rules(store_text=store_text, hash_users=hash_users, salt=b"salt")
    _check(normalize(otlp_spans.decode_spans(bodies), rules), bodies, rules)


# --- by hand: where the values of a field are odd, and where the limits are ---


def row(*attributes: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """The stored row of one span with these attributes (a key may repeat); `rest` is what no column took."""
    request = ExportTraceServiceRequest.FromString(
        body(Made(1, more.pop("name", "x"), 0, 10, **more))
    )
    span = request.resource_spans[0].scope_spans[0].spans[0]
    for key, value in attributes:
        span.attributes.extend(pairs({key: value}))
    sent = [request.SerializeToString()]
    stored = normalize(otlp_spans.decode_spans(sent), RULES)
    _check(stored, sent, RULES)
    out: dict[str, Any] = stored.spans.to_pylist()[0]
    return out | {
        "rest": dict(
            zip(stored.shapes[out["shape"]], unpacked(out["attribute_values"]), strict=True)
        )
    }


TOKENS = "gen_ai.usage.input_tokens"


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (7, 7),
        (7.0, 7),
        ("7", 7),
        ('"7"', 7),
        (" 7 ", 7),
        ("7e2", 700),
        (0, 0),
        (-1, None),
        ("-1", None),
        ("", None),
        ("many", None),
        ("Infinity", None),
        ("nan", None),
        (True, None),
        ([7], None),
        (2**40, 2**40),
        (2**40 + 1, None),
        (2**63 - 1, None),
        (1e300, None),
        (float("nan"), None),
    ],
)
def test_a_count_is_read_from_whatever_it_was_put_into(sent: Any, read: int | None) -> None:
    found = row((TOKENS, sent))
    assert found["input_tokens"] == read
    # What could not be read is kept as it came.
    assert (TOKENS in found["rest"]) == (read is None)


@pytest.mark.parametrize("sent", [1e308, -1e308, "1e308", 2**63 - 1, 4e8])
def test_a_duration_that_no_clock_can_count_is_none(sent: Any) -> None:
    assert row(("gen_ai.response.time_to_first_chunk", sent))["ttft_ns"] is None


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (True, True),
        (False, False),
        ("True", True),
        ("false", False),
        ('"true"', True),
        ("1", True),
        ("0", False),
        (1, None),
        ("yes", None),
        ("", None),
    ],
)
def test_a_flag_is_read_from_words_too(sent: Any, read: bool | None) -> None:
    assert row(("gen_ai.request.stream", sent))["streaming"] is read


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (["stop"], "stop"),
        (["length", "stop"], "length"),
        ([], None),
        ([""], None),
        ([1], None),
        ('["stop"]', "stop"),
        ("[]", None),
        ("[1]", None),
        ("stop", "stop"),
        ('"stop"', "stop"),
        ("[broken", "[broken"),
        ("", None),
        (5, None),
        ("[" * 5_000, "[" * MAX_NAME),
        (
            "[" * 100_000 + "]" * 100_000,
            "[" * MAX_NAME,
        ),  # no parser of Python 3.11 to 3.14 reads it
    ],
)
def test_a_finish_reason_is_the_first_of_a_list_in_any_dress(sent: Any, read: str | None) -> None:
    assert row(("gen_ai.response.finish_reasons", sent))["finish_reason"] == read


@pytest.mark.parametrize(
    ("seconds", "ns"),
    [
        (0.3007, 300_700_000),
        ("0.25", 250_000_000),
        (0, 0),
        (-0.1, None),
        (1e12, None),
        (1e-9, 1),
        (1e-10, 0),
    ],
)
def test_seconds_become_nanoseconds(seconds: Any, ns: int | None) -> None:
    assert row(("gen_ai.response.time_to_first_chunk", seconds))["ttft_ns"] == ns


def test_a_call_of_no_token_at_all_was_not_counted() -> None:
    def counts(**attributes: Any) -> list[int | None]:
        said = {f"gen_ai.usage.{name}_tokens": value for name, value in attributes.items()}
        sent = body(Made(1, "x", 0, 10, attributes={"gen_ai.operation.name": "chat", **said}))
        row = normalize(otlp_spans.decode_spans([sent]), Rules()).spans.to_pylist()[0]
        return [row["input_tokens"], row["output_tokens"], row["reasoning_tokens"]]

    assert counts(input=0, output=0, reasoning=0) == [None, None, None]
    assert counts(input=9, output=0, reasoning=0) == [9, 0, 0]
    assert counts(output=0) == [None, 0, None]


def test_the_first_present_and_readable_source_wins_by_rank() -> None:
    old, new = "gen_ai.usage.prompt_tokens", TOKENS
    assert row((old, 1), (new, 2))["input_tokens"] == 2
    assert row((old, 1), (new, "many"))["input_tokens"] == 1
    assert row((old, 1), (new, -2))["input_tokens"] == 1
    assert row(("gen_ai.request.model", "asked"), ("gen_ai.response.model", ""))["model"] == "asked"
    assert row(("http.response.status_code", 0), ("http.status_code", 503))["http_status"] == 503
    assert (
        row(("gen_ai.request.id", "engine"), ("gen_ai.response.id", "client"))["response_id"]
        == "client"
    )


def test_of_a_repeated_key_the_first_readable_value_counts() -> None:
    assert row((TOKENS, 1), (TOKENS, 2))["input_tokens"] == 1
    assert row((TOKENS, "many"), (TOKENS, 2), (TOKENS, 3))["input_tokens"] == 2
    assert row(("gen_ai.request.model", "a"), ("gen_ai.request.model", "b"))["model"] == "a"
    assert row(("k", "a"), ("k", "b"))["rest"] == {"k": "a"}


def test_a_span_keeps_as_many_attributes_as_opentelemetrys_own_limit() -> None:
    found = row(*((f"k{i}", i) for i in range(Limits().attributes + 50)), (TOKENS, 5))
    assert found["rest"] == {f"k{i}": str(i) for i in range(Limits().attributes)}
    # A canonical field is none of them, wherever it stood.
    assert found["input_tokens"] == 5


def test_names_are_cut_by_characters_not_bytes() -> None:
    sent = [body(Made(1, "é" * 1_000, 0, 10, events=[(5, "ß" * 1_000)], trace_state="a" * 1_000))]
    stored = normalize(otlp_spans.decode_spans(sent), RULES)
    assert stored.spans.column("name").to_pylist() == ["é" * MAX_NAME]
    assert stored.events.column("name").to_pylist() == ["ß" * MAX_NAME]
    assert [len(t) for t in stored.spans.column("trace_state").to_pylist()] == [512]


def test_a_span_that_ended_before_it_began_is_set_aside_and_lasted_no_time() -> None:
    stored = normalize(otlp_spans.decode_spans([body(Made(1, "x", 10, 0))]), RULES)
    assert stored.aside is not None
    assert (stored.spans.num_rows, stored.aside.column("duration_ns").to_pylist()) == (0, [0])


def test_chunk_times_at_both_ends_of_the_clock_do_not_overflow() -> None:
    request = ExportTraceServiceRequest.FromString(body(Made(1, "x", 0, 10)))
    span = request.resource_spans[0].scope_spans[0].spans[0]
    for time_ns in (2**64 - 1, 0, 5):
        span.events.add(time_unix_nano=time_ns, name="gen_ai.content.completion.chunk")
    sent = [request.SerializeToString()]
    stored = normalize(otlp_spans.decode_spans(sent), RULES)
    _check(stored, sent, RULES)
    assert stored.spans.column("chunk_span_ns").to_pylist() == [2**63 - 1]


@pytest.mark.parametrize(
    ("told_in_ns", "ttft_ms"), [(1, 70), (10**3, 70), (10**6, 70), (10**9, None), (7, None)]
)
def test_an_event_told_in_another_unit_of_time_is_in_its_span(
    told_in_ns: int, ttft_ms: int | None
) -> None:
    """MLflow 2 told the times of chunks in microseconds, as nanoseconds since 1970: first tokens came at once."""
    request = ExportTraceServiceRequest.FromString(
        body(Made(1, "x", 0, 900, attributes={"gen_ai.operation.name": "chat"}))
    )
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.start_time_unix_nano, span.end_time_unix_nano = (
        1_795_405_738 * 10**9 + 30 * MS,
        1_795_405_738 * 10**9 + 930 * MS,
    )
    span.events.add(
        time_unix_nano=(span.start_time_unix_nano + 70 * MS) // told_in_ns, name="first_token"
    )
    sent = [request.SerializeToString()]
    stored = normalize(otlp_spans.decode_spans(sent), RULES)
    _check(stored, sent, RULES)
    assert stored.spans.column("ttft_ns").to_pylist() == [None if ttft_ms is None else ttft_ms * MS]


def test_a_name_loses_its_query_whoever_it_travels_with() -> None:
    sent = [
        body(
            Made(1, "GET /a#words", 0, 10),
            Made(2, "GET /b?q=words\nmore", 0, 10),
            Made(3, "retry?", 0, 10),
        )
    ]
    for bodies in (sent, [body(Made(1, "GET /a#words", 0, 10))]):
        names = normalize(otlp_spans.decode_spans(bodies), RULES).spans.column("name").to_pylist()
        assert names == ["GET /a", "GET /b", "retry?"][: len(names)]


def test_broken_ids_are_refused_span_by_span_and_counted_per_body() -> None:
    request = ExportTraceServiceRequest.FromString(
        body(*(Made(i, "x", 0, 10) for i in range(1, 6)))
    )
    spans = [r.scope_spans[0].spans[0] for r in request.resource_spans]
    spans[0].trace_id, spans[1].trace_id, spans[2].span_id, spans[3].span_id = (
        b"short",
        b"\0" * 16,
        b"",
        b"\0" * 8,
    )
    sent = [body(Made(9, "good", 0, 10)), request.SerializeToString()]
    stored = normalize(otlp_spans.decode_spans(sent), RULES)
    assert stored.rejected == {1: 4}
    assert stored.spans.column("span_id").to_pylist() == [9, 5]


def test_the_same_source_has_the_same_id_in_every_batch() -> None:
    one, two = (
        normalize(otlp_spans.decode_spans([body(Made(i, "x", 0, 10))]), RULES).sources
        for i in (1, 2)
    )
    assert one == two


def test_a_requests_first_span_is_of_its_services_namespace_unless_somebody_names_a_tenant() -> (
    None
):
    made = (
        Made(1, "x", 0, 10, attributes={"tenant.id": "own"}),
        Made(2, "x", 0, 10),
        Made(3, "y", 0, 5, 2),
        Made(4, "llm_request", 0, 10, attributes={"gen_ai.latency.e2e": 1.0}),
    )
    request = ExportTraceServiceRequest.FromString(body(*made))
    for resource_spans in request.resource_spans:
        resource_spans.resource.attributes.extend(pairs({"service.namespace": "shop"}))
    sent = [request.SerializeToString()]
    stored = normalize(otlp_spans.decode_spans(sent), RULES)
    _check(stored, sent, RULES)
    assert stored.spans.column("tenant").to_pylist() == ["own", "shop", None, None]


def test_a_tenant_of_the_resource_is_that_of_its_spans_unless_they_say_another() -> None:
    request = ExportTraceServiceRequest.FromString(
        body(Made(1, "x", 0, 10, attributes={"tenant.id": "own"}), Made(2, "x", 0, 10))
    )
    for resource_spans in request.resource_spans:
        resource_spans.resource.attributes.extend(pairs({"tenant.id": "blue"}))
    sent = [request.SerializeToString()]
    stored = normalize(otlp_spans.decode_spans(sent), RULES)
    _check(stored, sent, RULES)
    assert stored.spans.column("tenant").to_pylist() == ["own", "blue"]
