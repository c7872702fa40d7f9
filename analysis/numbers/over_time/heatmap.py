"""When were how many requests how slow? Counts per step of time and log bucket of one metric, for a heat map.

Reads `v_requests` through a cursor that is passed in. A heat map shows the two humps that a percentile line hides.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

import duckdb
import msgspec

from overrun.analysis.numbers.coverage.sampling import Kind, assess_window
from overrun.analysis.numbers.over_time.series import STEPS_S, step_at_least
from overrun.analysis.numbers.requests.request_list import extent, known_metric
from overrun.analysis.numbers.window import Window, filter_of, query
from overrun.analysis.words.slo import Slo

# 12 buckets a decade: each is 21 % wider than the one below, 33 rows between 50 ms and 30 s.
PER_DECADE: Final = 12
BASE_MS: Final = 50.0
# The latency axis of the published buckets; labels outside of it appear only where there are values.
LABELS_MS: Final = (
    *(50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0, 30_000.0),
)
_OUTER_LABELS_MS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 60_000.0, 120_000.0, 300_000.0, 600_000.0)
# 1 ms to 10 min. Faster and slower values count in the outermost rows.
_FIRST: Final = math.floor(math.log10(1.0 / BASE_MS) * PER_DECADE)
_LAST: Final = math.ceil(math.log10(600_000.0 / BASE_MS) * PER_DECADE) - 1
_USUAL: Final = (0, math.ceil(math.log10(30_000.0 / BASE_MS) * PER_DECADE) - 1)
MOST_COLUMNS: Final = 90


class Heatmap(msgspec.Struct, kw_only=True):
    """Counts of successful requests: `counts[row][column]`, fastest row first.

    Row r holds edges_ms[r] <= metric < edges_ms[r + 1]; the outermost rows of 1 ms and 10 min also hold what lies beyond. Column c starts
    at `start` + c x `step_s`. TTFT and E2E always show 50 ms to 30 s, so that two windows look alike. `labels_ms` are the round
    values to print along the axis. `stands_for` has the requests that those of each cell stand for where a sampler kept them with a known
    probability; it is null where each stands for itself, and where `sampling` is biased or unknown: the counts are then of a selection.
    """

    metric: str
    start: datetime | None
    step_s: int
    n: int
    limit_ms: float | None
    edges_ms: list[float]
    labels_ms: list[float]
    counts: list[list[int]]
    stands_for: list[list[float]] | None = None
    sampling: Kind = "all"
    reasons: dict[str, str] = {}


def heatmap(con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, metric: str) -> Heatmap:
    """Return the heat map of one metric (ttft, itl, tpot, e2e) over a window.

    Raises:
        ListError: an unknown metric.
    """
    metric = known_metric(metric)
    covered = extent(con, window)
    answer = Heatmap(
        metric=metric,
        start=None,
        step_s=STEPS_S[0],
        n=0,
        limit_ms=slo.limits().get(metric),
        edges_ms=[],
        labels_ms=[],
        counts=[],
        reasons={"counts": f"no successful request in the window carries {metric.upper()}"},
    )
    if covered.start is None or covered.end is None or covered.n == 0:
        return answer
    sampled = assess_window(con, window, covered.start, covered.end)
    answer.sampling = sampled.kind
    seconds = (covered.end - covered.start).total_seconds()
    step = step_at_least(seconds / MOST_COLUMNS)
    origin = int(covered.start.timestamp()) // step * step
    cells = _cells(con, window, metric, origin, step)
    if not cells:
        return answer
    first, last = _rows([cell[1] for cell in cells], usual=metric in ("ttft", "e2e"))
    columns = (math.ceil(covered.end.timestamp()) - 1 - origin) // step + 1
    counts = [[0] * columns for _ in range(last - first + 1)]
    weights = [[0.0] * columns for _ in counts]
    for column, bucket, n, weight in cells:
        counts[bucket - first][column], weights[bucket - first][column] = n, weight
    answer.start, answer.step_s, answer.counts = datetime.fromtimestamp(origin, UTC), step, counts
    answer.n = sum(cell[2] for cell in cells)
    answer.stands_for = weights if sampled.kind == "weighted" else None
    answer.reasons = (
        {}
        if answer.stands_for
        else {"stands_for": sampled.why if sampled.refused else "each request stands for itself"}
    )
    answer.edges_ms = [BASE_MS * 10 ** (row / PER_DECADE) for row in range(first, last + 2)]
    answer.labels_ms = [
        ms
        for ms in sorted((*LABELS_MS, *_OUTER_LABELS_MS))
        if answer.edges_ms[0] * 0.999 <= ms <= answer.edges_ms[-1]
    ]
    return answer


def _cells(
    con: duckdb.DuckDBPyConnection, window: Window, metric: str, origin_s: int, step_s: int
) -> list[tuple[int, int, int, float]]:
    """Column, bucket, requests and what they stand for, of each cell that holds a request."""
    bounds = {
        "metric": metric,
        "origin_us": origin_s * 1_000_000,
        "step_us": step_s * 1_000_000,
        "base_ms": BASE_MS,
        "per_decade": float(PER_DECADE),
        "first": _FIRST,
        "last": _LAST,
    }
    return con.execute(query("heatmap"), filter_of(window) | bounds).fetchall()


def _rows(buckets: list[int], *, usual: bool) -> tuple[int, int]:
    first, last = min(buckets), max(buckets)
    return (min(first, _USUAL[0]), max(last, _USUAL[1])) if usual else (first - 1, last + 1)
