"""Who asks a what-if, over which data? From a question about a window to the facts behind it, and from a fix's texts to its answer."""

from __future__ import annotations

from typing import Final

import duckdb

from analysis.diagnose import judged_metric
from analysis.errors import nearest
from analysis.goodput import judge
from analysis.money import Prices, saved_per_1000_requests
from analysis.question import Question
from analysis.whatif.facts import Facts, load_facts
from analysis.whatif.prediction import METRICS, Prediction, WhatIfError

DEFAULT_METRIC: Final = "e2e"


def gather(con: duckdb.DuckDBPyConnection, question: Question, metric: str | None = None) -> Facts:
    """Read the facts of a question; `metric` is what the headline is about, by default the one that fails most requests.

    Raises:
        WhatIfError: no such metric.
    """
    if metric is not None and metric not in METRICS:
        raise WhatIfError(f"metric {metric[:64]!r} cannot be predicted: {nearest(metric, METRICS)}")
    facts = load_facts(con, question.window, question.slo, metric or DEFAULT_METRIC)
    if metric is None and len(facts):
        judged = judged_metric(judge(facts.requests, question.slo), facts.requests, question.slo)
        facts.metric = judged if judged in METRICS else DEFAULT_METRIC
    return facts


def in_money(answer: Prediction, facts: Facts, prices: Prices | None) -> Prediction:
    """Return the answer with `cost.saved_per_1000_requests` where a fix saves output tokens and the models have prices."""
    share = next((answer.cost[name] for name in ("tokens_saved_ratio", "wasted_tokens_ratio_now") if name in answer.cost), 0.0)
    if prices is not None and share > 0.0:
        saved = saved_per_1000_requests(facts.calls.filter(facts.calls["request"] >= 0), len(facts), prices, share)
        if saved is not None:
            answer.cost["saved_per_1000_requests"] = saved
    return answer
