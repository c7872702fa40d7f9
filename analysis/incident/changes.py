"""What happened, since when, to whom, and what changed at that time? Facts of an incident, computed from the rows of a `RequestFrame`.

Pure: every function takes rows and arrays and returns values; the verdict says them aloud.
"""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from overrun.analysis.numbers.goodput import Z_ONE_SIDED, wilson
from overrun.analysis.numbers.window import RequestFrame
from overrun.analysis.words.finding import printable, say_ratio

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]
Trend = Literal["worsening", "steady", "improving"]

# Requests on either side of a change point: the usual least number of points for one (PELT, E-divisive); own default.
MIN_ONSET_SIDE: Final = 20
_ONSET_GRID: Final = 10_000
# What misses the target itself still shows what changed where this part or less of the share behind it misses it; own default.
FAR_LESS: Final = 0.2
# Three splits tell an incident, its end, and one more; own default.
_MOST_SPLITS: Final = 3
# Change of the judged metric's median from the first to the second half since onset that is called a trend; own default.
TREND_RATIO: Final = 1.2
# Requests must be well for this long for an incident to have ended, and it must have lasted as long: a swing of a queue is shorter; own defaults.
MIN_CALM_S: Final = 60.0
LONGER_CALM: Final = 2.0
MIN_LASTED_S: Final = 60.0
# A share of traffic must move by this many points, a length or rate by this factor, to be a change of mix; own defaults.
MIX_POINTS: Final = 0.10
MIX_RATIO: Final = 1.25
# Fewest requests on both sides to compare a mix: a mean of fewer says little.
MIN_MIX: Final = 30
# A fault builds up behind the deploy that brought it, and an onset is a date to within some requests; own defaults.
_LEAD_PART: Final = 0.2
_LEAD_S: Final = 600.0
# Traffic is lost when completions fall below half of what was usual and not by chance (3 Poisson deviations).
LOST_BELOW: Final = 0.5
LOST_DEVIATIONS: Final = 3.0
# Fewest expected completions in the quiet stretch: 30 make a Poisson drop to below half a one in 10^4 event.
_LOST_LEAST: Final = 30.0
# The stretch is compared with equal stretches before it; four show how much traffic swings by itself.
_LOST_STRETCHES: Final = 4
# A shorter silence is a pause between two bursts as likely as a hang; four usual scrape intervals of 15 s.
_LOST_SHORTEST_S: Final = 60.0
_MOST_LISTED: Final = 3
_MAY_CHANGE: Final = ("start_us", "version", "model", "max_tokens", "route", "tenant", "input_tokens", "output_tokens", "sample_weight")


class Share(msgspec.Struct, kw_only=True):
    """One value of an attribute among the affected requests: how many, and what share of this value's own requests."""

    name: str
    requests: int
    ratio: float


class Affected(msgspec.Struct, kw_only=True):
    """Who is affected: bad requests, their share of all judged, how many a minute since the onset, and the values that hold most of them."""

    requests: int
    ratio: float | None
    per_minute: float | None
    routes: list[Share]
    models: list[Share]
    tenants: list[Share]
    reasons: dict[str, str] = {}


class Changed(msgspec.Struct, kw_only=True):
    """What differs since the onset: a value that appears only since then or shortly before (version, model), a setting, or the mix of traffic.

    `before` and `after` are said with their figures; `at` is the first request that differs (for the mix, the onset).
    """

    what: str
    before: list[str]
    after: str
    at: datetime


