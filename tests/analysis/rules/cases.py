"""Cases for rules: request rows through a real store, judged like a report judges them."""

from typing import Any

import polars as pl

from analysis.baseline import choose
from analysis.diagnose import Diagnosed, Lookups, diagnose
from analysis.finding import Finding
from analysis.slo import Slo
from analysis.window import Window, load, load_trace_ids
from tests.analysis.builders import gauge, insert, store

CHAT = Slo(ttft_ms=1500.0, e2e_ms=2500.0)


def run(
    *frames: pl.DataFrame,
    slo: Slo = CHAT,
    gauges: dict[str, dict[float, float]] | None = None,
    spender: tuple[str, str] | None = None,
    **window: Any,
) -> Diagnosed:
    """Diagnose request rows; `spender` is the (service, operation) that a look-up of spans would name."""
    con = store()
    insert(con, *frames)
    for indicator, samples in (gauges or {}).items():
        gauge(con, indicator, samples)
    frame = load(con, Window(**window))
    lookups = Lookups(trace_ids=lambda rows: load_trace_ids(con, rows), spender=lambda traces, stage: spender)
    return diagnose(frame, slo, lookups, baseline=choose(con, frame, slo))


def of(found: Diagnosed, rule: str) -> Finding | None:
    """Return a rule's finding, if it made one."""
    return next((finding for finding in found.findings if finding.rule == rule), None)
