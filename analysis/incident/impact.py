"""What happened, since when, to whom, and what changed at that time? Facts of an incident, computed from the rows of a `RequestFrame`.

Pure: every function takes rows and arrays and returns values; the verdict puts them into words.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final, Literal

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.comparison.traffic_changes import _MOST_LISTED
from overrun.analysis.numbers.statistics.change_points import (
    MIN_ONSET_SIDE,
    find_end,
    find_onset,
    in_time,
)
from overrun.analysis.numbers.statistics.proportion import Z_ONE_SIDED
from overrun.analysis.numbers.window import RequestFrame
from overrun.analysis.words.arrays import BoolArray, IntArray
from overrun.analysis.words.finding import printable
from overrun.analysis.words.timestamps import from_us, to_us

Trend = Literal["worsening", "steady", "improving"]

# Change of the judged metric's median from the first to the second half since onset that is called a trend; own default.
TREND_RATIO: Final = 1.2
# Traffic is lost when requests fall below half of what was usual and not by chance (3 Poisson deviations).
LOST_BELOW: Final = 0.5
LOST_DEVIATIONS: Final = 3.0
# Fewest expected requests in the quiet stretch: 30 make a Poisson drop to below half a one in 10^4 event.
_LOST_LEAST: Final = 30.0
# The stretch is compared with equal stretches before it; four show how much traffic swings by itself.
_LOST_STRETCHES: Final = 4
# Fewest requests that a silent end would have held: none of 7 by chance is a one in 1,000 event (Poisson).
_SILENT_LEAST: Final = 7.0
# Fewest open requests that make a silence a hang: one or two may have lost their last span; own default.
_OPEN_LEAST: Final = 3
# A shorter silence is a pause between two bursts as likely as a hang; four usual scrape intervals of 15 s.
_LOST_SHORTEST_S: Final = 60.0


class Share(msgspec.Struct, kw_only=True):
    """One value of an attribute among the affected requests: how many, and what share of this value's own requests."""

    name: str
    requests: int
    ratio: float


class Affected(msgspec.Struct, kw_only=True):
    """The affected requests: bad requests, their share of all judged, how many a minute since the onset, and the values that hold most of them."""

    requests: int
    ratio: float | None
    per_minute: float | None
    routes: list[Share]
    models: list[Share]
    tenants: list[Share]
    reasons: dict[str, str] = {}


def onset(frame: RequestFrame, bad: BoolArray, allowed: float) -> datetime | None:
    """Return `find_onset` over the rows of a frame as a time in UTC."""
    starts = frame.rows["start_us"].to_numpy()
    found = (
        find_onset(starts, bad, allowed)
        if frame.order is None
        else find_onset(starts[frame.order], bad[frame.order], allowed)
    )
    return None if found is None else from_us(found)


def end(frame: RequestFrame, bad: BoolArray, since: datetime, allowed: float) -> datetime | None:
    """Return `find_end` over the rows of a frame as a time in UTC."""
    found = find_end(
        frame.rows["start_us"].to_numpy(),
        bad,
        frame.rows["e2e_ms"].fill_null(0.0).to_numpy(),
        to_us(since),
        allowed,
    )
    return None if found is None else from_us(found)


