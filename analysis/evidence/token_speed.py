"""Why do tokens come slower? The change of the time per output token, split into batch size, prefill of others, and the rest.

token_ms ~ a + b x (calls in the batch) + c x (input tokens prefilled for others per second), fitted by least squares over the calls of the
baseline and of the judged period at once, each with its own coefficients; terms that come out negative are dropped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.demand import slope_within
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.evidence.remembered import remembered
from overrun.analysis.numbers.statistics.proportion import Z_95
from overrun.analysis.words.arrays import FloatArray

# Times the former time per token at the same load from which an engine is slower by itself; own default, above what a fuller batch leaves to the line.
SLOWER: Final = 1.2
# Calls with fewer output tokens than this measure a token's time badly; own default.
MIN_TOKENS: Final = 8
# Fewest calls of either side that met the same load; own default.
MIN_SHARED: Final = 10
# Share of extreme times left out on either side, so that one stuck call does not bend the line; own default.
TRIMMED: Final = 0.01
# Quantiles of the calls that nothing holds up but the machine.
QUICK: Final = (0.1, 0.25)


class Line(NamedTuple):
    """token_ms = base_ms + batch_ms x running + prefill_ms x (prefilled tokens/s meanwhile), with the means of what it was fitted on."""

    base_ms: float
    batch_ms: float
    prefill_ms: float
    running: float
    prefill: float
    token_ms: float
    n: int


class Slowdown(NamedTuple):
    """Time per token (ms) of usual and slow calls, how much of the difference goes with batch, prefill of others, and neither, and the mean batch of the slow."""

    usual_ms: float
    slow_ms: float
    batch_ms: float
    prefill_ms: float
    rest_ms: float
    before: Line
    now: Line
    slow_running: float


def line(calls: Calls) -> Line | None:
    """Fit the line over calls with engine times; None below `MIN_CALLS`."""
    token, running, prefill = calls.token_ms, calls.running, calls.prefill_meanwhile
    chosen = (
        known(token, running, prefill)
        & (calls.of("output_tokens") >= MIN_TOKENS)
        & calls.has_engine
    )
    if int(chosen.sum()) < MIN_CALLS:
        return None
    low, high = np.quantile(token[chosen], [TRIMMED, 1.0 - TRIMMED])
    chosen &= (token >= low) & (token <= high)
    y, x1, x2 = token[chosen], running[chosen], prefill[chosen]
    base, b, c = fit(y, x1, x2)
    return Line(base, b, c, float(x1.mean()), float(x2.mean()), float(y.mean()), int(chosen.sum()))


def fit(y: FloatArray, *columns: FloatArray) -> tuple[float, ...]:
    """Return base and one slope per column, by least squares with non-negative slopes: the best of the fits with any of them."""
    best: tuple[float, tuple[float, ...]] | None = None
    for use in itertools.product((True, False), repeat=len(columns)):
        design = [np.ones(len(y)), *(x for x, used in zip(columns, use, strict=True) if used)]
        found, *_ = np.linalg.lstsq(np.column_stack(design), y, rcond=None)
        if (found[1:] < 0.0).any():
            continue
        error = float(((y - np.column_stack(design) @ found) ** 2).sum())
        slopes = iter(found[1:].tolist())
        if best is None or error < best[0]:
            best = (error, (float(found[0]), *(next(slopes) if used else 0.0 for used in use)))
    return best[1] if best else (float(y.mean()), *[0.0 for _ in columns])


@remembered
def slowdown(case: Observed) -> Slowdown | None:
    """Split the difference between slow and usual time per token; None without engine times on both sides."""
    source = case.calls_before
    now = line(case.calls)
    before = line(source) if source is not None else now
    slow, usual = (
        side.where(side.has_engine & (side.of("output_tokens") >= MIN_TOKENS))
        for side in (case.slow_calls, case.usual_calls)
    )
    if now is None or before is None or not len(slow) or not len(usual):
        return None
    slow_ms, usual_ms = (_pooled(side) for side in (slow, usual))
    slow_at, usual_at = (
        _while(side_all, side)
        for side_all, side in ((case.calls, slow), (source or case.calls, usual))
    )
    batch = max(0.0, now.batch_ms * slow_at[0] - before.batch_ms * usual_at[0])
    prefill = max(0.0, now.prefill_ms * slow_at[1] - before.prefill_ms * usual_at[1])
    whole = max(0.0, slow_ms - usual_ms)
    shrink = min(1.0, whole / (batch + prefill)) if batch + prefill > 0.0 else 1.0
    return Slowdown(
        usual_ms,
        slow_ms,
        batch * shrink,
        prefill * shrink,
        whole - (batch + prefill) * shrink,
        before,
        now,
        slow_at[0],
    )


def _pooled(calls: Calls) -> float:
    """Time per token over all tokens: long answers weigh more, as they do in the excess."""
    tokens = calls.of("output_tokens") - 1.0
    return float(np.nansum(calls.token_ms * tokens) / max(float(tokens.sum()), 1.0))


def _while(everyone: Calls, some: Calls) -> tuple[float, float]:
    """Mean batch size and prefill rate that these calls met, weighted by tokens, looked up among everyone's."""
    mask = everyone.frame["trace_key"].is_in(some.frame["trace_key"].implode()).to_numpy()
    mask = mask & known(everyone.running, everyone.prefill_meanwhile, everyone.of("output_tokens"))
    weight = np.maximum(everyone.of("output_tokens")[mask] - 1.0, 0.0)
    if weight.sum() <= 0.0:
        return 0.0, 0.0
    return float(np.average(everyone.running[mask], weights=weight)), float(
        np.average(everyone.prefill_meanwhile[mask], weights=weight)
    )


