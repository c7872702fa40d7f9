"""Why does the engine have more to do than before? The growth of its work, split into arrivals, repeats, input, lost cache and output.

Work per second = calls/s x (new input tokens x cost of one + output tokens x cost of one). Growth is a product, so it is split on the log
scale: ln(work now / before) = ln(rate ratio) + ln(work per call ratio), and the latter in proportion to what each part of the call added. A call is
compared with calls of its own kind (workload, route): a batch job that begins beside the chat makes no prompt longer, it is added load.
Calls to other models than the engine's (a guardrail at a provider) are none of its work. Where KV blocks are what engines lack, work is what a call takes of
them: tokens held times the time for which they are (`Holding`). Nor has anything grown where conversations have only become
older (see `overrun.analysis.evidence.conversation_age`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.conversation_age import added_by_age, turns
from overrun.analysis.evidence.kv_cache import blocks_lack, own_part
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.evidence.remembered import remembered
from overrun.analysis.words.arrays import FloatArray

# Growth of the engine's work below this explains no queue: minute-to-minute noise of a Poisson stream of a few hundred calls; own default.
MIN_GROWTH: Final = 1.1

# Standard errors from which on a slope is one.
CLEAR_SLOPE_SE: Final = 2.0


class Demand(NamedTuple):
    """Ratios now over before, and each factor's part (0..1, summing to 1) of the growth; `growth` is the ratio of all work.

    `lost_ratio` is what the cache lost over the input that had to be computed before, `longer_ratio` what prompts have grown by over the same.
    """

    growth: float
    arrivals_ratio: float
    calls_ratio: float
    input_ratio: float
    output_ratio: float
    arrivals: float
    repeats: float
    input: float
    cache: float
    output: float
    lost_ratio: float = 0.0
    longer_ratio: float = 0.0


# Calls that carry a count of cached tokens, from which the others are taken to have none rather than not to know; own default.
MIN_TOLD: Final = 0.1


class Hits(NamedTuple):
    """Share of input tokens that a cache held, and where it is known from."""

    before: float
    now: float
    source: str


class Means(NamedTuple):
    """Mean tokens of a call: input, the part of it that no cache held, and output."""

    input: float
    new: float
    output: float


@dataclass(frozen=True)
class Computing:
    """Work as engine time: ms for a new input token and for an output token."""

    read_ms: float
    write_ms: float

    def of(self, call: Means) -> float:
        """Work of a call, in ms."""
        return self.read_ms * call.new + self.write_ms * call.output

    def added(self, then: Means, now: Means) -> dict[str, float]:
        """What each factor added to a call, in ms."""
        lost, longer = lost_and_longer(then.input, then.new, now.input, now.new)
        return {
            "input": self.read_ms * longer,
            "cache": self.read_ms * lost,
            "output": self.write_ms * (now.output - then.output),
        }


@dataclass(frozen=True)
class Holding:
    """Work as KV memory: the tokens that a call holds times the ms for which it does, while it reads (ms a new token) and writes (ms a token).

    Half of the answer is there on average. Of what a cache holds for it, `own` (0..1) is its own; the rest it shares with all running calls.
    """

    read_ms: float
    write_ms: float
    own: float

    def of(self, call: Means) -> float:
        """Work of a call, in token x ms."""
        return self._tokens(call) * self._ms(call)

    def added(self, then: Means, now: Means) -> dict[str, float]:
        """What each factor added to a call, in token x ms: more tokens for the mean time, and more time for the mean tokens, of then and now."""
        tokens, ms = ((of(then) + of(now)) / 2.0 for of in (self._tokens, self._ms))
        lost, longer = lost_and_longer(then.input, then.new, now.input, now.new)
        kept = max(0.0, (now.input - now.new) - (then.input - then.new))
        more = now.output - then.output
        return {
            "input": longer * (ms + self.read_ms * tokens) + self.own * kept * ms,
            "cache": lost * ((1.0 - self.own) * ms + self.read_ms * tokens),
            "output": more * (ms / 2.0 + self.write_ms * tokens),
        }

    def _tokens(self, call: Means) -> float:
        return call.new + self.own * (call.input - call.new) + call.output / 2.0

    def _ms(self, call: Means) -> float:
        return self.read_ms * call.new + self.write_ms * call.output


def demand(case: Observed) -> Demand | None:
    """Compare the judged period with the baseline; None without one, or where either has too few calls with token counts."""
    now, before = case.served
    if before is None or case.baseline is None or min(len(now), len(before)) < MIN_CALLS:
        return None
    means = [_means(side) for side in (before, now)]
    if means[0] is None or means[1] is None:
        return None
    later, (usual, then) = means[1], _of_its_kind(before, now)
    hits = hit_ratio(case)
    told = hits if hits is not None and hits.source == "engine metrics" else None
    if told is not None:
        usual, then, later = (
            side._replace(new=side.input * (1.0 - hit))
            for side, hit in ((usual, told.before), (then, told.before), (later, told.now))
        )
    costs = _measure(case, before, now, None if told is None else told.before)
    former, work0, work1 = (costs.of(side) for side in (usual, then, later))
    if min(former, work0) <= 0.0:
        return None
    seconds = [side.seconds for side in (before, now)]
    rates = [len(side) / s for side, s in zip((before, now), seconds, strict=True)]
    requests = [
        max(side.frame["trace_key"].n_unique(), 1) / s
        for side, s in zip((before, now), seconds, strict=True)
    ]
    each = [rates[i] / requests[i] for i in range(2)]
    lost, longer = lost_and_longer(then.input, then.new, later.input, later.new)
    parts = {
        "arrivals": max(0.0, math.log(requests[1] / requests[0]) + math.log(work0 / former)),
        "repeats": max(0.0, math.log(each[1] / each[0])),
        **_per_call(work0, work1, costs.added(then, later)),
    }
    whole = sum(parts.values())
    shares = {name: part / whole if whole > 0.0 else 0.0 for name, part in parts.items()}
    return Demand(
        rates[1] * work1 / (rates[0] * former),
        requests[1] / requests[0],
        rates[1] / rates[0],
        later.input / max(then.input, 1.0),
        later.output / max(then.output, 1.0),
        **shares,
        lost_ratio=lost / max(then.new, 1.0),
        longer_ratio=longer / max(then.new, 1.0),
    )


def _measure(case: Observed, before: Calls, now: Calls, hit: float | None) -> Computing | Holding:
    """Return what a call's work is to these engines: KV memory where they lack it, else engine time.

    If no capacity is recorded, each call is assumed to hold all of its prompt: what it finds less in the cache is then nothing but more to read.
    """
    read_ms, write_ms = token_costs(before, now)
    if not blocks_lack(case):
        return Computing(read_ms, write_ms)
    own = own_part(case, hit)
    token_ms = before.token_ms[known(before.token_ms)]
    return Holding(
        read_ms,
        float(np.median(token_ms)) if len(token_ms) else write_ms,
        1.0 if own is None else own,
    )


def has_grown(found: Demand) -> bool:
    """Return whether the engine has clearly more to do: by all of its work, or, where that has at least not shrunk, by what each request brings.

    How many come varies by chance, what each asks for hardly does.
    """
    each = found.growth / max(found.arrivals_ratio, 1e-9)
    return found.growth >= MIN_GROWTH or (found.growth > 1.0 and each >= MIN_GROWTH)


def lost_and_longer(n_in0: float, new0: float, n_in1: float, new1: float) -> tuple[float, float]:
    """Split the growth of new tokens per call: those that the cache held before and holds no more, and those that were not there before."""
    more = max(0.0, new1 - new0)
    lost = min(more, max(0.0, (n_in0 - new0) - (n_in1 - new1)))
    return lost, more - lost


def _per_call(work0: float, work1: float, added: dict[str, float]) -> dict[str, float]:
    """Split ln(work1 / work0) among what was added to a call; what was taken away counts nothing."""
    log = max(0.0, math.log(work1 / work0)) if work0 > 0.0 and work1 > 0.0 else 0.0
    more = {name: max(0.0, value) for name, value in added.items()}
    whole = sum(more.values())
    return {name: log * value / whole if whole > 0.0 else 0.0 for name, value in more.items()}


def _of_its_kind(before: Calls, now: Calls) -> tuple[Means, Means]:
    """Return two former means of input, new input and output tokens a call: with conversations as old as today's, and in today's proportion of kinds as well.

    A kind that was too rare to have a mean counts as it is today: nothing is known to have changed in it. Kinds are weighed by the calls that report their
    tokens, of which today's means are: of a kind whose calls run into time limits few do.
    """
    names = ("input", "new", "output")
    frames = [
        pl.DataFrame(
            {
                "workload": side.frame["workload"],
                "route": side.frame["route"],
                "input": side.of("input_tokens"),
                "new": side.new_tokens,
                "output": side.of("output_tokens"),
            }
        ).fill_nan(None)
        for side in (before, now)
    ]
    sides = [
        frame.group_by("workload", "route").agg(
            pl.col("input").count().alias("n"), *(pl.col(name).mean() for name in names)
        )
        for frame in frames
    ]
    turn = turns(before, now)
    if turn is not None:
        older = _older(
            [frame.with_columns(turn=side) for frame, side in zip(frames, turn, strict=True)]
        )
        sides[0] = (
            sides[0]
            .join(older, on=["workload", "route"], how="left", suffix="_older", nulls_equal=True)
            .with_columns(
                pl.col(name) + pl.col(f"{name}_older").fill_null(0.0) for name in ("input", "new")
            )
        )
    both = sides[1].join(
        sides[0], on=["workload", "route"], how="left", suffix="_before", nulls_equal=True
    )
    known_before = pl.col("n_before").fill_null(0) >= MIN_CALLS
    then = both.select(
        "n",
        *(
            pl.when(known_before)
            .then(pl.coalesce(f"{name}_before", name))
            .otherwise(name)
            .alias(name)
            for name in names
        ),
    )
    former, alike = (
        side.select(
            *(
                (pl.col(name) * pl.col("n")).sum()
                / pl.col("n").filter(pl.col(name).is_not_null()).sum()
                for name in names
            )
        ).row(0)
        for side in (sides[0], then)
    )
    return Means(*former), Means(*alike)


def _older(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Return per kind of calls by how much its former means of input would differ, had its conversations been as old as today's."""
    kinds = [frame.partition_by("workload", "route", as_dict=True) for frame in frames]
    rows = []
    for kind, then in kinds[0].items():
        if kind in kinds[1] and then.height >= MIN_CALLS:
            n_in, new, turn = (
                then[name].fill_null(np.nan).to_numpy() for name in ("input", "new", "turn")
            )
            longer = added_by_age(n_in, turn, kinds[1][kind]["turn"].to_numpy())
            # Of what a history adds, the cache holds what it held of longer prompts: hit or miss varies too much to be followed by the turn.
            rows.append(
                {
                    "workload": kind[0],
                    "route": kind[1],
                    "input": longer,
                    "new": longer * min(1.0, slope(n_in, new)),
                }
            )
    return pl.DataFrame(
        rows,
        schema={"workload": pl.String, "route": pl.String, "input": pl.Float64, "new": pl.Float64},
    )