def trend(ok: pl.DataFrame, metric: str, since: datetime | None) -> Trend | None:
    """Compare the medians of a metric in the two halves (by count) since the onset; None without an onset or with too few requests."""
    if since is None:
        return None
    start, values = in_time(ok["start_us"].to_numpy(), ok[f"{metric}_ms"].to_numpy())
    values = values[int(np.searchsorted(start, to_us(since))) :]
    if len(values) < 2 * MIN_ONSET_SIDE:
        return None
    first, second = (
        float(np.median(values[: len(values) // 2])),
        float(np.median(values[len(values) // 2 :])),
    )
    if second > TREND_RATIO * first:
        return "worsening"
    return "improving" if second * TREND_RATIO < first else "steady"


def affected(
    frame: RequestFrame,
    bad: BoolArray,
    good_ratio: float | None,
    since: datetime | None,
    until: datetime | None = None,
) -> Affected:
    """Return the affected requests, marked in `bad`, how many a minute they and those that they stand for are from the onset on (`since`, None: in the
    window) and before its end, and where most of them are."""
    rows = frame.rows.select("route", "model", "tenant").with_columns(bad=pl.Series(bad))
    start, end = since or frame.start, until or frame.end
    seconds = (end - start).total_seconds() if start is not None and end is not None else 0.0
    began = frame.rows["start_us"].to_numpy()
    inside = (
        bad
        if seconds <= 0.0 or start is None or end is None
        else bad & (began >= to_us(start)) & (began < to_us(end))
    )
    standing = float(frame.rows["sample_weight"].to_numpy()[inside].sum())
    return Affected(
        requests=frame.stand_for(int(bad.sum())),
        ratio=float(bad.mean()) if good_ratio is None else 1.0 - good_ratio,
        per_minute=60.0 * standing / seconds if seconds > 0.0 else None,
        routes=_shares(rows, "route", frame.stand_for),
        models=_shares(rows, "model", frame.stand_for),
        tenants=_shares(rows, "tenant", frame.stand_for),
        reasons={} if seconds > 0.0 else {"per_minute": "the window has no length"},
    )


def _shares(rows: pl.DataFrame, column: str, stand_for: Callable[[int], int]) -> list[Share]:
    hit = (
        rows[column]
        .filter(rows["bad"])
        .drop_nulls()
        .value_counts(name="hits")
        .sort("hits", column, descending=[True, False])
        .head(_MOST_LISTED)
    )
    return [
        Share(
            name=printable(name),
            requests=stand_for(hits),
            ratio=hits / int((rows[column] == name).sum()),
        )
        for name, hits in hit.iter_rows()
    ]


class Lost(msgspec.Struct, kw_only=True, frozen=True):
    """Traffic that is missing: requests that began, how many were expected, since when, and what the expectation rests on.

    `unanswered` are requests that have begun since then and are still open, by spans or by engines' counts; 0 where arrivals are what is missing.
    """

    seen: int
    expected: float
    since: datetime | None
    against: str
    unanswered: int = 0


class Silence(msgspec.Struct, kw_only=True, frozen=True):
    """A window's end in which no request began: since when, how many would have at the rate before, and how many are open since then."""

    since: datetime
    expected: float
    unanswered: int


def silence(frame: RequestFrame) -> Silence | None:
    """Return the end of a cut window in which no request began, None where there is none that chance does not explain.

    Requests are known by their roots, which are sent as they end: of the window's last moments, as long as slow requests take, nothing can be known yet.
    """
    if frame.window.end is None or frame.end is None or frame.rows.is_empty():
        return None
    starts, edge = frame.rows["start_us"].to_numpy(), _edge_us(frame)
    first, last, until = int(starts.min()), int(starts.max()), to_us(frame.end) - edge
    if until - last < _LOST_SHORTEST_S * 1e6 or last <= first:
        return None
    expected = (until - last) * len(starts) / (last - first)
    if expected < _SILENT_LEAST:
        return None
    return Silence(
        since=from_us(last), expected=expected, unanswered=_unanswered(frame, last, until)
    )


def _edge_us(frame: RequestFrame) -> int:
    """How long slow requests take, in microseconds (P99)."""
    taken = frame.rows["e2e_ms"].drop_nulls().to_numpy()
    return int(1e3 * np.quantile(taken, 0.99)) if len(taken) else 0


def _unanswered(frame: RequestFrame, since: int, until: int) -> int:
    """How many requests are open that began in a stretch: those of which parts came and no end, else what engines hold at its end."""
    begun = (
        0
        if frame.open_us is None
        else int(((frame.open_us > since) & (frame.open_us < until)).sum())
    )
    held = frame.points.filter(
        pl.col("indicator").is_in(["running", "queue_depth"])
        & (pl.col("time_us") > (since + until) // 2)
    )
    if held.is_empty():
        return begun
    least = (
        held.group_by("instance", "model", "indicator").agg(pl.col("value").min())["value"].sum()
    )
    return max(begun, round(least))


def traffic_lost(
    frame: RequestFrame,
    baseline: RequestFrame | None,
    together: float = 1.0,
    *,
    rhythm: bool = False,
) -> Lost | None:
    """Return how many requests are missing, None when they are not below half of what was usual (against a baseline: clearly).

    Requests count by their begins. `together` is how many come at a time, as a conversation's do: mean of the squares over the mean (see
    `evidence.calls.come_together`). `rhythm`: the baseline is of the same hours of another day, when people ask as often. Without one, an end in which no request
    begins is an end of the traffic (of a load test, of a batch, of the day) unless requests are open there: what came before it is judged.

    Against a baseline window: the rates of both. Without one: the end of the window against equal stretches before it in the same window, each of
    which must have held at least twice as many, so that traffic which swings by itself is not called lost.
    """
    quiet = silence(frame)
    if quiet is not None and quiet.unanswered >= _OPEN_LEAST:
        return Lost(
            seen=0,
            expected=quiet.expected,
            since=quiet.since,
            against="the rate before",
            unanswered=quiet.unanswered,
        )
    if quiet is not None and not rhythm:
        frame = replace(frame, end=quiet.since)
    if (
        baseline is not None
        and baseline.rows.height >= MIN_ONSET_SIDE // 2
        and baseline.seconds > 0.0
        and frame.seconds > 0.0
    ):
        # A sampled request stands for many, and their number scatters as much more: (sum w^2 / sum w) for each.
        before, now = (part.rows["sample_weight"].to_numpy() for part in (baseline, frame))
        expected, n = float(before.sum()) / baseline.seconds * frame.seconds, float(now.sum())
        scatter = together * max(
            [1.0, *(float((w**2).sum() / w.sum()) for w in (before, now) if len(w))]
        )
        # Both counts scatter: where half of the users have gone home, chance alone puts the count below half as often as above.
        chance = (
            Z_ONE_SIDED
            * (scatter * (n + LOST_BELOW**2 * expected * frame.seconds / baseline.seconds)) ** 0.5
        )
        lost = (
            n + chance < LOST_BELOW * expected
            and n < expected - LOST_DEVIATIONS * (expected * scatter) ** 0.5
        )
        return (
            Lost(seen=round(n), expected=expected, since=frame.start, against="the baseline's rate")
            if lost
            else None
        )
    return _lost_at_the_end(frame)


def _lost_at_the_end(frame: RequestFrame) -> Lost | None:
    if (
        frame.start is None
        or frame.end is None
        or frame.rows.height < _LOST_LEAST * _LOST_STRETCHES
    ):
        return None
    times = np.sort(frame.rows["start_us"].to_numpy())
    # Where the window ends with the data, or with its traffic, that is the last request's begin.
    cut = frame.window.end is not None and frame.end == frame.window.end
    first = to_us(frame.start)
    last = to_us(frame.end) - _edge_us(frame) if cut else int(times[-1])
    stretch = (last - first) / (_LOST_STRETCHES + 1)
    # The quiet stretch may be of any length: from a fifth of the window down to what holds enough expected requests. In the clearest one
    # and the one before it lies the moment.
    found: Lost | None = None
    while stretch >= _LOST_SHORTEST_S * 1e6:
        edges = last - stretch * np.arange(_LOST_STRETCHES + 2)
        counts = -np.diff(np.searchsorted(times, edges))
        seen, before = int(counts[0]), counts[1:]
        expected = float(np.median(before))
        lost = seen < LOST_BELOW * float(before.min()) and expected >= _LOST_LEAST
        if lost and (found is None or seen / expected < found.seen / found.expected):
            found = Lost(
                seen=seen,
                expected=expected,
                since=from_us(_fell(times, edges[2], last)),
                against="earlier parts of the same window",
            )
        stretch /= 2.0
    return found


def _fell(times: IntArray, first: float, last: float) -> int:
    """Return the time in [first, last] behind which events come at another rate, by maximum likelihood of two Poisson rates."""
    inside = times[(times >= first) & (times <= last)].astype(np.float64)
    k, n = np.arange(1, len(inside) + 1, dtype=np.float64), len(inside)
    if n == 0:
        return int(first)
    left, right = np.maximum(inside - first, 1.0), np.maximum(last - inside, 1.0)
    later = n - k
    gain = k * np.log(k / left) + np.where(
        later > 0.0, later * np.log(np.maximum(later, 1.0) / right), 0.0
    )
    gain[later / right > k / left] = -np.inf
    return int(inside[int(np.argmax(gain))])


def say_lost(lost: Lost) -> str:
    """Return the sentence of a `traffic_lost` verdict: what is missing, and what it may come from."""
    since = (
        f" since {lost.since:%H:%M:%S} UTC"
        if lost.since is not None and lost.against != "the baseline's rate"
        else ""
    )
    if lost.unanswered:
        return (
            f"Answers are missing{since}: no request that began since then has ended ({lost.expected:,.0f} were expected at {lost.against}), and "
            f"{lost.unanswered:,} are open. Check crashed or stuck workers."
        )
    return (
        f"Traffic is lost{since}: {lost.seen:,} requests began, but {lost.expected:,.0f} were expected from {lost.against}. What never reaches the service, "
        "or hangs in it, sends no spans: check clients and the load balancer, then stuck workers."
    )


def say_silence(quiet: Silence) -> str:
    """Return that the traffic ended within a window, as a sentence."""
    return (
        f"No request began after {quiet.since:%H:%M:%S} UTC ({quiet.expected:,.0f} would have at the rate before), and "
        f"{'none is' if not quiet.unanswered else f'{quiet.unanswered:,} are'} open: the traffic ended there."
    )
