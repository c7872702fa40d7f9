"""inference-perf's reports: per_request_lifecycle_metrics.json, and the summaries of a stage or of all stages.

Source: kubernetes-sigs/inference-perf inference_perf/reportgen/base.py and apis/base.py, read in 2026.
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
    say_late,
    say_load,
    say_unmeasured,
)
from overrun.collector.sources.load_tests.values import (
    Document,
    S,
    count,
    dict_of,
    failure,
    first,
    list_of,
    number,
    percentile_of,
)

_METRICS: Final = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "itl",
    "time_per_output_token": "tpot",
    "request_latency": "e2e",
}


def is_request(document: Document) -> bool:
    """Whether a document is one request of theirs."""
    return document.keys() >= {"start_time", "end_time", "info", "error"} and isinstance(
        document["info"], dict | None
    )


def is_report(document: Document) -> bool:
    """Whether a document is a summary of theirs."""
    return document.keys() >= {"load_summary", "successes", "failures"}


def inference_perf(documents: Sequence[Document], _: int) -> LoadTest:
    """The requests, moments in seconds of a clock without a date; judged from when each was meant to be sent where the file records it."""
    out = LoadTest("inference-perf")
    unmeasured, late_s = 0, 0.0
    for document in documents:
        start_s, end_s = number(document.get("start_time")), number(document.get("end_time"))
        if start_s is None or end_s is None or end_s < start_s:
            unmeasured += 1
            continue
        wait_s = max(0.0, start_s - (number(document.get("scheduled_time")) or start_s))
        late_s = max(late_s, wait_s)
        info, failed = dict_of(document, "info"), document.get("error")
        answer = dict_of(info, "response_metrics") or info
        times = [
            at for at in map(number, list_of(answer, "output_token_times", None)) if at is not None
        ]
        name = failed.get("error_type") if isinstance(failed, dict) else failed
        error, code = failure(name or True) if failed else (None, None)
        prompt = dict_of(dict_of(info, "request_metrics"), "text").get("input_tokens")
        out.requests.append(
            Request(
                round((start_s - wait_s) * S),
                round((end_s - start_s + wait_s) * S),
                round((times[0] - start_s + wait_s) * S) if len(times) > 1 else None,
                first([count(prompt), count(info.get("input_tokens"))]),
                count(answer.get("output_tokens")),
                error=error,
                status_code=code,
                itl_ns=round((times[-1] - times[0]) / (len(times) - 1) * S)
                if len(times) > 1
                else None,
                late_ns=round(wait_s * S),
            )
        )
    say_late(out, late_s)
    say_unmeasured(out, unmeasured)
    out.requests.sort(key=lambda request: request.start_ns)
    out.runs = [Run("all stages", out.requests)]
    return out


def inference_perf_report(documents: Sequence[Document], _: int) -> LoadTest:
    """The runs that its reports summarise, one a stage."""
    out = LoadTest("inference-perf")
    for document in documents:
        load, done = dict_of(document, "load_summary"), dict_of(document, "successes")
        latency = dict_of(done, "latency") or done  # before stages it stood beside the count
        percentiles: dict[str, dict[float, float]] = {}
        means: dict[str, float] = {}
        for name, metric in _METRICS.items():
            for figure, value in dict_of(latency, name).items():
                seconds = number(value)
                if seconds is None:
                    continue
                if figure == "mean":
                    means[metric] = seconds * 1_000.0
                elif (at := _percentile(figure)) is not None:
                    percentiles.setdefault(metric, {})[at] = seconds * 1_000.0
        rate, bound = number(load.get("requested_rate")), count(load.get("concurrency"))
        rate = None if bound is not None else rate
        answered = number(dict_of(done, "throughput").get("requests_per_sec"))
        lengths = [
            number((dict_of(done, name) or dict_of(done, older)).get("mean"))
            for name, older in (("prompt_tokens", "prompt_len"), ("output_tokens", "output_len"))
        ]
        out.runs.append(
            Run(
                say_load(rate, bound) or "all stages",
                summary=Summary(
                    percentiles,
                    means,
                    count(done.get("count")),
                    count(dict_of(document, "failures").get("count")) or 0,
                    answered,
                    *lengths,
                ),
                rate_rps=rate,
                in_flight=bound,
                duration_s=number(load.get("send_duration")),
            )
        )
    return out


def _percentile(figure: str) -> float | None:
    if figure in ("median", "max"):
        return 50.0 if figure == "median" else 100.0
    return percentile_of(figure[1:]) if re.fullmatch(r"p\d+(\.\d+)?", figure) else None