def _means(calls: Calls) -> Means | None:
    n_in, out = calls.mean("input_tokens"), calls.mean("output_tokens")
    if n_in is None or out is None:
        return None
    return Means(n_in, float(np.nanmean(calls.new_tokens)), out)


def cost_of(calls: Calls, cost_in: float, cost_out: float) -> FloatArray:
    """Return the engine work of each call in ms of engine time, shape (n,); if none reports them its tokens, every call counts as much as any other."""
    if not known(calls.new_tokens).any() and not known(calls.of("output_tokens")).any():
        return np.ones(len(calls))
    return cost_in * np.nan_to_num(calls.new_tokens) + cost_out * np.nan_to_num(
        calls.of("output_tokens")
    )


def token_costs(usual: Calls, *others: Calls) -> tuple[float, float]:
    """Return engine time in ms that one new input token and one output token take: the slope of prefill, and TPOT shared by the usual batch.

    Prompts of equal length show little of a token's cost: where a step has room to spare they are read for nothing. So the slope is that within each of
    the sides, weighed by how much their prompts differ. Without engine times the two are only weighed: an input token as the slope of TTFT, an
    output token at the client's TPOT.
    """
    cost_in = slope_within(
        [
            (side.new_tokens, np.where(side.has_engine, side.of("prefill_ms"), side.of("ttft_ms")))
            for side in (usual, *others)
        ]
    )
    token, batch = usual.token_ms, usual.running
    both = known(token, batch)
    if both.any():
        return cost_in, float(np.median(token[both] / np.maximum(batch[both], 1.0)))
    alone = token[known(token)]
    return cost_in, float(np.median(alone)) if len(alone) else 1.0


