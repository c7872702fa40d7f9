"""GuideLLM's report: benchmarks with their requests.

Source: vllm-project/guidellm src/guidellm/schemas, read in 2026.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from overrun.collector.errors import BadPayload
from overrun.collector.sources.load_tests.result import (
    LoadTest,
    Request,
    say_bounded,
    say_late,
    say_requests,
    say_unmeasured,
)
from overrun.collector.sources.load_tests.values import (
    MS,
    Document,
    S,
    count,
    dict_of,
    failure,
    first,
    ns,
    number,
    text_of,
)


def guidellm(documents: Sequence[Document], _: int) -> LoadTest:
    """GuideLLM's: per benchmark its successful and errored requests, seconds since 1970, latency in seconds, TTFT in ms. Cut-off ones are left out and told of.

    A rate that could not be kept is judged from when each request was meant to be sent (`targeted_start`).
    """
    out = LoadTest("guidellm")
    benchmarks = [
        b for document in documents for b in document["benchmarks"] if isinstance(b, dict)
    ]
    unmeasured = cut = 0
    for place, benchmark in enumerate(benchmarks, start=1):
        requests, strategy = dict_of(benchmark, "requests"), _strategy(benchmark)
        kind = text_of(strategy.get("type_") or strategy.get("kind")) or f"benchmark {place}"
        listed = {
            name: [r for r in requests.get(name) or () if isinstance(r, dict)]
            for name in ("successful", "errored", "incomplete")
        }
        held = sum(map(len, listed.values()))
        model = next((_asked_model(request) for request in listed["successful"]), None)
        made = count(dict_of(dict_of(benchmark, "metrics"), "request_totals").get("total"))
        if made is not None and held < made:
            raise BadPayload(
                f"it holds {held:,} of the {made:,} requests of a benchmark: write all of them, a sample of each outcome cannot be judged"
            )
        cut += len(listed["incomplete"])
        late_s = 0.0
        for request, failed in [
            *((r, False) for r in listed["successful"]),
            *((r, True) for r in listed["errored"]),
        ]:
            info = dict_of(request, "info")
            timings = dict_of(info, "timings")
            start_s = first(
                [
                    number(request.get("request_start_time")),
                    number(request.get("start_time")),
                    number(timings.get("request_start")),
                ]
            )
            end_s = first(
                [
                    number(request.get("request_end_time")),
                    number(request.get("end_time")),
                    number(timings.get("request_end")),
                ]
            )
            e2e_s = first(
                [
                    number(request.get("request_latency")),
                    end_s - start_s if end_s is not None and start_s is not None else None,
                ]
            )
            if start_s is None or (e2e_s is None and not failed):
                unmeasured += 1
                continue
            meant_s = (
                number(timings.get("targeted_start"))
                if kind in ("constant", "poisson", "async", "trace")
                else None
            )
            wait_s = max(0.0, start_s - meant_s) if meant_s is not None else 0.0
            late_s = max(late_s, wait_s)
            ttft_ns = ns(request.get("time_to_first_token_ms"), MS)
            error, code = (
                failure(info.get("error") or request.get("error") or True)
                if failed
                else (None, None)
            )
            out.requests.append(
                Request(
                    round((start_s - wait_s) * S),
                    ns((e2e_s or 0.0) + wait_s, S) or 0,
                    None if ttft_ns is None else ttft_ns + round(wait_s * S),
                    count(request.get("prompt_tokens")),
                    count(request.get("output_tokens")),
                    count(request.get("cached_tokens")),
                    error,
                    code,
                    model=model,
                    route=f"{kind} {strategy.get('rate') or strategy.get('streams') or place}"
                    if len(benchmarks) > 1
                    else None,
                )
            )
        if kind in ("concurrent", "synchronous", "throughput"):
            say_bounded(
                out,
                1
                if kind == "synchronous"
                else strategy.get("streams") or strategy.get("max_concurrency"),
                f"strategy {kind}",
            )
        say_late(out, late_s)
    if cut:
        out.notes.append(f"{say_requests(cut)} cut off at the end of the run and left out")
    say_unmeasured(out, unmeasured)
    return out


def _asked_model(request: Document) -> str | None:
    """The model in the body of a request, which GuideLLM keeps as JSON in a string; a benchmark of its asks one model."""
    try:
        asked = json.loads(str(request.get("request_args")))
    except (ValueError, RecursionError):
        return None
    return text_of(dict_of(dict_of({"asked": asked}, "asked"), "body").get("model"))


def _strategy(benchmark: Document) -> Document:
    return next(
        (
            found
            for holder in ("config", "scheduler", "args")
            if (found := dict_of(dict_of(benchmark, holder), "strategy"))
        ),
        {},
    )
