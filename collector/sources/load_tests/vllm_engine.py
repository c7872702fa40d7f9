"""The moments that vLLM's engine keeps of each request.

Sources: vllm-project/vllm vllm/v1/metrics/stats.py (RequestStateStats), casys-kaist/LLMServingSim bench (a line a request), read in 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from overrun.collector.sources.load_tests.result import LoadTest, Request, Run, say_unmeasured
from overrun.collector.sources.load_tests.values import Document, S, count, number, text_of

ENGINE_MOMENTS: Final = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")


def vllm_engine(records: Sequence[Document], _: int) -> LoadTest:
    """vLLM's own moments, a line a request: `arrival_time` in seconds since 1970, `*_ts` of a monotonic clock, which the quickest way from the one to the other
    sets beside it. Times count from the arrival, as in vLLM's spans."""
    out = LoadTest("vllm")
    times = [
        [number(record.get(name)) for name in ("arrival_time", *ENGINE_MOMENTS)]
        for record in records
    ]
    offset_s = min(
        (
            queued - arrival
            for arrival, queued, *_ in times
            if arrival is not None and queued is not None
        ),
        default=0.0,
    )
    unmeasured = 0
    for record, moments in zip(records, times, strict=True):
        at = [moment for moment in moments if moment is not None]
        if len(at) < len(moments) or at[1:] != sorted(at[1:]):
            unmeasured += 1
            continue
        arrived_s = at[0] + offset_s
        queue_ns, ttft_ns, e2e_ns = (round((moment - arrived_s) * S) for moment in at[2:])
        out.requests.append(
            Request(
                round(at[0] * S),
                e2e_ns,
                ttft_ns,
                count(record.get("input_toks")),
                count(record.get("output_toks")),
                model=text_of(record.get("model")),
                queue_ns=queue_ns,
            )
        )
    say_unmeasured(out, unmeasured)
    out.runs = [Run("engine", out.requests)]
    return out
