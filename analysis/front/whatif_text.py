"""How does a what-if read in a terminal? The headline, a table of quantiles before and after, what it costs, and how far to trust it."""

from __future__ import annotations

from typing import Final

from overrun.analysis.front.document import Cell, Document, Figure, Line, Table
from overrun.analysis.whatif.prediction import Effect, Fitted, Prediction
from overrun.analysis.words.finding import (
    printable,
    say_after,
    say_costs,
    say_count,
    say_ms,
    say_over,
    say_ratio,
)

_NAMES: Final = {"ttft": "TTFT", "e2e": "E2E", "tpot": "TPOT"}
_METHODS: Final = {
    "exact": "exact arithmetic on the recorded requests",
    "simulated": "simulated by replaying the arrivals through the calibrated engine",
    "resampled": "resampled from recorded calls",
    "estimate": "an estimate from your factor",
    "client_only": "an estimate by replaying the arrivals through engines that were guessed from the clients' times",
}


def document(answer: Prediction) -> Document:
    """Return what a what-if says."""
    title, engines = (
        Line((f"What if: {answer.title}?",)),
        [Line((_engine(one),)) for one in answer.engine],
    )
    gain = answer.predicted
    if gain is None:
        why = answer.reasons.get("predicted", "nothing to predict")
        return Document([[title], [Line((f"No answer: {why}.",)), *engines]])
    head = [
        f"{_NAMES.get(gain.metric, gain.metric)} P{100 * gain.quantile:g}: {say_ms(gain.before)} -> {say_after(gain)}{_band(gain.interval)}, "
        f"{say_ratio(gain.touched_ratio)} of {answer.requests:,} requests change{f', {over}' if (over := say_over(gain)) else ''}."
    ]
    if answer.goodput_before is not None and answer.goodput_after is not None:
        head.append(
            f"Successful requests within the SLO: {say_ratio(answer.goodput_before)} -> {say_ratio(answer.goodput_after)}."
        )
    guessed = "client_only" in answer.reasons and not answer.bound
    how = _METHODS["client_only" if guessed else answer.method]
    rest = [f"How: {how}{', a bound' if answer.bound else ''}.", f"Holds if {answer.assumption}."]
    if say_costs(gain):
        rest.append(f"Cost: {say_costs(gain)}.")
    if gain.backtest_error_ratio is not None:
        rest.append(
            f"Replay error: {say_ratio(gain.backtest_error_ratio)} at P{100 * gain.quantile:g}, on calls that the calibration had not used."
        )
    rest += [f"Note: {why}." for name, why in answer.reasons.items() if name != "predicted"]
    return Document(
        [
            [title],
            [Line((one,)) for one in head],
            [effects(answer)],
            [*(Line((one,)) for one in rest), *engines],
        ]
    )


def _band(interval: tuple[float, float] | None) -> str:
    return (
        ""
        if interval is None
        else f" (90 % interval {say_ms(interval[0])} to {say_ms(interval[1])})"
    )


def effects(answer: Prediction) -> Table:
    """Return every quantile before and after."""
    head = ("", "before", "after", "90 % interval")
    return Table(head, [_row(effect) for effect in answer.effects], "<>><", least=(14, 10, 10))


def _row(effect: Effect) -> tuple[Cell, ...]:
    name, between = f"{_NAMES[effect.metric]} P{100 * effect.quantile:g}", "-"
    if effect.before is None or effect.after is None:
        return name, Figure(effect.before), "-", next(iter(effect.reasons.values()), "")
    if effect.interval:
        between = f"{say_ms(effect.interval[0])} to {say_ms(effect.interval[1])}"
    return name, Figure(effect.before), Figure(effect.after), between


def _engine(one: Fitted) -> str:
    kv = f"{one.kv_tokens:,} KV tokens" if one.kv_tokens else "KV cache never full"
    seen = max(one.identity_error.values())
    name = f"Engine {printable(one.model)}" if one.model else "Engine"
    guessed = ", guessed, not measured" if one.guessed else ""
    return (
        f"{name}{guessed}: {one.replicas} x {one.scheduler}, {one.token_budget:,} tokens per step, {one.max_sequences:,} sequences at once, "
        f"{kv}; fitted to {say_count(one.calls, 'call')} in {one.seconds:.1f} s, replay error {say_ratio(seen)}."
    )