@remembered
def decode_parts(case: Observed) -> dict[str, float] | None:
    """Split the decode excess of slow requests into `length` (more tokens at the usual speed) and `speed` (the rest), in ms; None unknown.

    What is written before the first token that a user sees are the answers of the calls before (a planner's), and the tokens of thought.
    """
    first = case.times.path == "ttft"
    column = "ttft_decode_ms" if first else "decode_ms"
    counts = [
        _written_before(case, rows, calls)
        if first
        else rows["output_tokens"].fill_null(0).to_numpy().astype(np.float64)
        for rows, calls in ((case.slow, case.slow_calls), (case.reference, case.usual_calls))
    ]
    sides = []
    for rows, count in zip((case.slow, case.reference), counts, strict=True):
        told = (rows["output_tokens"] > 0).fill_null(value=False).to_numpy()
        if int(told.sum()) < 5:
            return None
        # Where nobody counted what was written before, the answers stand for it.
        tokens = (
            count
            if min(float(side.sum()) for side in counts) > 0.0
            else rows["output_tokens"].fill_null(0).to_numpy()
        )
        sides.append(
            (float(rows[column].fill_null(0.0).to_numpy()[told].mean()), float(tokens[told].mean()))
        )
    (x1, n1), (x0, n0) = sides
    if n0 <= 0.0:
        return None
    length = max(0.0, (n1 - n0) * x0 / n0)
    return {"length": min(length, max(0.0, x1 - x0)), "speed": max(0.0, x1 - x0 - length)}


def _written_before(case: Observed, rows: pl.DataFrame, calls: Calls) -> FloatArray:
    """Tokens that were written before each request's first visible one, shape (rows,): whole answers of calls that had ended by then, thought of the others."""
    origin_us = case.origin.timestamp() * 1e6
    moments = rows.select(
        "trace_key", first_s=(pl.col("start_us") - origin_us) / 1e6 + pl.col("ttft_ms") / 1e3
    )
    ended = pl.col("start_s") + pl.col("e2e_ms") / 1e3 <= pl.col("first_s")
    tokens = (
        pl.when(ended)
        .then(pl.col("output_tokens"))
        .otherwise(pl.col("reasoning_tokens"))
        .fill_null(0)
    )
    each = (
        calls.frame.join(moments, on="trace_key", how="inner")
        .group_by("trace_key")
        .agg(written=tokens.sum())
    )
    found: FloatArray = (
        rows.select("trace_key")
        .join(each, on="trace_key", how="left")["written"]
        .fill_null(0)
        .to_numpy()
        .astype(np.float64)
    )
    return found


