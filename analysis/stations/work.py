"""What grew of the load: arrivals, work per request, or time per unit of work? Work is upstream of time: steps with more to read take longer for everybody."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numpy as np

from overrun.analysis.stations.case import Case
from overrun.analysis.stations.sides import Sides, each, quotient
from overrun.analysis.stations.station import Group
from overrun.analysis.stations.stretch import WORTH
from overrun.analysis.words.arrays import FloatArray

Of = Literal[
    "new prompt tokens", "output tokens", "time per token", "time per prompt token", "arrivals"
]
WORK: Final = ("new prompt tokens", "output tokens")
# What a factor must grow by to count: work 15 %, the time of a prompt token 25 %, which moves with the size of a prompt. Own defaults.
MORE: Final = 1.15
_DEARER: Final = 1.25
# A curve needs so many bins, and a number running that varies by a tenth.
_LEAST: Final = 12
_VARIES: Final = 0.1
# A line is drawn no further than this many times the largest number that ran in the past; own default.
_FAR: Final = 1.5


class Factor(NamedTuple):
    """One factor of the load, how many times its former size it has, and words."""

    of: Of
    ratio: float
    words: str


def factors(case: Case, group: Group) -> list[Factor]:
    """Return the factors that grew, the largest first; none without a comparison."""
    if case.sides.then is None:
        return []
    found = [*_more_work(case.sides, group), *_slower(case, group)]
    if case.demand.first and case.demand.growth:
        before = " before the latency did" if case.demand.loop == "open" else ""
        words = f"{case.demand.what} grew by a factor of {case.demand.growth:.2f}{before}"
        found.append(Factor("arrivals", case.demand.growth, words))
    return sorted(found, key=lambda one: -one.ratio)


def _more_work(sides: Sides, group: Group) -> list[Factor]:
    """Tokens to compute and to write, for a request or, where none are counted, for a token written."""
    done, written = group.done(), group.quantity("output_tokens")
    below, unit = (written, "output token") if done is None else (done, "request")
    found = []
    sorts: tuple[tuple[Of, FloatArray | None, str], ...] = (
        ("new prompt tokens", group.new_tokens(), "computed prompt tokens"),
        ("output tokens", written if done is not None else None, "output tokens"),
    )
    for of, above, words in sorts:
        now, then = (quotient(above, below, side) for side in (sides.now, sides.then))
        if now and then is not None and sides.grew(each(above, below), MORE):
            ratio = now / then if then > 0.0 else float("inf")
            found.append(Factor(of, ratio, f"{now:,.1f} {words} per {unit} instead of {then:,.1f}"))
    return found


def _slower(case: Case, group: Group) -> list[Factor]:
    sides, found = case.sides, _fewer_a_step(case.sides, group)
    streams, running = group.quantity("itl"), group.quantity("running")
    step = group.token_time() if running is None or streams is not None else group.step_time()
    load = running if streams is None else streams
    if step is not None and sides.grew(step, WORTH) and not _beyond(sides, group, load):
        expected = _expected(case, step, load, group.work())
        now, then = sides.mean(step) or 0.0, sides.former(step) or 0.0
        words = f"a token takes {1e3 * now:.3g} ms instead of {1e3 * then:.3g} ms"
        if load is not None:
            words += (
                f" while {sides.mean(load) or 0.0:.3g} run instead of {sides.former(load) or 0.0:.3g}"
                f" ({1e3 * expected:.3g} ms would be expected of so many)"
            )
        found.append(Factor("time per token", now / max(expected, 1e-12), words))
    read = each(group.quantity("prefill"), group.new_tokens())
    if read is not None and sides.grew(read, _DEARER):
        words = f"a computed prompt token takes {1e3 * (sides.mean(read) or 0.0):.3g} ms instead of {1e3 * (sides.former(read) or 0.0):.3g} ms"
        found.append(Factor("time per prompt token", sides.ratio(read) or 1.0, words))
    return found


def _fewer_a_step(sides: Sides, group: Group) -> list[Factor]:
    """That a step with drafts gives fewer tokens, whatever the size of the batch: less is accepted, and more must be drafted for a token."""
    written, drafted = group.quantity("output_tokens"), group.quantity("drafted")
    accepted = group.quantity("accepted")
    now, then = (quotient(written, drafted, side) for side in (sides.now, sides.then))
    if not now or not then or then < WORTH * now or not sides.fell(each(accepted, drafted)):
        return []
    part, former = (quotient(accepted, drafted, side) or 0.0 for side in (sides.now, sides.then))
    shares = f"{part:.2f} of the drafted tokens are accepted instead of {former:.2f}"
    words = f"{shares}, and a drafted token gives {now:.2f} written ones instead of {then:.2f}"
    return [Factor("time per token", then / now, words)]


def _beyond(sides: Sides, group: Group, load: FloatArray | None) -> bool:
    """Whether far more run than ever did in the past, and more is done: a larger batch takes longer, and the past does not say how much."""
    if load is None or sides.then is None:
        return False
    past = load[sides.then & np.isfinite(load)]
    done = group.quantity("output_tokens")
    now = sides.mean(load)
    return (
        len(past) > 0
        and now is not None
        and now > _FAR * float(past.max())
        and sides.grew(group.done() if done is None else done)
    )


def _expected(
    case: Case, step: FloatArray, load: FloatArray | None, done: FloatArray | None
) -> float:
    """The time of a token that an engine's own past gives for as many at once as now; without a curve a larger batch excuses only if more came.

    By Little's law more are inside where each takes longer: that excuses nothing where no more is done or asked for.
    """
    more = case.demand.first or case.demand.loop == "closed" or case.sides.grew(done)
    curve = _curve(case.sides, step, load) if more else None
    if curve is not None:
        return curve
    excused = load is not None and (case.demand.first or case.demand.loop == "closed")
    return (case.sides.former(step) or 0.0) * (
        max(case.sides.ratio(load) or 1.0, 1.0) if excused else 1.0
    )


def _curve(sides: Sides, step: FloatArray, load: FloatArray | None) -> float | None:
    """a + b x running of the past, neither negative, at the present number; None where the past does not vary."""
    if load is None or sides.then is None:
        return None
    known = sides.then & np.isfinite(step) & np.isfinite(load)
    now = sides.mean(load)
    if known.sum() < _LEAST or load[known].std() < _VARIES * load[known].mean() or now is None:
        return None
    slope = max(float(np.cov(load[known], step[known])[0, 1] / load[known].var()), 0.0)
    slope = min(slope, float(step[known].mean() / load[known].mean()))
    return float(step[known].mean() + slope * max(now - load[known].mean(), 0.0))
