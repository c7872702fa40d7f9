"""Can these numbers be trusted? One check per way in which telemetry misleads, each with what to do about it."""

from collections.abc import Callable
from typing import Final, Literal

import duckdb
import msgspec
import numpy as np
import polars as pl

from analysis.finding import printable, say_ms, say_ratio
from analysis.latency import min_n
from analysis.slo import Slo
from analysis.window import SCRAPE_GRACE, RequestFrame, Window, load

Grade = Literal["ok", "warn", "fail"]

# Unfinished requests are the slowest ones: once 1 % of them is missing, P99 is a number about the others.
MOST_WAITING: Final = 0.01
# A queue wait of this part of the request at P95 makes it matter whether others still wait; own default.
QUEUE_MATTERS: Final = 0.1
# Tokens after the first that come faster than this did not come one by one: the fastest engines published write about
# 3,000 tokens/s to one user, this is 5,000. Where the count is unknown, TTFT within 1 ms of the end is the same sign.
FASTEST_TOKEN_MS: Final = 0.2
SAME_MS: Final = 1.0
# Shares from which a spoiled minority is said (warn) and from which the metric is no longer one (fail); own defaults.
FEW: Final = 0.05
MOST: Final = 0.5
# Uninstrumented time above this share hides causes; own default.
MOST_UNATTRIBUTED: Final = 0.3
# Time that rests on guessed parents above this share makes stage times unreliable; own default.
MOST_INFERRED: Final = 0.05
# One percent of traces is enough to move a P99.
ONE_PERCENT: Final = 0.01


class Check(msgspec.Struct, kw_only=True):
    """One check: `fail` spoils the numbers it names, `warn` bends them; `detail` has the figure and what to do."""

    check: str
    status: Grade
    detail: str


class Quality(msgspec.Struct, kw_only=True):
    """All checks of one window, worst first; `requests` were looked at."""

    requests: int
    checks: list[Check]


def quality(con: duckdb.DuckDBPyConnection, window: Window, slo: Slo) -> Quality:
    """Check a window's data."""
    frame = load(con, window)
    return Quality(requests=frame.rows.height, checks=checks(frame, slo))


def checks(frame: RequestFrame, slo: Slo) -> list[Check]:
    """Return every check of a window, worst first; what cannot be checked for want of data is not listed as ok."""
    found = [check for part in _CHECKS for check in [part(frame, slo)] if check is not None]
    order = {"fail": 0, "warn": 1, "ok": 2}
    return sorted(found, key=lambda check: order[check.status])


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
        if n == 0 or np.percentile(wait, 95.0) < QUEUE_MATTERS * np.percentile(whole, 95.0):
            return None
        detail = (
            "requests wait in a queue but no queue gauge tells how many were still waiting at the end: scrape /metrics"
        )
        return Check(check=name, status="warn", detail=detail)
    share = waiting / (n + waiting) if n + waiting else 0.0
    if share < MOST_WAITING:
        detail = f"{waiting:,.0f} requests waiting at the end by the queue gauge, {say_ratio(share)} of all"
        return Check(check=name, status="ok", detail=detail)
    detail = (
        f"{waiting:,.0f} requests were still waiting when the window ended (queue gauge), {say_ratio(share)} of all: "
        "only finished requests have spans, so every percentile here is too low and goodput too high. "
        "Judge again when the queue has drained"
    )
    return Check(check=name, status="warn", detail=detail)


def _samples(frame: RequestFrame, slo: Slo) -> Check | None:
    n, needed = int((~frame.rows["error"]).sum()), min_n(slo.percentile)
    if n >= needed:
        return Check(
            check="too_few_samples",
            status="ok",
            detail=f"{n:,} successful requests, P{slo.percentile:g} needs {needed}",
        )
    detail = f"{n:,} successful requests, P{slo.percentile:g} needs at least {needed}: widen the window"
    return Check(check="too_few_samples", status="fail", detail=detail)


def _ttft_missing(frame: RequestFrame, slo: Slo) -> Check | None:
    ok = _answered(frame)
    if ok.is_empty():
        return None
    missing = ok["ttft_ms"].null_count()
    share = missing / ok.height
    wanted = slo.ttft_ms is not None
    status: Grade = "ok" if share <= FEW else "fail" if wanted and share > MOST else "warn" if wanted else "ok"
    detail = f"{missing:,} of {ok.height:,} successful requests carry no time to first token ({say_ratio(share)})"
    if status != "ok":
        detail += ": stream the answers and use an instrumentation that records the first chunk, or drop the ttft limit"
    return Check(check="ttft_missing", status=status, detail=detail)


