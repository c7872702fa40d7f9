"""LLMPerf's results: NAME_individual_responses.json, an object a request, and NAME_summary.json.

Source: ray-project/llmperf token_benchmark_ray.py and src/llmperf/common_metrics.py, read in 2026. Its inter-token latency counts the first token, so TPOT
follows from the other times here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from overrun.collector.sources.load_tests.result import (
    LoadTest,
    Request,
    Run,
    Summary,
    say_bounded,
    say_load,
    say_unmeasured,
)
from overrun.collector.sources.load_tests.values import (
    Document,
    S,
    count,
    failure,
    ns,
    number,
    percentile_of,
    text_of,
)

_FIGURE: Final = re.compile(
    r"results_(?P<metric>ttft_s|end_to_end_latency_s)_(?:(?P<mean>mean)|quantiles_p(?P<at>\d+))"
)
_METRICS: Final = {"ttft_s": "ttft", "end_to_end_latency_s": "e2e"}


def is_request(document: Document) -> bool:
    """Whether a document is one of its requests."""
    return document.keys() >= {"ttft_s", "end_to_end_latency_s", "number_output_tokens"}


def is_summary(document: Document) -> bool:
    """Whether a document is one of its summaries."""
    return "results_end_to_end_latency_s_mean" in document


def llmperf(documents: Sequence[Document], written_ns: int) -> LoadTest:
    """The requests of a run; the file does not say when each was sent."""
    out, run = LoadTest("llmperf"), Run("run 1", timed=False)
    unmeasured = 0
    for document in documents:
        error, code = failure(document.get("error_code"))
        whole = number(document.get("end_to_end_latency_s")) or 0.0
        if whole <= 0.0 and error is None:
            unmeasured += 1
            continue
        run.requests.append(
            Request(
                written_ns,
                ns(whole, S) or 0,
                ns(document.get("ttft_s"), S) or None,
                count(document.get("number_input_tokens")),
                count(document.get("number_output_tokens")) if error is None else None,
                error=error,
                status_code=code,
            )
        )
    out.requests, out.runs = list(run.requests), [run]
    out.notes.append(
        "the file has no send times: its requests are treated as sent at once, so there are no figures of arrivals"
    )
    say_unmeasured(out, unmeasured)
    return out


def llmperf_summary(documents: Sequence[Document], _: int) -> LoadTest:
    """The runs that its summaries describe, one a document."""
    out = LoadTest("llmperf")
    for document in documents:
        percentiles: dict[str, dict[float, float]] = {}
        means: dict[str, float] = {}
        for key, value in document.items():
            named, seconds = _FIGURE.fullmatch(str(key)), number(value)
            if named is None or seconds is None:
                continue
            metric = _METRICS[named["metric"]]
            if named["mean"]:
                means[metric] = seconds * 1e3
            else:
                percentiles.setdefault(metric, {})[percentile_of(named["at"])] = seconds * 1e3
        bound = count(document.get("num_concurrent_requests"))
        done = count(document.get("results_num_completed_requests"))
        a_minute = number(document.get("results_num_completed_requests_per_min"))
        out.runs.append(
            Run(
                say_load(None, bound) or str(document.get("name", "run")),
                in_flight=bound,
                duration_s=done * 60.0 / a_minute if done and a_minute else None,
                model=text_of(document.get("model")),
                summary=Summary(
                    percentiles,
                    means,
                    done,
                    count(document.get("results_number_errors")) or 0,
                    None if a_minute is None else a_minute / 60.0,
                ),
            )
        )
        say_bounded(out, bound, "num_concurrent_requests")
    return out
