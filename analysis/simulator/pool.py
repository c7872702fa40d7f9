"""Which calls shared one set of engines, and what do we know about its settings? From calls with engine times to what the simulator runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.evidence.engine_lives import lives, slots
from overrun.analysis.evidence.repeated_calls import impatient
from overrun.analysis.evidence.speculative_drafts import (
    COST_A_TOKEN,
    recorded_draft,
    recorded_length,
    share_of,
)
from overrun.analysis.simulator.batching import LEAST_LOAD, RECORDED, ROUND_ROBIN
from overrun.analysis.simulator.conversations import Meant, linked, meant
from overrun.analysis.simulator.engine import Calls, Setup, apart
from overrun.analysis.simulator.ranks import ranks_of
from overrun.analysis.simulator.recording import Recording
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.finding import say_ratio

# Least calls to fit six coefficients and two settings from; own default, ten per fitted number and room for the hold-out.
MIN_CALLS: Final = 100
# Below this share of the traffic the missing calls' batches are missing too: rules that need every co-batched request refuse there.
MIN_COVERAGE: Final = 0.9
UNLIMITED_KV: Final = 1 << 40
# More replicas than this are simulated as drawn from the recording: the event loop scans them.
MOST_REPLICAS: Final = 256
# The default of vLLM's max_num_seqs; taken where no limit was ever met.
DEFAULT_SEQUENCES: Final = 1024
# Calls per replica that come before the first one of a new one: one that was there is passed over so often once in e^10 times; own default.
CALLS_AHEAD: Final = 10
# Share of the calls that went to a replica with fewest in flight, or that came in turn, from which a router is taken to look for it; own default. In turn,
# with one of two replicas half as quick again, two thirds go to fewest in flight; by chance at most half of the calls come in turn.
_BALANCES: Final = 0.8
# KV usage samples below this show rounding rather than capacity.
_LEAST_USAGE: Final = 0.2
# Above this usage calls may have been preempted; own default.
_CALM_USAGE: Final = 0.8


@dataclass(frozen=True)
class Pool:
    """Calls of one model on equal replicas, with what was recorded of them (seconds, arrays of shape (n,)).

    `rows` are the rows in `facts.calls`; `arrived_s` when each reached the engine, `ttft_s` and `e2e_s` are the engine's, from then on. `kv_tokens` is a
    replica's capacity if gauges report it, `most_running` the most calls seen in a replica at once. `born_s` is when each replica was first seen, -inf for
    those that were there from the beginning.
    `session` numbers the conversations, -1 if none is recorded, `meant` is when their turns were meant to come. `told_ratio` is the part of the calls whose
    engine's span is there: of the others, those that are `guessed` (None: none) take seats on a replica that is not known, with times that their clients and
    their neighbours suggest, and no replay is scored by them. A step yields `accepted` tokens of a sequence, and checks `drafted` beside the one that it is
    sure of (speculative decoding). A replica holds `shared_tokens` of KV for several calls at once (a system prompt that all of them find in the cache).
    `sighted` are the calls that arrived while engines recorded all or nearly all calls in flight, None if that is not known.
    """

    model: str | None
    rows: IntArray
    calls: Calls
    arrived_s: FloatArray
    ttft_s: FloatArray
    e2e_s: FloatArray
    queue_s: FloatArray
    instances: tuple[str, ...]
    born_s: tuple[float, ...]
    kv_tokens: int | None
    most_running: int
    session: IntArray
    meant: Meant
    told_ratio: float = 1.0
    accepted: float = 1.0
    drafted: float = 0.0
    shared_tokens: int = 0
    sighted: BoolArray | None = None
    guessed: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def told(self) -> BoolArray:
        """The calls with an engine span."""
        told: BoolArray = np.ones(len(self), np.bool_) if self.guessed is None else ~self.guessed
        return told

    @property
    def ended_s(self) -> FloatArray:
        """When each call ended, as recorded."""
        ended: FloatArray = self.arrived_s + self.e2e_s
        return ended

    @property
    def replicas(self) -> int:
        """How many engines were seen."""
        return max(1, len(self.instances))

    @cached_property
    def router(self) -> int:
        """How calls seem to be distributed: in turn, to the replica with fewest in flight, or only as recorded."""
        replica, known = self.calls.replica, self.calls.replica >= 0
        if self.replicas < 2 or not known.any():
            return RECORDED
        # Beside calls without engine telemetry (it stopped them when their clients left) the least load is not known.
        told = known if self.sighted is None else known & self.sighted
        in_flight = np.zeros((len(self), self.replicas))
        for r in range(self.replicas):
            begun, ended = (
                np.sort(self.arrived_s[replica == r]),
                np.sort(self.ended_s[replica == r]),
            )
            in_flight[:, r] = np.searchsorted(begun, self.arrived_s) - np.searchsorted(
                ended, self.arrived_s, side="right"
            )
            in_flight[self.arrived_s < self.born_s[r], r] = np.inf
        own = in_flight[np.arange(len(self)), np.maximum(replica, 0)]
        if told.any() and float((own <= in_flight.min(axis=1))[told].mean()) >= _BALANCES:
            return LEAST_LOAD
        return (
            ROUND_ROBIN
            if _in_turn(
                replica[known][np.argsort(self.arrived_s[known], kind="stable")], self.replicas
            )
            else RECORDED
        )

    def take(self, rows: IntArray) -> Pool:
        """Some of the calls, as if the others had never come; what followed a call that is not among them arrives when it did."""
        place = np.full(len(self), -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        calls, cut = self.calls, self.calls.after[rows]
        after = np.where(cut >= 0, place[cut], -1)
        followed = calls.follows[rows]
        own = {name: getattr(calls, name)[rows] for name in calls.__slots__}
        own |= {"after": after, "follows": np.where(followed >= 0, place[followed], -1)}
        own["arrival_s"] = np.where(
            (cut >= 0) & (after < 0), self.arrived_s[rows], own["arrival_s"]
        )
        recorded = {
            name: getattr(self, name)[rows]
            for name in ("rows", "ttft_s", "e2e_s", "queue_s", "arrived_s", "session")
        }
        sighted, guessed = (
            None if flag is None else flag[rows] for flag in (self.sighted, self.guessed)
        )
        return replace(
            self,
            calls=Calls(**own),
            meant=self.meant.take(rows),
            sighted=sighted,
            guessed=guessed,
            **recorded,
        )

    def drawn(self, draw: int = 0) -> Pool:
        """The pool with calls that come when they were meant to come, as soon as the answers that they wait for are there: one of the draws of that."""
        calls, at = self.calls, self.meant.at_s[draw % len(self.meant.at_s)]
        return replace(
            self,
            calls=replace(
                calls,
                arrival_s=np.where(calls.after >= 0, calls.arrival_s, at),
                lag_s=self.meant.lag_s,
            ),
        )

    def setup(self) -> Setup:
        """The settings to begin the search with."""
        return Setup(
            replicas=self.replicas,
            kv_tokens=self.kv_tokens or UNLIMITED_KV,
            shared_tokens=self.shared_tokens,
            max_sequences=max(DEFAULT_SEQUENCES, self.most_running),
            speed=(1.0,) * self.replicas,
            born_s=self.born_s,
            tokens_per_step=self.accepted,
            drafted=self.drafted,
            draft_share=share_of(COST_A_TOKEN * self.drafted),
        )


def _in_turn(replica: IntArray, replicas: int) -> bool:
    """Return whether the calls to these replicas, in order of arrival, go round: from one call of a replica to its next come all of the others, give or
    take those that overtook each other on their way or that have no span."""
    gaps = np.concatenate([np.diff(np.flatnonzero(replica == r)) for r in range(replicas)])
    return (
        len(gaps) > 0
        and float((np.abs(gaps - replicas) <= (replicas - 1) // 2).mean()) >= _BALANCES
    )


def pools(facts: Recording) -> tuple[list[Pool], str | None]:
    """Return the pools that can be simulated, and why there is none (or None).

    A pool is a model with at least `MIN_CALLS` calls of which 90 % carry engine times and token counts.
    """
    calls = facts.calls.with_row_index("row")
    if calls.is_empty():
        return [], "the window holds no model call"
    # A call that failed or was given up loaded the engine all the same if it has an engine span.
    usable = (
        pl.col("engine_e2e_ms").is_not_null()
        & (pl.col("input_tokens") > 0)
        & (pl.col("output_tokens") > 0)
        & (pl.col("ttft_engine_ms").is_not_null() | pl.col("prefill_ms").is_not_null())
    )
    # An engine's half of an abandoned call may lack its model: it is the model of the same engine's other calls.
    engine = pl.coalesce("engine_instance", "instance")
    calls = calls.with_columns(
        usable=usable.fill_null(False),
        model=pl.coalesce("model", pl.col("model").drop_nulls().mode().first().over(engine)),
    )
    if not calls["usable"].any():
        return [], (
            "the calls carry no engine times (queue, prefill, decode), so the effect of load is not known: switch tracing on in the inference "
            "server. For a provider only exact, resampled and estimated answers are possible"
        )
    found, lacking = [], []
    for (model,), group in calls.group_by("model", maintain_order=True):
        served = group.filter(~pl.col("error").fill_null(False) | pl.col("usable"))
        with_times = served.filter("usable")
        if with_times.height < MIN_CALLS:
            lacking.append(
                f"{with_times.height} calls with engine times, at least {MIN_CALLS} are needed: widen the window"
            )
            continue
        seen = min(with_times.height / served.height, _coverage(facts, with_times))
        if seen < MIN_COVERAGE:
            lacking.append(
                f"only {say_ratio(seen)} of the engine's traffic is recorded, at least {say_ratio(MIN_COVERAGE)} is needed to know its batches: "
                "switch sampling off for the engine's spans"
            )
            continue
        every = pl.concat(
            [with_times.with_columns(guessed=pl.lit(False)), _guessed(group, with_times)],
            how="diagonal",
        ).sort("row")
        guessed = every["guessed"].to_numpy()
        sighted = np.zeros(len(guessed), np.bool_)
        sighted[~guessed] = _sighted(group, with_times)
        found.append(
            replace(
                _pool(facts, None if model is None else str(model), every),
                told_ratio=with_times.height / served.height,
                sighted=sighted,
                guessed=guessed if guessed.any() else None,
            )
        )
    return found, None if found else lacking[0]


def _guessed(calls: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """The calls without engine telemetry although nearly all others have it, with estimated values from their clients and their neighbours:
    those that were answered, and those that were given up where engines mostly write on then (as much as the next call of that request had)."""
    if calls["usable"].all():
        return calls.clear().with_columns(guessed=pl.lit(True))
    ahead = calls.with_columns(
        **{
            name: pl.col(name).backward_fill().over("trace_id")
            for name in ("input_tokens", "output_tokens")
        },
        guessed=pl.lit(True),
    )
    left = pl.col("error").fill_null(False) & impatient()
    gave_up = told.filter(left & ~pl.col("engine_alone").fill_null(False))
    on = gave_up.filter(pl.col("engine_e2e_ms") > 1.5 * pl.col("e2e_ms")).height
    goes_on = 2 * on > calls.filter(left & ~pl.col("engine_alone").fill_null(False)).height
    lost = ahead.filter(
        ~pl.col("usable")
        & (~pl.col("error").fill_null(False) | (left & goes_on))
        & pl.col("e2e_ms").is_not_null()
        & (pl.col("input_tokens") > 0)
        & (pl.col("output_tokens") > 0)
    )
    if lost.is_empty():
        return lost
    at, told = lost["start_us"].to_numpy(), told.sort("start_us")
    ms = {
        name: told[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
        for name in (
            "e2e_ms",
            "engine_e2e_ms",
            "ttft_client_ms",
            "ttft_engine_ms",
            "queue_ms",
            "prefill_ms",
            "output_tokens",
        )
    }
    first = np.where(
        np.isnan(ms["ttft_engine_ms"]),
        np.nan_to_num(ms["queue_ms"]) + ms["prefill_ms"],
        ms["ttft_engine_ms"],
    )
    heard = (
        ~told["error"].fill_null(False).to_numpy()
        & ~told["engine_alone"].fill_null(False).to_numpy()
    )
    way = _median((ms["e2e_ms"] - ms["engine_e2e_ms"])[heard])
    seen = lost["ttft_client_ms"].cast(pl.Float64).fill_null(np.nan).to_numpy() - _median(
        (ms["ttft_client_ms"] - first)[heard]
    )
    ttft = np.maximum(
        np.where(np.isnan(seen), np.interp(at, told["start_us"].to_numpy(), first), seen), 1.0
    )
    token = _median((ms["engine_e2e_ms"] - first) / np.maximum(ms["output_tokens"] - 1.0, 1.0))
    answered = ~lost["error"].fill_null(False).to_numpy()
    whole = np.where(
        answered,
        lost["e2e_ms"].to_numpy() - way,
        ttft + token * (lost["output_tokens"].to_numpy() - 1.0),
    )
    queue = np.maximum(ttft - _median(first - np.nan_to_num(ms["queue_ms"])), 0.0)
    return lost.with_columns(
        engine_e2e_ms=np.maximum(whole, ttft),
        ttft_engine_ms=ttft,
        queue_ms=queue,
        prefill_ms=ttft - queue,
    )


def _median(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else 0.0


def _sighted(calls: pl.DataFrame, told: pl.DataFrame) -> BoolArray:
    """Return for each call with an engine span whether nearly all calls in flight at its arrival have one: a client's half of a call does not show
    where it ran. One that was given up stands by its engine's half where its request has one."""
    at, untold = told["start_us"].to_numpy(), calls.filter(~pl.col("usable"))
    whole: BoolArray = _in_flight(untold, at) == 0
    if int(whole.sum()) >= MIN_CALLS:
        return whole
    halves = told.filter(pl.col("engine_alone").fill_null(False))["trace_id"].unique()
    unseen = untold.filter(
        ~(pl.col("error").fill_null(False) & pl.col("trace_id").is_in(halves.implode()))
    )
    seen, missing = (_in_flight(side, at) for side in (told, unseen))
    sighted: BoolArray = missing * MIN_COVERAGE <= (1.0 - MIN_COVERAGE) * seen
    return sighted