def _ttft_is_duration(frame: RequestFrame, slo: Slo) -> Check | None:
    ok = _answered(frame).filter(pl.col("ttft_ms").is_not_null() & (pl.col("output_tokens").fill_null(2) > 1))
    if ok.is_empty():
        return None
    least_ms = (FASTEST_TOKEN_MS * (ok["output_tokens"] - 1)).fill_null(SAME_MS)
    same = (ok["e2e_ms"] - ok["ttft_ms"] <= least_ms).to_numpy()
    share = float(same.mean())
    status: Grade = "ok" if share <= FEW else "fail" if share > MOST else "warn"
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
            check="unattributed_time", status="ok", detail=f"{say_ratio(share)} of all request time has no span"
        )
    service = frame.rows[int(np.argmax(other))]["service"][0]
    detail = f"{say_ratio(share)} of all request time has no span: add spans around what {printable(service)} does"
    return Check(check="unattributed_time", status="warn", detail=detail)


def _incomplete(frame: RequestFrame, slo: Slo) -> Check | None:
    n = frame.incomplete + frame.rows.height
    if n == 0:
        return None
    share = frame.incomplete / n
    status: Grade = "ok" if share <= ONE_PERCENT else "fail" if share > MOST else "warn"
    detail = f"{frame.incomplete:,} of {n:,} requests are incomplete and left out ({say_ratio(share)})"
    if status != "ok":
        detail += ": their root is missing or open; look for dropped exports and services that do not propagate context"
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
            detail=f"{say_ratio(share)} of all request time rests on guessed parents",
        )
    detail = f"{say_ratio(share)} of all request time rests on guessed parents: spans are lost between services"
    return Check(check="inferred_parents", status="warn", detail=detail)


def _skew(frame: RequestFrame, slo: Slo) -> Check | None:
    if frame.rows.is_empty():
        return None
    skewed = int((frame.rows["skewed_spans"] > 0).sum())
    share = skewed / frame.rows.height
    detail = f"clock skew was corrected in {skewed:,} of {frame.rows.height:,} requests ({say_ratio(share)})"
    if share <= ONE_PERCENT:
        return Check(check="clock_skew", status="ok", detail=detail)
    detail += ": times between services are off by the skew; synchronise the clocks (NTP, chrony)"
    return Check(check="clock_skew", status="warn", detail=detail)


def _sampling(frame: RequestFrame, slo: Slo) -> Check | None:
    if frame.rows.is_empty():
        return None
    kinds = (
        frame.rows.drop_nulls("sampling").group_by("sampling").len().sort("len", "sampling", descending=[True, False])
    )
    if kinds.is_empty():
        return Check(check="sampling", status="ok", detail="no sign of sampling in the traces")
    detail = (
        f"{int(kinds['len'].sum()):,} of {frame.rows.height:,} requests come from a sampler "
        f"({printable(kinds['sampling'][0])}): shares, rates and percentiles hold for what was kept; "
        "keep every trace or sample by probability"
    )
    return Check(check="sampling", status="warn", detail=detail)


def _engine_only(frame: RequestFrame, slo: Slo) -> Check | None:
    if frame.rows.is_empty() or not frame.rows["engine_only"].all():
        return None
    detail = "engine spans only: times start when the engine got the request, application and network are not in them"
    return Check(check="engine_only", status="ok", detail=detail)


def _outliers(frame: RequestFrame, slo: Slo) -> Check | None:
    """Times that no request can have point at a unit clash (milliseconds read as seconds)."""
    negative = int((frame.rows["e2e_ms"] < 0.0).sum()) + int((frame.rows["ttft_ms"] < 0.0).sum())
    longer = int((frame.rows["ttft_ms"] > frame.rows["e2e_ms"] + SAME_MS).sum())
    if negative + longer == 0:
        return None
    most = frame.rows["ttft_ms"].drop_nulls().to_numpy()
    detail = f"{negative + longer:,} requests have a TTFT longer than themselves or a negative time"
    detail += f" (largest TTFT {say_ms(float(most.max()))})" if len(most) else ""
    return Check(check="impossible_times", status="warn", detail=detail + ": an instrumentation mixes units or clocks")


def _answered(frame: RequestFrame) -> pl.DataFrame:
    return frame.rows.filter(~pl.col("error") & (pl.col("llm_calls") > 0))


_CHECKS: Final[tuple[Callable[[RequestFrame, Slo], Check | None], ...]] = (
    _waiting,
    _samples,
    _ttft_missing,
    _ttft_is_duration,
    _outliers,
    _unattributed,
    _incomplete,
    _inferred,
    _skew,
    _sampling,
    _engine_only,
)
