"""What went wrong besides being slow? Accounts of failed, abandoned and truncated requests, and of attempts that served nobody.

Takes the rows of a `RequestFrame` and the model calls of the same window.
"""

import re
from typing import Final

import duckdb
import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.outcomes.goodput import limits_of
from overrun.analysis.numbers.window import Window, answers, filter_of
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.slo import Slo

# How the clients' cancellations are named by the frameworks that record them, lower case; `v_requests` names a status 499 without a type so.
ABANDONED: Final = re.compile(
    r"cancel|abort|disconnect|client closed|generatorexit|brokenpipe|broken pipe|econnreset|connection reset"
)
# How a client's own time limit is named, lower case: openai's APITimeoutError, httpx's ReadTimeout, gRPC's DEADLINE_EXCEEDED, the statuses of HTTP.
TIMED_OUT: Final = re.compile(r"time_?out|timed.?out|deadline|^(?:408|504)$")
# What is known (ms) of a metric's latency where a time limit ended the request: without a first token it was waited for until then.
WAITED: Final = {"ttft": pl.coalesce("ttft_ms", "e2e_ms"), "e2e": pl.col("e2e_ms")}

_NOTHING_LOST: Final = {
    "wasted": 0,
    "wasted_ms": 0.0,
    "wasted_tokens": 0,
    "tokens_unknown": 0,
    "on_slow": 0,
    "on_error": 0,
}


class Errors(msgspec.Struct, kw_only=True):
    """Ratios 0..1 of all requests: failed, abandoned by the client, cut at max_tokens (of those where it is known).

    Abandoned requests are among the failed ones. `abandoned_after_ms` is the median time that those clients had waited, `error_types` counts the
    failures by their type, most first.
    """

    ratio: float | None
    abandoned_ratio: float | None
    truncated_ratio: float | None
    abandoned_after_ms: float | None = None
    error_types: dict[str, int] = {}
    reasons: dict[str, str] = {}


class Retries(msgspec.Struct, kw_only=True):
    """Attempts of all model calls where they are recorded, and what those cost that served nobody.

    `wasted_ms` and `wasted_tokens` are of failed calls that a later call of the same trace replaced, and of attempts inside a call that are known
    one by one; `on_slow` of them ended by a time limit or a cancel, `on_error` by an error.
    """

    attempts: int | None
    wasted_ms: float | None
    wasted_tokens: int | None
    on_slow: int | None
    on_error: int | None
    reasons: dict[str, str] = {}


def abandoned(rows: pl.DataFrame) -> pl.Series:
    """Return per request whether its client gave up: a failed request whose error is a cancellation."""
    return _named(rows, ABANDONED)


def timed_out(rows: pl.DataFrame, slo: Slo) -> BoolArray:
    """Return per request whether it failed by a time limit after it had taken longer than a limit of its latency: it was slow first."""
    return overdue(rows, slo, "ttft") | overdue(rows, slo, "e2e")


def overdue(rows: pl.DataFrame, slo: Slo, metric: str) -> BoolArray:
    """Return per request whether it failed by a time limit after a metric's limit had passed: how long it took is the least that its latency was."""
    limit_ms = limits_of(rows, slo, metric) if metric in WAITED else None
    if limit_ms is None:
        return np.zeros(rows.height, np.bool_)
    waited = (_named(rows, TIMED_OUT) & ~_named(rows, ABANDONED)).to_numpy()
    late: BoolArray = waited & (
        rows.select(WAITED[metric].fill_null(0.0)).to_series().to_numpy() > limit_ms
    )
    return late


def _named(rows: pl.DataFrame, name: re.Pattern[str]) -> pl.Series:
    """Which requests failed with an error of such a name."""
    if not rows["error"].any():
        return rows["error"]
    kinds = rows["error_type"].drop_nulls().unique()
    theirs = kinds.filter(kinds.str.to_lowercase().str.contains(name.pattern))
    return rows["error"] & rows["error_type"].is_in(theirs.implode()).fill_null(False)