def _in_flight(calls: pl.DataFrame, at_us: IntArray) -> IntArray:
    """How many of the calls had begun and not ended at each moment; what an engine still works on has not."""
    begun = calls["start_us"].to_numpy()
    ended = (
        begun
        + 1000.0
        * calls.select(pl.max_horizontal("e2e_ms", "engine_e2e_ms").fill_null(0.0))
        .to_series()
        .to_numpy()
    )
    count: IntArray = np.searchsorted(np.sort(begun), at_us, side="right") - np.searchsorted(
        np.sort(ended), at_us, side="right"
    )
    return count


def _coverage(facts: Recording, calls: pl.DataFrame) -> float:
    """Output tokens of the calls over those that the engines' own counters report, over the time that both cover; 1 without counters."""
    counted = facts.points.filter(pl.col("indicator") == "output_tokens").sort("time_us")
    if counted["time_us"].n_unique() < 3:
        return 1.0
    # An engine writes on for a client that gave up.
    start, whole = (
        calls["start_us"].to_numpy().astype(np.float64),
        calls.select(pl.max_horizontal("e2e_ms", "engine_e2e_ms")).to_series().to_numpy() * 1000.0,
    )
    # Calls that began after the last one here are not loaded, though the counters go on and count them.
    begin = max(float(counted["time_us"].min()), float(start.min()))  # type: ignore[arg-type]
    end = min(float(counted["time_us"].max()), float(start.max()))  # type: ignore[arg-type]
    total = 0.0
    for (_instance,), one in counted.group_by("instance"):
        at, rate = one["time_us"].to_numpy(), one["value"].to_numpy()
        total += float((rate[1:] * np.diff(np.clip(at, begin, end))).sum()) / 1e6
    first = (
        start
        + np.nan_to_num(calls["ttft_engine_ms"].cast(pl.Float64).fill_null(0.0).to_numpy()) * 1000.0
    )
    inside = (np.clip(start + whole, begin, end) - np.clip(first, begin, end)) / np.maximum(
        start + whole - first, 1.0
    )
    ours = float((calls["output_tokens"].to_numpy() * np.clip(inside, 0.0, 1.0)).sum())
    return min(1.0, ours / total) if total > 0.0 else 1.0


