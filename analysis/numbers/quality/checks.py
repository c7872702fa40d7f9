"""Can these numbers be trusted? One check per way in which telemetry misleads, each with what to do about it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import duckdb
import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.coverage.sampling import Sampling, assess
from overrun.analysis.numbers.coverage.span_sample import LEAST_REQUESTS, MOST_SPANS, error, one_in
from overrun.analysis.numbers.latency.percentiles import min_n, quantile
from overrun.analysis.numbers.quality.call_checks import call_checks
from overrun.analysis.numbers.quality.load_checks import closed_loop
from overrun.analysis.numbers.quality.metric_checks import metric_checks
from overrun.analysis.numbers.quality.row import FAIL_SHARE, ONE_PERCENT, WARN_SHARE, Check, Grade
from overrun.analysis.numbers.quality.span_checks import span_checks
from overrun.analysis.numbers.quality.store_checks import store_checks
from overrun.analysis.numbers.window import MOST_CALLS, SCRAPE_GRACE, RequestFrame, Window, load
from overrun.analysis.words.finding import printable, say_count, say_ms, say_ratio
from overrun.analysis.words.slo import Slo

# Unfinished requests are the slowest ones: once 1 % of them is missing, P99 is a number about the others.
MOST_WAITING: Final = 0.01
# A queue wait of this part of the request at P95 makes it matter whether others still wait; own default.
QUEUE_MATTERS: Final = 0.1
# Tokens after the first that come faster than this did not come one by one: the fastest engines published write about
# 3,000 tokens/s to one user, this is 5,000. Where the count is unknown, TTFT within 1 ms of the end is the same sign.
FASTEST_TOKEN_MS: Final = 0.2
SAME_MS: Final = 1.0
# Uninstrumented time above this share hides causes; own default.
MOST_UNATTRIBUTED: Final = 0.3
# Time that rests on guessed parents above this share makes stage times unreliable; own default.
MOST_INFERRED: Final = 0.05
# Requests of one route that tell what is usual there.
_LEAST_PEERS: Final = 20
# Parts of a window by number of requests, one of which may show how it was before.
_PARTS: Final = 10


class Quality(msgspec.Struct, kw_only=True):
    """All checks of one window, worst first; `requests` were looked at."""

    requests: int
    checks: list[Check]


def quality(con: duckdb.DuckDBPyConnection, window: Window, slo: Slo) -> Quality:
    """Check a window's data."""
    frame = load(con, window)
    return Quality(requests=frame.rows.height, checks=checks(con, frame, slo, assess(con, frame)))


def checks(
    con: duckdb.DuckDBPyConnection, frame: RequestFrame, slo: Slo, sampled: Sampling
) -> list[Check]:
    """Return every check of a window, worst first; what cannot be checked for want of data is not listed as ok."""
    found = [check for part in _CHECKS for check in [part(frame, slo)] if check is not None]
    loop = closed_loop(frame.rows)
    found += [*_sampling(frame, sampled), *([loop] if loop is not None else [])]
    of_calls = call_checks(con, frame.window, frame.requests, frame.one_in)
    if any(check.check == "impossible_times" for check in of_calls):
        # What calls say outright is not said again as what it makes of their requests.
        found = [
            check
            for check in found
            if check.check not in ("impossible_times", "ttft_equals_duration")
        ]
    found += [
        *of_calls,
        *span_checks(con, frame.window, frame.requests),
        *metric_checks(con, frame, slo),
        *store_checks(con, frame.window),
    ]
    order = {"fail": 0, "warn": 1, "ok": 2}
    return sorted(found, key=lambda check: order[check.status])


def evidence_checks(frame: RequestFrame) -> list[Check]:
    """Say of how many requests the causes read spans and calls, where not of all: the numbers of the report are exact all the same."""
    of = frame.one_in
    n = frame.requests if frame.sample is None else frame.sample.even
    every = of * one_in(frame.rows, MOST_SPANS, LEAST_REQUESTS)
    if every <= 1:
        return []
    detail = (
        f"the search for causes reads the spans of one request in {every} "
        f"(a share of them is right within {100.0 * error(n * of // every):.1f} points in 95 of 100 samples) and at most {MOST_CALLS:,} model calls per period"
    )
    if frame.sample is not None:
        detail = f"stage times and causes are {frame.sample.say()}; {detail}"
    else:
        detail = f"numbers cover all {n:,} requests; {detail}"
    return [Check(check="sampled_evidence", status="ok", detail=detail)]


