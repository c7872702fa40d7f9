"""Every data-quality check on a recording that trips it, beside the same recording without that one change; all by the road of real telemetry.

The recording is a RAG service on one vLLM server (385 requests, spans of both sides, scrapes); a change edits its OTLP bodies, as another instrumentation,
exporter or sampler would have sent them.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from overrun.analysis.front.file_import import import_files
from overrun.analysis.front.report import build
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from overrun.collector.config import load
from overrun.collector.sources.importer import find_files, read_bodies
from overrun.collector.store.database import open_store
from overrun.sample_traces.replay import RECORDINGS_PATH

SLO = Slo(ttft_ms=1_000.0, e2e_ms=5_000.0)
MS = 1_000_000
TTFC = "gen_ai.response.time_to_first_chunk"


def metrics_of(body: ExportMetricsServiceRequest) -> Iterator[Metric]:
    for resource in body.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


class Recording:
    """The bodies of a recording, open to changes."""

    def __init__(self, name: str = "sim-prefix-cache-lost") -> None:
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        for path in find_files([RECORDINGS_PATH / name]):
            for signal, body in read_bodies(path):
                if signal == "traces":
                    self.traces.append(ExportTraceServiceRequest.FromString(body))
                else:
                    self.metrics.append(ExportMetricsServiceRequest.FromString(body))

    def spans(self, name: str = "") -> Iterator[Span]:
        """The spans whose name begins so; the calls of the model are "chat", the engine's own "llm_request", the requests "POST"."""
        for body in self.traces:
            for resource in body.resource_spans:
                for scope in resource.scope_spans:
                    yield from (span for span in scope.spans if span.name.startswith(name))

    def drop(self, gone: Callable[[Span], bool]) -> None:
        for body in self.traces:
            for resource in body.resource_spans:
                for scope in resource.scope_spans:
                    kept = [span for span in scope.spans if not gone(span)]
                    del scope.spans[:]
                    scope.spans.extend(kept)

    def named(self, name: str) -> Iterator[Metric]:
        for body in self.metrics:
            yield from (metric for metric in metrics_of(body) if metric.name == name)

    def write(self, folder: Path) -> Path:
        folder.mkdir()
        for number, body in enumerate(self.traces):
            (folder / f"{number:03}.traces.pb").write_bytes(body.SerializeToString())
        for number, scraped in enumerate(self.metrics):
            (folder / f"{number:03}.metrics.pb").write_bytes(scraped.SerializeToString())
        return folder


def graded(recording: Recording, folder: Path) -> dict[str, str]:
    """The status of every check in the report after the recording was taken in."""
    settings = load(None, environment={}, flags={"collector.db": str(folder / "a.db")})
    import_files(
        [recording.write(folder / "otlp")], settings, url=None, progress=lambda at, total: None
    )
    store = open_store(folder / "a.db", create=False)
    try:
        with store.reading() as con:
            return {
                check.check: check.status
                for check in build(con, Window(), SLO, with_findings=False).data_quality
            }
    finally:
        store.close()


def value(span: Span, key: str) -> Any:
    return next((found.value for found in span.attributes if found.key == key), None)


def some(recording: Recording, share: int = 10) -> Callable[[Span], bool]:
    """Every tenth trace, by the order of its requests."""
    chosen = {
        span.trace_id for number, span in enumerate(recording.spans("POST")) if number % share == 0
    }
    return lambda span: span.trace_id in chosen


def attribute(span: Span, key: str, number: float) -> None:
    if isinstance(number, int):
        span.attributes.add(key=key).value.int_value = number
    else:
        span.attributes.add(key=key).value.double_value = number


def lose(span: Span, *keys: str) -> None:
    kept = [found for found in span.attributes if found.key not in keys]
    del span.attributes[:]
    span.attributes.extend(kept)


def shift(span: Span, by_ns: int) -> None:
    span.start_time_unix_nano += by_ns
    span.end_time_unix_nano += by_ns


def points(recording: Recording, name: str) -> Iterator[Any]:
    for metric in recording.named(name):
        yield from getattr(metric, metric.WhichOneof("data") or "gauge").data_points


def from_client_only(recording: Recording) -> None:
    recording.drop(lambda span: span.name == "llm_request")


def a_queue_is_left(recording: Recording) -> None:
    list(points(recording, "vllm:num_requests_waiting"))[-1].as_double = 40.0


def fifty_requests(recording: Recording) -> None:
    kept = {span.trace_id for span in list(recording.spans("POST"))[:50]}
    recording.drop(lambda span: span.trace_id not in kept)
    recording.metrics.clear()


def no_first_token(recording: Recording) -> None:
    from_client_only(recording)
    for span in recording.spans("chat"):
        lose(span, TTFC)