def find_onset(start_us: IntArray, bad: BoolArray, allowed: float) -> int | None:
    """Return when requests began to go bad (microseconds since 1970), None when no change after a healthy stretch stands out.

    The share of bad requests is cut into pieces by binary segmentation: a change point of a Bernoulli share by maximum likelihood over
    requests in order of start, accepted when the likelihood ratio passes 3 log n (BIC for a location and a second share). The onset is where
    the latest run of bad pieces begins, if the share rises there from one that was not clearly above `allowed`, and if at least half of what is bad in
    all bad pieces comes after it: the last swing of a queue is no beginning. Where there is none, a share that rises from far less will do, though that
    was above `allowed` as well. Requests that overlap are not independent, so this is a date for people, not a test.
    """
    n = len(bad)
    if n < 2 * MIN_ONSET_SIDE:
        return None
    start, bad = in_time(start_us, bad)
    hits = np.concatenate([[0], np.cumsum(bad, dtype=np.int64)])
    edges = [0, *splits(bad), n]
    shares = [(int(hits[b] - hits[a]), b - a) for a, b in itertools.pairwise(edges)]
    bad_pieces = [wilson(*share)[0] > allowed for share in shares]
    in_bad = [share[0] if is_bad else 0 for share, is_bad in zip(shares, bad_pieces, strict=True)]
    for far_less in (False, True):
        for last in range(len(shares) - 1, 0, -1):
            k = last
            (before, n_before), (after, n_after) = shares[k - 1], shares[k]
            most = 2 * sum(in_bad[k:]) >= sum(in_bad)
            well = wilson(before, n_before)[1] <= FAR_LESS * after / n_after if far_less else not bad_pieces[k - 1]
            if most and bad_pieces[k] and well and after / n_after > before / n_before:
                # A fault that builds up (a queue that fills, retries that feed on themselves) began where the share first left what it was.
                while k > 1 and wilson(*shares[k - 1])[0] > wilson(*shares[k - 2])[1]:
                    k -= 1
                return int(start[edges[k]])
    return None


def find_end(start_us: IntArray, bad: BoolArray, took_ms: FloatArray, onset_us: int, allowed: float) -> int | None:
    """Return when requests that went bad from `onset_us` on went well again (microseconds since 1970), None where they still go bad.

    The share of bad requests is cut as in `find_onset`; the last pieces must not be clearly above `allowed`, clearly below the share before them, and
    twice as long as any pause before: bursts, and queues that come and go, pause. What is over within a minute is such a swing and no incident.
    `took_ms` is what each request took: the slow ones of the last moments have not ended yet, so as much as most bad ones take is left out.
    """
    order = np.argsort(start_us, kind="stable")
    start, hits = start_us[order], bad[order]
    if not hits.any():
        return None
    lasting_us = 1e3 * float(np.quantile(np.nan_to_num(took_ms[order][hits]), 0.95))
    inside = (start >= onset_us) & (start <= start[-1] - lasting_us)
    start, hits = start[inside], hits[inside]
    edges = [0, *splits(hits), len(hits)]
    calm = len(edges) - 1
    while calm > 0 and wilson(int(hits[edges[calm - 1] : edges[calm]].sum()), edges[calm] - edges[calm - 1])[0] <= allowed:
        calm -= 1
    at = edges[calm]
    if at in (0, len(hits)):
        return None
    went = start[:at][hits[:at]]
    paused_us = float(np.diff(went, prepend=onset_us).max(initial=0.0))
    if float(np.ptp(went)) < MIN_LASTED_S * 1e6 or float(start[-1] - start[at]) < max(MIN_CALM_S * 1e6, LONGER_CALM * paused_us):
        return None
    before, after = (wilson(int(part.sum()), len(part)) for part in (hits[:at], hits[at:]))
    return int(start[at]) if after[1] < before[0] else None


def splits(hits: BoolArray) -> list[int]:
    """Return after how many requests (in order of time) the share of hits changes, at most three times; [] where it does not."""
    count = np.concatenate([[0], np.cumsum(hits, dtype=np.int64)])
    return sorted(_splits(count, 0, len(hits), 3.0 * np.log(max(len(hits), 2)), _MOST_SPLITS))