def without_spoiled(frame: RequestFrame, found: list[Check]) -> tuple[RequestFrame, dict[str, str]]:
    """Return the frame without the metrics that a failed check has spoiled, and per spoiled metric why."""
    spoiled = {
        metric: check.detail
        for check in found
        if check.status == "fail"
        for metric in _SPOILS.get(check.check, ())
    }
    if not spoiled or frame.rows.is_empty():
        return frame, {}
    nothing = {f"{metric}_ms": pl.lit(None, pl.Float64) for metric in spoiled}
    return replace(frame, rows=frame.rows.with_columns(**nothing)), spoiled


def held_back(found: list[Check], frame: RequestFrame, before: RequestFrame | None) -> list[Check]:
    """Return the checks with a TTFT that equals the duration taken for what users saw, where the same services once measured otherwise.

    An instrumentation that sets TTFT at the end has always done so. One that could show it in the baseline, or in some part of the window, says that
    answers are held back since.
    """
    if not any(check.check == "ttft_equals_duration" and check.status == "fail" for check in found):
        return found
    now = _at_end(frame)
    tenth = pl.col("start_us").rank("ordinal") * _PARTS // (now.height + 1)
    parts = [part for (_,), part in now.with_columns(tenth=tenth).group_by("tenth")]
    parts += [_at_end(before)] if before is not None and not before.rows.is_empty() else []
    buffered = now.filter("same")["service"].unique()
    for part in parts:
        mine = part.filter(pl.col("service").is_in(buffered.implode()))
        if (
            mine.height >= _LEAST_PEERS
            and float(mine["same"].to_numpy().mean()) <= WARN_SHARE
            and set(buffered) <= set(mine["service"])
        ):
            return [
                msgspec.structs.replace(
                    c,
                    status="warn",
                    detail=f"{c.detail}; this was not so before, so something buffers the answers",
                )
                if c.check == "ttft_equals_duration"
                else c
                for c in found
            ]
    return found


def waiting_at_end(frame: RequestFrame) -> float | None:
    """Return how many requests the engines' gauges still count as waiting when the window ended, None without a gauge.

    Per instance the sample nearest to the end, at most 60 s away, summed.
    """
    if frame.end is None:
        return None
    end_us = int(frame.end.timestamp() * 1e6)
    grace_us = int(SCRAPE_GRACE.total_seconds() * 1e6)
    near = (
        frame.points.filter(pl.col("indicator") == "queue_depth")
        .with_columns(away=(pl.col("time_us") - end_us).abs())
        .filter(pl.col("away") <= grace_us)
        .sort("away", maintain_order=True)
        .unique(["instance", "model"], keep="first", maintain_order=True)
    )
    return None if near.is_empty() else float(near["value"].to_numpy().sum())


def _waiting(frame: RequestFrame, slo: Slo) -> Check | None:
    name, n = "requests_waiting_at_end", frame.rows.height
    waiting = waiting_at_end(frame)
    if waiting is None:
        wait, whole = frame.rows["queue_ms"].to_numpy(), frame.rows["e2e_ms"].to_numpy()
        if n == 0 or quantile(wait, 0.95) < QUEUE_MATTERS * quantile(whole, 0.95):
            return None
        detail = "requests wait in a queue, but no gauge shows how many were still waiting at the end: scrape /metrics"
        return Check(check=name, status="warn", detail=detail)
    share = waiting / (n + waiting) if n + waiting else 0.0
    if share < MOST_WAITING:
        detail = f"{waiting:,.0f} requests waiting at the end by the queue gauge, {say_ratio(share)} of all"
        return Check(check=name, status="ok", detail=detail)
    detail = (
        f"{waiting:,.0f} requests were still waiting at the end (queue gauge), {say_ratio(share)} of all. Only finished requests have spans, "
        "so percentiles are too low and goodput is too high. Run the report again when the queue has drained"
    )
    return Check(check=name, status="warn", detail=detail)


