"""Requests held to the budgets of their own route or model, against a plain loop; every number says whose budget it is of."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.front import text_layout
from overrun.analysis.front.budget_answer import budget_view
from overrun.analysis.front.budget_text import document
from overrun.analysis.front.report import Report, build
from overrun.analysis.front.report_document import render, to_html, to_markdown
from overrun.analysis.numbers.stages.budget import (
    EVERYONE,
    GROUPS,
    OTHER,
    PUBLISHED,
    Budgets,
    budgets_for,
    overrun_shares,
    stage_rows,
    stage_times,
)
from overrun.analysis.numbers.stages.budget_rows import budget_rows
from overrun.analysis.numbers.stages.stage_responsibility import responsibility
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import frame_of, insert, requests, store

RNG = np.random.default_rng(21)
N = 900
SLO = Slo(e2e_ms=2_500.0)
ROUTES = ["/chat", "/report", "/free"] * (N // 3)
MODELS = ["small", "large"] * (N // 2)
CONFIGURED = {
    "/chat": {"retrieval": 100.0},
    "large": {"retrieval": 400.0, "model": 3_000.0},
    EVERYONE: {"retrieval": 200.0},
}


def rows() -> pl.DataFrame:
    return requests(
        N,
        route=ROUTES,
        model=MODELS,
        retrieval_ms=RNG.lognormal(5.5, 0.8, N),
        decode_ms=RNG.lognormal(7.0, 0.7, N),
        other_ms=5.0,
    )


def whose(route: str, model: str) -> str:
    """The documented order, slowly: the route's table, else the model's, else everyone's."""
    return next(name for name in (route, model, EVERYONE) if name in CONFIGURED)


def test_a_request_is_held_to_its_route_then_its_model_then_the_rest() -> None:
    frame, budgets = frame_of(rows()).rows, budgets_for(SLO, "e2e", CONFIGURED)
    held = budgets.whose(frame)
    assert held is not None
    names = [(budgets, *budgets.own)[k].name for k in held]
    assert names == [
        whose(route, model) for route, model in zip(frame["route"], frame["model"], strict=True)
    ]
    assert budgets_for(SLO, "e2e", {"*": {"retrieval": 1.0}}).whose(frame) is None
    assert (
        budgets_for(SLO, "e2e").name,
        budgets_for(SLO, "e2e", {"/chat": {}}).own[0].group_ms,
    ) == (PUBLISHED, budgets_for(SLO, "e2e").group_ms)


def test_overrun_shares_are_those_of_a_loop_over_requests_with_their_own_budgets() -> None:
    frame, budgets = frame_of(rows()).rows, budgets_for(SLO, "e2e", CONFIGURED)
    slow = frame.filter(pl.col("e2e_ms") > 2_500.0)
    found = overrun_shares(stage_times(slow, "e2e", budgets), budgets)
    shares = []
    for row in slow.to_dicts():
        ms = budgets_for(
            SLO, "e2e", {EVERYONE: CONFIGURED[whose(row["route"], row["model"])]}
        ).group_ms
        over = {
            group: max(0.0, sum(row[f"{stage}_ms"] or 0.0 for stage in GROUPS[group]) - ms[group])
            for group in ms
        } | {OTHER: row["other_ms"]}
        shares.append({group: value / sum(over.values()) for group, value in over.items()})
    assert found == {
        group: pytest.approx(np.mean([share[group] for share in shares])) for group in shares[0]
    }


def test_responsibility_holds_each_request_to_its_own_budgets_and_limit() -> None:
    frame, budgets = frame_of(rows()).rows, budgets_for(SLO, "e2e", CONFIGURED)
    times = stage_times(frame, "e2e", budgets)
    limits = np.where(frame["route"].to_numpy() == "/report", 4_000.0, 2_000.0)
    found = {row.group: row for row in responsibility(times, budgets, limits, 95.0).groups}
    total, held = frame["e2e_ms"].to_numpy(), budgets.limit_ms("model", times)
    after = total - np.maximum(frame["decode_ms"].to_numpy() - held, 0.0)
    assert found["model"].necessary == int(((total > limits) & (after <= limits)).sum())
    assert found["model"].alone_ms == pytest.approx(
        np.quantile(total, 0.95) - np.quantile(after, 0.95)
    )
    one_by_one = [
        responsibility(times.take(np.array([i])), budgets, float(limits[i]), 95.0).breaching
        for i in range(0, N, 50)
    ]
    assert one_by_one == [int(total[i] > limits[i]) for i in range(0, N, 50)]


