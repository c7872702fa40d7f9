"""Cases for rules: request rows through a real store, judged like a report judges them."""

import functools
from typing import Any

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
from tests.analysis.builders import T0, calls_of, gauge, insert, insert_calls, insert_spans, store

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
    con = store()
    insert(con, *frames)
    insert_calls(con, *(calls if calls is not None else [calls_of(frame) for frame in frames]))
    if spans is not None:
        insert_spans(con, *spans)
    for indicator, samples in (gauges or {}).items():
        name, _, instance = indicator.partition("@")
        gauge(con, name, samples, instance=instance or "gpu-0")
    frame = load(con, Window(**window))
    lookups = Lookups(
        trace_ids=lambda rows: load_trace_ids(con, rows),
        calls=lambda period, origin: load_evidence_calls(con, period.start, period.end, origin),
        spans=lambda period, origin, every, traces: (
            _no_spans()
            if spans is None
            else load_evidence_spans(con, period.start, period.end, origin, every, traces)
        ),
        traits=lambda period, origin, n, pattern: load_evidence_call_traits(
            con, period.start, period.end, origin, n, pattern
        ),
    )
    return diagnose(
        frame, slo, lookups, baseline=choose(con, frame, slo), budgets=budgets, coverage=coverage
    )


@functools.cache
def _no_spans() -> pl.DataFrame:
    """What is read of spans where there are none: asked once, as most cases have none and each asks three times."""
    return load_evidence_spans(store(), T0, T0, T0)


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