def errors(rows: pl.DataFrame, weights: FloatArray | None = None) -> Errors:
    """Return the accounts of failed, abandoned and truncated requests; `rows` as in `RequestFrame`.

    `weights` say for how many requests each row stands: ratios are weighted, counts are of the rows.
    """
    n, failed, gave_up = rows.height, rows.filter(pl.col("error")), abandoned(rows)
    cut = rows["truncated"].drop_nulls()
    reasons = {}
    if cut.is_empty():
        reasons["truncated_ratio"] = "no request carries a finish reason"
    gone = rows.filter(gave_up)
    unnamed = failed["error_type"].null_count()
    ratio = _ratio(gave_up, weights)
    if n == 0:
        reasons |= dict.fromkeys(("ratio", "abandoned_ratio"), "no request in the window")
    elif unnamed * 2 > failed.height:
        ratio = None
        reasons["abandoned_ratio"] = (
            f"{unnamed:,} of {failed.height:,} failed requests carry no error type: record error.type"
        )
    if gone.is_empty():
        reasons["abandoned_after_ms"] = "no request is known to be abandoned by its client"
    kinds = failed.drop_nulls("error_type")["error_type"].value_counts(sort=True)
    return Errors(
        ratio=_ratio(rows["error"], weights),
        abandoned_ratio=ratio,
        truncated_ratio=_ratio(rows["truncated"], weights),
        abandoned_after_ms=float(np.median(gone["e2e_ms"].to_numpy())) if gone.height else None,
        error_types={str(name)[:128]: int(count) for name, count in kinds.head(10).iter_rows()},
        reasons=reasons,
    )


def _ratio(marks: pl.Series, weights: FloatArray | None) -> float | None:
    """The weighted share of marked rows among those where it is known, None where it is known of none."""
    known = marks.is_not_null().to_numpy()
    if not known.any():
        return None
    return float(
        np.average(
            marks.drop_nulls().to_numpy(), weights=None if weights is None else weights[known]
        )
    )


def retries(con: duckdb.DuckDBPyConnection, window: Window) -> Retries:
    """Return the account of retries over the model calls of a window."""
    counts = answers(con, "attempts", filter_of(window))[0]
    fields = ("wasted_ms", "wasted_tokens", "on_slow", "on_error")
    if counts["calls"] == 0:
        return Retries(
            attempts=None,
            wasted_ms=None,
            wasted_tokens=None,
            on_slow=None,
            on_error=None,
            reasons=dict.fromkeys(("attempts", *fields), "no model call in the window"),
        )
    # Without a failed call nothing was replaced by another call, and the look at whole traces is spared.
    replaced = answers(con, "retries", filter_of(window))[0] if counts["failed"] else _NOTHING_LOST
    inside = {
        "wasted": counts["inside"],
        "wasted_ms": counts["inside_ms"],
        "wasted_tokens": counts["inside_tokens"],
        "tokens_unknown": counts["inside_unknown"],
        "on_slow": counts["inside_slow"],
        "on_error": counts["inside"] - counts["inside_slow"],
    }
    lost = {name: value + inside[name] for name, value in replaced.items()}
    reasons = {}
    if counts["counted"] == 0:
        reasons["attempts"] = "attempts are not recorded, so retries inside a client are hidden"
        if lost["wasted"] == 0:
            reasons |= dict.fromkeys(
                fields, "attempts are not recorded, and no failed call was replaced by another one"
            )
    elif counts["further"] > 0:
        why = f"{counts['further']:,} further attempts are counted by their clients, without their own times and tokens"
        reasons |= dict.fromkeys(fields, why)
    if (
        "wasted_tokens" not in reasons
        and lost["wasted"]
        and lost["tokens_unknown"] == lost["wasted"]
    ):
        reasons["wasted_tokens"] = "no wasted attempt carries token counts"
    known = {
        name: None if name in reasons else value
        for name, value in (lost | {"attempts": counts["attempts"]}).items()
    }
    return Retries(**{name: known[name] for name in ("attempts", *fields)}, reasons=reasons)
