"""Who asks a what-if, over which data? From a question about a window to the facts behind it, and from a fix's texts to its answer."""

from __future__ import annotations

from typing import Final

import duckdb

from analysis.breach import judged_metric
from analysis.errors import nearest
from analysis.goodput import judge
from analysis.money import Prices, saved_per_1000_requests
from analysis.question import Question
from analysis.whatif.facts import Facts, load_facts
from analysis.whatif.prediction import METRICS, Prediction, WhatIfError

DEFAULT_METRIC: Final = "e2e"
# What a cost means in money: saved or added, and whether in output and in input tokens. The loser of a hedge is cancelled: its prompt was read.
_MONEY: Final = {
    "tokens_saved_ratio": ("saved", 1.0, 0.0), "wasted_tokens_ratio_now": ("saved", 1.0, 0.0), "reasoning_tokens_cut_ratio": ("saved", 1.0, 0.0),
    "input_saved_ratio": ("saved", 0.0, 1.0), "attempts_saved_ratio": ("saved", 1.0, 1.0), "cached_answers_ratio": ("saved", 1.0, 1.0),
    "duplicate_ratio": ("added", 0.0, 1.0)}


def gather(con: duckdb.DuckDBPyConnection, question: Question, metric: str | None = None) -> Facts:
    """Read the facts of a question; `metric` is what the headline is about, by default the one that fails most requests.

    Raises:
        WhatIfError: no such metric.
    """
    if metric is not None and metric not in METRICS:
        raise WhatIfError(f"metric {metric[:64]!r} cannot be predicted: {nearest(metric, METRICS)}")
    facts = load_facts(con, question.window, question.slo, metric or DEFAULT_METRIC, budgets=question.budgets)
    if metric is None and len(facts):
        judged = judged_metric(judge(facts.requests, facts.slo), facts.requests, facts.slo)
        facts.metric = judged if judged in METRICS else DEFAULT_METRIC
    return facts


def in_money(answer: Prediction, facts: Facts, prices: Prices | None) -> Prediction:
    """Return the answer with `cost.saved_per_1000_requests` (or `added_`) where a fix saves tokens (or sends calls twice) and the models have prices."""
    for name, (said, output, read) in _MONEY.items():
        share = answer.cost.get(name, 0.0)
        if prices is not None and share > 0.0:
            own = facts.calls.filter(facts.calls["request"] >= 0)
            money = saved_per_1000_requests(own, len(facts), prices, output * share, read * share)
            if money is not None:
                answer.cost[f"{said}_per_1000_requests"] = money
    return answer