def slope(x: FloatArray, y: FloatArray) -> float:
    """Return the least-squares slope of y over x, never below 0; 0 where x does not vary or fewer than 5 pairs are known."""
    return slope_within([(x, y)])


def slope_within(sides: Sequence[tuple[FloatArray, FloatArray]]) -> float:
    """Return the least-squares slope of y over x where each side has a level of its own, never below 0; sides with fewer than 5 known pairs do not count.

    Nor does one whose slope is lost in its noise where another one's is not: in an engine that preempts, what a prompt waits for hides what it takes.
    """
    told = []
    for x, y in sides:
        both = known(x, y)
        if int(both.sum()) >= 5:
            dx, dy = x[both] - x[both].mean(), y[both] - y[both].mean()
            spread, rise = float((dx**2).sum()), float((dx * dy).sum())
            noise = float((dy**2).sum()) - (rise**2 / spread if spread > 0.0 else 0.0)
            told.append(
                (
                    spread,
                    rise,
                    rise**2 * (len(dx) - 2) >= CLEAR_SLOPE_SE**2 * spread * max(noise, 0.0),
                )
            )
    counted = [side for side in told if side[2]] or told
    spread = sum(side[0] for side in counted)
    return max(0.0, sum(side[1] for side in counted)) / spread if spread > 0.0 else 0.0