def _pool(facts: Recording, model: str | None, calls: pl.DataFrame) -> Pool:
    n = calls.height
    ms = {
        name: calls[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
        for name in (
            "e2e_ms",
            "engine_e2e_ms",
            "ttft_ms",
            "ttft_client_ms",
            "ttft_engine_ms",
            "queue_ms",
            "prefill_ms",
        )
    }
    ttft = np.where(
        np.isnan(ms["ttft_engine_ms"]),
        np.nan_to_num(ms["queue_ms"]) + ms["prefill_ms"],
        ms["ttft_engine_ms"],
    )
    e2e = np.maximum(ms["engine_e2e_ms"], ttft)
    guessed = calls["guessed"].to_numpy()
    rows = calls["row"].to_numpy().astype(np.int64)
    half = np.maximum(ms["e2e_ms"] - ms["engine_e2e_ms"], 0.0) / 2.0
    way = np.where(guessed | np.isnan(facts.way_there_ms[rows]), half, facts.way_there_ms[rows])
    start = calls["start_us"].to_numpy() / 1e6
    arrival = start - start.min() + way / 1000.0
    names = calls.select(
        pl.when(~pl.col("guessed")).then(pl.coalesce("engine_instance", "instance").fill_null(""))
    ).to_series()
    instances, replica = _replicas(names, start)
    after, gap = _chains(facts, rows, arrival, arrival + e2e / 1000.0)
    tokens = {
        name: calls[name].cast(pl.Int64).fill_null(0).to_numpy()
        for name in ("input_tokens", "output_tokens")
    }
    cached = np.clip(_cached(calls), 0, tokens["input_tokens"] - 1)
    queue_s = np.nan_to_num(ms["queue_ms"]) / 1000.0
    made = Calls(
        arrival_s=np.where(after >= 0, gap, arrival),
        after=after,
        prompt_tokens=tokens["input_tokens"],
        cached_tokens=cached,
        output_tokens=tokens["output_tokens"],
        replica=replica,
        pool_from=np.zeros(n, dtype=np.int64),
        pool_to=np.full(n, MOST_REPLICAS, dtype=np.int64),
        weight=np.ones(n),
        gated=np.zeros(n, np.bool_),
        **apart(n),
    )
    ttft_s, e2e_s = ttft / 1000.0, e2e / 1000.0
    begun, ended = arrival + queue_s, arrival + e2e_s
    running = max(
        _most_at_once(begun[replica == r], ended[replica == r])
        for r in np.unique(replica[~guessed])
    )
    fresh = tokens["input_tokens"] - cached
    kv = _kv_tokens(
        facts,
        model,
        start,
        arrival + start.min(),
        queue_s,
        ttft_s,
        e2e_s,
        fresh,
        tokens["output_tokens"],
        instances,
    )
    talk = _conversations(calls)
    begun, over = _requests(facts, rows, start.min(), arrival, arrival + e2e_s)
    made = linked(made, talk, begun, arrival, arrival + e2e_s)
    shared = _shared_tokens(
        facts,
        model,
        kv,
        start.min(),
        made,
        arrival + queue_s,
        arrival + ttft_s,
        arrival + e2e_s,
        len(instances),
    )
    own = meant(made, talk, begun, over, arrival, arrival + e2e_s)
    points = _of_model(facts, model)
    return Pool(
        model,
        rows,
        made,
        arrival,
        ttft_s,
        e2e_s,
        queue_s,
        instances,
        _born(arrival, replica, len(instances)),
        kv,
        running,
        talk,
        own,
        accepted=max(1.0, recorded_length(points)),
        drafted=recorded_draft(points),
        shared_tokens=shared,
    )


def _replicas(names: pl.Series, start_s: FloatArray) -> tuple[tuple[str, ...], IntArray]:
    """Return the replicas by the engine that was last in each one's place, and the replica of each call; -1 unknown, or beyond MOST_REPLICAS.

    An engine that came when another one had gone stands in its place: a rollout makes no second replica.
    """
    every = sorted(names.drop_nulls().unique().to_list())
    code = dict(zip(every, range(len(every)), strict=True))
    codes = np.array([code.get(name, -1) for name in names.to_list()], dtype=np.int64)
    found = lives(codes, start_s)
    place = slots(found)
    latest: dict[int, tuple[float, str]] = {}
    for one in found:
        at = place[one.code]
        latest[at] = max(latest.get(at, (-1.0, "")), (one.end, every[one.code]))
    order = sorted(latest, key=lambda at: latest[at][1])[:MOST_REPLICAS]
    row = {at: k for k, at in enumerate(order)}
    replica = np.array([row.get(place.get(int(c), -1), -1) for c in codes], dtype=np.int64)
    return tuple(latest[at][1] for at in order), replica


def made(
    facts: Recording, model: str | None, calls: pl.DataFrame, ttft_s: FloatArray, e2e_s: FloatArray
) -> Pool:
    """Return a pool of calls that only their clients timed (seconds from the sending of each on): no replica is known, and no wait is separated."""
    n = calls.height
    start = calls["start_us"].to_numpy() / 1e6
    arrival, rows = start - start.min(), calls["row"].to_numpy().astype(np.int64)
    after, gap = _chains(facts, rows, arrival, arrival + e2e_s)
    tokens = {
        name: calls[name].cast(pl.Int64).to_numpy() for name in ("input_tokens", "output_tokens")
    }
    asked = Calls(
        arrival_s=np.where(after >= 0, gap, arrival),
        after=after,
        prompt_tokens=tokens["input_tokens"],
        cached_tokens=np.clip(_cached(calls), 0, tokens["input_tokens"] - 1),
        output_tokens=tokens["output_tokens"],
        replica=np.full(n, -1, dtype=np.int64),
        pool_from=np.zeros(n, dtype=np.int64),
        pool_to=np.full(n, MOST_REPLICAS, dtype=np.int64),
        weight=np.ones(n),
        gated=np.zeros(n, np.bool_),
        **apart(n),
    )
    talk = _conversations(calls)
    begun, over = _requests(facts, rows, start.min(), arrival, arrival + e2e_s)
    asked = linked(asked, talk, begun, arrival, arrival + e2e_s)
    own = meant(asked, talk, begun, over, arrival, arrival + e2e_s)
    return Pool(
        model,
        rows,
        asked,
        arrival,
        ttft_s,
        e2e_s,
        np.zeros(n),
        (),
        (),
        None,
        _most_at_once(arrival, arrival + e2e_s),
        talk,
        own,
    )


def _requests(
    facts: Recording, rows: IntArray, zero_s: float, arrival: FloatArray, end: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """When the request of each call began and ended, in seconds after `zero_s`; the call itself where its request is not known."""
    request = facts.request_of[rows]
    known = request >= 0
    start = facts.requests["start_us"].to_numpy() / 1e6 - zero_s
    begun = np.where(known, start[np.maximum(request, 0)], arrival) if len(start) else arrival
    over = (
        np.where(known, (start + facts.ms("e2e_ms") / 1000.0)[np.maximum(request, 0)], end)
        if len(start)
        else end
    )
    return np.minimum(begun, arrival), np.maximum(over, end)


def _conversations(calls: pl.DataFrame) -> IntArray:
    """The number of each call's conversation: its session, else its trace where that has several calls; -1 for a call by itself."""
    name = pl.coalesce("session", pl.when(pl.len().over("trace_id") > 1).then("trace_id"))
    return calls.select(name.rank("dense").cast(pl.Int64).fill_null(0) - 1).to_series().to_numpy()


def _born(arrival: FloatArray, replica: IntArray, replicas: int) -> tuple[float, ...]:
    """When each replica got its first call, -inf for those that may have been there before the first call of all."""
    order = np.sort(arrival)
    first = [
        float(arrival[replica == r].min()) if (replica == r).any() else -np.inf
        for r in range(replicas)
    ]
    return tuple(
        at if np.searchsorted(order, at) >= CALLS_AHEAD * replicas else -np.inf for at in first
    )


def _cached(calls: pl.DataFrame) -> IntArray:
    """Cached tokens of each call; a response that does not name any had none.

    A client that leaves before the response never gets cached tokens: such a call is assumed to hit as much as another one of its trace with an equally
    long prompt, else the usual part of it.
    """
    heard = ~(pl.col("error").fill_null(False) | pl.col("engine_alone").fill_null(False))
    told = (
        pl.when(heard)
        .then(pl.col("cached_tokens").fill_null(0))
        .otherwise(pl.col("cached_tokens"))
        .cast(pl.Float64)
    )
    known = (
        calls.select(told=told, input=pl.col("input_tokens").cast(pl.Float64)).drop_nulls().sum()
    )
    usual = known["told"].item() / max(known["input"].item(), 1.0)
    same = told.max().over("trace_id", "input_tokens")
    found: IntArray = (
        calls.select(pl.coalesce(told, same, usual * pl.col("input_tokens")).fill_null(0.0).round())
        .to_series()
        .cast(pl.Int64)
        .to_numpy()
    )
    return found


def _chains(
    facts: Recording, rows: IntArray, arrival: FloatArray, end: FloatArray
) -> tuple[IntArray, FloatArray]:
    """For each call the one of the same request that it waited for (-1: none), and the gap between that one's end and its own arrival in seconds."""
    after, gap = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows))
    request, on_path = facts.request_of[rows], facts.on_path[rows]
    last: dict[int, int] = {}
    for i in np.argsort(arrival, kind="stable"):
        key = int(request[i])
        if key < 0 or not on_path[i]:
            continue
        before = last.get(key)
        if before is not None and end[before] <= arrival[i]:
            after[i], gap[i] = before, arrival[i] - end[before]
        last[key] = int(i)
    return after, gap