def first_token_set_at_the_end(recording: Recording) -> None:
    from_client_only(recording)
    for span in recording.spans("chat"):
        value(span, TTFC).double_value = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9


def ttft_in_milliseconds(recording: Recording) -> None:
    from_client_only(recording)
    for span in recording.spans("chat"):
        value(span, TTFC).double_value *= 1_000.0


def work_without_spans(recording: Recording) -> None:
    for span in recording.spans("POST"):
        span.end_time_unix_nano += span.end_time_unix_nano - span.start_time_unix_nano


def roots_are_lost(recording: Recording) -> None:
    lost = some(recording)
    recording.drop(lambda span: lost(span) and span.name.startswith("POST"))


def parents_are_lost(recording: Recording) -> None:
    for span in recording.spans("chat"):
        span.parent_span_id = b"\x01" * 8


def clocks_differ(recording: Recording) -> None:
    for span in recording.spans("llm_request"):
        shift(span, 30_000 * MS)


def only_the_slow_are_kept(recording: Recording) -> None:
    taken = sorted(
        recording.spans("POST"),
        key=lambda span: span.end_time_unix_nano - span.start_time_unix_nano,
    )
    kept = {span.trace_id for span in taken[-100:]}
    recording.drop(lambda span: span.trace_id not in kept)


def one_in_five_by_chance(recording: Recording) -> None:
    kept = some(recording, 5)
    recording.drop(lambda span: not kept(span))
    for span in recording.spans():
        span.trace_state = "ot=th:cccccccccccccc"


def children_are_lost(recording: Recording) -> None:
    lost = some(recording)
    recording.drop(lambda span: lost(span) and not span.name.startswith(("POST", "guardrail")))


def requests_end_with_their_first_token(recording: Recording) -> None:
    """Server spans that close when the response begins, while the answer still streams."""
    began = {
        span.trace_id: span.start_time_unix_nano + int(1e9 * value(span, TTFC).double_value)
        for span in recording.spans("chat")
    }
    recording.drop(lambda span: span.name.startswith("citations"))
    for span in recording.spans("POST"):
        span.end_time_unix_nano = began[span.trace_id]


def role_chunk_first(recording: Recording) -> None:
    for span in recording.spans("chat"):
        value(span, TTFC).double_value = 0.002


def retries_inside_the_client(recording: Recording) -> None:
    again = some(recording)
    for span in filter(again, recording.spans()):
        if span.name.startswith(("chat", "POST")):
            span.start_time_unix_nano -= 4_000 * MS
        if span.name.startswith("chat"):
            value(span, TTFC).double_value += 4.0
    # Some do not succeed at last.
    for span in itertools.islice(filter(again, recording.spans("chat")), 0, None, 3):
        span.status.code = 2


def reasoning_is_not_streamed(recording: Recording) -> None:
    from_client_only(recording)
    for span in recording.spans("chat"):
        attribute(span, "gen_ai.usage.reasoning.output_tokens", 20)


def cached_tokens_beside_the_input(recording: Recording) -> None:
    for span in recording.spans("chat"):
        found = value(span, "gen_ai.usage.cache_read.input_tokens")
        if found is not None:
            found.int_value += value(span, "gen_ai.usage.input_tokens").int_value


def edges_end_too_early(name: str) -> Callable[[Recording], None]:
    def change(recording: Recording) -> None:
        for point in points(recording, name):
            point.explicit_bounds[:] = [bound / 1e5 for bound in point.explicit_bounds]
            point.bucket_counts[:] = [0] * len(point.explicit_bounds) + [point.count]

    return change


def edges_in_milliseconds(recording: Recording) -> None:
    for point in points(recording, "vllm:time_to_first_token_seconds"):
        point.explicit_bounds[:] = [5.0, 10.0, 25.0, 50.0]
        point.bucket_counts[:] = [point.count, 0, 0, 0, 0]


def scraped_four_times_as_often(recording: Recording) -> None:
    """Of 15 s between scrapes 3.75 s are left: the values of each stay until the next."""
    recorded = [body.SerializeToString() for body in recording.metrics]
    for later in (3_750 * MS, 7_500 * MS, 11_250 * MS):
        for body in map(ExportMetricsServiceRequest.FromString, recorded):
            for metric in metrics_of(body):
                for point in getattr(metric, metric.WhichOneof("data") or "gauge").data_points:
                    point.time_unix_nano += later
            recording.metrics.append(body)


def renamed_in_the_middle(recording: Recording) -> None:
    scraped_four_times_as_often(recording)
    begin = min(point.time_unix_nano for point in points(recording, "vllm:kv_cache_usage_perc"))
    for metric in recording.named("vllm:kv_cache_usage_perc"):
        if metric.gauge.data_points[0].time_unix_nano > begin + 30_000 * MS:
            metric.name = "vllm:kv_cache_fill"


