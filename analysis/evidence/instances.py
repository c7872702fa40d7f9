"""How is each engine instance doing, and which one is sick? A row per instance from its gauges, rates and histograms, each compared with its peers.

Peers are the instances that serve the same models. One is sick where its target gives nothing, where it holds requests and makes no tokens, where its first
tokens come at least twice as late as those of the others beyond what bucket edges leave open, where requests wait at it and not at the others, or where its
tokens follow one another half as slow again on average.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import duckdb
import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.latency.histograms import Increments, load_by_instance, since
from overrun.analysis.numbers.latency.percentiles import min_n
from overrun.analysis.numbers.quality.targets import Sent, Target, is_part, say_target
from overrun.analysis.numbers.window import read_samples
from overrun.analysis.words.finding import printable, say_ms, say_ratio

# What a row shows; the last two are those of engines that embed.
SHOWN: Final = (
    *("running", "running_limit", "queue_depth", "kv_cache_usage", "output_tokens"),
    *("prompt_tokens", "finished", "tpot_mean", "throughput", "embedding_queue_depth"),
    *("embedding_running", "kv_transfer_queue_depth"),
)
_TIMES: Final = ("ttft", "queue", "tpot", "itl", "embedding_queue", "embedding_e2e")
# Own defaults: so many times the others' P95 is sick, so many times their mean time per token, so many times their queue, and of so many requests at least.
_SLOWER: Final = 2.0
_SLOWER_TOKENS: Final = 1.5
_LONGER: Final = 4.0
_LEAST_WAITING: Final = 1.0
# The last part of the window in which an instance that holds requests must have made a token, in samples.
_LAST: Final = 4


class InstanceRow(msgspec.Struct, kw_only=True):
    """One engine instance over the window, or since the onset where there is one: means of gauges and rates, P95 of histograms with their bucket edges.

    Ratios 0..1, times in milliseconds, `output_tokens` per second. `state` is the target's (null: nobody reads it from here). `sick` has the reason why this
    one and not its peers, null where it is like them.
    """

    instance: str
    service: str | None
    models: list[str]
    state: str | None
    running: float | None
    running_limit: float | None
    waiting: float | None
    waiting_ratio: float | None
    kv_cache_usage: float | None
    output_tokens: float | None
    prompt_tokens: float | None
    ttft_p95_ms: float | None
    ttft_p95_interval: tuple[float, float] | None
    queue_p95_ms: float | None
    tpot_mean_ms: float | None
    last: datetime | None
    sick: str | None = None
    reasons: dict[str, str] = {}


def instance_rows(
    con: duckdb.DuckDBPyConnection,
    start: datetime | None,
    end: datetime | None,
    model: str | None,
    made: Sent,
    *,
    from_us: int | None = None,
    only: set[str] | None = None,
    roles: Mapping[str, str] | None = None,
) -> list[InstanceRow]:
    """Return a row per instance that sent an engine's indicators, and per target that gives nothing; `from_us` is the onset, `only` the instances meant.

    Peers serve the same models in the same role (`roles`, by instance, where they are known), and do some work: who has none to do is no measure.
    """
    points = read_samples(
        con, "engine_samples", start, end, model, indicators=list(SHOWN)
    ).with_columns(pl.col("instance").fill_null(""))
    times = load_by_instance(con, start, end, _TIMES, model)
    names = sorted({*points["instance"].unique().to_list(), *(instance for instance, _ in times)})
    rows = [
        _row(
            name,
            points.filter(pl.col("instance") == name),
            {key: one for (of, key), one in times.items() if of == name},
            made,
            from_us,
        )
        for name in names
        if only is None or name in only
    ]
    for target in made.targets:
        if (
            target.state in ("down", "unreadable")
            and not any(is_part(row.instance, target.instance) for row in rows)
            and only is None
        ):
            rows.append(_of_target(target))
    _find_sick(rows, points, made, roles or {})
    for row in rows:
        if row.sick is None:
            row.reasons["sick"] = (
                "no worse than its peers, as far as the metrics show"
                if len(rows) > 1
                else "there is no other instance for comparison"
            )
    return sorted(rows, key=lambda row: (row.sick is None, row.instance))


def sick_rows(rows: list[InstanceRow]) -> list[InstanceRow]:
    """Return the sick instances."""
    return [row for row in rows if row.sick is not None]


def say_sick(rows: list[InstanceRow], most: int = 2) -> str:
    """Return which instances are sick and why, empty where none is."""
    sick = sick_rows(rows)
    said = "; ".join(f"{printable(row.instance)}: {row.sick}" for row in sick[:most])
    return f"{said}; and {len(sick) - most} more" if len(sick) > most else said


def cells(row: InstanceRow) -> tuple[str, ...]:
    """Return a row as texts: instance, state, running, waiting, KV, TTFT P95, queue P95, tokens/s, and what is wrong."""
    running = _number(row.running) + (f" of {row.running_limit:,.0f}" if row.running_limit else "")
    slow = "-" if row.ttft_p95_ms is None else say_ms(row.ttft_p95_ms)
    return (
        printable(row.instance, 40),
        row.state or "-",
        running,
        _number(row.waiting),
        "-" if row.kv_cache_usage is None else say_ratio(row.kv_cache_usage),
        slow,
        "-" if row.queue_p95_ms is None else say_ms(row.queue_p95_ms),
        _number(row.output_tokens),
        row.sick or "",
    )


HEAD: Final = (
    *("instance", "target", "running", "waiting", "KV", "TTFT P95", "queue P95", "tokens/s", ""),
)


def _number(value: float | None) -> str:
    return (
        "-"
        if value is None
        else f"{value:,.0f}"
        if value >= 10.0 or value == 0.0
        else f"{value:.1f}"
    )


def _row(
    name: str, points: pl.DataFrame, times: dict[str, Increments], made: Sent, from_us: int | None
) -> InstanceRow:
    later = points if from_us is None else points.filter(pl.col("time_us") >= from_us)
    means = dict(later.group_by("indicator").agg(pl.col("value").mean()).iter_rows())
    waits = later.filter(pl.col("indicator").is_in(["queue_depth", "embedding_queue_depth"]))[
        "value"
    ].to_numpy()
    ttft, queue = (
        _p95(times.get(key) or times.get(f"embedding_{key}"), from_us) for key in ("ttft", "queue")
    )
    last = points["time_us"].max()
    target = next((target for target in made.targets if is_part(name, target.instance)), None)
    why = {
        "running": "no gauge of running requests",
        "waiting": "no gauge of waiting requests",
        "waiting_ratio": "no gauge of waiting requests",
        "kv_cache_usage": "no gauge of the KV cache",
        "output_tokens": "no count of output tokens",
        "prompt_tokens": "no count of prompt tokens",
        "ttft_p95_ms": "no TTFT histogram with enough values",
        "ttft_p95_interval": "no TTFT histogram with enough values",
        "queue_p95_ms": "no queue histogram with enough values",
        "tpot_mean_ms": "the engine does not report the time of its tokens",
        "running_limit": "the engine does not report its limit",
        "state": "not scraped by this collector",
        "last": "histograms alone",
        "service": "the sender has no name",
    }
    row = InstanceRow(
        instance=name,
        service=made.services.get(name),
        models=made.models.get(name, []),
        state=target.state if target else None,
        running=means.get("running", means.get("embedding_running")),
        running_limit=means.get("running_limit"),
        waiting=means.get("queue_depth", means.get("embedding_queue_depth")),
        waiting_ratio=float((waits > 0.0).mean()) if len(waits) else None,
        kv_cache_usage=means.get("kv_cache_usage"),
        output_tokens=means.get("output_tokens", means.get("throughput")),
        prompt_tokens=means.get("prompt_tokens"),
        ttft_p95_ms=ttft[0] if ttft else None,
        ttft_p95_interval=(ttft[1], ttft[2]) if ttft else None,
        queue_p95_ms=queue[0] if queue else None,
        tpot_mean_ms=1000.0 * means["tpot_mean"]
        if "tpot_mean" in means
        else _mean_ms(times.get("tpot") or times.get("itl"), from_us),
        last=None if last is None else datetime.fromtimestamp(int(str(last)) / 1e6, tz=UTC),
    )
    row.reasons = {key: text for key, text in why.items() if getattr(row, key) is None}
    return row


def _p95(made: Increments | None, from_us: int | None) -> tuple[float, float, float] | None:
    """The P95 in milliseconds and the edges of its bucket; None with too few values, or beyond the last edge."""
    if made is None:
        return None
    later = made if from_us is None else since(made, from_us)
    found = later.quantile(0.95) if later.n >= min_n(95.0) else None
    return None if found is None else (1000.0 * found[0], 1000.0 * found[1], 1000.0 * found[2])


def _mean_ms(made: Increments | None, from_us: int | None) -> float | None:
    """The exact mean in milliseconds; None without sums, or with fewer values than a P95 needs."""
    if made is None:
        return None
    later = made if from_us is None else since(made, from_us)
    mean = later.mean if later.n >= min_n(95.0) else None
    return None if mean is None else 1000.0 * mean


def _of_target(target: Target) -> InstanceRow:
    nulls = (
        *("running", "running_limit", "waiting", "waiting_ratio", "kv_cache_usage"),
        *("output_tokens", "prompt_tokens", "ttft_p95_ms", "ttft_p95_interval", "queue_p95_ms"),
        *("tpot_mean_ms", "service", "last"),
    )
    return InstanceRow(
        instance=target.instance,
        service=None,
        models=[],
        state=target.state,
        running=None,
        running_limit=None,
        waiting=None,
        waiting_ratio=None,
        kv_cache_usage=None,
        output_tokens=None,
        prompt_tokens=None,
        ttft_p95_ms=None,
        ttft_p95_interval=None,
        queue_p95_ms=None,
        tpot_mean_ms=None,
        last=None,
        reasons=dict.fromkeys(nulls, f"the target is {target.state}"),
    )


def _find_sick(
    rows: list[InstanceRow], points: pl.DataFrame, made: Sent, roles: Mapping[str, str]
) -> None:
    """Say of each row why it is sick, if it is. In place."""
    for row in rows:
        target = next(
            (target for target in made.targets if is_part(row.instance, target.instance)), None
        )
        if target is not None and target.state in ("down", "unreadable"):
            row.sick = say_target(target).removeprefix(f"{printable(target.instance)} ")
            continue
        peers = [
            other
            for other in rows
            if other is not row
            and sorted(other.models) == sorted(row.models)
            and roles.get(other.instance) == roles.get(row.instance)
            and (other.running is None or other.running > 0.0 or bool(other.output_tokens))
            and other.state not in ("down", "unreadable")
        ]
        if peers:
            row.sick = (
                _stuck(row, peers, points)
                or _slower(row, peers)
                or _fuller(row, peers)
                or _slower_tokens(row, peers)
            )


def _stuck(row: InstanceRow, peers: list[InstanceRow], points: pl.DataFrame) -> str | None:
    """It holds requests and makes no tokens, while others do."""
    last = {name: _tail(points, row.instance, name) for name in ("running", "output_tokens")}
    held, tokens = last["running"], last["output_tokens"]
    if (
        held is None
        or tokens is None
        or len(tokens) < _LAST
        or held.min() <= 0.0
        or tokens.max() > 0.0
    ):
        return None
    moving = [
        peer
        for peer in peers
        if (others := _tail(points, peer.instance, "output_tokens")) is not None
        and others.max() > 0.0
    ]
    return f"holds {held.mean():,.0f} requests and writes no tokens" if moving else None


def _tail(
    points: pl.DataFrame, instance: str, indicator: str
) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    values = (
        points.filter((pl.col("instance") == instance) & (pl.col("indicator") == indicator))
        .sort("time_us")["value"]
        .to_numpy()
    )
    return values[-_LAST:] if len(values) else None


def _slower(row: InstanceRow, peers: list[InstanceRow]) -> str | None:
    """Its first tokens come later than the others', by more than bucket edges leave open."""
    known = [
        peer
        for peer in peers
        if peer.ttft_p95_ms is not None and peer.ttft_p95_interval is not None
    ]
    if row.ttft_p95_ms is None or row.ttft_p95_interval is None or not known:
        return None
    usual = sorted(known, key=lambda peer: peer.ttft_p95_ms or 0.0)[(len(known) - 1) // 2]
    if usual.ttft_p95_ms is None or usual.ttft_p95_interval is None:
        return None
    if (
        row.ttft_p95_ms < _SLOWER * usual.ttft_p95_ms
        or row.ttft_p95_interval[0] < usual.ttft_p95_interval[1]
    ):
        return None
    return f"TTFT P95 {say_ms(row.ttft_p95_ms)}, {say_ms(usual.ttft_p95_ms)} on the others{_held(row, peers)}"


def _fuller(row: InstanceRow, peers: list[InstanceRow]) -> str | None:
    """Requests wait at it and hardly at the others."""
    others = [peer.waiting for peer in peers if peer.waiting is not None]
    if (
        row.waiting is None
        or row.waiting < _LEAST_WAITING
        or not others
        or row.waiting < _LONGER * max(float(np.median(others)), _LEAST_WAITING / _LONGER)
    ):
        return None
    return f"{row.waiting:,.1f} requests wait, {float(np.median(others)):,.1f} on the others{_held(row, [])}"


def _slower_tokens(row: InstanceRow, peers: list[InstanceRow]) -> str | None:
    """Its tokens follow one another more slowly than on the others. Means of histograms are exact, whatever their buckets."""
    known = sorted(peer.tpot_mean_ms for peer in peers if peer.tpot_mean_ms is not None)
    if row.tpot_mean_ms is None or not known:
        return None
    usual = known[(len(known) - 1) // 2]
    # Not a factor of nothing: a histogram without time has a mean of 0.
    if usual <= 0.0 or row.tpot_mean_ms < _SLOWER_TOKENS * usual:
        return None
    return f"{say_ms(row.tpot_mean_ms)} for each output token, {say_ms(usual)} on the others"


def _held(row: InstanceRow, peers: list[InstanceRow]) -> str:
    """How many wait and how full the cache is, as far as it is known."""
    parts = []
    if peers and row.waiting is not None and row.waiting >= _LEAST_WAITING:
        parts.append(f"{row.waiting:,.0f} wait")
    if row.kv_cache_usage is not None:
        parts.append(f"KV cache {say_ratio(row.kv_cache_usage)}")
    return f" ({', '.join(parts)})" if parts else ""