def same_batch_pace(before: Calls, now: Calls) -> float | None:
    """Return the median time per token now over before within the batch sizes that both had; None where they share too few calls."""
    return at_equal_load(batches(before, now))


def batches(before: Calls, now: Calls) -> list[tuple[FloatArray, FloatArray]]:
    """Return batch size and time per token of the calls of both sides whose engine told its times."""
    return [
        (side.running[chosen], side.token_ms[chosen])
        for side in (before, now)
        for chosen in [
            known(side.running, side.token_ms)
            & side.has_engine
            & (side.of("output_tokens") >= MIN_TOKENS)
        ]
    ]


def slower_at_equal_load(case: Observed, least: float) -> float | None:
    """Return the time per token now over before at equal batch sizes, where that is `least` or more, and so is what today's batches and reading would have
    taken before; None where load may be why tokens are slower."""
    before, now = (None if side is None else line(side) for side in (case.calls_before, case.calls))
    if before is None or now is None or case.calls_before is None or case.thinned:
        return None
    over = now.token_ms / max(
        before.base_ms + before.batch_ms * now.running + before.prefill_ms * now.prefill, 1e-9
    )
    pace = same_batch_pace(case.calls_before, case.calls) or over
    return pace if min(pace, over) >= least else None


def slower_engine(case: Observed) -> float:
    """Return the time per token now over before at the same load, 1 unless it is `SLOWER` and clear (95 %) among calls that met batch sizes of both periods."""
    found, before = slower_at_equal_load(case, SLOWER), case.calls_before
    if found is None or before is None:
        return 1.0
    sides = batches(before, case.calls_inside)
    pace, error = at_equal_load(sides), equal_load_error(sides)
    clear = pace is not None and error is not None and math.log(pace) > Z_95 * error
    return found if clear else 1.0


def worst_batch_pace(before: Calls, now: Calls) -> float | None:
    """Return the largest `same_batch_pace` of any one replica and of all together; None where all share too few calls.

    A router that looks for room takes calls off a slow host: over all replicas its small batches and its peers' large ones are the same pace.
    """
    both = sorted({*before.names("engine_instance")} & {*now.names("engine_instance")})
    sides = [
        [
            side.where((side.frame["engine_instance"] == name).fill_null(value=False).to_numpy())
            for side in (before, now)
        ]
        for name in both
    ]
    paces = [same_batch_pace(*side) for side in [(before, now), *sides]]
    return max((pace for pace in paces if pace is not None), default=None)


def quick_pace(before: Calls, now: Calls) -> tuple[float, float] | None:
    """Return the least and the most that the quickest tenth and quarter of the calls take now over before: of the time per token at equal batch sizes and of
    the prefill at equal new tokens (alike within half an octave). None where both sides share too few calls.

    Who waits, stalls or shares a packed batch leaves quick calls quick; a slower machine does not.
    """
    tokens, prompts = [], []
    for side in (before, now):
        batch, token = side.running, side.token_ms
        written = known(batch, token) & side.has_engine & (side.of("output_tokens") >= MIN_TOKENS)
        tokens.append((batch[written], token[written]))
        prompts.append(reads(side))
    ratios = [at_equal_load(sides, q) for sides in (tokens, prompts) for q in QUICK]
    known_ratios = [ratio for ratio in ratios if ratio is not None]
    return (min(known_ratios), max(known_ratios)) if len(known_ratios) == len(ratios) else None


def reads(calls: Calls) -> tuple[FloatArray, FloatArray]:
    """Return the size of what each call had to read, on a scale on which sizes within half an octave are alike (2), and its prefill in ms."""
    new, read = calls.new_tokens, calls.of("prefill_ms")
    chosen = known(new, read) & calls.has_engine & (new > 0.0) & (read > 0.0)
    return 4.0 * np.log2(new[chosen]), read[chosen]


