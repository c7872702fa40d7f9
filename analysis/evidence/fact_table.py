"""Which factors of latency are looked at? One row a factor: how it is measured before and now, and which part of the excess goes with it.

A row is a short function over what a case has read already. Rows of all calls tell what happened to everybody; rows of slow requests compare these with the
reference requests. A factor of all calls accounts for the waiting and the slower pace that added work brings to others (`prefill.knock_on`); one of slow
requests for the time that their own work takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.evidence import longer_answers, more_requests, reasoning_share
from overrun.analysis.evidence.abandoned_work import wasted
from overrun.analysis.evidence.arrival_bursts import arrival_dispersion
from overrun.analysis.evidence.call_inside import inside_calls
from overrun.analysis.evidence.call_kind import Kind
from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.constant_added import Constant
from overrun.analysis.evidence.demand import hit_ratio
from overrun.analysis.evidence.fact import (
    NO_BASELINE,
    RESAMPLES,
    Draws,
    Measured,
    Row,
    Sample,
    Table,
    Unit,
    only,
    part_of,
    with_error,
)
from overrun.analysis.evidence.fleet import MIN_ENGINES, Replica, replicas, share_on
from overrun.analysis.evidence.kv_cache import capacity_ratio
from overrun.analysis.evidence.network_gap import gap_ms
from overrun.analysis.evidence.observed import ENGINE_STAGES
from overrun.analysis.evidence.operations import KEYS, Operation
from overrun.analysis.evidence.prefill import Reading, knock_on, reading, slower, spread
from overrun.analysis.evidence.refusals import refused
from overrun.analysis.evidence.repeated_calls import attempts
from overrun.analysis.evidence.reuse import Reuse
from overrun.analysis.evidence.tenant_load import added_by, noisiest, work_share
from overrun.analysis.evidence.token_speed import (
    MIN_TOKENS,
    at_equal_load,
    batches,
    decode_parts,
    equal_load_error,
    slowdown,
)
from overrun.analysis.numbers.statistics.proportion import Z_95
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import MIN_BREACHING, printable

SLOW: Final = "slow requests"
ENGINES: Final = "engine metrics"
_CALLS: Final = "model calls"
# Operations that are listed: those that add most to a slow request; own default.
MOST_OPERATIONS: Final = 12
# Where a call waits that is loaded for first, that is of another kind, or that needs a connection.
HELD_UP_IN: Final = ("queue", "first_token", "generation", "network", "gateway")
WAITED_IN: Final = (*ENGINE_STAGES, "network", "gateway")
CONNECTED_IN: Final = ("network", "first_token", "generation", "gateway")


def _per_call(of: Callable[[Calls], FloatArray], lacking: str) -> Callable[[Case], Measured | str]:
    """Measure the mean of a value per call over the calls to what slow requests wait for."""

    def measure(case: Case) -> Measured | str:
        return _sides(case, lambda calls: calls.sample.mean(of(calls)), lacking)

    return measure


def _of_total(
    part: Callable[[Calls], FloatArray], whole: Callable[[Calls], FloatArray], lacking: str
) -> Callable[[Case], Measured | str]:
    """Measure a share: a sum over all calls over another one, of the calls that report both."""

    def one(calls: Calls) -> Draws | None:
        above, below = part(calls), whole(calls)
        both = known(above, below)
        return calls.sample.ratio(
            np.where(both, above, 0.0), np.where(both, below, 0.0), both, MIN_CALLS
        )

    return lambda case: _sides(case, one, lacking)


def _sides(case: Case, one: Callable[[Calls], Draws | None], lacking: str) -> Measured | str:
    now, before = case.served
    found = one(now) if len(now) else None
    if found is None:
        return lacking
    if before is None:
        return Measured(found)
    usual = one(before) if len(before) else None
    return Measured(found, f"before: {lacking}" if usual is None else usual)


def _arrivals(case: Case) -> Measured | str:
    """Requests per second, each counted where its first call began."""

    def one(calls: Calls) -> Draws | None:
        first = calls.frame.select(pl.col("trace_key").is_first_distinct()).to_series()
        return calls.sample.rate(first.to_numpy().astype(np.float64))

    return _sides(case, one, f"fewer than {MIN_CALLS} model calls are stored")


def _to_read(calls: Calls) -> Draws | None:
    """New input tokens per second."""
    tokens = calls.new_tokens
    return calls.sample.rate(np.nan_to_num(tokens)) if known(tokens).any() else None


def _calls_per_request(case: Case) -> Measured | str:
    def one(calls: Calls) -> Draws | None:
        first = calls.frame.select(pl.col("trace_key").is_first_distinct()).to_series().to_numpy()
        return calls.sample.ratio(np.ones(len(calls)), first.astype(np.float64))

    return _sides(case, one, f"fewer than {MIN_CALLS} model calls are stored")


def _cache(case: Case) -> Measured | str:
    """The part of all input that a cache held, as calls or, where these tell nothing, the engines report it."""
    hits = hit_ratio(case)
    if hits is not None and hits.source == ENGINES:
        return _gauge("prefix_cache_hit_rate", "")(case)
    return _of_total(
        _told_cached,
        lambda calls: calls.of("input_tokens"),
        "calls carry no cached tokens: record gen_ai.usage.cache_read.input_tokens, or scrape the engine's prefix cache counters",
    )(case)


def _told_cached(calls: Calls) -> FloatArray:
    """Cached tokens, unknown where no call reports any."""
    told = known(calls.of("cached_tokens")).any()
    return calls.cached_tokens if told else np.full(len(calls), np.nan)


def _told_reasoning(calls: Calls) -> FloatArray:
    """Reasoning tokens, which many senders report only if there were some; unknown where no call reports any."""
    told = known(calls.of("reasoning_tokens")).any()
    return np.nan_to_num(calls.of("reasoning_tokens")) if told else np.full(len(calls), np.nan)


def _gauge(indicator: str, lacking: str) -> Callable[[Case], Measured | str]:
    """Measure the mean of the samples of an engine's indicator."""

    def measure(case: Case) -> Measured | str:
        now, before = (_samples(case, indicator, before=side) for side in (False, True))
        if now is None:
            return lacking
        why = NO_BASELINE if case.baseline is None else f"before: {lacking}"
        return Measured(now, why if before is None else before)

    return measure


