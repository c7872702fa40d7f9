"""Which model calls are the same question asked again? One logical call per question, however often it was tried."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.remembered import remembered
from overrun.analysis.words.arrays import BoolArray, FloatArray

# Two calls of one session with equally many input tokens within this time are one question; own default (callers give up within it).
AGAIN_WITHIN_S: Final = 60.0
# What begins sooner after another call than this, while that one still runs, was begun beside it (several samples of an answer, follow-up questions): nobody
# is that impatient; own default.
BESIDE_S: Final = 0.05
# Attempts a question from which calls count as repeated, and the rise over the baseline: the 10 % retry budget of SRE practice; own default.
MIN_AMPLIFICATION: Final = 1.1
MIN_RISE: Final = 0.05


class Attempts(NamedTuple):
    """Per call: whether it repeats an earlier one, whether that one had been refused, and how many ms after that one's start it began."""

    repeat: BoolArray
    after_error: BoolArray
    after_ms: FloatArray
    amplification: float


@remembered
def attempts(calls: Calls) -> Attempts:
    """Find repeats: the same model and number of input tokens within one trace, or within one session in another trace.

    The count of input tokens stands for the prompt, whose text is not stored: an agent's next step has read more and so has more of them.
    """
    frame = calls.frame.with_row_index("row").select(
        "row",
        "trace_key",
        "session",
        "model",
        "input_tokens",
        "start_s",
        "e2e_ms",
        "error",
        "http_status",
        "error_type",
        "engine_alone",
    )
    frame = frame.with_columns(
        refused=(pl.col("error") | (pl.col("http_status") >= 400)) & ~impatient()
    )
    # What an engine reports a call that its caller gave up is that call's other half, no further attempt.
    if not frame["engine_alone"].all():
        frame = frame.filter(~pl.col("engine_alone"))
    frame = frame.with_columns(end_s=pl.col("start_s") + pl.col("e2e_ms").fill_null(0.0) / 1e3)
    repeat = np.zeros(len(calls), dtype=np.bool_)
    failed = np.zeros(len(calls), dtype=np.bool_)
    after = np.full(len(calls), np.nan)
    # A failed call that only the engine recorded is no repeated question: it may have run beside the one that answered.
    known = pl.col("input_tokens").is_not_null() & ~pl.col("error").fill_null(False)
    several = frame.filter(
        pl.col("trace_key").is_duplicated()
    )  # a call alone in its trace repeats nothing there, and most are
    for among, keys in (
        (several, ["trace_key", "model", "input_tokens"]),
        (frame, ["session", "model", "input_tokens"]),
    ):
        chosen = (
            among.filter(known)
            .drop_nulls(keys[0])
            .sort("start_s")
            .with_columns(
                gap=pl.col("start_s").diff().over(keys),
                lost=pl.col("refused").shift(1).over(keys),
                ended=pl.col("end_s").shift(1).over(keys),
            )
        )
        hits = chosen.filter(_again())
        rows = hits["row"].to_numpy()
        repeat[rows] = True
        failed[rows] |= hits["lost"].fill_null(False).to_numpy()
        after[rows] = np.fmin(after[rows], hits["gap"].to_numpy() * 1e3)
    # A call that failed shows nothing of its tokens: the next one of the request repeats it.
    chosen = several.sort("start_s").with_columns(
        gap=pl.col("start_s").diff().over("trace_key"),
        lost=pl.col("error").shift(1).over("trace_key"),
        no=pl.col("refused").shift(1).over("trace_key"),
        ended=pl.col("end_s").shift(1).over("trace_key"),
    )
    hits = chosen.filter(pl.col("lost").fill_null(False) & _again())
    rows = hits["row"].to_numpy()
    repeat[rows] = True
    failed[rows] |= hits["no"].fill_null(False).to_numpy()
    after[rows] = np.fmin(after[rows], hits["gap"].to_numpy() * 1e3)
    inside = _inside(calls)
    tried_again = repeat | (inside > 0.0)
    refused = (
        failed
        | (inside > 0.0) & (calls.frame["retry_cause"] == "error").fill_null(False).to_numpy()
    )
    after = np.fmin(after, np.where(inside > 0.0, calls.of("wasted_ms"), np.nan))
    once = frame.height - int(repeat.sum())
    return Attempts(
        tried_again, refused, after, (frame.height + float(inside.sum())) / once if once else 1.0
    )


def _again() -> pl.Expr:
    """Return for each call whether it came after the one before, not beside it, and soon enough to be the same question."""
    return (pl.col("gap") <= AGAIN_WITHIN_S) & (
        (pl.col("gap") >= BESIDE_S) | (pl.col("start_s") >= pl.col("ended"))
    )


@remembered
def amplification(case: Case) -> tuple[float, float]:
    """Return attempts a question now and before, of the calls that began while one of a slow request ran, and while one of the reference's slow ones did.

    Repeats of late calls happen while they are late: over all of a period such a storm looks smaller than it was while it lasted.
    """
    before = (
        attempts(case.calls_before.beside(case.usual_calls)).amplification
        if case.calls_before is not None
        else 1.0
    )
    return attempts(case.calls.beside(case.slow_calls)).amplification, before


def more_attempts(case: Case) -> bool:
    """Return whether calls are tried clearly more often than before: what is then left running follows from that."""
    now, before = amplification(case)
    return now >= max(MIN_AMPLIFICATION, before + MIN_RISE)


def _inside(calls: Calls) -> FloatArray:
    """Recorded further attempts within each call (spans, HTTP, the sender); suspected ones do not count."""
    told = (
        calls.frame["attempts_source"]
        .is_in(["span", "http", "event", "engine"])
        .fill_null(False)
        .to_numpy()
    )
    more: FloatArray = np.where(
        told, np.maximum(np.nan_to_num(calls.of("attempts"), nan=1.0) - 1.0, 0.0), 0.0
    )
    return more


def impatient() -> pl.Expr:
    """Return for each call whether its caller abandoned it (timeout, cancellation): that is slowness, no refusal."""
    kind = (
        pl.col("error_type")
        .fill_null("")
        .str.to_lowercase()
        .str.contains("timeout|timed.?out|cancel|deadline|abort|disconnect")
    )
    return kind | pl.col("http_status").is_in([408, 499, 504]).fill_null(False)