def at_equal_load(sides: list[tuple[FloatArray, FloatArray]], q: float = 0.5) -> float | None:
    """Return a quantile of the value (the median), now over before, among calls that met the same load (alike within 2); `sides` are (load, value) of
    before and now. None where both share too few calls."""
    ratios, weights = [], []
    for usual, now in _shared_loads(sides):
        had, has = (float(np.quantile(group, q)) for group in (usual, now))
        if had > 0.0:  # what took no time at all has no ratio
            ratios.append(has / had)
            weights.append(min(len(usual), len(now)))
    return float(np.average(ratios, weights=weights)) if ratios else None


def equal_load_error(sides: list[tuple[FloatArray, FloatArray]]) -> float | None:
    """Return the standard error of `at_equal_load` of medians, on the log scale: the errors of both medians of each load (1.2533 of a mean's, by their median
    absolute deviations), weighed as the ratios are. None where both share too few calls."""
    variances, weights = [], []
    for usual, now in _shared_loads(sides):
        middles = [float(np.median(group)) for group in (usual, now)]
        if min(middles) > 0.0:
            spreads = (
                1.2533 * 1.4826 * float(np.median(np.abs(group - middle))) / middle
                for group, middle in zip((usual, now), middles, strict=True)
            )
            parts = zip(spreads, (usual, now), strict=True)
            variances.append(sum(spread**2 / len(group) for spread, group in parts))
            weights.append(min(len(usual), len(now)))
    if not variances:
        return None
    weight = np.array(weights, np.float64)
    return float(np.sqrt((weight**2 * np.array(variances)).sum()) / weight.sum())


def _shared_loads(
    sides: list[tuple[FloatArray, FloatArray]],
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield the values of before and of now in each class of load that holds enough calls of both."""
    if min(len(load) for load, _ in sides) < MIN_CALLS:
        return
    low = max(float(np.percentile(load, 2.0)) for load, _ in sides)
    high = min(float(np.percentile(load, 98.0)) for load, _ in sides)
    for left in np.arange(np.floor(low), max(np.ceil(high), np.floor(low) + 1.0), 2.0):
        usual, now = (value[(load >= left) & (load < left + 2.0)] for load, value in sides)
        if min(len(usual), len(now)) >= MIN_SHARED:
            yield usual, now


def _of_few(sides: list[tuple[FloatArray, FloatArray]]) -> float | None:
    """Return the median of what the second side's calls take over the first's at their own load (alike within 2), where those loads are few calls' each.

    Who fills up as it slows down leaves few calls in batches like the others', one here and one there: together they tell. None where they are too few.
    """
    (load0, value0), (load1, value1) = sides
    bins = load1 // 2.0
    ratios = [
        value1[bins == one] / usual
        for one in np.unique(bins)
        if len(theirs := value0[load0 // 2.0 == one]) >= MIN_SHARED
        and (usual := float(np.median(theirs))) > 0.0
    ]
    told = np.concatenate(ratios) if ratios else np.empty(0)
    return (
        float(np.median(told))
        if len(told) >= MIN_SHARED and min(len(load0), len(load1)) >= MIN_CALLS
        else None
    )


def beyond_load(sides: list[tuple[FloatArray, FloatArray]], *, alike: bool = False) -> float | None:
    """Return the ratio at equal load; where the second side's loads are all above the first's, its line over load led back to the first's median.

    Between machines that should be `alike` also over what the first's line comes to at the second's loads, whichever is less: a batch that is always full
    shows no line of its own.

    What is slow by itself is so on the whole line; a fuller batch comes down to what the first side takes. `sides` as in `at_equal_load`. None where either has
    too few calls, or where loads that overlap share too few.
    """
    (load0, value0), (load1, value1) = sides
    shared = at_equal_load(sides)
    shared = _of_few(sides) if shared is None else shared
    if (
        shared is not None
        or min(len(load0), len(load1)) < MIN_CALLS
        or float(np.median(load1)) <= float(np.percentile(load0, 98.0))
    ):
        return shared
    more, usual, now = (
        float(np.median(load1) - np.median(load0)),
        float(np.median(value0)),
        float(np.median(value1)),
    )
    led_back = max(0.0, now - slope_within([sides[1]]) * more) / max(usual, 1e-3)
    return (
        min(led_back, now / max(usual + slope_within([sides[0]]) * more, 1e-3))
        if alike
        else led_back
    )