def _samples(frame: RequestFrame, slo: Slo) -> Check | None:
    n, needed = int((~frame.rows["error"]).sum()), min_n(slo.percentile)
    if n >= needed:
        return Check(
            check="too_few_samples",
            status="ok",
            detail=f"{say_count(n, 'successful request')}, P{slo.percentile:g} needs {needed}",
        )
    detail = f"{say_count(n, 'successful request')}, P{slo.percentile:g} needs at least {needed}: widen the window"
    return Check(check="too_few_samples", status="fail", detail=detail)


def _ttft_missing(frame: RequestFrame, slo: Slo) -> Check | None:
    answered = _answered(frame)
    n = int(answered.sum())
    if n == 0:
        return None
    missing = int((answered & frame.rows["ttft_ms"].is_null()).sum())
    share = missing / n
    wanted = slo.ttft_ms is not None
    status: Grade = (
        "ok"
        if share <= WARN_SHARE
        else "fail"
        if wanted and share > FAIL_SHARE
        else "warn"
        if wanted
        else "ok"
    )
    detail = f"{missing:,} of {n:,} successful requests carry no time to first token ({say_ratio(share)})"
    if status != "ok":
        detail += ": stream the answers and use an instrumentation that records the first chunk, or drop the ttft limit"
    return Check(check="ttft_missing", status=status, detail=detail)


def _at_end(frame: RequestFrame) -> pl.DataFrame:
    """Return start, service and whether the first token came with the last one (`same`) of the answered requests that carry a TTFT."""
    told = (
        _answered(frame)
        & frame.rows["ttft_ms"].is_not_null()
        & (frame.rows["output_tokens"].fill_null(2) > 1)
    )
    least_ms = (FASTEST_TOKEN_MS * (pl.col("output_tokens") - 1)).fill_null(SAME_MS)
    return frame.rows.select(
        "start_us", "service", same=pl.col("e2e_ms") - pl.col("ttft_ms") <= least_ms
    ).filter(told)


def _ttft_is_duration(frame: RequestFrame, slo: Slo) -> Check | None:
    ok = _at_end(frame)
    if ok.is_empty():
        return None
    same = ok["same"].to_numpy()
    share = float(same.mean())
    status: Grade = "ok" if share <= WARN_SHARE else "fail" if share > FAIL_SHARE else "warn"
    detail = f"TTFT equals the whole duration in {int(same.sum()):,} of {ok.height:,} requests ({say_ratio(share)})"
    if status != "ok":
        detail += ": the answer is buffered or TTFT is set at the end; stream end to end and record the first chunk"
    return Check(check="ttft_equals_duration", status=status, detail=detail)


def _unattributed(frame: RequestFrame, slo: Slo) -> Check | None:
    whole = float(frame.rows["e2e_ms"].to_numpy().sum())
    if whole <= 0.0:
        return None
    other = frame.rows["other_ms"].to_numpy()
    share = float(other.sum()) / whole
    if share <= MOST_UNATTRIBUTED:
        return Check(
            check="unattributed_time",
            status="ok",
            detail=f"{say_ratio(share)} of all request time has no span",
        )
    service = frame.rows[int(np.argmax(other))]["service"][0]
    detail = f"{say_ratio(share)} of all request time has no span: add spans around what {printable(service)} does"
    return Check(check="unattributed_time", status="warn", detail=detail)


def _incomplete(frame: RequestFrame, slo: Slo) -> Check | None:
    n = frame.incomplete + frame.rows.height
    if n == 0:
        return None
    share = frame.incomplete / n
    status: Grade = "ok" if share <= ONE_PERCENT else "fail" if share > FAIL_SHARE else "warn"
    detail = (
        f"{frame.incomplete:,} of {n:,} requests are incomplete and left out ({say_ratio(share)})"
    )
    if status != "ok":
        detail += ": their root span is missing or open; look for dropped exports and for services that do not propagate context"
    return Check(check="incomplete_traces", status=status, detail=detail)


