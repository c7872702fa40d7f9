"""The numbers of a report that are about all requests of a window: from its rows, or counted by the database where these are a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import msgspec

from overrun.analysis.numbers.coverage.sampling import Sampling
from overrun.analysis.numbers.latency.percentiles import Latency, latency, no_latency
from overrun.analysis.numbers.outcomes.exact_numbers import (
    Exact,
    count_exactly,
    exact_errors,
    exact_goodput,
    exact_latency,
)
from overrun.analysis.numbers.outcomes.failures import Errors, errors
from overrun.analysis.numbers.outcomes.goodput import Goodput, goodput, judge, own_limits
from overrun.analysis.numbers.outcomes.percentile_limits import (
    LimitRow,
    counted_row,
    limit_rows,
)
from overrun.analysis.numbers.statistics.request_sample import Counted
from overrun.analysis.numbers.window import RequestFrame
from overrun.analysis.words.slo import Slo


class SampleFacts(msgspec.Struct, kw_only=True):
    """How a window with too many requests was read: `read` of `requests`, whose shares are right within `error` (0..1) in 95 of 100 samples.

    `exact` are the parts of the report that are of all requests; everything else is of the sample.
    """

    requests: int
    read: int
    error: float
    exact: list[str]
    sentence: str


@dataclass(frozen=True)
class Numbers:
    """What all requests of a window come to. `counted` is what the database counted of them where its rows are a sample."""

    requests: int
    llm_calls: int
    spans: int
    latency: Latency
    goodput: Goodput
    errors: Errors
    limits: list[LimitRow]
    counted: Counted | None = None
    sample: SampleFacts | None = None


def numbers_of(
    con: duckdb.DuckDBPyConnection,
    frame: RequestFrame,
    sampled: Sampling,
    slo: Slo,
    spoiled: Mapping[str, str],
) -> Numbers:
    """Return the numbers of the requests that a frame has or stands for.

    `spoiled` metrics are null, with the reason.
    """
    rows = frame.rows
    exact = None if frame.sample is None else count_exactly(con, frame.window, slo, spoiled)
    if exact is None or not exact.even or own_limits(rows) or sampled.estimated:
        made = _of_rows(frame, sampled, slo)
    else:
        made = _of_all(con, frame, exact, slo, spoiled)
    for metric, why in spoiled.items():
        setattr(made.latency, f"{metric}_ms", no_latency(why, frame.requests).ttft_ms)
    return made


def _of_rows(frame: RequestFrame, sampled: Sampling, slo: Slo) -> Numbers:
    rows = frame.rows
    drawn = rows["drawn_weight"].to_numpy() if frame.sample is not None else 1.0
    return Numbers(
        requests=frame.requests,
        llm_calls=round(float((rows["llm_calls"].to_numpy() * drawn).sum())),
        spans=round(float((rows["spans"].to_numpy() * drawn).sum())),
        latency=latency(rows, weights=sampled.weights),
        goodput=goodput(judge(rows, slo), frame.seconds, sampled.weights),
        errors=errors(rows, sampled.weights),
        limits=limit_rows(rows, slo),
        counted=None
        if frame.sample is None
        else Counted({}, None, frame.requests / max(frame.sample.even, 1)),
        sample=_facts(frame, []),
    )


def _of_all(
    con: duckdb.DuckDBPyConnection,
    frame: RequestFrame,
    exact: Exact,
    judged: Slo,
    spoiled: Mapping[str, str],
) -> Numbers:
    percentiles = sorted({part.percentile for part in judged.each()})
    times, at = exact_latency(con, frame, exact, percentiles)
    weight = float((frame.rows["sample_weight"] / frame.rows["drawn_weight"])[0])
    of_judged = exact if judged == exact.slo else count_exactly(con, frame.window, judged, spoiled)
    limits = [
        counted_row(
            metric,
            judged,
            limit_ms,
            value=at.get((metric, judged.percentile)),
            n=exact.successful(metric),
            missed=getattr(exact_goodput(of_judged, 0.0).failed_by, metric),
        )
        for metric, limit_ms in judged.limits().items()
    ]
    return Numbers(
        requests=exact.requests,
        llm_calls=exact.llm_calls,
        spans=exact.spans,
        latency=times,
        goodput=exact_goodput(exact, frame.seconds, weight),
        errors=exact_errors(con, frame.window, exact),
        limits=limits,
        counted=Counted(
            {key: value for key, (value, _) in at.items()},
            exact_goodput(of_judged, frame.seconds, weight),
            frame.requests / max(frame.sample.even, 1) if frame.sample else 1.0,
        ),
        sample=_facts(
            frame, ["window", "latency", "goodput", "errors", "limits", "retries", "cost"]
        ),
    )


def _facts(frame: RequestFrame, exact: list[str]) -> SampleFacts | None:
    sample = frame.sample
    if sample is None:
        return None
    counted = "Percentiles, goodput and error shares are of all requests. " if exact else ""
    return SampleFacts(
        requests=sample.requests,
        read=sample.read,
        error=sample.error,
        exact=exact,
        sentence=f"{counted}Stage times and causes are {sample.say()}.",
    )


def said_of_sample(sample: SampleFacts) -> str:
    """What a part of a report that is not exact rests on, to stand behind its name."""
    return (
        f"from a sample of {sample.read:,} of {sample.requests:,} requests; "
        f"shares within +-{100.0 * sample.error:.1f} points"
    )
