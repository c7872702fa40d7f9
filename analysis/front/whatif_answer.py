"""Who asks a what-if, over which data? From a question about a window to the facts behind it, and from a fix's texts to its answer."""

from __future__ import annotations

from typing import Final

import duckdb

from overrun.analysis.front.questions import Question
from overrun.analysis.incident.breach import judged_metric
from overrun.analysis.numbers.outcomes.cost import Prices, priced
from overrun.analysis.numbers.outcomes.goodput import judge
from overrun.analysis.numbers.requests.stored_names import refuse_unstored
from overrun.analysis.whatif.facts import Facts, load_facts
from overrun.analysis.whatif.prediction import METRICS, Prediction, WhatIfError
from overrun.analysis.words.errors import nearest

DEFAULT_METRIC: Final = "e2e"


def gather(con: duckdb.DuckDBPyConnection, question: Question, metric: str | None = None) -> Facts:
    """Read the facts of a question; `metric` is what the headline is about, by default the one that fails most requests.

    Raises:
        WhatIfError: no such metric. WindowError: no request, for a filter names what is stored nowhere.
    """
    if metric is not None and metric not in METRICS:
        raise WhatIfError(f"metric {metric[:64]!r} cannot be predicted: {nearest(metric, METRICS)}")
    facts = load_facts(
        con, question.window, question.slo, metric or DEFAULT_METRIC, budgets=question.budgets
    )
    if not len(facts):
        refuse_unstored(con, question.window)
    if metric is None and len(facts):
        judged = judged_metric(judge(facts.requests, facts.slo), facts.requests, facts.slo)
        facts.metric = judged if judged in METRICS else DEFAULT_METRIC
    return facts


def in_money(answer: Prediction, facts: Facts, prices: Prices | None) -> Prediction:
    """Return the answer with `cost.saved_per_1000_requests` (or `added_`) where a fix saves tokens (or sends calls twice) and the models have prices."""
    if prices is not None and answer.predicted is not None:
        answer.predicted = priced(
            answer.predicted, facts.calls.filter(facts.calls["request"] >= 0), len(facts), prices
        )
        answer.cost = answer.predicted.cost
    return answer