def _inferred(frame: RequestFrame, slo: Slo) -> Check | None:
    whole = float(frame.rows["e2e_ms"].to_numpy().sum())
    if whole <= 0.0:
        return None
    share = float(frame.rows["inferred_ms"].to_numpy().sum()) / whole
    if share <= MOST_INFERRED:
        return Check(
            check="inferred_parents",
            status="ok",
            detail=f"{say_ratio(share)} of all request time depends on guessed parent spans",
        )
    detail = f"{say_ratio(share)} of all request time depends on guessed parent spans: spans are lost between services"
    return Check(check="inferred_parents", status="warn", detail=detail)


def _skew(frame: RequestFrame, slo: Slo) -> Check | None:
    if frame.rows.is_empty():
        return None
    skewed = int((frame.rows["skewed_spans"] > 0).sum())
    share = skewed / frame.rows.height
    detail = f"clock skew was corrected in {skewed:,} of {frame.rows.height:,} requests ({say_ratio(share)})"
    if share <= ONE_PERCENT:
        return Check(check="clock_skew", status="ok", detail=detail)
    detail += ": times between services are wrong by the skew; synchronise the clocks (NTP, chrony)"
    return Check(check="clock_skew", status="warn", detail=detail)


def _sampling(frame: RequestFrame, sampled: Sampling) -> list[Check]:
    if frame.rows.is_empty():
        return []
    if not sampled.refused:
        return [
            Check(
                check="sampling",
                status="ok" if sampled.kind == "all" else "warn",
                detail=sampled.detail,
            )
        ]
    detail = f"{sampled.detail}: percentiles, shares and rates are not given; keep every trace, or sample by probability"
    return [Check(check="sampling", status="fail", detail=detail)]


def _missing_children(frame: RequestFrame, slo: Slo) -> Check | None:
    """Requests with less than half of their route's usual spans that spend most of their time without one: children were lost.

    The model call may be among them: on a route that calls a model, a request without a call counts where it took at least half of the usual time. A quick one
    was answered without (a cache, a guardrail).
    """
    rows = frame.rows.select("service", "route", "spans", "other_ms", "e2e_ms", "llm_calls")
    called = rows["llm_calls"] > 0
    if not called.all():
        calling, others = rows.filter(called), rows.filter(~called)
        of_route = calling.group_by("service", "route").agg(
            pl.col("e2e_ms").median().alias("usual_ms")
        )
        slow = (
            others.join(of_route, on=["service", "route"], nulls_equal=True)
            .filter(pl.col("e2e_ms") * 2 >= pl.col("usual_ms"))
            .drop("usual_ms")
        )
        rows = pl.concat([calling, slow])
    hollow = rows.filter(pl.col("other_ms") * 2 > pl.col("e2e_ms"))
    if hollow.is_empty() and rows.height >= _LEAST_PEERS:
        return Check(
            check="missing_children",
            status="ok",
            detail=f"none of {rows.height:,} requests spends most of its time without a span",
        )
    usual = rows.group_by("service", "route").agg(
        pl.col("spans").median().alias("usual"), pl.len().alias("n")
    )
    usual = usual.filter((pl.col("n") >= _LEAST_PEERS) & (pl.col("usual") > 2))
    if usual.is_empty():
        return None
    hollow = hollow.join(usual, on=["service", "route"], nulls_equal=True)
    lost, n = int((hollow["spans"] * 2 < hollow["usual"]).sum()), int(usual["n"].sum())
    share = lost / n
    detail = f"{lost:,} of {n:,} requests have less than half of the usual spans of their route ({say_ratio(share)})"
    if share > ONE_PERCENT:
        detail += ": child spans are lost; look for full export queues and services that do not propagate context"
    return Check(
        check="missing_children",
        status="ok" if share <= ONE_PERCENT else "fail" if share > FAIL_SHARE else "warn",
        detail=detail,
    )