def _samples(case: Case, indicator: str, *, before: bool) -> Draws | None:
    points = case.sampled(indicator, before=before)
    values = points["value"].cast(pl.Float64).to_numpy()
    return Sample(points["time_us"].to_numpy()).mean(values, least=2) if len(values) else None


def _of_rows(column: str, lacking: str) -> Callable[[Case], Measured | str]:
    """Measure the mean of a column over the slow and the reference requests."""

    def measure(case: Case) -> Measured | str:
        return _slow_against_usual(
            case,
            *(
                rows[column].cast(pl.Float64).fill_null(math.nan).to_numpy()
                for rows in (case.slow, case.reference)
            ),
            lacking=lacking,
        )

    return measure


def _slow_against_usual(
    case: Case, slow: FloatArray, usual: FloatArray, *, lacking: str
) -> Measured | str:
    """Both means of a value per slow and per reference request."""
    now = case.slow_sample.mean(slow, MIN_BREACHING) if len(slow) else None
    before = case.usual_sample.mean(usual, MIN_BREACHING) if len(usual) else None
    return lacking if now is None or before is None else Measured(now, before)


def _engine_work(factor: str) -> Callable[[Case], Mapping[str, float] | str]:
    """What a factor of the engines' growing work adds to others."""
    return _with_baseline(lambda case: knock_on(case, factor))


def _with_baseline(
    of: Callable[[Case], Mapping[str, float]],
) -> Callable[[Case], Mapping[str, float] | str]:
    """What a factor adds, where the work of all calls is known before and now."""

    def accounts(case: Case) -> Mapping[str, float] | str:
        if case.demand is None:
            return NO_BASELINE if case.baseline is None else "calls carry no token counts"
        return of(case)

    return accounts


