"""What was a long period like, and what differs from the one before? One object over hourly files: the JSON contract `overrun.batch/1`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import msgspec

from overrun.analysis.front.batch.engines import LOCAL, Engine, open_engine
from overrun.analysis.front.batch.files import hourly
from overrun.analysis.front.batch.period import NotForAll, Period, StagePath, measure
from overrun.analysis.front.questions import Question
from overrun.analysis.numbers.comparison.compare import StageChange
from overrun.analysis.numbers.latency.percentiles import Percentiles
from overrun.analysis.numbers.stages.budget import EVERYONE
from overrun.analysis.numbers.window import Window, filter_of, query
from overrun.analysis.words.errors import AnalysisError, WindowError
from overrun.analysis.words.slo import METRICS, Slo

SCHEMA: Final = "overrun.batch/1"
_COMPARED: Final = ((50.0, "p50"), (95.0, "p95"), (99.0, "p99"))


class PercentileChange(msgspec.Struct, kw_only=True):
    """One percentile of one metric in both periods, in ms. `apart`: its 95 % intervals do not overlap, so that the change is more than chance among
    independent requests."""

    metric: str
    percentile: float
    before_ms: float
    after_ms: float
    difference_ms: float
    apart: bool


class BatchReport(msgspec.Struct, kw_only=True):
    """A period, the one that it is compared with (null: none), and the differences. Ratios 0..1, milliseconds.

    `goodput_difference` is in shares of requests. `stages` are means over successful requests, and over those around the SLO percentile of E2E.
    """

    schema: Literal["overrun.batch/1"] = SCHEMA
    engine: str
    slo: Slo
    period: Period
    before: Period | None
    changes: list[PercentileChange]
    goodput_difference: float | None
    error_difference: float | None
    stages: list[StageChange]


@dataclass(frozen=True)
class On:
    """Which engine answers, and where it runs."""

    engine: str = "duckdb"
    master: str = LOCAL
    settings: Mapping[str, str] | None = None


def report(folder: Path, asked: Question, on: On) -> BatchReport:
    """Report on the requests of a folder that `overrun store export --folder` writes to. The baseline of the window is the other period; `auto` compares with none.

    Raises:
        AnalysisError: no files, no engine, requests that do not stand for all, or a baseline that needs a start.
    """
    if asked.slo.also:
        raise NotForAll(
            "limits at several percentiles are for `overrun report`: give those at one percentile"
        )
    windows = [asked.window, *_before(asked.window)]
    files = sorted(
        {file for one in windows for file in hourly(folder, "requests", one.start, one.end)}
    )
    budgets = (asked.budgets or {}).get(EVERYONE)
    engine = open_engine(on.engine, {"v_requests": files}, on.master, on.settings)
    try:
        return _compared(
            engine, asked.slo, [measure(engine, one, asked.slo, budgets) for one in windows]
        )
    finally:
        engine.close()


def export_training(folder: Path, window: Window, most: int, out: Path, on: On) -> int:
    """Write the newest `most` calls of a window that a length predictor can learn from as one Parquet file; returns how many there are.

    Raises:
        AnalysisError: no files, no engine, or a file that cannot be written.
    """
    files = hourly(folder, "llm-calls", window.start, window.end)
    engine = open_engine(on.engine, {"v_llm_calls": files}, on.master, on.settings)
    try:
        return engine.save(query("training_calls"), {**filter_of(window), "most": most}, out)
    except OSError as error:
        raise AnalysisError(f"--out {out} cannot be written: {error.strerror}") from error
    finally:
        engine.close()


def _before(window: Window) -> list[Window]:
    """The period to compare with, if any."""
    if not isinstance(window.baseline, str):
        start, end = window.baseline
    elif window.baseline != "previous":
        return []
    elif window.start is None or window.end is None:
        raise WindowError("--baseline previous needs a period: give --since, or --from and --to")
    else:
        start, end = window.start - (window.end - window.start), window.start
    return [replace(window, start=start, end=end, baseline="none")]


def _compared(engine: Engine, slo: Slo, periods: list[Period]) -> BatchReport:
    after, before = periods[0], periods[1] if len(periods) > 1 else None
    out = BatchReport(
        engine=engine.name,
        slo=slo,
        period=after,
        before=before,
        changes=[],
        goodput_difference=None,
        error_difference=None,
        stages=[],
    )
    if before is None:
        return out
    for metric in METRICS:
        sides = [getattr(one.latency, f"{metric}_ms") for one in (before, after)]
        out.changes += [
            _change(metric, p, name, *sides) for p, name in _COMPARED if _both(name, *sides)
        ]
    shares = before.goodput.ratio, after.goodput.ratio
    if shares[0] is not None and shares[1] is not None:
        out.goodput_difference = shares[1] - shares[0]
    failed = before.errors.ratio, after.errors.ratio
    if failed[0] is not None and failed[1] is not None:
        out.error_difference = failed[1] - failed[0]
    paths = [path for one in (before, after) for path in one.paths if path.metric == "e2e"]
    if len(paths) == 2:
        out.stages = _stages(*paths)
    return out


def _both(name: str, before: Percentiles, after: Percentiles) -> bool:
    return all(
        getattr(side, field) is not None
        for side in (before, after)
        for field in (name, f"{name}_interval")
    )


def _change(
    metric: str, percentile: float, name: str, before: Percentiles, after: Percentiles
) -> PercentileChange:
    values = [float(getattr(side, name)) for side in (before, after)]
    (low, high), (from_, to) = (getattr(side, f"{name}_interval") for side in (before, after))
    return PercentileChange(
        metric=metric,
        percentile=percentile,
        before_ms=values[0],
        after_ms=values[1],
        difference_ms=values[1] - values[0],
        apart=bool(high < from_ or to < low),
    )


def _stages(before: StagePath, after: StagePath) -> list[StageChange]:
    rows = [
        StageChange(
            stage=stage,
            before_ms=(b := before.mean_ms.get(stage, 0.0)),
            after_ms=(a := after.mean_ms.get(stage, 0.0)),
            difference_ms=a - b,
            tail_before_ms=(tb := before.tail_ms.get(stage, 0.0)),
            tail_after_ms=(ta := after.tail_ms.get(stage, 0.0)),
            tail_difference_ms=ta - tb,
        )
        for stage in dict.fromkeys([*before.mean_ms, *after.mean_ms])
    ]
    return sorted(rows, key=lambda row: -abs(row.tail_difference_ms))
