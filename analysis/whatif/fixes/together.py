"""What if several fixes were made at once? The engines are simulated with all of their changes; what fixes save outside of the engines is taken off as well.

Two fixes that save the same time save it once: that is what the replay shows of engines, and for arithmetic the interval reaches from there to both savings
added up. A fix whose own answer is only a bound (such as a shorter queue at unchanged load) is not combined with others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final
from urllib.parse import unquote

import numpy as np
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.engine import Costs
from overrun.analysis.whatif import catalogue
from overrun.analysis.whatif.engine_replay import Change, SimulatedPart, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import (
    METRICS,
    Fix,
    Prediction,
    Times,
    TimesPart,
    WhatIfError,
    predict_times,
    recorded,
    refuse,
)
from overrun.analysis.words.finding import Method

MOST_FIXES: Final = 6
# A limit on calls in flight follows from how many replicas there are, so it is set last.
_LAST: Final = ("admission",)
_METHODS: Final[tuple[Method, ...]] = ("exact", "resampled", "estimate")
_WRITTEN: Final = re.compile(r"[a-z_-]+(\(([a-z_]+=[^,()]*(,[a-z_]+=[^,()]*)*)?\))?")
Asked = list[tuple[str, dict[str, str]]]


def predict(
    facts: Facts,
    *,
    fixes: Annotated[
        str,
        Meta(
            description="fixes with their parameters, separated by '+': prefix_cache(hit_ratio=0.8)+replicas(replicas=3)"
        ),
    ],
) -> Prediction:
    """Return the answer for all of the fixes together; costs of the same name are added up.

    Raises:
        WhatIfError: a fix or a parameter that does not exist, or more than six fixes.
    """
    asked = read(fixes)
    parts: list[SimulatedPart | TimesPart] = []
    titles = []
    for name, texts in sorted(asked, key=lambda one: one[0] in _LAST):
        found = _part_of(facts, name, texts)
        if isinstance(found, str):
            return refuse(facts, _all_of(fixes, [name]), "simulated", f"{name}: {found}")
        parts.append(found)
        titles.append(found.fix.title)
    fix = replace(
        _all_of(fixes, titles), assumption="; ".join(part.fix.assumption for part in parts)
    )
    simulated = [part for part in parts if isinstance(part, SimulatedPart)]
    times = [part for part in parts if isinstance(part, TimesPart)]
    bounds = [part.fix.title for part in times if part.bound]
    if bounds and len(parts) > 1:
        why = f"the gain of '{bounds[0]}' is a bound, which does not add up with other fixes"
        return refuse(facts, fix, "simulated", why)
    cost = _added([part.cost for part in parts])
    if not simulated:
        return _by_arithmetic(facts, fix, times, cost)
    return predict_simulated(
        facts,
        fix,
        lambda engine: _changed(engine, [part.change for part in simulated]),
        cost=cost,
        worse={
            metric: float(np.sqrt(sum(part.worse.get(metric, 0.0) ** 2 for part in simulated)))
            for metric in METRICS
        },
        shake=max(part.shake for part in simulated),
        needs_kv=any(part.needs_kv for part in simulated),
        moved=lambda now: _less(now, times, recorded(facts)),
    )


def written(asked: Asked) -> str:
    """Return fixes and their parameters as `fixes` says them."""
    return "+".join(
        f"{name}({','.join(f'{key}={value}' for key, value in texts.items())})" if texts else name
        for name, texts in asked
    )


def read(text: str) -> Asked:
    """Read what `written` returns.

    Raises:
        WhatIfError: it cannot be read, says the same twice, names this fix, or has more than six.
    """
    found: Asked = []
    for part in text.split("+"):
        if _WRITTEN.fullmatch(part.strip()) is None:
            raise WhatIfError(
                f"{part.strip()[:64]!r} is no fix: write for example cap(max_tokens=512)+replicas(replicas=3)"
            )
        name, _, rest = part.strip().rstrip(")").partition("(")
        name = catalogue.find(name).__name__.rpartition(".")[2]
        pairs = [pair.partition("=") for pair in rest.split(",") if pair]
        if name == "together":
            raise WhatIfError("together stands inside of itself: name the fixes one by one")
        one = (name, {key.strip(): unquote(value) for key, _, value in pairs})
        if one in found:
            raise WhatIfError(f"{part.strip()[:64]!r} stands twice in {text[:64]!r}")
        found.append(one)
    if len(found) > MOST_FIXES:
        raise WhatIfError(f"{len(found)} fixes at once, at most {MOST_FIXES} are combined")
    return found


def _all_of(fixes: str, titles: Sequence[str]) -> Fix:
    return Fix("together", " and ".join(titles), "", {"fixes": fixes})


def _part_of(facts: Facts, name: str, texts: Mapping[str, str]) -> SimulatedPart | TimesPart | str:
    """What a fix would change, or why it has no answer here."""
    if getattr(catalogue.find(name), "NEEDS_SPANS", False):
        return "it is computed on span trees, which are not read for several fixes at once"
    collected: list[object] = []
    facts.parts = collected
    try:
        answer = catalogue.ask(facts, name, texts)
    finally:
        facts.parts = None
    if len(collected) != 1 or not isinstance(collected[0], SimulatedPart | TimesPart):
        return answer.reasons.get("predicted", "it has no answer here")
    return collected[0]


def _added(costs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    out: dict[str, float] = {}
    for cost in costs:
        for name, value in cost.items():
            out[name] = out.get(name, 0.0) + value
    return out


def _changed(engine: Engine, changes: Sequence[Callable[[Engine], Change]]) -> Change:
    """All changes, each made of the engine that those before it have left."""
    now, whole = engine, Change(engine.pool.calls, engine.setup)
    for change in changes:
        one = change(now)
        now = replace(
            now,
            pool=replace(now.pool, calls=one.calls),
            setup=one.setup,
            costs=one.costs(now.costs),
            refits=tuple(one.costs(costs) for costs in now.refits),
        )
        whole = Change(
            one.calls,
            one.setup,
            costs=_after(whole.costs, one.costs),
            removed=_either(whole.removed, one.removed),
            spent_s=one.spent_s if one.spent_s is not None else whole.spent_s,
            answered=one.answered if one.answered is not None else whole.answered,
            cost={**whole.cost, **one.cost},
        )
    return whole


def _after(
    first: Callable[[Costs], Costs], then: Callable[[Costs], Costs]
) -> Callable[[Costs], Costs]:
    return lambda costs: then(first(costs))


def _either(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    if one is None or other is None:
        return one if other is None else other
    either: np.ndarray = one | other
    return either


def _less(now: Times, parts: Sequence[TimesPart], old: Times) -> Times:
    """The times less what fixes outside of the engines save of the recorded ones, never below nothing."""
    return Times(
        *(
            np.maximum(
                now.of(metric)
                - sum(np.nan_to_num(old.of(metric) - part.after.of(metric)) for part in parts),
                0.0,
            )
            for metric in METRICS
        )
    )


def _by_arithmetic(
    facts: Facts, fix: Fix, parts: Sequence[TimesPart], cost: Mapping[str, float]
) -> Prediction:
    old = recorded(facts)
    # Where all save the same time, the largest saving is what is left of them.
    same = Times(
        *(np.minimum.reduce([part.after.of(metric) for part in parts]) for metric in METRICS)
    )
    return predict_times(
        facts,
        fix,
        _less(old, parts, old),
        method=max((part.method for part in parts), key=_METHODS.index),
        cost=cost,
        draws=[same, *(draw for part in parts for draw in part.draws)]
        if len(parts) > 1
        else parts[0].draws,
        bound=any(part.bound for part in parts),
    )
