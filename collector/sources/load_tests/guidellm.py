"""GuideLLM's report: benchmarks with their requests.

Source: vllm-project/guidellm src/guidellm/schemas, read in 2026.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from overrun.collector.sources.load_tests.guidellm_old import summary_of
from overrun.collector.sources.load_tests.result import (
    LoadTest,
    Request,
    Run,
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

_OPEN: Final = ("constant", "poisson", "async", "trace")
_CLOSED: Final = ("concurrent", "synchronous", "throughput")


def guidellm(documents: Sequence[Document], _: int) -> LoadTest:
    """GuideLLM's: per benchmark its successful and errored requests, seconds since 1970, latency in seconds, TTFT in ms. Cut-off ones are left out and counted.

    A rate that could not be kept is judged from when each request was meant to be sent (`targeted_start`). A benchmark that holds a sample of its requests,
    or none, has its summary alone.
    """
    out = LoadTest("guidellm")
    benchmarks = [
        b for document in documents for b in document["benchmarks"] if isinstance(b, dict)
    ]
    unmeasured = cut = 0
    for place, benchmark in enumerate(benchmarks, start=1):
        strategy = _strategy(benchmark)
        kind = text_of(strategy.get("type_") or strategy.get("kind")) or f"benchmark {place}"
        level = strategy.get("rate") or strategy.get("streams")
        run = Run(f"{kind} {level or place}")
        run.rate_rps = number(strategy.get("rate")) if kind in _OPEN else None
        if kind in _CLOSED:
            run.in_flight = (
                1
                if kind == "synchronous"
                else count(strategy.get("streams") or strategy.get("max_concurrency"))
            )
        requests, metrics = dict_of(benchmark, "requests"), dict_of(benchmark, "metrics")
        listed = {
            name: [r for r in requests.get(name) or () if isinstance(r, dict)]
            for name in ("successful", "errored", "incomplete")
        }
        held = sum(map(len, listed.values()))
        if kind == "throughput":
            run.in_flight = run.in_flight or held
        made = count(dict_of(metrics, "request_totals").get("total"))
        if not held or (made is not None and held < made):
            run.summary = summary_of(metrics)
            run.why = f"it holds {held:,} of the {made or 0:,} requests of a benchmark: write all of them, because samples per outcome cannot be judged"
        else:
            cut += len(listed["incomplete"])
            run.model = next((_asked_model(request) for request in listed["successful"]), None)
            unmeasured += _requests(out, run, kind, listed)
            if len(benchmarks) > 1:
                run.requests = [replace(one, route=run.name) for one in run.requests]
            out.requests += run.requests
        if kind in _CLOSED:
            bound = 1 if kind == "synchronous" else level or strategy.get("max_concurrency")
            say_bounded(out, bound, f"strategy {kind}")
        out.runs.append(run)
    if cut:
        out.notes.append(f"{say_requests(cut)} cut off at the end of the run and left out")
    say_unmeasured(out, unmeasured)
    return out


def _requests(out: LoadTest, run: Run, kind: str, listed: Document) -> int:
    """Put the requests of a benchmark into `run`; returns how many have no measured time."""
    late_s, unmeasured = 0.0, 0
    for request, failed in [
        *((r, False) for r in listed["successful"]),
        *((r, True) for r in listed["errored"]),
    ]:
        info = dict_of(request, "info")
        timings = dict_of(info, "timings")
        start_s, end_s = (
            first(
                [
                    number(request.get(f"request_{moment}_time")),
                    number(request.get(f"{moment}_time")),
                    number(timings.get(f"request_{moment}")),
                ]
            )
            for moment in ("start", "end")
        )
        took = end_s - start_s if end_s is not None and start_s is not None else None
        e2e_s = first([number(request.get("request_latency")), took])
        if start_s is None or (e2e_s is None and not failed):
            unmeasured += 1
            continue
        meant_s = number(timings.get("targeted_start")) if kind in _OPEN else None
        wait_s = max(0.0, start_s - meant_s) if meant_s is not None else 0.0
        late_s = max(late_s, wait_s)
        ttft_ns = ns(request.get("time_to_first_token_ms"), MS)
        error, code = (
            failure(info.get("error") or request.get("error") or True) if failed else (None, None)
        )
        run.requests.append(
            Request(
                round((start_s - wait_s) * S),
                ns((e2e_s or 0.0) + wait_s, S) or 0,
                None if ttft_ns is None else ttft_ns + round(wait_s * S),
                count(request.get("prompt_tokens")),
                count(request.get("output_tokens")),
                count(request.get("cached_tokens")),
                error,
                code,
                model=run.model,
                late_ns=round(wait_s * S),
            )
        )
    say_late(out, late_s)
    return unmeasured


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