def _most_at_once(begin: FloatArray, end: FloatArray) -> int:
    """The most intervals that overlap at one time."""
    if not len(begin):
        return 0
    change = np.concatenate([np.ones(len(begin)), -np.ones(len(end))])
    order = np.lexsort((change, np.concatenate([begin, end])))
    return int(np.cumsum(change[order]).max())


def _of_model(facts: Recording, model: str | None) -> pl.DataFrame:
    """The engines' samples of this model or without a model."""
    return (
        facts.points
        if model is None
        else facts.points.filter(pl.col("model").is_null() | (pl.col("model") == model))
    )


def _kv_tokens(  # noqa: PLR0913
    facts: Recording,
    model: str | None,
    start: FloatArray,
    arrival: FloatArray,
    queue_s: FloatArray,
    ttft_s: FloatArray,
    e2e_s: FloatArray,
    prompt: IntArray,
    output: IntArray,
    instances: tuple[str, ...],
) -> int | None:
    """A replica's KV capacity in tokens: from its gauge, else tokens in use by the calls over the usage gauge; None without either."""
    points = _of_model(facts, model)
    told = points.filter(pl.col("indicator") == "kv_capacity")
    # What is gone, or serves nobody yet, may have another.
    theirs = told.filter(pl.col("instance").is_in(list(instances)).fill_null(value=False))
    told = told if theirs.is_empty() else theirs
    if len(told):
        ranks = max((len(of) for of in ranks_of(told).values()), default=1)
        return int(np.median(told["value"].to_numpy())) * ranks
    usage = (
        points.filter(pl.col("indicator") == "kv_cache_usage")
        .group_by("time_us")
        .agg(pl.col("value").mean())
        .sort("time_us")
    )
    at, used = usage["time_us"].to_numpy() / 1e6, usage["value"].to_numpy()
    keep = (used > _LEAST_USAGE) & (at > start.min()) & (at < (arrival + e2e_s).max())
    if int(keep.sum()) < 5:
        return None
    tokens = [
        float(_in_use(t, arrival, queue_s, ttft_s, e2e_s, prompt, output).sum()) for t in at[keep]
    ]
    return int(np.median(np.array(tokens) / used[keep] / max(1, len(instances))))


