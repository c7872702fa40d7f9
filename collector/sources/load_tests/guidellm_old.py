"""GuideLLM's report of before version 0.2: a list of `results` and `errors` per mode and rate, and what newer reports keep where requests were left out.

Source: vllm-project/guidellm src/guidellm/core/result.py of 0.1, src/guidellm/schemas of 0.2 to 0.8, read in 2026.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from overrun.collector.sources.load_tests.result import (
    LoadTest,
    Request,
    Run,
    Summary,
    say_load,
    say_unmeasured,
)
from overrun.collector.sources.load_tests.values import (
    Document,
    S,
    count,
    dict_of,
    failure,
    list_of,
    number,
    percentile_of,
    text_of,
)

# From so many on a number is a moment since 1970, not a time in seconds.
_MOMENT_S: Final = 1e8
_METRICS: Final = {  # with what makes milliseconds of them
    "request_latency": ("e2e", 1_000.0),
    "time_to_first_token_ms": ("ttft", 1.0),
    "inter_token_latency_ms": ("tpot", 1.0),
}


def is_old(document: Document) -> bool:
    """Whether a report is of before 0.2."""
    return any(
        isinstance(benchmark, dict) and "results" in benchmark and "mode" in benchmark
        for benchmark in list_of(document, "benchmarks", None)
    )


def guidellm_old(documents: Sequence[Document], _: int) -> LoadTest:
    """The requests of an old report; those that failed have neither a time nor a count."""
    out = LoadTest("guidellm")
    unmeasured = 0
    for benchmark in (
        one
        for document in documents
        for one in list_of(document, "benchmarks", None)
        if isinstance(one, dict)
    ):
        rate, mode = number(benchmark.get("rate")), text_of(benchmark.get("mode")) or "benchmark"
        run = Run(say_load(rate, None) or mode, rate_rps=rate)
        run.in_flight = 1 if mode == "synchronous" else None
        for result in list_of(benchmark, "results", None):
            request = _request(result, run.name) if isinstance(result, dict) else None
            if request is None:
                unmeasured += 1
            else:
                run.requests.append(request)
        last_ns = max((one.start_ns + one.e2e_ns for one in run.requests), default=0)
        for error in list_of(benchmark, "errors", None):
            said = error.get("message") or error.get("error") if isinstance(error, dict) else error
            name, code = failure(said or True)
            run.requests.append(Request(last_ns, 0, error=name, status_code=code, route=run.name))
        out.runs.append(run)
        out.requests += run.requests
    say_unmeasured(out, unmeasured)
    return out


def _request(result: Mapping[str, Any], route: str) -> Request | None:
    start_s, end_s = number(result.get("start_time")), number(result.get("end_time"))
    if start_s is None or end_s is None or end_s < start_s:
        return None
    first_s = number(result.get("first_token_time"))
    if first_s is not None and first_s > _MOMENT_S:
        first_s -= start_s
    gaps = [
        gap
        for gap in map(number, list_of(dict_of(result, "decode_times"), "data", None))
        if gap is not None
    ]
    return Request(
        round(start_s * S),
        round((end_s - start_s) * S),
        None if first_s is None or first_s < 0.0 else round(first_s * S),
        count(result.get("prompt_token_count")),
        count(result.get("output_token_count")),
        route=route,
        itl_ns=round(sum(gaps) / len(gaps) * S) if gaps else None,
    )


def summary_of(metrics: Document) -> Summary:
    """The figures of a benchmark of a newer report, of its successful requests."""
    percentiles: dict[str, dict[float, float]] = {}
    means: dict[str, float] = {}
    for name, (metric, to_ms) in _METRICS.items():
        figures = dict_of(dict_of(metrics, name), "successful")
        if (mean := number(figures.get("mean"))) is not None:
            means[metric] = mean * to_ms
        for key, value in dict_of(figures, "percentiles").items():
            if key[:1] == "p" and key[1:].isdigit() and (at := number(value)) is not None:
                percentiles.setdefault(metric, {})[percentile_of(key[1:])] = at * to_ms
        if (most := number(figures.get("max"))) is not None:
            percentiles.setdefault(metric, {})[100.0] = most * to_ms
    totals = dict_of(metrics, "request_totals")
    tokens = [
        number(dict_of(dict_of(metrics, name), "successful").get("mean"))
        for name in ("requests_per_second", "prompt_token_count", "output_token_count")
    ]
    return Summary(
        percentiles,
        means,
        count(totals.get("successful")),
        count(totals.get("errored")) or 0,
        *tokens,
    )
