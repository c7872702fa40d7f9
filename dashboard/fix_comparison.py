"""Which of several fixes? Up to four what-ifs beside each other, with their gain and price, and the plan of the cheapest set.

Fixes that are kept for comparison stand in the address (`also`), as `overrun whatif together` writes them, separated by `|`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
import streamlit as st

from overrun.analysis.front import plan_text
from overrun.analysis.front import question_table as questions
from overrun.analysis.front.client import ClientError
from overrun.analysis.front.plan import Plan, PlanStep
from overrun.analysis.whatif.fixes import together
from overrun.analysis.whatif.prediction import Curve, Prediction, WhatIfError
from overrun.analysis.words.finding import say_after, say_costs
from overrun.dashboard import data, terminal, ui
from overrun.dashboard.theme import say_ms, say_ratio

MOST_KEPT: Final = 3
_LONGEST: Final = 600
_BETWEEN: Final = "|"
_KEPT, _PLAN = "also", "plan"


@dataclass(frozen=True, slots=True)
class Choice:
    """A fix with its parameters, and what it would gain; None where it has no answer, for the reason in `why`."""

    text: str
    found: Prediction | None
    why: str = ""


def written(fix: str, parameters: data.Asked) -> str:
    """A fix as it stands in the address."""
    return together.written([(fix, {name: quote(value, safe="") for name, value in parameters})])


def kept() -> list[str]:
    """The fixes that the address keeps for comparison, those that can be read."""
    found = []
    for text in st.query_params.get(_KEPT, "")[: _LONGEST * MOST_KEPT].split(_BETWEEN):
        try:
            [one] = together.read(text)
        except (WhatIfError, ValueError):
            continue
        found.append(
            together.written([(one[0], {k: quote(v, safe="") for k, v in one[1].items()})])
        )
    return list(dict.fromkeys(found))[:MOST_KEPT]


def keep(text: str) -> None:
    """Keep a fix for comparison, the oldest makes room: a button's callback."""
    st.query_params[_KEPT] = _BETWEEN.join(
        [*(one for one in kept() if one != text), text][-MOST_KEPT:]
    )


def drop(text: str) -> None:
    """Keep a fix no longer: a button's callback."""
    left = [one for one in kept() if one != text]
    if left:
        st.query_params[_KEPT] = _BETWEEN.join(left)
    else:
        st.query_params.pop(_KEPT, None)


def ask(asked: data.Asked, metric: str, texts: Sequence[str]) -> list[Choice]:
    """Ask what each fix would gain; a refusal is its answer."""
    found = []
    for text in texts:
        [(fix, parameters)] = together.read(text)
        try:
            answer = data.whatif(asked, fix, metric, tuple(sorted(parameters.items())))
        except ClientError as error:
            found.append(Choice(text, None, str(error)))
        else:
            found.append(Choice(text, answer))
    return found


def curves(choices: Sequence[Choice], metric: str) -> list[tuple[str, Curve]]:
    """The curve of each choice that has one, by its title."""
    return [
        (one.found.title, curve)
        for one in choices
        if one.found is not None
        for curve in one.found.curves
        if curve.metric == metric
    ]


def table(choices: Sequence[Choice]) -> str:
    """What each choice gains and costs, as safe HTML; the first one is the page's own."""
    rows = [_row(one, first=at == 0) for at, one in enumerate(choices)]
    return ui.table(
        ["Fix", "after", "90 % interval", "over the limit", "within the SLO", "price"],
        rows,
        caption="The same requests for each; ▲ = no better than now.",
    )


def _row(one: Choice, *, first: bool) -> list[str]:
    found = one.found
    gain = found.predicted if found is not None else None
    name = ui.text(found.title if found is not None else one.text, 120)
    label = f"<b>{name}</b>{'<small>shown above</small>' if first else ''}"
    if found is None or gain is None:
        why = one.why or (found.reasons.get("predicted", "") if found is not None else "")
        return [label, f"<small>{ui.sentence(why)}</small>", "", "", "", ""]
    worse = "▲ " if gain.after >= gain.before else ""
    return [
        label,
        f'<span class="ov-n">{worse}{say_after(gain)}</span>',
        f"{say_ms(gain.interval[0])} to {say_ms(gain.interval[1])}" if gain.interval else "–",
        say_ratio(gain.over_after_ratio) if gain.over_after_ratio is not None else "–",
        say_ratio(found.goodput_after) if found.goodput_after is not None else "–",
        ui.text(say_costs(gain) or "none counted"),
    ]


def buttons(current: str) -> None:
    """Keep the page's fix, and take out those that are kept."""
    names = kept()
    with st.container(horizontal=True, gap="small"):
        st.button(
            "Keep this fix for comparison",
            icon=":material/add:",
            on_click=keep,
            args=(current,),
            disabled=current in names,
            help=f"Up to {MOST_KEPT} fixes stand beside the one of the sliders.",
        )
        for text in names:
            st.button(
                f"Remove {text}",
                icon=":material/close:",
                on_click=drop,
                args=(text,),
                type="tertiary",
                key=f"drop-{text}",
            )


def plan(asked: data.Asked) -> None:
    """The cheapest set of fixes, asked for on request: it takes several what-ifs."""
    ui.put("<h2>The cheapest set of fixes that meets the SLO</h2>")
    if st.query_params.get(_PLAN) != "yes":
        st.button(
            "Find the cheapest set",
            icon=":material/checklist:",
            on_click=_begin,
            help="Asks up to 14 what-ifs, alone and together: seconds to a few minutes.",
        )
        return
    with st.spinner("Asking fixes alone and together", show_time=True):
        found = data.ask(questions.PLAN, asked)
    ui.put(steps(found, asked))


def _begin() -> None:
    st.query_params[_PLAN] = "yes"


def steps(found: Plan, asked: data.Asked) -> str:
    """The plan as safe HTML: each step with its gain, its price and a link to try it; then what else was asked."""
    head = f"<p><b>{ui.sentence(plan_text.headline(found).replace('->', '→'))}</b></p>"
    rows = [_step(at, step) for at, step in enumerate(found.steps, 1)]
    made = (
        ui.table(["Step", "with all steps so far", "90 % interval", "price", "alone"], rows)
        if rows
        else ""
    )
    command = (
        ui.copied(terminal.written(["whatif", "together"], {"fixes": found.fixes, **dict(asked)}))
        if found.fixes
        else ""
    )
    others = plan_text.others_of(found)
    rest = "".join(f"<li>{ui.sentence(plan_text.other(one))}</li>" for one in others)
    more = (
        f'<details class="ov-details"><summary>{len(others)} other sets were asked</summary><ul>{rest}</ul></details>'
        if others
        else ""
    )
    return head + made + command + more


def _step(at: int, step: PlanStep) -> list[str]:
    one = step.predicted
    query = urlencode({"fix": step.whatif, **{f"p_{k}": v for k, v in step.parameters.items()}})
    return [
        f"<b>{at}. {ui.text(step.title, 120)}</b>",
        f'{say_ms(one.before)} → <span class="ov-predicted">{say_after(one)}</span>',
        f"{say_ms(one.interval[0])} to {say_ms(one.interval[1])}" if one.interval else "–",
        ui.text(say_costs(msgspec.structs.replace(one, cost=step.cost)) or "none counted", 200),
        f'<a class="ov-go" href="/whatif?{ui.text(query, 500)}">try it alone</a>',
    ]