@remembered
def hit_ratio(case: Observed) -> Hits | None:
    """Return the cached share of input tokens before and now: from the calls' own counts, else from the engine's counters."""
    now, before = case.served
    if before is not None:
        sides = [cached_part(side) for side in (before, now)]
        # A call without the attribute missed the cache, if other calls report hits.
        if (
            sides[0] is not None
            and sides[1] is not None
            and max(_told(before), _told(now)) >= MIN_TOLD
        ):
            return Hits(sides[0], sides[1], "cached tokens of the calls")
    gauges = [case.gauge("prefix_cache_hit_rate", before=side) for side in (True, False)]
    if min(len(gauges[0]), len(gauges[1])) >= 2:
        return Hits(float(gauges[0].mean()), float(gauges[1].mean()), "engine metrics")
    return None


def _told(calls: Calls) -> float:
    """Share of the calls with a count of input tokens that carry one of cached tokens too."""
    counted = known(calls.of("input_tokens"))
    return float(known(calls.of("cached_tokens"))[counted].mean()) if counted.any() else 0.0


def cached_part(calls: Calls) -> float | None:
    """Return the cached part (0..1) of the input of the calls that report it, None below 30 of them."""
    counted = known(calls.of("input_tokens"))
    total = float(calls.of("input_tokens")[counted].sum())
    return (
        float(calls.cached_tokens[counted].sum()) / total
        if int(counted.sum()) >= MIN_CALLS and total > 0.0
        else None
    )