def _own_reading(of: Callable[[Reading], float]) -> Callable[[Case], Mapping[str, float] | str]:
    """What of the longer reading of slow requests is one of its parts."""

    def accounts(case: Case) -> Mapping[str, float] | str:
        found = reading(case)
        return "requests carry no input token counts" if found is None else {found.stage: of(found)}

    return accounts


def _hit_of_rows(case: Case) -> Measured | str:
    """The cached part of the input of slow and of reference requests."""
    sides = []
    for rows, sample in ((case.slow, case.slow_sample), (case.reference, case.usual_sample)):
        n_in, cached = (
            rows[name].cast(pl.Float64).fill_null(math.nan).to_numpy()
            for name in ("input_tokens", "cached_tokens")
        )
        both = known(n_in)
        if not known(cached).any():
            return "requests carry no cached tokens"
        sides.append(
            sample.ratio(
                np.where(both, np.nan_to_num(cached), 0.0),
                np.where(both, n_in, 0.0),
                both,
                MIN_BREACHING,
            )
        )
    now, before = sides
    return (
        "requests carry no input tokens" if now is None or before is None else Measured(now, before)
    )


def _decode_by(part: str) -> Callable[[Case], Mapping[str, float] | str]:
    """What of the slower writing goes with `batch_ms`, `prefill_ms` or `rest_ms` of `Slowdown`."""

    def accounts(case: Case) -> Mapping[str, float] | str:
        found, parts = slowdown(case), decode_parts(case)
        if found is None or parts is None:
            return "the engines' own times are not recorded"
        whole = found.batch_ms + found.prefill_ms + found.rest_ms
        return {"decode": parts["speed"] * getattr(found, part) / whole} if whole > 0.0 else {}

    return accounts


def _attempts(case: Case) -> Measured | str:
    """How often a question is asked, retries included."""

    def one(calls: Calls) -> Draws | None:
        told = attempts(calls)
        drawn = calls.sample.ratio(np.ones(len(calls)), (~told.repeat).astype(np.float64))
        if drawn is None or drawn.draws is None:
            return None
        return Draws(told.amplification, drawn.draws * told.amplification / drawn.value, len(calls))

    before = case.calls_before
    now = one(case.calls) if len(case.calls) else None
    if now is None:
        return f"fewer than {MIN_CALLS} model calls are stored"
    usual = one(before) if before is not None and len(before) else None
    return Measured(now, NO_BASELINE if usual is None else usual)


def _bursts(case: Case) -> Measured | str:
    """Variance of the number of requests that come at a time over its mean: 1 where each comes by itself."""
    now, before = arrival_dispersion(case)
    if now is None:
        return "too few requests for counts over time"
    usual = only(before, len(case.calls_before or ())) if before is not None else NO_BASELINE
    return Measured(only(now, len(case.calls)), usual)


def _for_nobody(case: Case) -> Measured | str:
    """The part of the output that engines write for callers who have left."""
    now = wasted(case.calls)
    if now is None:
        return "the engines' own times are not recorded: trace the engine"
    before = None if case.calls_before is None else wasted(case.calls_before)
    usual = NO_BASELINE if before is None else only(before.tokens, len(case.calls_before or ()))
    return Measured(only(now.tokens, len(case.calls)), usual)


def _equal_pace(case: Case) -> Measured | str:
    """Time per token at equal load, now over before."""
    before, now = case.calls_before, case.calls_inside
    if before is None:
        return NO_BASELINE
    sides = batches(before, now)
    pace, error = at_equal_load(sides), equal_load_error(sides)
    one = Draws(1.0, np.ones(RESAMPLES), len(before))
    if pace is not None and error is not None:
        return Measured(with_error(pace, error, len(now)), one)
    outside = None if case.own_load is None else case.own_load.pace_equal
    if outside is None:
        return "both periods share too few calls at equal load"
    return Measured(only(outside, len(now)), one)