def in_time(start_us: IntArray, values: npt.NDArray[Any]) -> tuple[IntArray, npt.NDArray[Any]]:
    """Return starts and values in order of start; requests are stored nearly so, and where they stand so nothing is sorted."""
    if bool((start_us[1:] >= start_us[:-1]).all()):
        return start_us, values
    order = np.argsort(start_us, kind="stable")
    return start_us[order], values[order]


def parted(rows: pl.DataFrame, at_us: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows that start before a moment and the others; where they stand in order of start nothing is copied."""
    starts = rows["start_us"].to_numpy()
    if bool((starts[1:] >= starts[:-1]).all()):
        first = int(np.searchsorted(starts, at_us))
        return rows.head(first), rows[first:]
    return rows.filter(pl.col("start_us") < at_us), rows.filter(pl.col("start_us") >= at_us)


def _splits(hits: IntArray, first: int, last: int, least_gain: float, most: int) -> Iterator[int]:
    """Yield change points of [first, last), best first within each piece; `hits` is the running count with a leading 0."""
    n = last - first
    if most == 0 or n < 2 * MIN_ONSET_SIDE:
        return
    count = hits[first : last + 1] - hits[first]
    # A coarse pass, then a fine one around its best: a hundred times fewer logarithms at a million requests.
    step = max(1, n // _ONSET_GRID)
    coarse = np.arange(MIN_ONSET_SIDE, n - MIN_ONSET_SIDE + 1, step)
    near = int(coarse[np.argmax(_split_gain(count, coarse))])
    k = np.arange(max(MIN_ONSET_SIDE, near - step), min(n - MIN_ONSET_SIDE, near + step) + 1)
    gain = _split_gain(count, k)
    best = int(np.argmax(gain))
    if 2.0 * gain[best] < least_gain:
        return
    at = first + int(k[best])
    yield at
    yield from _splits(hits, first, at, least_gain, most - 1)
    yield from _splits(hits, at, last, least_gain, most - 1)


def split(hits: IntArray, effect: float = 1.0) -> int | None:
    """Return after how many requests two shares explain the running count `hits` (with its leading 0) best, None where one share does.

    `effect` is how many requests in a row tell as much as one would that shares nothing with its neighbours (`goodput.design_effect`)."""
    n = len(hits) - 1
    return next(_splits(hits, 0, n, 3.0 * effect * np.log(max(n, 2)), 1), None)


def _split_gain(count: IntArray, k: IntArray) -> FloatArray:
    """Return how much two shares, split after k requests, explain better than one."""
    n, total = len(count) - 1, float(count[-1])
    left = count[k].astype(np.float64)
    whole = _log_likelihood(np.array([total]), np.array([n]))
    return _log_likelihood(left, k) + _log_likelihood(total - left, n - k) - whole


def _log_likelihood(hits: FloatArray, n: Any) -> FloatArray:
    """Return the maximised Bernoulli log likelihood of `hits` out of `n`, elementwise; 0 log 0 counts as 0."""
    total = np.asarray(n, dtype=np.float64)
    misses = total - hits
    parts = [np.where(part > 0.0, part * np.log(np.where(part > 0.0, part, 1.0) / total), 0.0) for part in (hits, misses)]
    value: FloatArray = parts[0] + parts[1]
    return value


def onset(frame: RequestFrame, bad: BoolArray, allowed: float) -> datetime | None:
    """Return `find_onset` over the rows of a frame as a time in UTC."""
    starts = frame.rows["start_us"].to_numpy()
    found = find_onset(starts, bad, allowed) if frame.order is None else find_onset(starts[frame.order], bad[frame.order], allowed)
    return None if found is None else from_us(found)


def end(frame: RequestFrame, bad: BoolArray, since: datetime, allowed: float) -> datetime | None:
    """Return `find_end` over the rows of a frame as a time in UTC."""
    found = find_end(frame.rows["start_us"].to_numpy(), bad, frame.rows["e2e_ms"].fill_null(0.0).to_numpy(), to_us(since), allowed)
    return None if found is None else from_us(found)


def trend(ok: pl.DataFrame, metric: str, since: datetime | None) -> Trend | None:
    """Compare the medians of a metric in the two halves (by count) since the onset; None without an onset or with too few requests."""
    if since is None:
        return None
    start, values = in_time(ok["start_us"].to_numpy(), ok[f"{metric}_ms"].to_numpy())
    values = values[int(np.searchsorted(start, to_us(since))) :]
    if len(values) < 2 * MIN_ONSET_SIDE:
        return None
    first, second = float(np.median(values[: len(values) // 2])), float(np.median(values[len(values) // 2 :]))
    if second > TREND_RATIO * first:
        return "worsening"
    return "improving" if second * TREND_RATIO < first else "steady"


def affected(frame: RequestFrame, bad: BoolArray, good_ratio: float | None, since: datetime | None, until: datetime | None = None) -> Affected:
    """Return who is affected: the requests marked in `bad`, how many a minute they and those that they stand for are from the onset on (`since`, None: in the
    window) and before its end, and where most of them are."""
    rows = frame.rows.select("route", "model", "tenant").with_columns(bad=pl.Series(bad))
    start, end = since or frame.start, until or frame.end
    seconds = (end - start).total_seconds() if start is not None and end is not None else 0.0
    began = frame.rows["start_us"].to_numpy()
    inside = bad if seconds <= 0.0 or start is None or end is None else bad & (began >= to_us(start)) & (began < to_us(end))
    standing = float(frame.rows["sample_weight"].to_numpy()[inside].sum())
    return Affected(
        requests=int(bad.sum()), ratio=float(bad.mean()) if good_ratio is None else 1.0 - good_ratio,
        per_minute=60.0 * standing / seconds if seconds > 0.0 else None,
        routes=_shares(rows, "route"), models=_shares(rows, "model"), tenants=_shares(rows, "tenant"),
        reasons={} if seconds > 0.0 else {"per_minute": "the window has no length"})


def _shares(rows: pl.DataFrame, column: str) -> list[Share]:
    hit = rows[column].filter(rows["bad"]).drop_nulls().value_counts(name="hits").sort("hits", column, descending=[True, False]).head(_MOST_LISTED)
    return [Share(name=printable(name), requests=hits, ratio=hits / int((rows[column] == name).sum())) for name, hits in hit.iter_rows()]


def changed(rows: pl.DataFrame, since: datetime | None, base: pl.DataFrame | None = None) -> list[Changed]:
    """Return what differs since the onset: new versions and models first, then settings, then the mix of traffic.

    What came before are the window's rows before the onset, or the baseline's where there are too few of those. A version or model may have come a
    little earlier than what it did: it counts from a fifth of the time before the onset on, at most 10 minutes, and says when it came.
    """
    if since is None:
        return []
    rows = rows.select(_MAY_CHANGE)
    onset_us = to_us(since)
    lead_us = int(min(_LEAD_S * 1e6, _LEAD_PART * max(0, onset_us - int(rows["start_us"].to_numpy().min(initial=onset_us)))))
    settled, recent = parted(rows, onset_us - lead_us)
    before, after = parted(rows, onset_us)
    if before.height < MIN_MIX and base is not None:
        before = base
    usual = settled if settled.height >= MIN_MIX else before
    found = [change for column in ("version", "model") for change in _new_values(usual, recent, column)]
    if before.height >= MIN_MIX and after.height >= MIN_MIX:
        found += [c for column in ("max_tokens",) for c in _setting(before, after, column, since)]
        found += [c for column in ("route", "tenant", "model") for c in _shift(before, after, column, since)]
        found += [c for column in ("input_tokens", "output_tokens") for c in _length(before, after, column, since)]
        found += _rate(before, after, since)
    return found


def _new_values(before: pl.DataFrame, after: pl.DataFrame, column: str) -> list[Changed]:
    """Return values first seen in `after` while others served before it."""
    known = before[column].drop_nulls().unique(maintain_order=True).to_list()
    if not known:
        return []
    first = after.drop_nulls(column).filter(~pl.col(column).is_in(known)).group_by(column).agg(pl.col("start_us").min().alias("first")).sort("first", column)
    names = [printable(name) for name in known[:_MOST_LISTED]]
    return [Changed(what=column, before=names, after=printable(value), at=from_us(at)) for value, at in first.head(_MOST_LISTED).iter_rows()]


def _setting(before: pl.DataFrame, after: pl.DataFrame, column: str, since: datetime) -> list[Changed]:
    """Return a request setting whose usual value (of more than half the requests) became another."""
    usual = [_usual(part, column) for part in (before, after)]
    if usual[0] is None or usual[1] is None or usual[0] == usual[1]:
        return []
    at = after.filter(pl.col(column) == usual[1])["start_us"].min()
    return [Changed(what=f"config {column}", before=[f"{usual[0]:,}"], after=f"{usual[1]:,}", at=from_us(int(str(at))) if at is not None else since)]


def _usual(rows: pl.DataFrame, column: str) -> int | None:
    counts = rows[column].drop_nulls().value_counts(sort=True)
    return int(counts[column][0]) if counts.height and counts["count"][0] * 2 > rows.height else None


def _shift(before: pl.DataFrame, after: pl.DataFrame, column: str, since: datetime) -> list[Changed]:
    """Return the value whose share of traffic grew most, if it grew by more than chance and by 10 points."""
    old, new = (dict(part[column].drop_nulls().value_counts().iter_rows()) for part in (before, after))
    grown = {value: n / after.height - old.get(value, 0) / before.height for value, n in new.items() if value in old}
    value = max(grown, key=lambda name: grown[name], default=None)
    if value is None or grown[value] < MIX_POINTS or wilson(new[value], after.height)[0] <= wilson(old[value], before.height)[1]:
        return []
    shares = [f"{say_ratio(part / whole)} of requests" for part, whole in ((old[value], before.height), (new[value], after.height))]
    return [Changed(what=f"mix of {column}", before=[f"{printable(value)} {shares[0]}"], after=f"{printable(value)} {shares[1]}", at=since)]


def _length(before: pl.DataFrame, after: pl.DataFrame, column: str, since: datetime) -> list[Changed]:
    old, new = before[column].drop_nulls(), after[column].drop_nulls()
    if min(len(old), len(new)) < MIN_MIX:
        return []
    usual, now = float(np.median(old.to_numpy())), float(np.median(new.to_numpy()))
    if min(usual, now) <= 0.0 or max(usual, now) / min(usual, now) < MIX_RATIO:
        return []
    return [Changed(what=f"{column.replace('_', ' ')} P50", before=[f"{usual:,.0f}"], after=f"{now:,.0f}", at=since)]


def _rate(before: pl.DataFrame, after: pl.DataFrame, since: datetime) -> list[Changed]:
    """Return the arrival rate if it moved by a quarter: both sides are measured between their own first and last start."""
    rates = []
    for part in (before, after):
        starts = part["start_us"].to_numpy()
        length_s = float(starts.max() - starts.min()) / 1e6
        if length_s <= 0.0:
            return []
        rates.append((part.height - 1) / length_s * float(part["sample_weight"].to_numpy().mean()))
    if min(rates) <= 0.0 or max(rates) / min(rates) < MIX_RATIO:
        return []
    return [Changed(what="request rate", before=[f"{rates[0]:.3g}/s"], after=f"{rates[1]:.3g}/s", at=since)]


class Lost(msgspec.Struct, kw_only=True, frozen=True):
    """Traffic that is missing: completions seen, completions expected, since when, and what the expectation rests on."""

    seen: int
    expected: float
    since: datetime | None
    against: str


def traffic_lost(frame: RequestFrame, baseline: RequestFrame | None, together: float = 1.0) -> Lost | None:
    """Return how many completions are missing, None when they are not below half of what was usual (against a baseline: clearly).

    `together` is how many requests come at a time, as a conversation's do: mean of the squares over the mean (see `evidence.calls.come_together`).
    Against a baseline window: the rates of both. Without one: the end of the window against equal stretches before it in the same window, each of
    which must have held at least twice as many, so that traffic which swings by itself is not called lost.
    """
    if baseline is not None and baseline.rows.height >= MIN_ONSET_SIDE // 2 and baseline.seconds > 0.0 and frame.seconds > 0.0:
        # A sampled request stands for many, and their number scatters as much more: (sum w^2 / sum w) for each.
        before, now = (part.rows["sample_weight"].to_numpy() for part in (baseline, frame))
        expected, n = float(before.sum()) / baseline.seconds * frame.seconds, float(now.sum())
        scatter = together * max([1.0, *(float((w**2).sum() / w.sum()) for w in (before, now) if len(w))])
        # Both counts scatter: where half of the users have gone home, chance alone puts the count below half as often as above.
        chance = Z_ONE_SIDED * (scatter * (n + LOST_BELOW**2 * expected * frame.seconds / baseline.seconds)) ** 0.5
        lost = n + chance < LOST_BELOW * expected and n < expected - LOST_DEVIATIONS * (expected * scatter) ** 0.5
        return Lost(seen=round(n), expected=expected, since=frame.start, against="the baseline's rate") if lost else None
    return _lost_at_the_end(frame)


def _lost_at_the_end(frame: RequestFrame) -> Lost | None:
    if frame.start is None or frame.end is None or frame.rows.height < _LOST_LEAST * _LOST_STRETCHES:
        return None
    # Where the window was cut at its end, completions count. Where it ends with the data, they fade as the last requests finish: starts count.
    cut = frame.window.end is not None
    times = np.sort(frame.rows["end_us" if cut else "start_us"].to_numpy())
    first, last = to_us(frame.start), to_us(frame.end) if cut else int(times[-1])
    stretch = (last - first) / (_LOST_STRETCHES + 1)
    # The quiet stretch may be of any length: from a fifth of the window down to what holds enough expected completions. In the clearest one
    # and the one before it lies the moment.
    found: Lost | None = None
    while stretch >= _LOST_SHORTEST_S * 1e6:
        edges = last - stretch * np.arange(_LOST_STRETCHES + 2)
        counts = -np.diff(np.searchsorted(times, edges))
        seen, before = int(counts[0]), counts[1:]
        expected = float(np.median(before))
        lost = seen < LOST_BELOW * float(before.min()) and expected >= _LOST_LEAST
        if lost and (found is None or seen / expected < found.seen / found.expected):
            found = Lost(seen=seen, expected=expected, since=from_us(_fell(times, edges[2], last)), against="the stretches before it in the same window")
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
    gain = k * np.log(k / left) + np.where(later > 0.0, later * np.log(np.maximum(later, 1.0) / right), 0.0)
    gain[later / right > k / left] = -np.inf
    return int(inside[int(np.argmax(gain))])


def to_us(time: datetime) -> int:
    """Return microseconds since 1970."""
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def from_us(microseconds: int) -> datetime:
    """Return the time in UTC of microseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def say_lost(lost: Lost) -> str:
    """Return the sentence of a `traffic_lost` verdict."""
    since = f" since {lost.since:%H:%M:%S} UTC" if lost.since is not None and lost.against != "the baseline's rate" else ""
    return (
        f"Traffic is lost{since}: {lost.seen:,} requests completed where {lost.against} {'gives' if 'rate' in lost.against else 'give'} {lost.expected:,.0f}. "
        "A hang sends no spans: look at the load balancer, crashed or stuck workers, and requests still running.")