def _outliving(frame: RequestFrame, slo: Slo) -> Check | None:
    if frame.rows.is_empty():
        return None
    share = float((frame.rows["clipped_spans"] > 0).mean() or 0.0)  # type: ignore[arg-type]
    detail = f"in {say_ratio(share)} of {frame.rows.height:,} requests a span continues after its parent and is cut there"
    if share > WARN_SHARE:
        detail += (
            ": either work after the answer (link it instead of making it a child), or a request span that ends before its answer. Then the "
            "end-to-end time is too short: end the span with the last byte"
        )
    return Check(
        check="outliving_spans", status="ok" if share <= WARN_SHARE else "warn", detail=detail
    )


def _engine_only(frame: RequestFrame, slo: Slo) -> Check | None:
    if frame.rows.is_empty() or not frame.rows["engine_only"].all():
        return None
    detail = "engine spans only: times start when the engine receives the request, without application and network"
    return Check(check="engine_only", status="ok", detail=detail)


def _outliers(frame: RequestFrame, slo: Slo) -> Check | None:
    """Times that no request can have point at a unit clash: milliseconds read as seconds, or seconds read as milliseconds."""
    timed = frame.rows.select("ttft_ms", "e2e_ms").filter(pl.col("ttft_ms").is_not_null())
    if timed.is_empty():
        return None
    negative = int((frame.rows["e2e_ms"] < 0.0).sum()) + int((timed["ttft_ms"] < 0.0).sum())
    longer = int((timed["ttft_ms"] > timed["e2e_ms"] + SAME_MS).sum())
    # A first token within a millisecond of a request that takes a second or more is a number in seconds.
    instant = int(
        (
            (timed["ttft_ms"] < SAME_MS)
            & (timed["ttft_ms"] > 0.0)
            & (timed["e2e_ms"] > 1000.0 * SAME_MS)
        ).sum()
    )
    wrong, share = negative + longer + instant, (negative + longer + instant) / timed.height
    if wrong == 0:
        return Check(
            check="impossible_times",
            status="ok",
            detail=f"every TTFT of {timed.height:,} requests is plausible",
        )
    most = float(timed["ttft_ms"].to_numpy().max())
    detail = f"{wrong:,} of {timed.height:,} requests have a TTFT longer than themselves, below a millisecond, or negative (largest {say_ms(most)})"
    return Check(
        check="impossible_times",
        status="fail" if share > FAIL_SHARE else "warn",
        detail=detail + ": an instrumentation mixes units or clocks",
    )


def _answered(frame: RequestFrame) -> pl.Series:
    """Whether each request succeeded with a model's answer."""
    return ~frame.rows["error"] & (frame.rows["llm_calls"] > 0)


def _client_only(frame: RequestFrame, slo: Slo) -> Check | None:
    """Whether no engine tells of the model calls, neither by spans nor by metrics; None where one does."""

    def spent(*stages: str) -> float:
        return float(
            sum(
                frame.rows[f"{stage}_ms"].sum() or 0.0
                for stage in stages
                if f"{stage}_ms" in frame.rows.columns
            )
        )

    if (
        spent("queue", "prefill", "kv_transfer") > 0.0
        or spent("first_token", "generation") <= 0.0
        or not frame.points.is_empty()
    ):
        return None
    return Check(
        check="client_only",
        status="ok",
        detail=(
            "model calls are seen from their clients alone: the wait for the first token is not split, there are no engine figures, and gains are exact, resampled or estimated"
        ),
    )


_CHECKS: Final[tuple[Callable[[RequestFrame, Slo], Check | None], ...]] = (
    _waiting,
    _samples,
    _ttft_missing,
    _ttft_is_duration,
    _outliers,
    _unattributed,
    _incomplete,
    _inferred,
    _client_only,
    _skew,
    _missing_children,
    _outliving,
    _engine_only,
)
# Which latencies a failed check makes worthless: the report then gives none instead of a wrong one.
_SPOILS: Final = {
    "ttft_equals_duration": ("ttft", "tpot"),
    "impossible_times": ("ttft", "tpot"),
    "early_role_chunk": ("ttft", "tpot"),
}
