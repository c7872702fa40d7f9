"""vLLM `bench serve` and SGLang `bench_serving`: a list per quantity, one entry a request.

Sources: vllm-project/vllm vllm/benchmarks/serve.py, sgl-project/sglang python/sglang/bench_serving.py, read in 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from overrun.collector.sources.load_tests.result import (
    LoadTest,
    Request,
    say_bounded,
    say_late,
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
    text_of,
)


def bench_serve(runs: Sequence[Document], written_ns: int) -> LoadTest:
    """vLLM's and SGLang's: a list per quantity with one entry a request, times in seconds; `start_times` are of a clock without a date.

    The end of a request is its first token and the gaps after it (`itls`); newer files of vLLM tell the whole time as well (`latencies`).
    """
    sglang = any(
        "total_output_tokens_retokenized" in run or "sglang" in str(run.get("backend"))
        for run in runs
    )
    out = LoadTest("sglang-bench" if sglang else "vllm-bench")
    unmeasured = 0
    for place, run in enumerate(runs, start=1):
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
        if not starts:
            out.notes.append(
                "the file does not tell when its requests were sent: they are taken as sent at once, so nothing is said of arrivals"
            )
        rate = number(run.get("request_rate"))
        meant = bool(waits) and rate is not None
        late_s = 0.0
        for at in range(n):
            error, code = failure(errors[at] if errors else None)
            ttft_s, sum_s = number(ttfts[at]), number(whole[at]) if whole else None
            if sum_s is None:
                sum_s = (ttft_s or 0.0) + sum(
                    gap for gap in map(number, gaps[at] or () if gaps else ()) if gap is not None
                )
            if sum_s <= 0.0 and error is None:
                unmeasured += 1
                continue
            wait_s = max(0.0, number(waits[at]) or 0.0) if meant else 0.0
            late_s = max(late_s, wait_s)
            sent_s = (number(starts[at]) or 0.0) - first_s if starts else 0.0
            request = Request(
                begin_ns + round((sent_s - wait_s) * S),
                ns(sum_s + wait_s, S) or 0,
                ns(ttft_s + wait_s, S) if ttft_s else None,
                count(inputs[at]) if inputs else None,
                count(outputs[at]) if outputs else None,
                None,
                error,
                code,
                model=text_of(run.get("model_id")),
                route=f"run {place}" if len(runs) > 1 else None,
            )
            out.requests.append(request)
        say_bounded(out, run.get("max_concurrency"), "--max-concurrency", corrected=meant)
        say_late(out, late_s)
    say_unmeasured(out, unmeasured)
    return out


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
