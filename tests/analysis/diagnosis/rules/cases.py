"""Cases for rules: request rows through a real store, judged like a report judges them."""

import functools
from collections.abc import Callable
from typing import Any

import duckdb
import polars as pl

from overrun.analysis.diagnosis.diagnose import Diagnosed, diagnose
from overrun.analysis.evidence.observed import Lookups
from overrun.analysis.incident.baseline import choose
from overrun.analysis.numbers.stages.budget import Configured
from overrun.analysis.numbers.window import (
    Window,
    load,
    load_evidence_call_traits,
    load_evidence_calls,
    load_evidence_spans,
    load_trace_ids,
)
from overrun.analysis.words.finding import Finding
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import (
    T0,
    calls_of,
    gauge,
    insert,
    insert_calls,
    insert_spans,
    lent_store,
    store,
)

CHAT = Slo(ttft_ms=1500.0, e2e_ms=2500.0)
E2E = Slo(e2e_ms=2500.0)


def run(
    *frames: pl.DataFrame,
    slo: Slo = CHAT,
    gauges: dict[str, dict[float, float]] | None = None,
    calls: list[pl.DataFrame] | None = None,
    spans: list[pl.DataFrame] | None = None,
    budgets: Configured | None = None,
    coverage: float | None = None,
    **window: Any,
) -> Diagnosed:
    """Diagnose request rows.

    Every request has one model call that took its model stages, unless `calls` are given (one frame per frame of requests). `gauges` are of gpu-0,
    or of the instance behind an @ in their name.
    `coverage` is the part of all requests that these are.
    """
    with lent_store() as con:
        insert(con, *frames)
        insert_calls(con, *(calls if calls is not None else [calls_of(frame) for frame in frames]))
        if spans is not None:
            insert_spans(con, *spans)
        for indicator, samples in (gauges or {}).items():
            name, _, instance = indicator.partition("@")
            gauge(con, name, samples, instance=instance or "gpu-0")
        frame = load(con, Window(**window))
        spans_of, traits_of = _readers(con) if spans is not None else _nothing()
        lookups = Lookups(
            trace_ids=functools.partial(load_trace_ids, con),
            calls=lambda period, origin: load_evidence_calls(con, period.start, period.end, origin),
            spans=lambda period, *more: spans_of(period.start, period.end, *more),
            traits=lambda period, *more: traits_of(period.start, period.end, *more),
        )
        baseline = choose(con, frame, slo)
        return diagnose(frame, slo, lookups, baseline=baseline, budgets=budgets, coverage=coverage)


def _readers(con: duckdb.DuckDBPyConnection) -> list[Callable[..., pl.DataFrame]]:
    """What reads the spans and the traits of calls of a store."""
    return [
        functools.partial(read, con) for read in (load_evidence_spans, load_evidence_call_traits)
    ]


@functools.cache
def _nothing() -> list[Callable[..., pl.DataFrame]]:
    """As `_readers` of a store without any: read once, as most cases have none and each asks four times."""
    spans, traits = _readers(store())
    answers = (spans(T0, T0, T0), traits(T0, T0, T0, 1, ""))
    return [functools.partial(lambda answer, *_: answer, answer) for answer in answers]


def of(found: Diagnosed, rule: str) -> Finding | None:
    """Return a rule's finding, if it made one."""
    return next((finding for finding in found.findings if finding.rule == rule), None)


def the(found: Diagnosed, rule: str) -> Finding:
    """Return a rule's finding, which must be there."""
    finding = of(found, rule)
    assert finding is not None, (
        [one.rule for one in found.findings],
        found.verdict.sentence,
        found.verdict.ruled_out,
        found.skipped,
    )
    return finding


def causes(found: Diagnosed) -> list[str]:
    """Return the rules that name a cause, first one first."""
    return [finding.rule for finding in found.findings if finding.severity != "info"]