def _read_pace(case: Case) -> Measured | str:
    """Prefill at equal new tokens, now over before."""
    found = case.read_pace
    if found is None:
        return "both periods share too few prompts of like size with engine times"
    one = Draws(1.0, np.ones(RESAMPLES), len(case.calls_before or ()))
    return Measured(with_error(found.ratio, found.error, found.n), one)


def _equal_first(case: Case) -> Measured | str:
    """First tokens at equal load, now over before, without engine telemetry."""
    load = case.own_load
    if load is None:
        return "measured only without engine telemetry, and with a baseline"
    if load.first_equal is None:
        return "both periods share too few calls at equal load"
    return Measured(
        only(load.first_equal, len(case.calls)), only(1.0, len(case.calls_before or ()))
    )


def _share_of_calls(hit: Callable[[Calls], BoolArray]) -> Callable[[Case], Measured | str]:
    """Measure which part of all calls something happened to."""

    def one(calls: Calls) -> Draws | None:
        return calls.sample.ratio(hit(calls).astype(np.float64), np.ones(len(calls)))

    return lambda case: _sides(case, one, f"fewer than {MIN_CALLS} model calls are stored")


def _refused(calls: Calls) -> BoolArray:
    return calls.frame.select(refused()).to_series().to_numpy()


def _cut(calls: Calls) -> BoolArray:
    reasons = pl.col("finish_reason").fill_null("").is_in(["length", "max_tokens"])
    return calls.frame.select(reasons).to_series().to_numpy()


def _replica_share(case: Case) -> Measured | str:
    """The share of the work of the replica that has most, and what it had before."""
    sides = _replicas(case)
    if isinstance(sides, str):
        return sides
    now, before = sides
    hot = max(now, key=lambda one: one.share)
    was = next((one for one in before if one.name == hot.name), None)
    why = NO_BASELINE if case.calls_before is None else f"{printable(hot.name)} served no calls"
    if was is None or case.calls_before is None:
        return Measured(_share_on(hot, case.calls), why)
    return Measured(_share_on(hot, case.calls), _share_on(was, case.calls_before))


def _share_on(one: Replica, calls: Calls) -> Draws:
    """A replica's share of the work with the relative spread of its share of the calls."""
    theirs = (calls.frame["engine_instance"] == one.name).fill_null(value=False).to_numpy()
    drawn = calls.sample.ratio(theirs.astype(np.float64), np.ones(len(calls)))
    if drawn is None or drawn.draws is None or drawn.value == 0.0:
        return only(one.share, one.calls)
    return Draws(one.share, one.share * drawn.draws / drawn.value, one.calls)


def _on_replica(case: Case) -> Mapping[str, float] | str:
    """The excess of the slow calls beyond an even share that the busiest replica served."""
    sides = _replicas(case)
    if isinstance(sides, str):
        return sides
    now = sides[0]
    hot, fair = max(now, key=lambda one: one.share), 1.0 / len(now)
    part = max(0.0, (share_on(case.slow_calls, hot.name) - fair) / (1.0 - fair))
    return {stage: part * case.excess_ms(stage) for stage in ENGINE_STAGES}


def _replicas(case: Case) -> tuple[list[Replica], list[Replica]] | str:
    now = replicas(case.calls, case.slowest_model)
    if len(now) < MIN_ENGINES:
        return "fewer than two replicas of the model report their times"
    before = case.calls_before
    return now, [] if before is None else replicas(before, case.slowest_model)


def _replica_pace(case: Case) -> Measured | str:
    """How many times the time of its peers the slowest replica takes for the same work, now and before."""
    sides = _replicas(case)
    if isinstance(sides, str):
        return sides
    now, before = sides
    worst = max(now, key=lambda one: one.pace)
    was = next((one for one in before if one.name == worst.name), None)
    why = NO_BASELINE if case.calls_before is None else f"{printable(worst.name)} served no calls"
    usual = None if was is None else _lag(was, before)
    return Measured(_lag(worst, now), why if usual is None else usual)


