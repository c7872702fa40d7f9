"""vLLM `bench serve` and SGLang `bench_serving`: a list per quantity, one entry a request.

Sources: vllm-project/vllm vllm/benchmarks/serve.py, sgl-project/sglang python/sglang/bench_serving.py, read in 2026.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from overrun.collector.sources.load_tests.result import (
    LoadTest,
    Request,
    Run,
    Summary,
    say_bounded,
    say_late,
    say_load,
    say_unmeasured,
)
from overrun.collector.sources.load_tests.values import (
    Document,
    S,
    count,
    failure,
    list_of,
    ns,
    number,
    percentile_of,
    text_of,
)

_FIGURE: Final = re.compile(
    r"(?P<figure>mean|median|p\d+(?:\.\d+)?)_(?P<metric>ttft|tpot|itl|e2el|e2e_latency)_ms"
)


def bench_serve(runs: Sequence[Document], written_ns: int) -> LoadTest:
    """vLLM's and SGLang's: a list per quantity with one entry a request, times in seconds; `start_times` are of a clock without a date.

    The end of a request is its first token and the gaps after it (`itls`); newer files of vLLM record the whole time as well (`latencies`).
    A run without these lists has its summary alone.
    """
    sglang = any(
        "total_output_tokens_retokenized" in run or "sglang" in str(run.get("backend"))
        for run in runs
    )
    out = LoadTest("sglang-bench" if sglang else "vllm-bench")
    unmeasured = 0
    for place, run in enumerate(runs, start=1):
        rate, bound = number(run.get("request_rate")), count(run.get("max_concurrency"))
        made = Run(
            say_load(rate, bound) or f"run {place}",
            rate_rps=rate,
            in_flight=bound,
            duration_s=number(run.get("duration")),
            model=text_of(run.get("model_id")),
        )
        if isinstance(run.get("ttfts"), list):
            unmeasured += _requests(out, made, run, written_ns)
            if len(runs) > 1:
                made.requests = [replace(one, route=f"run {place}") for one in made.requests]
            out.requests += made.requests
        else:
            made.summary = _summary(run)
        if rate is None and bound is None:
            made.name = "all at once" if len(runs) == 1 else f"all at once, run {place}"
            made.in_flight = len(made.requests) or count(run.get("num_prompts"))
        out.runs.append(made)
    say_unmeasured(out, unmeasured)
    return out


def _requests(out: LoadTest, made: Run, run: Document, written_ns: int) -> int:
    """Put the requests of a run into `made`; returns how many have no measured time."""
    ttfts = list_of(run, "ttfts", None)
    n = len(ttfts)
    gaps, inputs, outputs, errors, whole, starts, waits = (
        list_of(run, name, n)
        for name in (
            "itls",
            "input_lens",
            "output_lens",
            "errors",
            "latencies",
            "start_times",
            "queue_times",
        )
    )
    first_s = min((at for at in map(number, starts) if at is not None), default=0.0)
    begin_ns = _began(run, written_ns)
    made.timed = bool(starts)
    if not starts:
        out.notes.append(
            "the file has no send times: its requests are treated as sent at once, so there are no figures of arrivals"
        )
    meant = bool(waits) and made.rate_rps is not None
    late_s, unmeasured = 0.0, 0
    for at in range(n):
        error, code = failure(errors[at] if errors else None)
        between = [gap for gap in map(number, gaps[at] or () if gaps else ()) if gap is not None]
        ttft_s, sum_s = number(ttfts[at]), number(whole[at]) if whole else None
        if sum_s is None:
            sum_s = (ttft_s or 0.0) + sum(between)
        if sum_s <= 0.0 and error is None:
            unmeasured += 1
            continue
        wait_s = max(0.0, number(waits[at]) or 0.0) if meant else 0.0
        late_s = max(late_s, wait_s)
        sent_s = (number(starts[at]) or 0.0) - first_s if starts else 0.0
        made.requests.append(
            Request(
                begin_ns + round((sent_s - wait_s) * S),
                ns(sum_s + wait_s, S) or 0,
                ns(ttft_s + wait_s, S) if ttft_s else None,
                count(inputs[at]) if inputs else None,
                count(outputs[at]) if outputs else None,
                None,
                error,
                code,
                model=made.model,
                itl_ns=ns(sum(between) / len(between), S) if between else None,
                late_ns=round(wait_s * S),
            )
        )
    say_bounded(out, run.get("max_concurrency"), "--max-concurrency", corrected=meant)
    say_late(out, late_s)
    return unmeasured


def _summary(run: Document) -> Summary:
    """The figures of a run without its requests: `mean_ttft_ms`, `median_ttft_ms`, `p99_ttft_ms`, ...; E2E is `e2el` (vLLM) or `e2e_latency` (SGLang)."""
    percentiles: dict[str, dict[float, float]] = {}
    means: dict[str, float] = {}
    for key, value in run.items():
        named, ms = _FIGURE.fullmatch(str(key)), number(value)
        if named is None or ms is None:
            continue
        metric = "e2e" if named["metric"].startswith("e2e") else named["metric"]
        if named["figure"] == "mean":
            means[metric] = ms
        else:
            at = 50.0 if named["figure"] == "median" else percentile_of(named["figure"][1:])
            percentiles.setdefault(metric, {})[at] = ms
    done, asked = count(run.get("completed")), count(run.get("num_prompts"))
    failed = count(run.get("failed"))
    if failed is None:
        failed = max(0, asked - done) if asked is not None and done is not None else 0
    each = max(done or 0, 1)
    inputs, outputs = number(run.get("total_input_tokens")), number(run.get("total_output_tokens"))
    return Summary(
        percentiles,
        means,
        done,
        failed,
        number(run.get("request_throughput")),
        None if inputs is None else inputs / each,
        None if outputs is None else outputs / each,
    )


def _began(run: Document, written_ns: int) -> int:
    """When a run began: its `date` (local time, at its end) or else the time of the file, less its duration."""
    try:
        ended_ns = (
            round(
                datetime.strptime(str(run.get("date")), "%Y%m%d-%H%M%S").astimezone(UTC).timestamp()
            )
            * S
        )
    except ValueError:
        ended_ns = written_ns
    return max(0, ended_ns - (ns(run.get("duration"), S) or 0))
