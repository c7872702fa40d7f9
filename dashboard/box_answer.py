"""How do the chosen requests differ? Stage by stage, engine by engine, then each attribute as a small histogram; every value is a link that narrows the question.

All is HTML: a click changes the address, so that each answer can be pasted and one step back returns to the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote, urlencode

from overrun.analysis.numbers.comparison.box_shape import Bin, Group, Spread
from overrun.analysis.numbers.comparison.cohorts import Cohorts
from overrun.analysis.words.finding import begun
from overrun.dashboard import ui
from overrun.dashboard.theme import Theme, say_added, say_count, say_ms, say_ratio

# The engine that served a request comes first: where it differs, a replica is the answer.
FIRST: Final = "engine_instance"
# An attribute differs for sure where it is this many times as far from the others as chance alone brings about; own default.
CLEAR: Final = 2.0
_MOST_CLEAR, _MOST_MORE = 12, 24
# A stage with less time than this on both sides is not written about.
_LEAST_MS: Final = 0.5


class Links:
    """Addresses of the page with other conditions: `kept` are the parameters of the address that stay."""

    def __init__(
        self, page: str, kept: Mapping[str, str], where: Sequence[str], by: str | None
    ) -> None:
        self._page, self._kept, self.where, self.by = page, kept, list(where), by

    def to(self, where: Sequence[str], by: str | None) -> str:
        """The address with these conditions and this attribute to group by."""
        asked = {"where": ";".join(where), "by": by or ""}
        query = {**self._kept, **{name: value for name, value in asked.items() if value}}
        return ui.text(f"/{self._page}?{urlencode(query)}", 2000)

    def including(self, condition: str) -> str:
        """The address with one more condition."""
        return self.to([*(one for one in self.where if one != condition), condition], self.by)

    def excluding(self, condition: str) -> str:
        """The address without the requests that meet a condition."""
        return self.including(f"-{condition.removeprefix('-')}")

    def without(self, condition: str) -> str:
        """The address with one condition less."""
        return self.to([one for one in self.where if one != condition], self.by)

    def grouped(self, attribute: str | None) -> str:
        """The address grouped by an attribute, by none with None."""
        return self.to(self.where, attribute)


def render(found: Cohorts, links: Links, these: str, theme: Theme) -> str:
    """The answer as safe HTML; `these` names the chosen requests."""
    parts = [conditions(found, links), strips(found, these, theme), by_group(found, links, theme)]
    spreads = [one for one in found.spreads if one.attribute != found.by]
    first = [one for one in spreads if one.attribute == FIRST]
    rest = [one for one in spreads if one.attribute != FIRST]
    clear = [one for one in rest if one.distance > CLEAR * one.by_chance][:_MOST_CLEAR]
    more = [one for one in rest if one not in clear][:_MOST_MORE]
    if first or clear:
        parts.append(
            f"<h2>Attributes that differ, most first</h2>{_grid([*first, *clear], links)}{_key(these)}"
        )
    if more:
        many = f"{len(more)} attributes differ no more than by chance"
        parts.append(
            f'<details class="ov-details"><summary>{many}</summary>{_grid(more, links)}</details>'
        )
    return "".join(parts)


def _key(these: str) -> str:
    return (
        f'<p class="ov-legend"><span><i class="ov-these"></i>{ui.text(these)}</span><span><i class="ov-others"></i>others</span>'
        "<small>click a value to keep only its requests on both sides, − to leave them out, group to split the chosen ones by it; "
        "source /api/v1/cohorts</small></p>"
    )


def conditions(found: Cohorts, links: Links) -> str:
    """The conditions that hold, each with a way out of it."""
    if not found.where:
        return ""
    shown = "".join(
        f'<a class="ov-go ov-condition" href="{links.without(one)}" aria-label="Remove the condition {said(one)}">{said(one)} ✕</a>'
        for one in found.where
    )
    counted = f"{say_count(found.n_slow, 'request')} against {found.n_rest:,} others"
    return f'<p class="ov-conditions">Only requests with {shown} <small>{counted}</small></p>'


def said(condition: str) -> str:
    """A condition in words, as safe HTML."""
    name, _, value = condition.removeprefix("-").partition(":")
    sign = "is not" if condition.startswith("-") else "is"
    low, dots, high = unquote(value).partition("..")
    if dots:
        value = f"{low or 'any'} to {high or 'any'}"
    return ui.text(f"{name.replace('_', ' ')} {sign} {unquote(value)}", 120)


def strips(found: Cohorts, these: str, theme: Theme) -> str:
    """Where the time of the chosen requests goes, against that of the others, and which stage makes the difference."""
    sides = [one for one in found.stages if max(one.these_ms, one.rest_ms) >= _LEAST_MS]
    if not sides:
        return ""
    totals = sum(one.these_ms for one in found.stages), sum(one.rest_ms for one in found.stages)
    most = max(sides, key=lambda one: abs(one.these_ms - one.rest_ms))
    gap = totals[0] - totals[1]
    name = begun(ui.text(most.stage.replace("_", " ")))
    lead = f"{name} takes {say_ms(abs(most.these_ms - most.rest_ms))} {'longer' if most.these_ms > most.rest_ms else 'less'}, all stages {say_added(gap)}"
    bars = [
        ui.strip(name, {one.stage: getattr(one, side) for one in sides}, total, max(totals), theme)
        for name, side, total in ((these, "these_ms", totals[0]), ("others", "rest_ms", totals[1]))
    ]
    upto = " up to the first token" if found.metric == "ttft" else ""
    return (
        f"<h2>{lead}</h2>{''.join(bars)}<small>Mean stage times{upto} of {say_count(found.n_slow, 'request')} "
        f"against {found.n_rest:,} others</small>"
    )


def by_group(found: Cohorts, links: Links, theme: Theme) -> str:
    """The chosen requests split by an attribute: a strip for each value."""
    if found.by is None or not found.groups:
        return ""
    name = ui.text(found.by.replace("_", " "))
    widest = max(sum(one.stages_ms.values()) for one in found.groups)
    rows = "".join(_group(one, widest, links, theme) for one in found.groups)
    out = f'<a class="ov-go" href="{links.grouped(None)}">show together</a>'
    return f"<h2>The chosen requests by {name}</h2>{rows}<small>{out}</small>"


def _group(one: Group, widest: float, links: Links, theme: Theme) -> str:
    bar = ui.strip(one.value, one.stages_ms, sum(one.stages_ms.values()), widest, theme)
    keep = (
        f' · <a class="ov-go" href="{links.including(one.where)}">only these</a>'
        if one.where
        else ""
    )
    return f'{bar}<small class="ov-count">{say_count(one.these, "request")}, {one.rest:,} of the others{keep}</small>'


def _grid(spreads: Sequence[Spread], links: Links) -> str:
    return f'<div class="ov-spreads">{"".join(_card(one, links) for one in spreads)}</div>'


def _card(one: Spread, links: Links) -> str:
    name = ui.text(one.attribute.replace("_", " "))
    group = f'<a class="ov-go" href="{links.grouped(one.attribute)}" aria-label="Group by {name}">group</a>'
    differ = f"{say_ratio(one.distance)} differ"
    body = _columns(one, links) if one.kind == "number" and len(one.bins) > 2 else _rows(one, links)
    return f"<section><h3>{name} <small>{differ} · {group}</small></h3>{body}</section>"


def _rows(one: Spread, links: Links) -> str:
    widest = max(max(part.these_ratio, part.rest_ratio) for part in one.bins) or 1.0
    return "".join(_row(part, widest, links) for part in one.bins)


def _row(part: Bin, widest: float, links: Links) -> str:
    value = ui.text(part.value, 60)
    shares = f"{say_ratio(part.these_ratio)} of these, {say_ratio(part.rest_ratio)} of the others"
    if part.where is None:
        name, out = f"<span>{value}</span>", "<span></span>"
    else:
        name = f'<a class="ov-go" href="{links.including(part.where)}" title="{value}" aria-label="Only {value}: {shares}">{value}</a>'
        out = f'<a class="ov-go ov-out" href="{links.excluding(part.where)}" aria-label="Without {value}">−</a>'
    bars = "".join(
        f'<i class="{which}" style="width:{100.0 * ratio / widest:.1f}%"></i>'
        for which, ratio in (("ov-these", part.these_ratio), ("ov-others", part.rest_ratio))
    )
    return (
        f'<div class="ov-value" title="{shares}">{name}<span class="ov-pair">{bars}</span>'
        f"<small>{say_ratio(part.these_ratio)}</small>{out}</div>"
    )


def _columns(one: Spread, links: Links) -> str:
    highest = max(max(part.these_ratio, part.rest_ratio) for part in one.bins) or 1.0
    cells = []
    for at, part in enumerate(one.bins):
        tip = (
            f"{ui.text(part.value)}&#10;{say_ratio(part.these_ratio)} of these ({part.these:,})&#10;"
            f"{say_ratio(part.rest_ratio)} of the others ({part.rest:,})"
        )
        late = " ov-late" if 2 * at >= len(one.bins) else ""
        bars = "".join(
            f'<i class="{which}" style="height:{100.0 * ratio / highest:.1f}%"></i>'
            for which, ratio in (("ov-these", part.these_ratio), ("ov-others", part.rest_ratio))
        )
        spoken = f"Only {ui.text(part.value)}: {say_ratio(part.these_ratio)} of these, {say_ratio(part.rest_ratio)} of the others"
        cells.append(
            f'<a class="ov-go{late}" href="{links.including(part.where or "")}" data-tip="{tip}" aria-label="{spoken}">{bars}</a>'
        )
    ends = f"<small><span>{ui.text(one.bins[0].value)}</span><span>{ui.text(one.bins[-1].value)}</span></small>"
    return f'<div class="ov-histogram">{"".join(cells)}</div><div class="ov-ends">{ends}</div>'