def _lag(one: Replica, every: list[Replica]) -> Draws:
    """Pace of a replica over the median of its peers'; the errors of both are normal on the log scale."""
    peers = [other for other in every if other.name != one.name] or [one]
    lag = one.pace - float(np.median([other.pace for other in peers]))
    error = math.hypot(one.error, float(np.median([other.error for other in peers])))
    return with_error(math.exp(lag), error, one.calls)


def _tenant(case: Case) -> Measured | str:
    """The share of all work of the tenant whose work grew most."""
    found = noisiest(case)
    if found is None:
        if case.baseline is None:
            return NO_BASELINE
        several = case.rows["tenant"].drop_nulls().n_unique() > 1
        return "no tenant's work grew" if several else "fewer than two tenants are recorded"
    now, before = work_share(case, found)
    if now is None or before is None:
        return "calls carry no token counts"
    return Measured(now, before)


def _by_tenant(case: Case) -> Mapping[str, float] | str:
    """What the added work of that tenant adds to everybody."""
    found = noisiest(case)
    # Who grew with all others brings no more of the work than before.
    grew = found is not None and found.share_now > found.share_before
    return added_by(case, found) if found is not None and grew else {}


def _clock(case: Case) -> Measured | str:
    """Median clock of the GPU whose clock fell most."""
    found = case.clocks
    if found.before is None or found.now is None:
        return "no GPU clock was recorded before and now: scrape DCGM"
    return Measured(only(found.now, 1), only(found.before, 1))


def _slower_machine(case: Case) -> Mapping[str, float] | str:
    """What is slower than a busier engine alone would be, where GPUs are at a limit: lower clocks add it."""
    if case.clocks.ratio <= 1.0:
        return {}
    busier = spread(case, 1.0)
    return {stage: ms - busier.get(stage, 0.0) for stage, ms in slower(case).items()}


def _capacity(case: Case) -> Measured | str:
    ratio, source = capacity_ratio(case)
    if ratio is None:
        return f"{source}: neither kv_capacity nor KV usage before and now"
    return Measured(only(ratio, len(case.calls)), only(1.0, len(case.calls_before or ())))


def _after_silence(case: Case) -> Measured | str:
    """How often calls are late that follow a silence (or a swap) of a key, beside the others."""
    found = case.reuse
    if found is None:
        return "late calls follow no silence and no swap of a model, engine or tenant clearly"
    now, others = part_of(found.after_late, found.after), part_of(found.other_late, found.other)
    return "no call" if now is None or others is None else Measured(now, others)


def _constant(case: Case) -> Measured | str:
    """The part of the late calls that take a known constant longer, beside the part that would by chance."""
    found = case.constant_added
    if found is None:
        return "late calls take no known constant (1, 3, 5, 7, 10, 15 s) longer, and not the same time each"
    now = part_of(found.hits, found.late)
    return "no call" if now is None else Measured(now, only(found.by_chance, found.late))


def _kind(case: Case) -> Measured | str:
    """How often calls of one kind (a format, an adapter, tools) are late, beside the others."""
    found = case.call_kind
    if found is None:
        return "no one kind of call is late clearly more often than the others"
    now, others = part_of(found.late, found.n), part_of(found.other_late, found.other)
    return "no call" if now is None or others is None else Measured(now, others)


def _of_traces(
    found: Callable[[Case], Reuse | Constant | Kind | None], stages: tuple[str, ...]
) -> Callable[[Case], Mapping[str, float] | str]:
    """The excess of these stages in the slow requests that a factor names."""

    def accounts(case: Case) -> Mapping[str, float] | str:
        one = found(case)
        if one is None:
            return {}
        part = case.share_of_slow(one.traces)[1]
        return {stage: part * case.excess_ms(stage) for stage in stages}

    return accounts


