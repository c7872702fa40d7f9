"""How few replicas meet every limit? One search over simulated replays for the report's fix and for the plan, so that both propose the same number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import METRICS, Effect, Prediction

# No more than so many times the replicas that are there are looked at; own default.
MOST_TIMES: Final = 8

REPLICAS: Final = "replicas"


def effect_of(told: Prediction, metric: str, percentile: float) -> Effect | None:
    """Return what a prediction says of a metric's percentile (0..100), None where it says nothing of it."""
    return next(
        (
            one
            for one in told.effects
            if one.metric == metric
            and abs(one.quantile - percentile / 100.0) < 1e-9
            and one.after is not None
        ),
        None,
    )


def meets(
    told: Prediction,
    metric: str,
    percentile: float,
    limits: Mapping[str, float],
    *,
    surely: bool = False,
) -> bool:
    """Return whether each limited metric that is predicted is within its limit (ms), and the judged one is predicted; `surely`: with its interval."""
    if effect_of(told, metric, percentile) is None:
        return False
    for name, limit in limits.items():
        one = effect_of(told, name, percentile)
        if one is None:
            continue
        value = one.interval[1] if surely and one.interval is not None else one.after
        if value is not None and value > limit:
            return False
    return True


def fewest_for(
    facts: Facts,
    ask: Callable[[Facts, str, Mapping[str, str | None]], Prediction],
    limits: Mapping[str, float],
    seen: int,
    known: Mapping[int, Prediction],
) -> tuple[int, Prediction] | None:
    """Return the fewest replicas above `seen` that meet every limit (ms by metric), with their prediction; None where no number up to eight times as many does.

    More replicas are taken to be no slower, so that a range can be halved. `known` has what was asked already.
    """
    answers = dict(known)
    wanted = {metric: limit for metric, limit in limits.items() if metric in METRICS}

    def enough(many: int) -> bool:
        if many not in answers:
            answers[many] = ask(facts, REPLICAS, {REPLICAS: str(many)})
        return meets(answers[many], facts.metric, facts.percentile, wanted)

    many = _fewest(enough, seen)
    return None if many is None else (many, answers[many])


def _fewest(enough: Callable[[int], bool], seen: int) -> int | None:
    """The smallest number above `seen` that is enough: steps that double until one is, then the last step is halved; None where none is."""
    below, high, most = seen, seen + 1, MOST_TIMES * seen
    while not enough(high):
        if high >= most:
            return None
        below, high = high, min(seen + 2 * (high - seen), most)
    while high - below > 1:
        middle = (below + high) // 2
        below, high = (below, middle) if enough(middle) else (middle, high)
    return high
