"""How does a what-if read in a terminal? The headline, a table of quantiles before and after, what it costs, and how far to trust it."""

from __future__ import annotations

from typing import Final

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


def render(answer: Prediction) -> str:
    """Return the answer as lines of text."""
    lines = [f"What if: {answer.title}?", ""]
    gain = answer.predicted
    if gain is None:
        lines += [f"No answer: {answer.reasons.get('predicted', 'nothing to predict')}."]
        return "\n".join(lines + _engines(answer))
    band = (
        f" (90 % interval {say_ms(gain.interval[0])} to {say_ms(gain.interval[1])})"
        if gain.interval
        else ""
    )
    lines.append(
        f"{_NAMES.get(gain.metric, gain.metric)} P{100 * gain.quantile:g}: {say_ms(gain.before)} -> {say_after(gain)}{band}, "
        f"{say_ratio(gain.touched_ratio)} of {answer.requests:,} requests change{f', {over}' if (over := say_over(gain)) else ''}."
    )
    if answer.goodput_before is not None and answer.goodput_after is not None:
        lines.append(
            f"Successful requests within the SLO: {say_ratio(answer.goodput_before)} -> {say_ratio(answer.goodput_after)}."
        )
    lines += ["", f"{'':14}{'before':>12}{'after':>12}   90 % interval"]
    lines += [_row(effect) for effect in answer.effects]
    how = _METHODS[
        "client_only" if "client_only" in answer.reasons and not answer.bound else answer.method
    ]
    lines += [
        "",
        f"How: {how}{', a bound' if answer.bound else ''}.",
        f"Holds if {answer.assumption}.",
    ]
    if say_costs(gain):
        lines.append(f"Cost: {say_costs(gain)}.")
    if gain.backtest_error_ratio is not None:
        lines.append(
            f"Replay error: {say_ratio(gain.backtest_error_ratio)} at P{100 * gain.quantile:g}, on calls that the calibration had not used."
        )
    lines += [f"Note: {why}." for name, why in answer.reasons.items() if name != "predicted"]
    return "\n".join(lines + _engines(answer))


def _row(effect: Effect) -> str:
    name = f"{_NAMES[effect.metric]} P{100 * effect.quantile:g}"
    if effect.before is None or effect.after is None:
        known = "-" if effect.before is None else say_ms(effect.before)
        return f"{name:14}{known:>12}{'-':>12}   {next(iter(effect.reasons.values()), '')}"
    band = (
        f"{say_ms(effect.interval[0])} to {say_ms(effect.interval[1])}" if effect.interval else "-"
    )
    return f"{name:14}{say_ms(effect.before):>12}{say_ms(effect.after):>12}   {band}"


def _engines(answer: Prediction) -> list[str]:
    return [_engine(one) for one in answer.engine]


def _engine(one: Fitted) -> str:
    kv = f"{one.kv_tokens:,} KV tokens" if one.kv_tokens else "KV cache never full"
    seen = max(one.identity_error.values())
    name = f"Engine {printable(one.model)}" if one.model else "Engine"
    guessed = ", guessed, not measured" if one.guessed else ""
    return (
        f"{name}{guessed}: {one.replicas} x {one.scheduler}, {one.token_budget:,} tokens per step, {one.max_sequences:,} sequences at once, "
        f"{kv}; fitted to {say_count(one.calls, 'call')} in {one.seconds:.1f} s, replay error {say_ratio(seen)}."
    )
