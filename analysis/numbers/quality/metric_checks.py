"""Which of the engines' metrics mislead? Bucket edges that cannot answer the question, unit clashes, and metrics that vanished after a rename."""

from typing import Final

import duckdb
import numpy as np
import polars as pl

from overrun.analysis.numbers.latency.histograms import Increments, load
from overrun.analysis.numbers.latency.percentiles import min_n
from overrun.analysis.numbers.quality.row import WARN_SHARE, Check
from overrun.analysis.numbers.window import RequestFrame, read_samples
from overrun.analysis.words.finding import printable, say_ms, say_ratio
from overrun.analysis.words.slo import METRICS, Slo

# A bucket around the limit whose edges differ by more than this factor leaves the share over the limit open.
WIDE: Final = 2.0
# Values that almost all lie in the lowest bucket, whose edge is more than this many times their mean: the buckets are in another unit.
_CLASH: Final = 0.9
_CLASH_FACTOR: Final = 5.0
# A metric is gone when it missed this many of its own intervals while its instance went on reporting others.
_MISSED: Final = 5
_LEAST_SAMPLES: Final = 5


def metric_checks(con: duckdb.DuckDBPyConnection, frame: RequestFrame, slo: Slo) -> list[Check]:
    """Return the checks of the window's metrics; without metrics there are none."""
    window = frame.window
    found = load(con, window.start, window.end, METRICS, window.model)
    checks = [
        histogram_edges(metric, found[metric], limit)
        for metric, limit in slo.limits().items()
        if metric in found and found[metric].n > 0
    ]
    clashes = [
        check
        for metric, made in found.items()
        if made.n > 0
        for check in [_unit_clash(metric, made)]
        if check is not None
    ]
    seen = read_samples(
        con, "indicator_extent", frame.start or window.start, frame.end or window.end, window.model
    )
    return [*checks, *clashes, *_vanished(seen)]


def histogram_edges(metric: str, made: Increments, limit_ms: float) -> Check:
    """Return whether a histogram's edges can answer what share of values is over the limit, and where its percentile lies."""
    name = f"{metric}_histogram_edges"
    beyond = float(made.counts[:, -1].sum()) / max(made.n, 1)
    last_ms = 1000.0 * float(made.edges[-1])
    if beyond > WARN_SHARE:
        detail = f"{say_ratio(beyond)} of {made.n:,} values of {metric.upper()} lie above the last bucket edge of {say_ms(last_ms)}"
        return Check(
            check=name,
            status="fail",
            detail=detail
            + ": P95 and above are unknown; configure wider buckets in the engine, or use spans",
        )
    sure, maybe, n = (int(part.sum()) for part in made.over(limit_ms / 1000.0))
    at = int(np.searchsorted(made.edges, limit_ms / 1000.0, side="left"))
    low = 1000.0 * float(made.edges[at - 1]) if at else 0.0
    high = 1000.0 * float(made.edges[min(at, len(made.edges) - 1)])
    if n and (maybe - sure) / n > WARN_SHARE and (low == 0.0 or high > WIDE * low):
        inside = f"{say_ms(low)} to {say_ms(high)}, which holds {say_ratio((maybe - sure) / n)}"
        detail = f"the limit of {say_ms(limit_ms)} on {metric.upper()} lies inside the bucket from {inside}"
        return Check(
            check=name, status="warn", detail=detail + ": put an edge on the limit, or use spans"
        )
    few = "" if n >= min_n(95.0) else ", fewer than P95 needs"
    detail = f"the buckets of {metric.upper()} give the share over {say_ms(limit_ms)} to within {say_ratio((maybe - sure) / max(n, 1))} ({n:,} values{few})"
    return Check(check=name, status="ok", detail=detail)


def _unit_clash(metric: str, made: Increments) -> Check | None:
    """Buckets made for milliseconds around values in seconds put everything into the lowest one."""
    lowest = int(np.searchsorted(made.edges, 0.0, side="right"))
    if lowest >= len(made.edges) or made.mean is None:
        return None
    share = float(made.counts[:, : lowest + 1].sum()) / max(made.n, 1)
    edge = float(made.edges[lowest])
    if share < _CLASH or edge < _CLASH_FACTOR * made.mean:
        return None
    name = printable(made.names[0] if made.names else metric)
    detail = (
        f"{say_ratio(share)} of {made.n:,} values of {metric.upper()} lie in the lowest bucket (up to {say_ms(1000.0 * edge)}) and their mean is "
        f"{say_ms(1000.0 * made.mean)}: the buckets of {name} are made for another unit; set them with a view"
    )
    return Check(check="histogram_unit_clash", status="fail", detail=detail)


def _vanished(seen: pl.DataFrame) -> list[Check]:
    """Compare each indicator's last sample with the last of its instance."""
    if seen.is_empty():
        return []
    gone = []
    for (instance,), rows in seen.partition_by(
        "instance", as_dict=True, maintain_order=True
    ).items():
        last = int(rows["last_us"].to_numpy().max())
        for row in rows.filter(pl.col("samples") >= _LEAST_SAMPLES).to_dicts():
            interval = (row["last_us"] - row["first_us"]) / (row["samples"] - 1)
            if last - row["last_us"] > _MISSED * interval:
                gone.append(
                    f"{printable(row['indicator'])} of {printable(str(instance))} ({printable(row['raw_name'])})"
                )
    if not gone:
        return [
            Check(
                check="vanished_metric",
                status="ok",
                detail=f"every indicator of {seen['instance'].n_unique()} instances was sent until the end",
            )
        ]
    more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
    detail = f"{', '.join(gone[:3])}{more} stopped while the instance continued to report: renamed by an update? Map the new name, or fix the exporter"
    return [Check(check="vanished_metric", status="warn", detail=detail)]
