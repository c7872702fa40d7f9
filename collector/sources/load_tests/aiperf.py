"""AIPerf's profile_export.jsonl: one request a line.

Source: ai-dynamo/aiperf docs/tutorials/working-with-profile-exports.md, read in 2026.
"""

from __future__ import annotations

from collections.abc import Sequence

from overrun.collector.errors import BadPayload
from overrun.collector.sources.load_tests.result import (
    LoadTest,
    Request,
    Run,
    say_late,
    say_unmeasured,
)
from overrun.collector.sources.load_tests.values import (
    NS,
    Document,
    S,
    count,
    dict_of,
    failure,
    first,
    list_of,
    ns,
    number,
    status_of,
)


def aiperf(records: Sequence[Document], _: int) -> LoadTest:
    """AIPerf's: one request a line, moments in ns since 1970, each metric with its unit. Its warm-up is left out; a cancelled request is a failed one.

    A request is judged from when its turn had come (`credit_issued_ns`).
    """
    out = LoadTest("aiperf")
    unmeasured = late_ns = 0
    for record in records:
        about, metrics = dict_of(record, "metadata"), dict_of(record, "metrics")
        if about.get("benchmark_phase") == "warmup":
            continue
        start_ns, end_ns = (
            count(about.get("request_start_ns")),
            count(about.get("request_end_ns")),
        )
        e2e_ns = _metric_ns(metrics, "request_latency")
        failed = record.get("error")
        error, code = failure(
            failed.get("type") or failed.get("code") or True if isinstance(failed, dict) else failed
        )
        if about.get("was_cancelled"):
            error = error or "cancelled"
        if e2e_ns is None and start_ns is not None and end_ns is not None:
            e2e_ns = max(0, end_ns - start_ns)
        if start_ns is None or e2e_ns is None:
            unmeasured += 1
            continue
        wait_ns = max(0, start_ns - (count(about.get("credit_issued_ns")) or start_ns))
        late_ns = max(late_ns, wait_ns)
        ttft_ns = _metric_ns(metrics, "time_to_first_token")
        tokens = [
            count(dict_of(metrics, name).get("value"))
            for name in ("output_sequence_length", "output_token_count")
        ]
        prompt = [
            count(dict_of(metrics, name).get("value"))
            for name in ("input_sequence_length", "error_isl")
        ]
        out.requests.append(
            Request(
                start_ns - wait_ns,
                e2e_ns + wait_ns,
                None if ttft_ns is None else ttft_ns + wait_ns,
                first(prompt),
                first(tokens),
                count(dict_of(metrics, "usage_prompt_cache_read_tokens").get("value")),
                error,
                status_of(failed.get("code")) if isinstance(failed, dict) else code,
                itl_ns=_mean_gap_ns(metrics),
                late_ns=wait_ns,
            )
        )
    say_late(out, late_ns / S)
    say_unmeasured(out, unmeasured)
    out.runs = [Run("profile", out.requests)]
    return out


def _mean_gap_ns(metrics: Document) -> int | None:
    """The mean of the gaps between chunks of an answer."""
    gaps = dict_of(metrics, "inter_chunk_latency")
    unit = NS.get(str(gaps.get("unit")))
    found = [gap for gap in map(number, list_of(gaps, "value", None)) if gap is not None]
    return round(sum(found) / len(found) * unit) if found and unit else None


def _metric_ns(metrics: Document, name: str) -> int | None:
    """A time of AIPerf's in the unit that it says."""
    metric = dict_of(metrics, name)
    unit = str(metric.get("unit", "ms"))
    if metric and unit not in NS:
        raise BadPayload(f"{name} is in {unit[:20]!r}, wanted one of {', '.join(NS)}")
    return ns(metric.get("value"), NS[unit]) if metric else None
