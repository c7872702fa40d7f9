"""What if a recording lacked something? Changes the export requests of a simulated window before they are taken in: nothing else about the case differs.

The token counts that are dropped are those of every vocabulary that the simulator writes, on spans and in metrics. What a client cannot know of its far side
stays unknown: an ablation takes away, it never adds.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from overrun.sample_traces.simulate import Job

FEW: Final = 60
SHARE: Final = 0.1
# A tenth of the requests of a window this many times as long: some hundred.
LONGER: Final = 4.0
SKEW_S: Final = 3.0
_IDS: Final = 2**64
_COUNTS: Final = ("gen_ai.usage.", "llm.usage.", "llm.token_count.")
_COUNTING: Final = ("prompt_tokens", "generation_tokens", "iteration_tokens", "token.usage")

Change = Callable[
    [list[ExportTraceServiceRequest], list[ExportMetricsServiceRequest], dict[str, Any]], None
]


def no_engine_metrics(
    traces: list[ExportTraceServiceRequest],
    metrics: list[ExportMetricsServiceRequest],
    truth: dict[str, Any],
) -> None:
    """Nobody scrapes the engines or their GPUs."""
    metrics.clear()


def no_token_counts(
    traces: list[ExportTraceServiceRequest],
    metrics: list[ExportMetricsServiceRequest],
    truth: dict[str, Any],
) -> None:
    """No span and no metric tells how many tokens were read or written."""
    for span in _spans(traces):
        kept = [attribute for attribute in span.attributes if not attribute.key.startswith(_COUNTS)]
        del span.attributes[:]
        span.attributes.extend(kept)
    for resource in (resource for body in metrics for resource in body.resource_metrics):
        for scope in resource.scope_metrics:
            told = [
                metric
                for metric in scope.metrics
                if not any(name in metric.name for name in _COUNTING)
            ]
            del scope.metrics[:]
            scope.metrics.extend(told)


def sampled(
    traces: list[ExportTraceServiceRequest],
    metrics: list[ExportMetricsServiceRequest],
    truth: dict[str, Any],
) -> None:
    """One trace in ten is kept, by its id, as the SDKs' ratio sampler keeps it: nothing on the spans says so."""
    _keep(traces, lambda span: int.from_bytes(span.trace_id[8:], "big") < SHARE * _IDS)


def few(
    traces: list[ExportTraceServiceRequest],
    metrics: list[ExportMetricsServiceRequest],
    truth: dict[str, Any],
) -> None:
    """Sixty requests in all, half of them from before the onset; whatever is counted is cut to their time."""
    begun = sorted(
        (span.start_time_unix_nano, span.trace_id)
        for span in _spans(traces)
        if not span.parent_span_id
    )
    onset = truth["onset"] or truth["start"]
    onset_ns = (
        int(datetime.fromisoformat(onset).timestamp() * 1e9)
        if truth["onset"]
        else begun[len(begun) // 2][0]
    )
    first = max(0, sum(at < onset_ns for at, _ in begun) - FEW // 2)
    chosen = begun[first : first + FEW]
    ids = {trace for _, trace in chosen}
    _keep(traces, lambda span: span.trace_id in ids)
    low, high = chosen[0][0], max(span.end_time_unix_nano for span in _spans(traces))
    for resource in (resource for body in metrics for resource in body.resource_metrics):
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            kind = getattr(metric, str(metric.WhichOneof("data")))
            within = [point for point in kind.data_points if low <= point.time_unix_nano <= high]
            del kind.data_points[:]
            kind.data_points.extend(within)


def skewed(
    traces: list[ExportTraceServiceRequest],
    metrics: list[ExportMetricsServiceRequest],
    truth: dict[str, Any],
) -> None:
    """One service's clock is seconds off: the engines', or one that is called where there is no engine; fast on even seeds, slow on odd ones."""
    services = sorted(
        {
            _service(resource.resource.attributes)
            for body in traces
            for resource in body.resource_spans
        }
    )
    roots = {
        _service(resource.resource.attributes)
        for body in traces
        for resource in body.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        if not span.parent_span_id
    }
    called = [name for name in services if name not in roots]
    if not called:
        return
    chosen = "vllm" if "vllm" in called else random.Random(truth["seed"]).choice(called)
    shift = round(SKEW_S * 1e9) * (1 if truth["seed"] % 2 == 0 else -1)
    for resource in (
        resource
        for body in traces
        for resource in body.resource_spans
        if _service(resource.resource.attributes) == chosen
    ):
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            span.start_time_unix_nano += shift
            span.end_time_unix_nano += shift
            for event in span.events:
                event.time_unix_nano += shift


ABLATIONS: Final[dict[str, Change]] = {
    "no_engine_metrics": no_engine_metrics,
    "no_token_counts": no_token_counts,
    "sampled": sampled,
    "few": few,
    "skew": skewed,
}


def lasting(job: Job, ablation: str | None) -> Job:
    """The job whose recording an ablation needs: a longer one where most requests are thrown away."""
    return replace(job, duration_s=LONGER * job.duration_s) if ablation == "sampled" else job


def ablate(ablation: str, folder: Path, out: Path) -> None:
    """Write what an ablation leaves of a recording (`*.traces.pb`, `*.metrics.pb`) to another folder."""
    truth = json.loads((folder / "truth.json").read_bytes())
    traces = [
        ExportTraceServiceRequest.FromString(path.read_bytes())
        for path in sorted(folder.glob("*.traces.pb"))
    ]
    metrics = [
        ExportMetricsServiceRequest.FromString(path.read_bytes())
        for path in sorted(folder.glob("*.metrics.pb"))
    ]
    ABLATIONS[ablation](traces, metrics, truth)
    out.mkdir(parents=True, exist_ok=True)
    for stale in out.glob("*.pb"):
        stale.unlink()
    for kind, bodies in (("traces", traces), ("metrics", metrics)):
        for number, body in enumerate(filter(_says, bodies), 1):
            (out / f"{number:03d}.{kind}.pb").write_bytes(body.SerializeToString())


def _spans(traces: list[ExportTraceServiceRequest]) -> list[Span]:
    return [
        span
        for body in traces
        for resource in body.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _keep(traces: list[ExportTraceServiceRequest], chosen: Callable[[Span], bool]) -> None:
    for body in traces:
        for scope in [scope for resource in body.resource_spans for scope in resource.scope_spans]:
            kept = [span for span in scope.spans if chosen(span)]
            del scope.spans[:]
            scope.spans.extend(kept)


def _says(body: ExportTraceServiceRequest | ExportMetricsServiceRequest) -> bool:
    """Whether anything is left in it: nobody sends an empty request."""
    if isinstance(body, ExportTraceServiceRequest):
        return bool(_spans([body]))
    return any(
        scope.metrics for resource in body.resource_metrics for scope in resource.scope_metrics
    )


def _service(attributes: Any) -> str:
    found: list[KeyValue] = [
        attribute for attribute in attributes if attribute.key == "service.name"
    ]
    return found[0].value.string_value if found else ""