def test_a_row_per_budget_has_the_numbers_of_its_requests_alone() -> None:
    frame, budgets = frame_of(rows()).rows, budgets_for(SLO, "e2e", CONFIGURED)
    times = stage_times(frame, "e2e", budgets)
    found = {row.budget: row for row in budget_rows(times, budgets, times.total_ms > 2_500.0, 95.0)}
    assert sum(row.n for row in found.values()) == N
    for name, row in found.items():
        mine = frame.filter(
            pl.Series(
                [
                    whose(route, model) == name
                    for route, model in zip(frame["route"], frame["model"], strict=True)
                ]
            )
        )
        assert (row.n, row.breaching) == (
            mine.height,
            mine.filter(pl.col("e2e_ms") > 2_500.0).height,
        )
        assert row.percentile_ms == pytest.approx(mine["e2e_ms"].quantile(0.95, "linear"))
        assert row.budget_ms["retrieval"] == CONFIGURED[name]["retrieval"]
        alone = Budgets("e2e", row.budget_ms)
        assert row.breach_share == overrun_shares(
            stage_times(mine.filter(pl.col("e2e_ms") > 2_500.0), "e2e"), alone
        )


def test_a_stage_row_says_whose_budget_it_is_of_and_takes_the_mean_of_several() -> None:
    frame, budgets = frame_of(rows()).rows, budgets_for(SLO, "e2e", CONFIGURED)
    times, around = stage_times(frame, "e2e", budgets), np.arange(12)
    means = {"retrieval": 210.0, "decode": 2_000.0, "other": 5.0}
    by_name = {
        row.group: row
        for row in stage_rows(times, budgets, times, means, means, None, around)
        if row.stage is None
    }
    own = [
        CONFIGURED[whose(route, model)]["retrieval"]
        for route, model in zip(ROUTES[:12], MODELS[:12], strict=True)
    ]
    assert by_name["retrieval"].budget_ms == pytest.approx(np.mean(own))
    assert by_name["retrieval"].budget == "mean of *, /chat, large"
    assert by_name["retrieval"].over is bool(np.mean(own) < 210.0)
    one_route = next(
        row
        for row in stage_rows(times, budgets, times, means, means, None, np.arange(0, N, 3))
        if row.group == "retrieval"
    )
    assert (one_route.budget_ms, one_route.budget) == (100.0, "/chat")


def slow_reports() -> tuple[Report, Any]:
    """/report breaks a budget of its own where the mean of all budgets is kept."""
    con = store()
    route = np.array(["/chat", "/report"] * 600)
    insert(
        con,
        requests(
            1_200,
            route=route.tolist(),
            model="m",
            retrieval_ms=np.where(route == "/report", 900.0, 100.0) * RNG.lognormal(0, 0.1, 1_200),
            decode_ms=RNG.lognormal(6.9, 0.5, 1_200),
        ),
    )
    configured = {
        "/report": {"retrieval": 500.0, "model": 2_000.0},
        "/chat": {"retrieval": 1_200.0},
    }
    return build(con, Window(), SLO, configured), budget_view(con, Window(), SLO, configured)


def test_the_report_judges_each_route_by_its_own_budget_in_every_output() -> None:
    report, view = slow_reports()
    by_name = {row.budget: row for row in report.budgets}
    assert {name: ("retrieval" in row.over, row.n) for name, row in by_name.items()} == {
        "/report": (True, 600),
        "/chat": (False, 600),
    }
    assert build(store(), Window(), SLO).budgets == []
    text = render(report)
    assert "BUDGETS" in text
    assert (
        next(line for line in text.splitlines() if line.startswith("  /report")).count("retrieval")
        == 1
    )
    assert all("/report" in made for made in (to_html(report), to_markdown(report)))
    assert {row.budget: row.responsibility.n for row in view.by_budget} == {
        "/report": 600,
        "/chat": 600,
    }
    said = text_layout.render(document(view))
    assert "BY BUDGET, each request against the budget of its route" in said
    assert "  /report: 600 requests" in said


def test_without_budgets_of_their_own_everything_is_of_one() -> None:
    con = store()
    insert(con, rows())
    view = budget_view(con, Window(), SLO, {EVERYONE: {"retrieval": 200.0}})
    assert (view.budget, [row.budget for row in view.by_budget], view.budget_ms["retrieval"]) == (
        EVERYONE,
        [EVERYONE],
        200.0,
    )
    assert (
        view.by_budget[0].responsibility == view.responsibility or view.responsibility is not None
    )
    report = build(con, Window(), SLO)
    assert {row.budget for row in report.stages if row.budget_ms is not None} == {PUBLISHED}
    assert "budget: published split" in render(report)
