"""What would each fix buy? The list of fixes with their parameters, and the answer of one, over HTTP and on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime

import duckdb

from overrun.analysis.front.question_table import WHATIF, Parameter
from overrun.analysis.front.questions import PARAMETERS, Question
from overrun.analysis.front.whatif_answer import gather, in_money
from overrun.analysis.whatif import catalogue
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Prediction
from overrun.collector.config import Settings


def parameters() -> list[Parameter]:
    """Return the name of the fix with its choices, and the parameters of all fixes, whose values the fix judges."""
    kinds: dict[str, set[type]] = {}
    helps: dict[str, str] = {}
    for fix in catalogue.fixes():
        for own in catalogue.parameters(fix):
            kinds.setdefault(own.name, set()).add(own.kind)
            helps.setdefault(own.name, own.help)
    # Of two fixes one may count what another measures: a text is what both can be given.
    found = [
        Parameter(name, helps[name], next(iter(kind)) if kind in ({int}, {float}) else str)
        for name, kind in kinds.items()
        if name not in (*PARAMETERS, "metric")
    ]
    return [Parameter("fix", "The name of the fix.", choices=tuple(catalogue.fixes())), *found]


def predict(
    texts: Mapping[str, str | None],
    settings: Settings,
    reading: Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]],
    ask: Callable[[Facts, str, Mapping[str, str | None]], Prediction],
    now: datetime,
    default_since: str | None = None,
) -> Prediction:
    """Answer what one fix would buy. `texts` are `fix`, its own parameters, the filters and `metric`; `ask` computes, once the database is not held any more.

    Raises:
        AnalysisError: an unknown fix or parameter, or a value that cannot be read.
    """
    fix = texts["fix"] or ""
    own = {parameter.name for parameter in catalogue.parameters(fix)}
    WHATIF.refuse_unknown((name.replace("-", "_") for name in texts), own)
    given = {
        name.replace("-", "_"): value
        for name, value in texts.items()
        if name.replace("-", "_") in own
    }
    catalogue.read(fix, given)
    # A fix may have a parameter of a filter's name (tenant): it is then the fix's.
    filters = {name: value for name, value in texts.items() if name not in own}
    question = Question.read(filters, settings, now=now, default_since=default_since)
    with reading() as con:
        facts = gather(con, question, texts.get("metric") or None)
        if getattr(catalogue.find(fix), "NEEDS_SPANS", False):
            _ = facts.spans
    return in_money(ask(facts, fix, given), facts, question.prices)
