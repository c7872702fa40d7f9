"""What do pages ask beyond the report? Series, heat map, stages, cohorts, comparison and lists over HTTP, each a thin edge over a pure function.

The answers are typed structs, encoded here and decoded into the same types by `overrun.analysis.front.client`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

import duckdb
import msgspec
from starlette.routing import Route

from overrun.analysis.evidence.engine_overview import engine_view
from overrun.analysis.evidence.engine_timeline import engine_course
from overrun.analysis.front import report as reports
from overrun.analysis.front.answer_cache import Kept
from overrun.analysis.front.api_table import ENDPOINTS, PREFIX
from overrun.analysis.front.budget_answer import budget_view
from overrun.analysis.front.http_answers import DEFAULT_SINCE, asked
from overrun.analysis.front.questions import Question
from overrun.analysis.front.stage_waterfall import Stages, stages_of
from overrun.analysis.numbers.comparison.cohorts import Cohorts, cohorts, parse_box
from overrun.analysis.numbers.comparison.compare import Comparison, compare, read_sides
from overrun.analysis.numbers.outcomes.burn_rate import burn
from overrun.analysis.numbers.outcomes.goodput_breakdown import goodput_by
from overrun.analysis.numbers.over_time.heatmap import heatmap
from overrun.analysis.numbers.over_time.history import history
from overrun.analysis.numbers.over_time.series import series
from overrun.analysis.numbers.quality.checks import quality
from overrun.analysis.numbers.requests.request_list import (
    DEFAULT_LIMIT,
    holdings,
    known_metric,
    list_requests,
)
from overrun.analysis.words.encoding import encode
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.slo import Slo
from overrun.collector.config import Settings
from overrun.collector.ingest.pipeline import Pipeline

DEFAULT_METRIC: Final = "e2e"
Answer: TypeAlias = Callable[
    [duckdb.DuckDBPyConnection, Question, Mapping[str, str]], msgspec.Struct
]


def routes(pipeline: Pipeline, settings: Settings) -> list[Route]:
    """The endpoints under /api/v1 that pages read beside the report."""

    kept = Kept(lambda: pipeline.writer.changes)

    def over(answer: Answer, *, keep: bool = True) -> Callable[[Mapping[str, str]], bytes]:
        """`keep` is False where the answer depends on the clock beside window and store."""

        def encoded(parameters: Mapping[str, str]) -> bytes:
            question = Question.read(
                parameters, settings, now=datetime.now(UTC), default_since=DEFAULT_SINCE
            )

            def made() -> bytes:
                with pipeline.store.reading() as con:
                    return encode(answer(con, question, parameters))

            return (
                kept.get(
                    (answer, question.window, question.slo, tuple(sorted(parameters.items()))), made
                )
                if keep
                else made()
            )

        return encoded

    answers: dict[str, tuple[Answer, bool]] = {
        "series": (lambda con, q, p: series(con, q.window, q.slo, _metric(p)), True),
        "heatmap": (lambda con, q, p: heatmap(con, q.window, q.slo, _metric(p)), True),
        "engine": (lambda con, q, p: engine_course(con, q.window, q.slo, _metric(p)), True),
        "stages": (_stages, True),
        "requests": (_requests, True),
        "cohorts": (_cohorts, True),
        "compare": (_compare, False),
        "burn": (lambda con, q, p: burn(con, q.window, q.slo, datetime.now(UTC)), False),
        "quality": (lambda con, q, p: quality(con, q.window, q.slo), True),
        "budget": (lambda con, q, p: budget_view(con, q.window, q.slo, q.budgets), True),
        "indicators": (lambda con, q, p: engine_view(con, q.window, q.slo), True),
        "goodput": (lambda con, q, p: goodput_by(con, q.window, q.slo), True),
        "history": (lambda con, q, p: history(con, q.window, _metric(p)), True),
        "holdings": (lambda con, q, p: holdings(con, q.window), True),
    }
    return [
        Route(f"{PREFIX}/{name}", asked(over(answer, keep=keep), ENDPOINTS[name].parameters))
        for name, (answer, keep) in answers.items()
    ]


def _metric(parameters: Mapping[str, str]) -> str:
    return parameters.get("metric") or DEFAULT_METRIC


def _stages(
    con: duckdb.DuckDBPyConnection, question: Question, parameters: Mapping[str, str]
) -> Stages:
    """The stages on the path of the metric that is asked for, else of the one that the report judges."""
    slo = (
        _only(question.slo, known_metric(parameters["metric"]))
        if parameters.get("metric")
        else question.slo
    )
    return stages_of(
        reports.build(con, question.window, slo, question.budgets, with_findings=False)
    )


def _cohorts(
    con: duckdb.DuckDBPyConnection, question: Question, parameters: Mapping[str, str]
) -> Cohorts:
    box = parse_box(
        parameters.get("box_from"),
        parameters.get("box_to"),
        _number(parameters, "min_ms"),
        _number(parameters, "max_ms"),
    )
    return cohorts(
        con, question.window, question.slo, parameters.get("metric") or DEFAULT_METRIC, box
    )


def _compare(
    con: duckdb.DuckDBPyConnection, question: Question, parameters: Mapping[str, str]
) -> Comparison:
    sides = read_sides(
        question.window,
        parameters.get("before", ""),
        parameters.get("after", ""),
        datetime.now(UTC),
    )
    return compare(con, sides, question.slo)


def _only(slo: Slo, metric: str) -> Slo:
    limit = slo.limits().get(metric)
    if limit is None:
        raise AnalysisError(
            f"the SLO has no {metric} limit: ask for {' or '.join(slo.limits())}, or add one such as {metric}:1000 to slo"
        )
    cleared = dict.fromkeys((f"{name}_ms" for name in slo.limits()), None)
    return msgspec.structs.replace(slo, **(cleared | {f"{metric}_ms": limit}))


def _requests(
    con: duckdb.DuckDBPyConnection, question: Question, parameters: Mapping[str, str]
) -> msgspec.Struct:
    return list_requests(
        con,
        question.window,
        sort=parameters.get("sort") or DEFAULT_METRIC,
        limit=_limit(parameters),
        metric=parameters.get("metric") or DEFAULT_METRIC,
        min_ms=_number(parameters, "min_ms"),
        max_ms=_number(parameters, "max_ms"),
    )


def _limit(parameters: Mapping[str, str]) -> int:
    asked_for = _number(parameters, "limit")
    return DEFAULT_LIMIT if asked_for is None else int(asked_for)


def _number(parameters: Mapping[str, str], name: str) -> float | None:
    text = parameters.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0.0 <= value < 1e12:
        raise AnalysisError(
            f"{name} {text[:32]!r} is not a number from 0: write for example {name}=500"
        )
    return value
