"""Which spans decide when a request ends? The joined batch on its critical paths, with the attempts found on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly import attempts
from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.attempts import Retried
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import ABSENT, ERROR, clock_domains, numpy_column
from overrun.analysis.assembly.critical_path import Forest, Paths
from overrun.analysis.words.arrays import BoolArray, IntArray


@dataclass(frozen=True)
class Walk:
    """What walking a batch's critical paths gave; `batch.trace` counts its traces from then on."""

    bounds: IntArray  # first row of each trace, and the end of the last: shape (traces + 1)
    paths: Paths
    retried: Retried
    engine_only: BoolArray  # per trace: only engines report of it


def walk(batch: Batch) -> Walk:
    """Compute the critical paths."""
    # Sorted; traces that moved into others leave gaps.
    batch.trace = np.cumsum(np.diff(batch.trace, prepend=batch.trace[:1]) != 0)
    bounds: IntArray = np.searchsorted(batch.trace, np.arange(int(batch.trace[-1]) + 2)).astype(
        np.int64
    )
    s = batch.spans
    paths = cp.critical_paths(
        Forest(
            bounds=bounds,
            parent=batch.parent,
            true_root=numpy_column(s, "parent_id") == 0,
            start=batch.start,
            end=batch.end,
            role=batch.role,
            stage=batch.stage,
            kind=batch.ints("kind"),
            domain=clock_domains(s),
            has_tokens=batch.ints("output_tokens") >= 0,
            left=_abandoned(batch),
            cancelled=_cancelled(batch),
            ttft=_first_tokens(batch),
            queue=batch.ints("queue_ns"),
            prefill=batch.prefill(),
            decode=batch.ints("decode_ns"),
        )
    )
    retried = _find_retries(batch, paths)
    # Their roots (or what stands around them, which is no request's name) are engines' own.
    root = paths.root
    engines = np.bincount(batch.trace[batch.role == cp.ENGINE], minlength=len(root)) > 0
    engine_only: BoolArray = (paths.role[root] == cp.ENGINE) | (
        (batch.role[root] == cp.FOLDED) & engines
    )
    return Walk(bounds, paths, retried, engine_only)


def _abandoned(batch: Batch) -> BoolArray:
    """Engine requests that went on after their client's call had failed: it gave up, and its clock need not be wrong."""
    above = np.maximum(batch.parent, 0)
    given_up = (batch.role[above] == cp.LLM) & (numpy_column(batch.spans, "status")[above] == ERROR)
    left: BoolArray = (
        (batch.role == cp.ENGINE) & (batch.parent >= 0) & given_up & (batch.end > batch.end[above])
    )
    return left


def _cancelled(batch: Batch) -> BoolArray:
    """Client calls that their own program gave up before an answer came, and not because of a time limit."""
    cancelled = np.zeros(len(batch.role), dtype=np.bool_)
    rows = np.flatnonzero((batch.role == cp.LLM) & (numpy_column(batch.spans, "status") == ERROR))
    types = batch.spans.column("error_type").take(pa.array(rows))
    cancelled[rows] = pc.fill_null(
        pc.match_substring_regex(types, "(?i)cancel|abort|disconnect"), False
    ).to_numpy()
    return cancelled


def _first_tokens(batch: Batch) -> IntArray:
    """Time to the first token per span; of an engine that does not tell it (TGI), when its client saw it."""
    ttft = batch.ints("ttft_ns")
    rows = np.flatnonzero((batch.role == cp.ENGINE) & (ttft < 0) & (batch.parent >= 0))
    above = batch.parent[rows]
    seen = batch.start[above] + ttft[above] - batch.start[rows]
    known = (
        (batch.role[above] == cp.LLM)
        & (ttft[above] >= 0)
        & (seen >= 0)
        & (seen <= (batch.end - batch.start)[rows])
    )
    if known.any():
        ttft = ttft.copy()
        ttft[rows[known]] = seen[known]
    return ttft


def _find_retries(batch: Batch, paths: Paths) -> Retried:
    """Find attempts in spans of their own; the pause before the next one is waiting for a turn, not the framework's own time."""
    calls = np.flatnonzero((paths.call == np.arange(len(paths.call))) & (paths.role == cp.LLM))
    failed = numpy_column(batch.spans, "status") == ERROR
    asked = np.full(len(batch.role), ABSENT, dtype=np.int64)
    for final, tried in batch.tried_before().items():
        asked[[final, *tried]] = final
    sent = attempts.Sent(
        batch.spans.column("operation").combine_chunks(),
        *(batch.role, paths.parent, paths.start, paths.end),
        *(asked, batch.ints("attempts"), failed),
    )
    retried = attempts.follow(sent, calls)
    for row, begin, end in attempts.waits(retried, paths.parent, paths.start, paths.end):
        paused = (paths.piece_row == row) & (paths.piece_from >= begin) & (paths.piece_to <= end)
        paths.piece_stage[paused] = cp.QUEUE
    return retried
