"""A limit that most requests missed before anything changed: the change is dated all the same, and the limit that would fit is offered."""

import numpy as np
import pytest

from overrun.analysis.front.report import build
from overrun.analysis.front.report_brief import render
from overrun.analysis.front.report_document import render as render_all
from overrun.analysis.front.report_document import to_html
from overrun.analysis.incident.limit_fit import unfit
from overrun.analysis.numbers.window import Window, load
from overrun.analysis.words.slo import NOT_GIVEN, Slo, parse_slo
from overrun.dashboard.views.verdict import headline
from tests.analysis.builders import at, insert, requests, store


def stored(before_ms: float, after_ms: float, n: int = 600, changed: int = 300):
    """Requests a second apart whose prefill takes so long before and after the change, give or take a fifth."""
    rng = np.random.default_rng(3)
    mean = np.where(np.arange(n) < changed, before_ms, after_ms)
    con = store()
    insert(con, requests(n, prefill_ms=(mean * rng.uniform(0.8, 1.2, n)).tolist()))
    return con


def test_a_limit_that_most_missed_before_is_no_limit_of_the_incident() -> None:
    con = stored(1_000.0, 3_000.0)
    [found] = unfit(load(con, Window()), Slo(e2e_ms=300.0))
    assert found.missed_before == 1.0
    assert 1_150 <= found.fits_ms <= 1_300  # P95 of 800 to 1,200 ms
    made = build(con, Window(), Slo(e2e_ms=300.0))
    assert made.slo.e2e_ms == 300.0  # what somebody gave stays
    assert made.verdict.status == "over_budget"
    assert made.verdict.onset is not None
    start = load(con, Window()).rows["start_us"].min() / 1e6
    assert made.verdict.onset.timestamp() - start == pytest.approx(
        load(con, Window()).rows["start_us"].sort()[300] / 1e6 - start, rel=0.05
    )
    assert made.verdict.sentence.startswith("The limit does not fit: E2E P95 300 ms (100 %")
    assert render(made).startswith("LIMIT ")


def test_a_limit_that_two_in_five_missed_before_dates_no_change() -> None:
    con = stored(1_000.0, 1_600.0)  # 800 to 1,200 ms, then 1,280 to 1,920 ms
    [found] = unfit(load(con, Window()), Slo(e2e_ms=1_040.0))
    assert found.missed_before == pytest.approx(0.4, abs=0.08)
    made = build(con, Window(), Slo(e2e_ms=1_040.0))
    assert made.verdict.sentence.startswith("The limit does not fit: E2E P95 1.04 s (")
    assert "before anything changed" in made.verdict.sentence
    assert made.slo.e2e_ms == 1_040.0
    assert made.verdict.onset is not None
    for page in (render_all(made), to_html(made)):
        assert "meet every limit" in page
        assert (
            "E2E 1.04 s" in page.split("meet every limit")[1][:20]
        )  # goodput counts by the limit that was asked for
    assert "(the limit of 1.04 s does not fit)" in headline(made)
    [shown] = made.unfit
    assert shown.since == made.verdict.onset
    assert made.baseline is not None
    assert made.baseline.end == made.verdict.onset


def test_a_limit_that_was_kept_before_the_window_fits() -> None:
    rng = np.random.default_rng(7)
    n = np.arange(1_200)
    # Kept for ten minutes; then two in five miss it, and after five more minutes all do.
    mean = np.where(n < 600, 700.0, np.where(n < 900, 1_000.0, 1_600.0))
    con = store()
    insert(con, requests(1_200, prefill_ms=(mean * rng.uniform(0.8, 1.2, 1_200)).tolist()))
    window = Window(start=at(600.0), end=at(1_200.0))
    assert unfit(load(con, window), Slo(e2e_ms=1_040.0)) != []
    made = build(con, window, Slo(e2e_ms=1_040.0))
    assert made.unfit == []
    assert made.slo.e2e_ms == 1_040.0
    assert made.verdict.status == "over_budget"


def test_a_change_within_what_would_fit_leaves_the_limit_as_it_is() -> None:
    rng = np.random.default_rng(8)
    # One in eight misses the limit throughout; the usual request becomes slower, the slowest ones stay.
    usual = np.where(np.arange(800) < 400, 200.0, 400.0) * rng.uniform(0.8, 1.2, 800)
    con = store()
    insert(con, requests(800, prefill_ms=np.where(rng.random(800) < 0.125, 2_000.0, usual)))
    assert unfit(load(con, Window()), Slo(e2e_ms=1_000.0)) == []
    assert build(con, Window(), Slo(e2e_ms=1_000.0)).verdict.status == "over_budget"


def test_misses_that_grew_before_began_earlier() -> None:
    n = np.arange(600)
    rng = np.random.default_rng(5)
    mean = np.where(n < 300, 500.0 + 2.0 * n, 3_000.0)
    con = store()
    insert(con, requests(600, prefill_ms=(mean * rng.uniform(0.8, 1.2, 600)).tolist()))
    assert unfit(load(con, Window()), Slo(e2e_ms=900.0)) == []


@pytest.mark.parametrize(
    ("before", "after", "limit"),
    [
        # missed by all, and nothing changed: nobody knows whether it ever fitted
        (1_000.0, 1_000.0, 300.0),
        (200.0, 3_000.0, 300.0),  # kept before
        (1_000.0, 3_000.0, 5_000.0),  # never missed
        (260.0, 3_000.0, 300.0),  # missed by few, so that the limit itself dates the change
    ],
)
def test_a_limit_that_was_kept_or_never_was_is_judged_as_it_is(
    before: float, after: float, limit: float
) -> None:
    con = stored(before, after)
    assert unfit(load(con, Window()), Slo(e2e_ms=limit)) == []
    assert build(con, Window(), Slo(e2e_ms=limit)).slo.e2e_ms == limit


def test_a_gate_judges_by_the_limit_that_was_asked() -> None:
    made = build(stored(1_000.0, 3_000.0), Window(), parse_slo("e2e:300"), with_findings=False)
    assert made.unfit == []
    assert made.goodput.ratio == 0.0


@pytest.mark.parametrize(
    ("before_ms", "status"), [(1_000.0, "over_budget"), (3_000.0, "within_budget")]
)
def test_without_a_limit_the_latency_is_held_against_itself(before_ms: float, status: str) -> None:
    made = build(stored(before_ms, 3_000.0), Window(), NOT_GIVEN)
    assert (made.verdict.status, made.slo.given) == (status, False)
    assert (made.verdict.onset is not None) == (status == "over_budget")
    shown = render(made)
    assert shown.startswith("LIMIT    No limit is given")
    assert "e2e:" in shown
    assert ("usually up to" if status == "over_budget" else "nothing changed") in shown
