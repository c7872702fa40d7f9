"""Which calls of a request run one after the other, and what would they take side by side?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from overrun.analysis.evidence.span_tree import GAP_MS, MOST_TRACES, Tree, siblings

# Part of the shorter ones' time that must overlap for calls to count as side by side; own default.
SIDE_BY_SIDE: Final = 0.2
# Part of the slow requests that must have them in a row where the baseline had not; own default.
MOST_SLOW: Final = 0.5
# Groups of several operations that are looked at: an embedding, a search and a reranker stand in a row at any time.
MOST_MIXED: Final = 5


@dataclass(frozen=True)
class InARow:
    """Groups of one operation in the slow requests, the share of them in a row there and in the baseline (or in usual requests of the same time), and the
    part of the gain that is to be had."""

    operation: str
    groups: pl.DataFrame
    now: float
    before: float | None
    part: float
    mixed: bool

    @property
    def changed(self) -> bool:
        """Whether most are in a row; where others show that they need not be, half will do: not all requests need to be slow for this."""
        if self.before is None:
            return self.now >= MOST_TRACES and not self.mixed
        return self.now >= MOST_SLOW and self.before <= 1.0 - MOST_TRACES


def rows_of(slow: Tree, others: Tree | None, stage: str, inside: bool, mixed: bool) -> list[InARow]:
    """Return the operation whose calls in a row cost the slow requests most, of calls of several operations the few that do. These may need one another in part (an
    embedding before the searches): what runs side by side in the `others` (the baseline, usual requests) is what can."""
    every = groups(slow, stage, inside=inside, mixed=mixed)
    costly = (
        every.group_by("operation")
        .agg(pl.col("gain_ms").sum())
        .sort("gain_ms", "operation", descending=[True, False])["operation"]
    )
    usual, found = groups(others, stage, inside=inside, mixed=mixed), []
    for operation in costly[: MOST_MIXED if mixed else 1]:
        now, before = (side.filter(pl.col("operation") == operation) for side in (every, usual))
        overlap, shorter = (
            float(ms.to_numpy().sum())
            for ms in (before["overlap_ms"], before["sum_ms"] - before["longest_ms"])
        )
        part = overlap / max(shorter, 1e-3) if mixed and before.height else 1.0
        rows = (
            float(side["in_row"].to_numpy().mean()) if side.height else None
            for side in (now, before)
        )
        found.append(
            InARow(
                operation,
                now.with_columns(pl.col("gain_ms") * part),
                next(rows) or 0.0,
                next(rows),
                part,
                mixed,
            )
        )
    return found


def groups(tree: Tree | None, stage: str, *, inside: bool, mixed: bool = False) -> pl.DataFrame:
    """Return groups of siblings with `in_row` (no overlap worth the name, no pause) and what running side by side would gain.

    Those `inside` of a span of the same stage (a chain of retrievers) count where a baseline tells whether they ran side by side before."""
    if tree is None or not len(tree):
        figures: dict[str, pl.DataType] = {
            name: pl.Float64() for name in ("gain_ms", "overlap_ms", "sum_ms", "longest_ms")
        }
        return pl.DataFrame(schema={"operation": pl.String(), "in_row": pl.Boolean(), **figures})
    groups = siblings(tree, (stage,), inside=inside, mixed=mixed).filter(~pl.col("waits"))
    shorter = pl.col("sum_ms") - pl.col("longest_ms")
    pause = (pl.col("whole_ms") - pl.col("sum_ms")) / (pl.col("n") - 1)
    return groups.with_columns(
        in_row=(pl.col("overlap_ms") < SIDE_BY_SIDE * shorter)
        & (pause < GAP_MS + 0.2 * pl.col("longest_ms")),
        gain_ms=pl.min_horizontal(shorter, (pl.col("whole_ms") - pl.col("longest_ms")).clip(0.0)),
    )