def _shared_tokens(  # noqa: PLR0913
    facts: Recording,
    model: str | None,
    kv_tokens: int | None,
    zero_s: float,
    calls: Calls,
    begun: FloatArray,
    first: FloatArray,
    ended: FloatArray,
    replicas: int,
) -> int:
    """KV tokens of a replica beside those that its calls hold for themselves: the heads that their prompts share, from the usage gauge; 0 without one.

    They are at most what these calls found: a gauge that counts unused blocks shows more.
    """
    points = _of_model(facts, model)
    if kv_tokens is None or points.filter(pl.col("indicator") == "kv_capacity").is_empty():
        return 0  # a capacity that was read off the calls is what is left for them
    usage = (
        points.filter(pl.col("indicator") == "kv_cache_usage")
        .group_by("time_us")
        .agg(pl.col("value").mean())
        .sort("time_us")
    )
    at, used = usage["time_us"].to_numpy() / 1e6 - zero_s, usage["value"].to_numpy() * kv_tokens
    heads = np.where(
        calls.head < 0, calls.cached_tokens, np.minimum(calls.cached_tokens, calls.head)
    )
    each = [
        _in_use(
            t,
            begun,
            np.zeros(len(begun)),
            first - begun,
            ended - begun,
            calls.prompt_tokens,
            calls.output_tokens,
        )
        for t in at
    ]
    found = np.array([float(heads[one > 0.0].sum()) for one in each]) / max(1, replicas)
    held = np.array([float(one.sum()) for one in each]) / max(1, replicas) - found
    # Where it is fuller, calls that were preempted hold nothing though they seem to run.
    calm = (held > _LEAST_USAGE * kv_tokens) & (held < _CALM_USAGE * kv_tokens) & (at < ended.max())
    return (
        max(0, int(np.median(np.minimum(used - held, found)[calm]))) if int(calm.sum()) >= 5 else 0
    )


def _in_use(
    t: float,
    arrival: FloatArray,
    queue_s: FloatArray,
    ttft_s: FloatArray,
    e2e_s: FloatArray,
    prompt: IntArray,
    output: IntArray,
) -> FloatArray:
    """KV tokens that each call holds at time t: its prompt from admission on, and its answer as it grows."""
    inside = (t >= arrival + queue_s) & (t < arrival + e2e_s)
    share = np.clip((t - arrival - ttft_s) / np.maximum(e2e_s - ttft_s, 1e-9), 0.0, 1.0)
    held: FloatArray = np.where(inside, prompt + output * share, 0.0)
    return held
