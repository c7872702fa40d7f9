"""Is one replica different from its peers? Pace, load and waiting per engine, compared within one model."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.demand import token_costs
from overrun.analysis.evidence.engine_lives import Life, lives
from overrun.analysis.evidence.token_speed import MIN_TOKENS, at_equal_load, beyond_load
from overrun.analysis.words.arrays import BoolArray, FloatArray

NEAR_OVER: Final = 1.1
AS_FAST: Final = 1.25
# Fewest calls of an engine to have a pace of its own, and fewest engines to have peers; usual least group, and one against two.
MIN_CALLS: Final = 20
MIN_ENGINES: Final = 2


class Replica(NamedTuple):
    """One engine: calls, median log pace (observed over expected time in the engine), its standard error, share of work, median and mean wait in ms."""

    name: str
    calls: int
    pace: float
    error: float
    share: float
    wait_ms: float
    mean_wait_ms: float = 0.0


def replicas(calls: Calls, of: str | None = None) -> list[Replica]:
    """Return the engines of a model (`of`, else the one with most calls) in the role with most time spent, by name; empty where engines do not tell theirs.

    Engines that only read prompts for others (one token an answer) are no peers of those that write, nor is one that another replaced. The share
    of one that came or went is that of the time that it lived.
    Expected time = new tokens x cost of one + (output tokens - 1) x cost of one, both fitted over all engines: the pace is free of the work mix.
    """
    model = calls.codes("model")
    named = (
        (calls.codes("engine_instance") >= 0)
        & calls.has_engine
        & known(calls.of("output_tokens"), calls.of("input_tokens"))
    )
    if not named.any():
        return []
    values, counts = np.unique(model[named], return_counts=True)
    asked = named & (
        np.zeros(len(calls), np.bool_)
        if of is None
        else calls.frame["model"].eq_missing(of).to_numpy()
    )
    chosen = _one_role(
        calls, asked if asked.any() else named & (model == values[np.argmax(counts)])
    )
    pace, work = _pace(calls, chosen)
    codes, names = calls.codes("engine_instance"), calls.names("engine_instance")
    out = []
    together = _together(
        lives(np.where(chosen, codes, -1), calls.of("start_s"), calls.codes("trace_key"))
    )
    rates = {
        one.code: float(work[chosen & (codes == one.code)].sum()) / one.lived for one in together
    }
    total = sum(rates.values())
    for one in together:
        code = one.code
        mine = chosen & (codes == code)
        if int(mine.sum()) < MIN_CALLS:
            continue
        spread = 1.4826 * float(np.median(np.abs(pace[mine] - np.median(pace[mine]))))
        out.append(
            Replica(
                names[code],
                int(mine.sum()),
                float(np.median(pace[mine])),
                max(1.2533 * spread / np.sqrt(mine.sum()), 1e-4),
                rates[code] / total if total > 0.0 else 0.0,
                float(np.nanmedian(calls.of("queue_ms")[mine])),
                float(np.nanmean(calls.of("queue_ms")[mine])),
            )
        )
    return out


def _together(found: list[Life]) -> list[Life]:
    """Return the engines that lived beside the one with most calls, itself among them: those that it replaced, or that replaced it, are no peers."""
    most = max(found, key=lambda one: one.calls, default=None)
    return [] if most is None else [one for one in found if one.beside(most)]


def _one_role(calls: Calls, chosen: BoolArray) -> BoolArray:
    """Return which of these calls the engines of the busier role served: those that write answers, or those that read prompts for them."""
    codes, out = calls.codes("engine_instance"), calls.of("output_tokens")
    readers = [
        code
        for code in np.unique(codes[chosen])
        if float(np.median(out[chosen & (codes == code)])) <= 1.0
    ]
    reads = chosen & np.isin(codes, readers)
    spent = np.nan_to_num(calls.of("prefill_ms")) + np.nan_to_num(calls.of("decode_ms"))
    return (
        reads
        if float(spent[reads].sum()) > float(spent[chosen & ~reads].sum())
        else chosen & ~reads
    )


def _pace(calls: Calls, chosen: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Log of observed over expected engine time per call, and its work in expected ms."""
    some = calls.where(chosen)
    cost_in, _ = token_costs(some)
    token = some.token_ms
    usual = float(np.median(token[known(token)])) if known(token).any() else 1.0
    expected = cost_in * calls.new_tokens + usual * np.maximum(
        np.nan_to_num(calls.of("output_tokens")) - 1.0, 0.0
    )
    spent = calls.of("prefill_ms") + calls.of("decode_ms")
    with np.errstate(divide="ignore", invalid="ignore"):
        pace = np.log(spent / np.maximum(expected, 1.0))
    return np.where(np.isfinite(pace), pace, 0.0), np.nan_to_num(expected)


def gini(shares: list[float]) -> float:
    """Return the Gini coefficient of load shares: 0 for even, (k - 1)/k where one of k has all."""
    ordered = np.sort(np.asarray(shares, dtype=np.float64))
    k, total = len(ordered), float(ordered.sum())
    return (
        float((2.0 * np.arange(1, k + 1) - k - 1.0) @ ordered / (k * total))
        if k and total > 0.0
        else 0.0
    )


def lag_at_equal_batch(calls: Calls, engine: str) -> float | None:
    """Return how many times its peers' time a token takes on one engine in batches of equal size; None if that is not known (see `beyond_load`).

    A larger batch is slower on any host: an engine that is sent more than the others lags behind them for that reason.
    """
    return beyond_load(_batches(calls, engine), alike=True)


def lags_in_shared_batches(calls: Calls, engine: str, least: float) -> bool:
    """Return whether an engine takes `least` times its peers' time for a token in batch sizes that both met: no line is drawn beyond what its peers have shown."""
    pace = at_equal_load(_batches(calls, engine))
    return pace is not None and pace >= least


def _batches(calls: Calls, engine: str) -> list[tuple[FloatArray, FloatArray]]:
    """Return batch size and time per token of the calls of an engine's peers of its model, and of its own."""
    mine = (calls.frame["engine_instance"] == engine).fill_null(value=False).to_numpy()
    told = (
        calls.has_engine
        & known(calls.running, calls.token_ms)
        & (calls.of("output_tokens") >= MIN_TOKENS)
    )
    told &= np.isin(calls.codes("model"), calls.codes("model")[mine & told])
    return [(calls.running[side & told], calls.token_ms[side & told]) for side in (~mine, mine)]


def share_on(calls: Calls, engine: str) -> float:
    """Return the part of these calls that one engine served, 0 without any."""
    names = calls.frame["engine_instance"].drop_nulls()
    return float((names == engine).to_numpy().mean()) if len(names) else 0.0
