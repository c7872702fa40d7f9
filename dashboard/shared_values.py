"""What do the chosen requests share? The values that they have more often than the others, as a table; values that always come together are one row."""

from __future__ import annotations

from typing import Final

from overrun.analysis.numbers.comparison.cohorts import Cohort, Cohorts
from overrun.analysis.words.finding import begun
from overrun.dashboard import ui
from overrun.dashboard.theme import say_ms, say_ratio

# Chances below it are all the same to a reader, and 0 is none.
LEAST_Q: Final = 1e-99


def headed(found: Cohorts, pictures: str, these: str | None = None) -> str:
    """The comparison as safe HTML: its sentence, then `pictures`, then all numbers behind a fold; `these` names the requests where the page has said already
    which they are."""
    head = f"<h2>{headline(found, these)}</h2>"
    if not pictures:
        return head + table(found)
    fold = '<details class="ov-details"><summary>All numbers: lift, chance, and P99 without a value</summary>'
    return f"{head}{pictures}{fold}{table(found)}</details>"


def table(found: Cohorts) -> str:
    """The values that these requests have more often than the others, as a table."""
    sampled = "; shares are weighted by the sampling rate" if found.sampling == "weighted" else ""
    looked = (
        f"<small>n {found.n_slow:,} against {found.n_rest:,} others of the window{sampled}; {ui.text(found.metric.upper())}; "
        "lift = ratio of the two shares, q = false discovery rate; source /api/v1/cohorts</small>"
    )
    if not found.cohorts:
        why = (
            found.reasons.get("cohorts")
            or "no attribute value is more common among them than by chance"
        )
        return f"<p>{ui.stated(why)}</p>{looked}{_skipped(found)}"
    rows = [
        [_value(cohort), _bars(cohort), _lift(cohort), _without(cohort)] for cohort in found.cohorts
    ]
    return (
        ui.table(["Attribute", "share of these / of the others", "lift", "P99 without it"], rows)
        + looked
        + _skipped(found)
    )


def headline(found: Cohorts, these: str | None = None) -> str:
    """What is most common among them, in a sentence, as safe HTML."""
    these = f"{these or begun(ui.text(found.selection, 200))}, n {found.n_slow:,}"
    if not found.n_slow:
        return "No request to compare with the others"
    if not found.cohorts:
        return f"{these}: what do they have in common?"
    first = found.cohorts[0]
    value = f"{ui.text(first.attribute.replace('_', ' '))} {ui.text(first.value)}"
    return f"{these}: {say_ratio(first.slow_ratio)} have {value}, {say_ratio(first.rest_ratio)} of the others"


def _value(cohort: Cohort) -> str:
    same = "".join(f"<small>with {ui.text(other, 100)}</small>" for other in cohort.same_as[:4])
    return (
        f"{ui.text(cohort.attribute.replace('_', ' '))} <b>{ui.text(cohort.value, 100)}</b>{same}"
    )


def _bars(cohort: Cohort) -> str:
    def bar(ratio: float, which: str, n: int) -> str:
        return (
            f'<div class="ov-share"><div class="ov-track"><span class="{which}" style="width:{100.0 * ratio:.1f}%"></span></div>'
            f'<span class="ov-n">{say_ratio(ratio)} <span class="ov-muted">({n:,})</span></span></div>'
        )

    return bar(cohort.slow_ratio, "ov-these", cohort.slow) + bar(
        cohort.rest_ratio, "ov-others", cohort.rest
    )


def _lift(cohort: Cohort) -> str:
    times = f"{cohort.lift:.1f}×" if cohort.lift is not None else "only these"
    return f'<span class="ov-n">{times}</span><small>q {_q(cohort.q_value)}</small>'


def _q(value: float) -> str:
    return f"{value:.2g}" if value >= LEAST_Q else f"&lt; {LEAST_Q:g}"


def _without(cohort: Cohort) -> str:
    if cohort.p99_without_ms is None:
        return f'<span class="ov-muted" title="{ui.text(cohort.reasons.get("p99_without_ms"), 200)}">too few left</span>'
    return f'<span class="ov-n">{say_ms(cohort.p99_without_ms)}</span><small>of {say_ms(cohort.p99_ms)}</small>'


def _skipped(found: Cohorts) -> str:
    if not found.skipped:
        return ""
    body = "".join(
        f"<dt>{ui.text(name.replace('_', ' '))}</dt><dd>{ui.sentence(why)}</dd>"
        for name, why in found.skipped.items()
    )
    return f'<details class="ov-details"><summary>{len(found.skipped)} attributes were not compared</summary><dl class="ov-facts">{body}</dl></details>'