def _held(case: Case) -> Measured | str:
    """How much later first tokens come than the ends of their answers do."""
    found = case.held_stream
    if found is None:
        return "first tokens come no later than the ends of answers clearly, or another metric than TTFT is judged"
    low, high = found.interval
    error = math.log(max(high, 1e-3) / max(low, 1e-3)) / (2.0 * Z_95)
    return Measured(with_error(found.held_ms, error, found.n), only(found.before_ms, found.n))


def _overtaken(case: Case) -> Measured | str:
    """Of the requests that came while a slow one waited, those that were served before it."""
    passed = case.overtaken
    if passed is None:
        return "too few slow requests wait in a queue outside of engines"
    return Measured(only(passed, case.slow.height))


def _inside(column: str) -> Callable[[Case], Measured | str]:
    """Measure what calls lose inside of themselves, per slow and per reference request in ms."""

    def measure(case: Case) -> Measured | str:
        sides = []
        for tree, rows in ((case.slow_tree, case.slow), (case.usual_tree, case.reference)):
            own = inside_calls(tree)
            if own.is_empty():
                return "no HTTP request below a model call is recorded: instrument the HTTP client"
            sides.append(_of_sampled(tree.per_request(own, column, rows["trace_key"]), tree, rows))
        return _slow_against_usual(case, *sides, lacking="too few requests have spans")

    return measure


def _of_sampled(values: FloatArray, tree: object, rows: pl.DataFrame) -> FloatArray:
    """The values of the requests of which spans were read; unknown for the others."""
    frame: pl.DataFrame = tree.frame  # type: ignore[attr-defined]
    read = rows["trace_key"].is_in(frame["trace_key"].unique().implode()).to_numpy()
    return np.where(read, values, np.nan)


def stages(case: Case) -> dict[str, Row]:
    """Return a row per stage on the judged path: its time in slow and in reference requests."""
    return {
        f"stage.{stage}": Row(
            label=f"time in {stage}",
            unit="ms",
            measure=_stage(stage),
            source="the critical path of requests",
            accounts=_excess_of(stage),
            among=SLOW,
        )
        for stage in case.tail.tail_ms
    }


def _excess_of(stage: str) -> Callable[[Case], Mapping[str, float] | str]:
    return lambda case: {stage: case.excess_ms(stage)}


def _stage(stage: str) -> Callable[[Case], Measured | str]:
    def measure(case: Case) -> Measured | str:
        first = case.times.path == "ttft"
        column = f"ttft_{stage}_ms" if first else f"{stage}_ms"
        if column not in case.rows.columns or column not in case.reference.columns:
            return "the stage has no column of its own"
        return _slow_against_usual(
            case,
            case.spent(stage)[case.tail.tail_index],
            case.reference[column].fill_null(0.0).to_numpy(),
            lacking=f"fewer than {MIN_BREACHING} slow or reference requests",
        )

    return measure


def operations(case: Case) -> dict[str, Row]:
    """Return a row per operation that adds most to slow requests: what it takes by itself on their path."""
    if case.lookups.spans is None:
        return {}
    found = sorted(case.operations.all, key=lambda one: -abs(one.excess_ms))[:MOST_OPERATIONS]
    return {f"operation.{at}": _operation(one) for at, one in enumerate(found, start=1)}


def _operation(one: Operation) -> Row:
    wanted = {key: getattr(one, key) for key in KEYS}

    def measure(case: Case) -> Measured | str:
        sides = []
        for own, tree, rows in (
            (case.operations.slow, case.slow_tree, case.slow),
            (case.operations.usual, case.usual_tree, case.reference),
        ):
            theirs = own.filter(
                pl.all_horizontal(
                    pl.col(key).fill_null("") == value for key, value in wanted.items()
                )
            )
            values = tree.per_request(theirs, "own_ms", rows["trace_key"])
            sides.append(_of_sampled(values, tree, rows))
        return _slow_against_usual(case, *sides, lacking="too few requests have spans")

    return Row(
        label=f"{one.stage} by {one.label}",
        unit="ms",
        measure=measure,
        source="spans on the critical path",
        accounts=lambda case: {one.stage: max(0.0, one.excess_ms)},
        among=SLOW,
    )