def each_waits_for_the_one_before(recording: Recording) -> None:
    recording.metrics.clear()
    at = 0
    by_trace: dict[bytes, list[Span]] = {}
    for span in recording.spans():
        by_trace.setdefault(span.trace_id, []).append(span)
    for root in sorted(recording.spans("POST"), key=lambda span: span.start_time_unix_nano):
        at = at or root.start_time_unix_nano
        moved = at - root.start_time_unix_nano
        for span in by_trace[root.trace_id]:
            shift(span, moved)
        at = root.end_time_unix_nano + 2 * MS


CHANGES: dict[str, list[tuple[str, Callable[[Recording], None]]]] = {
    "requests_waiting_at_end": [("warn", a_queue_is_left)],
    "too_few_samples": [("fail", fifty_requests)],
    "ttft_missing": [("fail", no_first_token)],
    "ttft_equals_duration": [("fail", first_token_set_at_the_end)],
    "impossible_times": [("fail", ttft_in_milliseconds)],
    "unattributed_time": [("warn", work_without_spans)],
    "incomplete_traces": [("warn", roots_are_lost)],
    "inferred_parents": [("warn", parents_are_lost)],
    "clock_skew": [("warn", clocks_differ)],
    "sampling": [("fail", only_the_slow_are_kept), ("warn", one_in_five_by_chance)],
    "missing_children": [("warn", children_are_lost)],
    "outliving_spans": [("warn", requests_end_with_their_first_token)],
    "early_role_chunk": [("fail", role_chunk_first)],
    "hidden_retries": [("warn", retries_inside_the_client)],
    "hidden_reasoning": [("warn", reasoning_is_not_streamed)],
    "cached_token_convention": [("fail", cached_tokens_beside_the_input)],
    "ttft_histogram_edges": [("fail", edges_end_too_early("vllm:time_to_first_token_seconds"))],
    "e2e_histogram_edges": [("fail", edges_end_too_early("vllm:e2e_request_latency_seconds"))],
    "histogram_unit_clash": [("fail", edges_in_milliseconds)],
    "vanished_metric": [("warn", renamed_in_the_middle)],
    "closed_loop_load": [("warn", each_waits_for_the_one_before)],
}


# Changes that trip nothing: the twin of one above that differs in the one fact.
HARMLESS: dict[str, Callable[[Recording], None]] = {
    "as it was recorded": lambda recording: None,
    "seen by its client alone": from_client_only,
    "scraped four times as often": scraped_four_times_as_often,
}


@pytest.mark.parametrize(
    ("check", "grade", "change"),
    [(check, *made) for check, changes in CHANGES.items() for made in changes],
)
def test_a_recording_trips_the_check(
    check: str, grade: str, change: Callable[[Recording], None], tmp_path: Path
) -> None:
    recording = Recording()
    change(recording)
    assert graded(recording, tmp_path)[check] == grade


@pytest.mark.parametrize("name", HARMLESS)
def test_its_twin_does_not(name: str, tmp_path: Path) -> None:
    recording = Recording()
    HARMLESS[name](recording)
    found = graded(recording, tmp_path)
    assert set(found.values()) == {"ok"}
    # Those not listed apply to nothing here: no reasoning, no buckets of another unit, and no check of what is not there.
    assert set(CHANGES) - set(found) <= {
        "hidden_reasoning",
        "histogram_unit_clash",
        "cached_token_convention",
    }


def test_a_server_that_is_read_once_says_so(tmp_path: Path) -> None:
    """Engine metrics alone: one scrape of counters without a start is no measurement; the whole recording's scrapes are."""
    once, whole = Recording(), Recording()
    for recording in (once, whole):
        recording.traces.clear()
        for metric in (
            metric
            for body in recording.metrics
            for metric in metrics_of(body)
            if metric.WhichOneof("data") == "histogram"
        ):
            for point in metric.histogram.data_points:
                point.start_time_unix_nano = 0
    first = min(point.time_unix_nano for point in points(once, "vllm:e2e_request_latency_seconds"))
    for body in once.metrics:
        for resource in body.resource_metrics:
            for scope in resource.scope_metrics:
                kept = [
                    metric
                    for metric in scope.metrics
                    if getattr(metric, metric.WhichOneof("data") or "gauge")
                    .data_points[0]
                    .time_unix_nano
                    == first
                ]
                del scope.metrics[:]
                scope.metrics.extend(kept)
    found = {}
    for name, recording in (("once", once), ("whole", whole)):
        (tmp_path / name).mkdir()
        found[name] = graded(recording, tmp_path / name)
    assert found["once"]["histogram_came_once"] == "fail"
    assert "histogram_came_once" not in found["whole"]
    assert found["whole"]["engine_only"] == "ok"