def _row(
    label: str,
    unit: Unit,
    measure: Callable[[Case], Measured | str],
    accounts: Callable[[Case], Mapping[str, float] | str] | None = None,
    *,
    source: str = _CALLS,
    falls: bool = False,
    among: str = "all calls",
) -> Row:
    return Row(label, unit, measure, source, accounts, falls, among)


_NO_INPUT: Final = "calls carry no input tokens: record gen_ai.usage.input_tokens"
_NO_OUTPUT: Final = "calls carry no output tokens: record gen_ai.usage.output_tokens (stream_options.include_usage when streaming)"
_NO_TIMES: Final = "the engines' own times are not recorded: trace the engine"

ROWS: Final[Mapping[str, Row]] = {
    "arrivals": _row(
        "requests that arrive", "per_s", _arrivals, _with_baseline(more_requests.added)
    ),
    "repeats": _row(
        "model calls of a request", "calls", _calls_per_request, _engine_work("repeats")
    ),
    "attempts": _row("times that a question is asked", "times", _attempts),
    "bursts": _row("requests that come at a time, variance over mean", "times", _bursts),
    "input": _row(
        "input tokens of a call",
        "tokens",
        _per_call(lambda calls: calls.of("input_tokens"), _NO_INPUT),
        _engine_work("input"),
    ),
    "cache": _row(
        "input that a cache held",
        "ratio",
        _cache,
        _engine_work("cache"),
        falls=True,
    ),
    "output": _row(
        "output tokens of a call",
        "tokens",
        _per_call(lambda calls: calls.of("output_tokens"), _NO_OUTPUT),
        _with_baseline(longer_answers.added_to_others),
    ),
    "reasoning": _row(
        "output that is reasoning",
        "ratio",
        _of_total(
            _told_reasoning,
            lambda calls: calls.of("output_tokens"),
            "calls carry no reasoning tokens: record gen_ai.usage.reasoning.output_tokens",
        ),
        _with_baseline(reasoning_share.added_to_others),
    ),
    "reasoning_slow": _row(
        "reasoning tokens of a request",
        "tokens",
        _of_rows("reasoning_tokens", "requests carry no reasoning tokens"),
        reasoning_share.own_reasoning,
        among=SLOW,
    ),
    "input_slow": _row(
        "input tokens of a request",
        "tokens",
        _of_rows("input_tokens", "requests carry no input tokens"),
        _own_reading(lambda found: found.input_ms),
        among=SLOW,
    ),
    "cache_slow": _row(
        "input that a cache held",
        "ratio",
        _hit_of_rows,
        _own_reading(lambda found: found.cache_ms),
        falls=True,
        among=SLOW,
    ),
    "output_slow": _row(
        "output tokens of a request",
        "tokens",
        _of_rows("output_tokens", "requests carry no output tokens"),
        longer_answers.own_length,
        among=SLOW,
    ),
    "batch": _row(
        "calls that run in one batch",
        "calls",
        _per_call(lambda calls: np.where(calls.has_engine, calls.running, np.nan), _NO_TIMES),
        _decode_by("batch_ms"),
    ),
    "read_meanwhile": _row(
        "input tokens/s read for others while a call is written",
        "tokens",
        _per_call(
            lambda calls: np.where(calls.has_engine, calls.prefill_meanwhile, np.nan), _NO_TIMES
        ),
        _decode_by("prefill_ms"),
    ),
    "to_read": _row(
        "input tokens that no cache held, of all calls",
        "per_s",
        lambda case: _sides(case, _to_read, _NO_INPUT),
    ),
    "queued": _row(
        "time of a call in the engine's queue",
        "ms",
        _per_call(
            lambda calls: np.where(calls.has_engine, calls.of("queue_ms"), np.nan), _NO_TIMES
        ),
    ),
    "first_token": _row(
        "time of a call to its first token",
        "ms",
        _per_call(lambda calls: calls.of("ttft_ms"), "no time to first token is recorded"),
    ),
    "pace": _row(
        "time per output token",
        "ms",
        _per_call(
            lambda calls: np.where(calls.of("output_tokens") >= MIN_TOKENS, calls.token_ms, np.nan),
            "no time per output token is recorded",
        ),
    ),
    "pace_equal_load": _row(
        "time per output token at equal load",
        "times",
        _equal_pace,
        _decode_by("rest_ms"),
    ),
    "read_pace": _row("prefill of prompts of the same size", "times", _read_pace),
    "first_equal_load": _row("first token at equal load", "times", _equal_first),
    "in_flight": _row(
        "calls under way when a call begins",
        "calls",
        _per_call(lambda calls: calls.in_flight, "fewer than 30 model calls are stored"),
    ),
    "replica_share": _row("work of the busiest replica", "ratio", _replica_share, _on_replica),
    "replica_pace": _row("time of the slowest replica over its peers'", "times", _replica_pace),
    "tenant_share": _row("work of the tenant that grew most", "ratio", _tenant, _by_tenant),
    "kv_usage": _row(
        "KV cache in use",
        "ratio",
        _gauge("kv_cache_usage", "engines report no KV usage: scrape their metrics"),
        source=ENGINES,
        among="engines",
    ),
    "kv_capacity": _row(
        "room of the KV cache",
        "times",
        _capacity,
        source=ENGINES,
        falls=True,
        among="engines",
    ),
    "preemptions": _row(
        "calls preempted a second",
        "per_s",
        _gauge("preemptions", "engines report no preemptions: scrape their metrics"),
        source=ENGINES,
        among="engines",
    ),
    "waiting": _row(
        "calls in the queue",
        "calls",
        _gauge("queue_depth", "engines report no queue: scrape their metrics"),
        source=ENGINES,
        among="engines",
    ),
    "clock": _row(
        "clock of the GPU that fell most",
        "hz",
        _clock,
        _slower_machine,
        source="GPU metrics",
        falls=True,
        among="engines",
    ),
    "refusals": _row("calls that were refused (429)", "ratio", _share_of_calls(_refused)),
    "failures": _row(
        "calls that failed",
        "ratio",
        _share_of_calls(lambda calls: calls.of("error") == 1.0),
    ),
    "cut_answers": _row("answers cut at max_tokens", "ratio", _share_of_calls(_cut)),
    "for_nobody": _row("output written after the caller left", "ratio", _for_nobody),
    "drafts": _row(
        "tokens of a step with drafts",
        "tokens",
        _gauge("spec_accept_length", "engines report no accepted drafts: scrape their metrics"),
        source=ENGINES,
        falls=True,
        among="engines",
    ),
    "engine_gap": _row(
        "time of a call outside of the engine",
        "ms",
        _per_call(gap_ms, "client and engine are not both recorded"),
    ),
    "silence": _row(
        "late calls after a silence or swap, against others",
        "ratio",
        _after_silence,
        _of_traces(lambda case: case.reuse, WAITED_IN),
    ),
    "kind": _row(
        "late calls of one kind, against others",
        "ratio",
        _kind,
        _of_traces(lambda case: case.call_kind, HELD_UP_IN),
    ),
    "constant": _row(
        "late calls that take a constant longer",
        "ratio",
        _constant,
        _of_traces(lambda case: case.constant_added, CONNECTED_IN),
        among="late calls",
    ),
    "overtaken": _row(
        "later requests served before slow ones that wait",
        "ratio",
        _overtaken,
        among=SLOW,
    ),
    "first_against_end": _row("delay of first tokens beyond that of ends", "ms", _held, among=SLOW),
    "waited_inside": _row(
        "time in a call before its first attempt",
        "ms",
        _inside("waited_ms"),
        source="spans of HTTP clients",
        among=SLOW,
    ),
    "lost_inside": _row(
        "time in a call in failed attempts and pauses",
        "ms",
        _inside("lost_ms"),
        source="spans of HTTP clients",
        among=SLOW,
    ),
}
TABLE: Final = Table(ROWS, (stages, operations))
