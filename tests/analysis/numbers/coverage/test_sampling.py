"""One recording several ways: all of it, a part, 10 % by a known probability, what a tail sampler keeps, only what is slow, only what failed."""

from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from overrun.analysis.front import report as report_module
from overrun.analysis.front.budget_answer import budget_view
from overrun.analysis.front.report import Report, build
from overrun.analysis.incident.impact import traffic_lost
from overrun.analysis.numbers.comparison.cohorts import cohorts
from overrun.analysis.numbers.comparison.compare import Sides, compare
from overrun.analysis.numbers.coverage.sampling import evened
from overrun.analysis.numbers.latency.percentiles import percentiles
from overrun.analysis.numbers.over_time.heatmap import heatmap
from overrun.analysis.numbers.over_time.history import history
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from overrun.collector.lifecycle.rollups import roll_up
from tests.analysis.builders import T0_NS, at, frame_of, insert, requests, store
from tests.analysis.numbers.quality.test_checks import histogram

N = 4_000
EDGES = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
SLO = Slo(e2e_ms=2_000.0)
RNG = np.random.default_rng(11)
LATENCY = RNG.lognormal(6.3, 0.8, N)
ERROR = RNG.random(N) < 0.02
START = np.sort(RNG.uniform(0.0, 590.0, N))


def recorded(kept: np.ndarray[Any, Any], *, counters: bool = True, **columns: Any) -> Report:
    """The report of the recording with the requests that a sampler kept."""
    return build(stored(kept, counters=counters, **columns), Window(), SLO)


def stored(
    kept: np.ndarray[Any, Any], *, counters: bool = True, **columns: Any
) -> duckdb.DuckDBPyConnection:
    """The recording with the requests that a sampler kept, beside the engine's own counts of all of them."""
    con = store()
    n = int(kept.sum())
    insert(
        con,
        requests(
            n,
            start_s=START[kept],
            prefill_ms=LATENCY[kept],
            error=ERROR[kept],
            error_type=pl.Series([None] * n, dtype=pl.String),
            **columns,
        ),
    )
    _calls(con, kept)
    if counters:
        counts = np.histogram(LATENCY / 1000.0, [0.0, *EDGES, np.inf])[0]
        histogram(con, "e2e", EDGES, {-1.0: [0.0] * 7, 615.0: counts.tolist()})
    return con


def _calls(con: duckdb.DuckDBPyConnection, kept: np.ndarray[Any, Any]) -> None:
    start, duration = (
        T0_NS + (START[kept] * 1e9).astype(np.int64),
        (LATENCY[kept] * 1e6).astype(np.int64),
    )
    calls = pl.DataFrame(
        {"trace_lo": np.arange(1, len(start) + 1), "start_ns": start, "duration_ns": duration}
    )
    con.execute(
        """insert into llm_calls by name select 1::ubigint as trace_hi, trace_lo, 1::ubigint as span_id, true as on_path, start_ns, duration_ns,
           'chat' as service, 'm' as model, 3::utinyint as ttft_source, duration_ns as engine_e2e_ns, false as error from calls"""
    )
    del calls


ALL = np.ones(N, np.bool_)
HEAD = RNG.random(N) < 0.1
SLOW = LATENCY > 1_500.0


def test_all_of_it_is_right() -> None:
    report = recorded(ALL)
    assert report.latency.e2e_ms.p95 == pytest.approx(np.quantile(LATENCY[~ERROR], 0.95), rel=1e-6)
    assert report.goodput.ratio == pytest.approx(((LATENCY <= 2_000.0) & ~ERROR).mean())
    assert {c.check: c.status for c in report.data_quality}["sampling"] == "ok"


def test_a_tenth_with_its_probability_is_weighted() -> None:
    report, whole = recorded(HEAD, sampling="th:e6666666666668", sample_weight=10.0), recorded(ALL)
    low, high = report.latency.e2e_ms.p95_interval or (0.0, 0.0)
    assert low < np.quantile(LATENCY[~ERROR], 0.95) < high
    assert report.goodput.ratio == pytest.approx(whole.goodput.ratio, abs=0.04)
    assert report.goodput.rps == pytest.approx(whole.goodput.rps, rel=0.1)
    assert "10 %" in next(c.detail for c in report.data_quality if c.check == "sampling")


@pytest.mark.parametrize(("kept", "kind"), [(345, "weighted"), (200, "part")])
def test_a_tenth_that_was_drawn_may_be_a_little_less_than_that(kept: int, kind: str) -> None:
    """Of 4,000 requests 400 come with a standard error of 19: 345 of them are no selection, 200 are."""
    chosen = np.isin(np.arange(N), np.random.default_rng(5).choice(N, kept, replace=False))
    said = [
        check.detail
        for check in recorded(chosen, sampling="th:e6666666666668", sample_weight=10.0).data_quality
        if check.check == "sampling"
    ]
    assert any("known probability" in detail for detail in said) is (kind == "weighted")
    assert any("have spans" in detail for detail in said) is (kind != "weighted")


def test_of_slow_requests_alone_what_is_certain_is_given() -> None:
    """All requests over 1.5 s are stored, and the engine counted 4,000: P95 is their 200th slowest, P50 is not known."""
    report = build(stored(SLOW), Window(), Slo(e2e_ms=1_600.0))
    assert (report.verdict.status, report.goodput.ratio) == ("over_budget", None)
    assert report.latency.e2e_ms.p95 == pytest.approx(np.quantile(LATENCY[~ERROR], 0.95), rel=0.03)
    assert (report.latency.e2e_ms.p50, report.errors.ratio, report.verdict.cause) == (None,) * 3
    assert "spans" in report.latency.e2e_ms.reasons["p50"]
    assert {c.check: c.status for c in report.data_quality}["sampling"] == "fail"


def test_of_failed_requests_alone_the_engine_is_judged() -> None:
    report = recorded(ERROR)
    assert (report.verdict.scope, report.goodput.ratio) == ("engine_only", None)
    low, high = report.latency.e2e_ms.p95_interval or (0.0, 0.0)
    assert low <= np.quantile(LATENCY, 0.95) <= high
    assert "none of the others" in report.verdict.sentence


@pytest.mark.parametrize("limit", [900.0, 1_500.0, 2_600.0])
@pytest.mark.parametrize("others", [0.05, 0.2])
def test_an_unmarked_tail_sampler_is_found_and_weighed(limit: float, others: float) -> None:
    kept = (limit < LATENCY) | ERROR | (np.random.default_rng(3).random(N) < others)
    report = recorded(kept)
    low, high = report.latency.e2e_ms.p95_interval or (0.0, 0.0)
    assert low <= np.quantile(LATENCY[~ERROR], 0.95) <= high
    assert report.goodput.ratio == pytest.approx(((LATENCY <= 2_000.0) & ~ERROR).mean(), abs=0.03)
    said = next(c for c in report.data_quality if c.check == "sampling")
    assert (said.status, "counted for" in said.detail) == ("warn", True)
    assert report.headroom == [] or "not known" in next(iter(report.headroom[0].reasons.values()))


@pytest.mark.parametrize("share", [0.1, 0.33, 0.5, 0.7])
def test_a_part_of_all_that_is_like_all_is_judged(share: float) -> None:
    kept = np.random.default_rng(9).random(N) < share
    report = recorded(kept)
    low, high = report.latency.e2e_ms.p95_interval or (0.0, 0.0)
    assert low <= np.quantile(LATENCY[~ERROR], 0.95) <= high
    assert report.goodput.ratio == pytest.approx(((LATENCY <= 2_000.0) & ~ERROR).mean(), abs=0.03)
    assert report.goodput.rps is None
    assert "of other senders" in report.goodput.reasons["rps"]
    said = next(c for c in report.data_quality if c.check == "sampling")
    assert (said.status, "are judged" in said.detail) == ("warn", True)


def test_an_application_beside_a_slower_one_is_judged_by_itself() -> None:
    quick = np.quantile(LATENCY, 0.8) > LATENCY
    report = recorded(quick)
    assert report.latency.e2e_ms.p95 == pytest.approx(
        np.quantile(LATENCY[quick & ~ERROR], 0.95), rel=1e-6
    )
    assert "no sampler prefers quick requests" in report.data_quality[0].detail


def test_three_of_thousands_leave_the_verdict_to_the_engine() -> None:
    few = np.isin(np.arange(N), [5, 900, 3_990])
    report = recorded(few)
    assert (report.verdict.scope, report.verdict.metric) == ("engine_only", "e2e")


def test_what_a_sampler_says_of_itself_is_enough_to_refuse() -> None:
    report = recorded(SLOW, counters=False, sampling="tail:latency")
    assert (report.verdict.status, report.latency.e2e_ms.p95) == ("not_enough_data", None)
    assert "tail:latency" in report.verdict.sentence


def test_engine_requests_that_nobody_waited_for_are_no_sign_of_sampling() -> None:
    answered = (
        RNG.random(N) < 0.8
    )  # of the others the client gave up: the engine's spans are there, no call tells of them
    con = stored(answered)
    made = pl.DataFrame({"start_ns": T0_NS + (START * 1e9).astype(np.int64), "ms": LATENCY})
    con.execute("create table engine_made as from made")
    del made
    con.execute(
        """create or replace view v_engine_spans as select '1' as trace_id, start_ns::varchar as span_id, make_timestamptz(start_ns // 1000) as start,
           make_timestamptz((start_ns + (ms * 1e6)::bigint) // 1000) as "end", null::varchar as model, ms as engine_e2e_ms from engine_made"""
    )
    checks = {c.check: c for c in build(con, Window(), SLO).data_quality}
    assert checks["sampling"].status == "ok", checks["sampling"]


def test_weighted_percentiles_are_those_of_the_repeated_values() -> None:
    values = RNG.lognormal(0, 1, 900)
    weights = np.where(RNG.random(900) < 0.5, 1.0, 5.0)
    found = percentiles(values, weights=weights)
    repeated = np.repeat(values, weights.astype(int))
    assert found.p50 == pytest.approx(np.quantile(repeated, 0.5), rel=0.02)
    assert found.p95 == pytest.approx(np.quantile(repeated, 0.95), rel=0.05)
    assert found.p99_interval is not None
    assert percentiles(values, weights=np.full(900, 7.0)) == percentiles(values)


def test_failures_kept_more_often_than_the_rest_are_no_failing_application() -> None:
    kept = HEAD | ERROR
    weight = np.where(ERROR, 1.0, 10.0)[kept]
    marks = [f"th:{'0' if one == 1.0 else 'e6666666666668'}" for one in weight]
    report, whole = (
        recorded(kept, counters=False, sampling=marks, sample_weight=weight),
        recorded(ALL),
    )
    assert ERROR[kept].mean() > 0.1
    assert report.verdict.status != "failing"
    assert report.errors.ratio == pytest.approx(whole.errors.ratio, abs=0.002)
    assert report.goodput.ratio == pytest.approx(whole.goodput.ratio, abs=0.04)


def test_a_draw_has_the_shares_and_quantiles_of_the_weighted_rows() -> None:
    n = 2_000
    weights = np.where(RNG.random(n) < 0.3, 1.0, 8.0)
    whole = frame_of(
        requests(
            n,
            prefill_ms=RNG.lognormal(6.0, 1.0, n),
            error=RNG.random(n) < 0.1,
            sample_weight=weights,
        )
    )
    drawn = evened(whole)
    worth = weights.sum() ** 2 / (weights**2).sum()
    assert drawn.rows.height == round(worth)
    assert drawn.rows["sample_weight"].n_unique() == 1
    assert drawn.rows["sample_weight"].sum() == pytest.approx(weights.sum())
    w = whole.rows["sample_weight"].to_numpy()
    assert drawn.rows["error"].to_numpy().mean() == pytest.approx(
        np.average(whole.rows["error"].to_numpy(), weights=w), abs=1.0 / worth
    )
    ok = ~whole.rows["error"].to_numpy()
    weighted = percentiles(whole.rows["e2e_ms"].to_numpy()[ok], weights=w[ok])
    again = percentiles(drawn.rows.filter(~pl.col("error"))["e2e_ms"].to_numpy())
    assert [again.p50, again.p95] == [
        pytest.approx(weighted.p50, rel=0.01),
        pytest.approx(weighted.p95, rel=0.03),
    ]


def test_traffic_sampled_from_today_on_is_not_lost_traffic() -> None:
    before, now = (
        requests(600, prefill_ms=1.0),
        requests(60, every_s=10.0, start_s=600.0 + 10.0 * np.arange(60), prefill_ms=1.0),
    )
    earlier, usual = frame_of(before, end=at(600)), frame_of(now, start=at(600), end=at(1200))
    assert traffic_lost(usual, earlier) is not None
    marked = now.with_columns(sample_weight=pl.lit(10.0))
    assert traffic_lost(frame_of(marked, start=at(600), end=at(1200)), earlier) is None


@pytest.mark.parametrize("kept", [SLOW, ERROR])
def test_neither_a_comparison_nor_budgets_are_made_of_a_biased_selection(
    kept: np.ndarray[Any, Any],
) -> None:
    con = stored(kept)
    found = compare(con, Sides(Window(), Window(), ("before", "after")), SLO)
    assert (found.outcome, found.before.goodput_ratio, found.metrics[3].quantiles) == (
        "not_enough_data",
        None,
        [],
    )
    assert "not representative" in found.sentence
    assert found.before.requests == found.after.requests == int(kept.sum())
    view = budget_view(con, Window(), SLO)
    assert (view.metric, view.derived, view.responsibility) == (None, None, None)
    assert "not representative" in view.reasons["metric"]


WEIGHTED: dict[str, Any] = {"sampling": "th:e6666666666668", "sample_weight": 10.0}
TENANT = np.where(LATENCY > 1_500.0, np.where(RNG.random(N) < 0.7, "acme", "small"), "small")


@pytest.mark.parametrize(
    ("kept", "columns", "kind"),
    [(ALL, {}, "all"), (HEAD, WEIGHTED, "weighted"), (SLOW, {}, "biased"), (ERROR, {}, "biased")],
)
def test_what_slow_requests_share_four_ways(
    kept: np.ndarray[Any, Any], columns: dict[str, Any], kind: str
) -> None:
    found = cohorts(
        stored(kept, tenant=TENANT[kept].tolist(), **columns), Window(), Slo(e2e_ms=1_500.0), "e2e"
    )
    assert (found.sampling, found.n_slow + found.n_rest) == (kind, int((kept & ~ERROR).sum()))
    if kind in ("biased", "unknown"):
        assert (found.cohorts, "not representative" in found.reasons["cohorts"]) == ([], True)
        return
    first = found.cohorts[0]
    assert (first.attribute, first.value, first.rest) == ("tenant", "acme", 0)
    assert first.slow_ratio == pytest.approx(
        (TENANT == "acme").sum() / (LATENCY > 1_500.0).sum(), abs=0.12
    )


def test_slow_requests_kept_with_a_higher_known_probability_share_what_all_of_them_do() -> None:
    kept = HEAD | SLOW  # all slow ones at weight 1 beside a tenth of the others
    weight = np.where(SLOW, 1.0, 10.0)[kept]
    shared = np.where(
        np.random.default_rng(1).random(N) < np.where(LATENCY > 1_500.0, 0.6, 0.1), "v2", "v1"
    )
    whole = cohorts(
        stored(ALL, version=shared.tolist()), Window(), Slo(e2e_ms=1_000.0), "e2e"
    ).cohorts[0]
    found = cohorts(
        stored(
            kept,
            counters=False,
            sampling=["th:0" if w == 1.0 else "th:e6666666666668" for w in weight],
            sample_weight=weight,
            version=shared[kept].tolist(),
        ),
        Window(),
        Slo(e2e_ms=1_000.0),
        "e2e",
    ).cohorts[0]
    assert (found.attribute, found.value) == (whole.attribute, whole.value) == ("version", "v2")
    assert (found.slow_ratio, found.rest_ratio) == (
        pytest.approx(whole.slow_ratio, abs=0.05),
        pytest.approx(whole.rest_ratio, abs=0.03),
    )
    stored_ratio = found.slow / (
        found.slow + int(((LATENCY > 1_000.0) & ~ERROR & kept & (shared == "v1")).sum())
    )
    assert abs(stored_ratio - whole.slow_ratio) > abs(found.slow_ratio - whole.slow_ratio)
    assert found.p99_ms == pytest.approx(whole.p99_ms or 0.0, rel=0.1)


@pytest.mark.parametrize(
    ("kept", "columns", "kind"),
    [(ALL, {}, "all"), (HEAD, WEIGHTED, "weighted"), (SLOW, {}, "biased"), (ERROR, {}, "biased")],
)
def test_a_heat_map_says_what_its_counts_stand_for_four_ways(
    kept: np.ndarray[Any, Any], columns: dict[str, Any], kind: str
) -> None:
    found = heatmap(stored(kept, **columns), Window(), SLO, "e2e")
    assert (found.sampling, found.n) == (kind, int((kept & ~ERROR).sum()))
    assert sum(map(sum, found.counts)) == found.n
    if kind == "weighted":
        assert found.stands_for == [[10.0 * n for n in row] for row in found.counts]
    else:
        assert found.stands_for is None
        why = {
            "all": "each request",
            "biased": "the requests are not representative" if found.n else "no successful request",
        }[kind]
        assert next(iter(found.reasons.values())).startswith(why)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(
    ("kept", "columns", "kind"),
    [(ALL, {}, "all"), (HEAD, WEIGHTED, "weighted"), (SLOW, {}, "biased"), (ERROR, {}, "biased")],
)
def test_months_are_told_of_what_samples_stand_for_four_ways(
    kept: np.ndarray[Any, Any], columns: dict[str, Any], kind: str, folded: bool
) -> None:
    con = stored(kept, **columns)
    while folded and roll_up(con, T0_NS + 10**13):
        pass
    found, exact = history(con, Window(), "e2e"), LATENCY[~ERROR]
    assert (found.sampling, found.requests, found.n) == (
        kind,
        int(kept.sum()),
        int((kept & ~ERROR).sum()),
    )
    if kind in ("biased", "unknown"):
        assert [
            found.p50,
            found.p95,
            found.error_ratio,
            *{p.p50 for p in found.points},
            *{p.error_ratio for p in found.points},
        ] == [None] * 5
        assert "not representative" in found.reasons["p95"]
    else:
        assert found.p50 == pytest.approx(
            np.quantile(exact, 0.5), rel=0.01 if kind == "all" else 0.1
        )
        assert found.error_ratio == pytest.approx(
            ERROR.mean(), abs=1e-9 if kind == "all" else 0.015
        )


def test_rollups_weigh_requests_that_were_kept_with_different_probabilities_also_when_these_are_gone() -> (
    None
):
    kept = HEAD | SLOW | ERROR
    weight = np.where(SLOW | ERROR, 1.0, 10.0)[kept]
    con = stored(
        kept,
        counters=False,
        sampling=["th:0" if w == 1.0 else "th:e6666666666668" for w in weight],
        sample_weight=weight,
    )
    raw = history(con, Window(), "e2e")
    while roll_up(con, T0_NS + 10**13):
        pass
    folded = history(con, Window(), "e2e")
    assert (folded.points, folded.p50, folded.p95, folded.p99, folded.error_ratio) == (
        raw.points,
        raw.p50,
        raw.p95,
        raw.p99,
        raw.error_ratio,
    )
    con.execute("delete from requests")
    gone = history(con, Window(), "e2e")
    assert (gone.p50, gone.p95, gone.error_ratio, gone.sampling) == (
        raw.p50,
        raw.p95,
        raw.error_ratio,
        "weighted",
    )
    assert gone.p95 == pytest.approx(np.quantile(LATENCY[~ERROR], 0.95), rel=0.05)
    assert gone.error_ratio == pytest.approx(ERROR.mean(), abs=0.002)


def test_what_a_tail_sampler_chose_is_refused_also_when_its_requests_are_gone() -> None:
    con = stored(SLOW, counters=False, sampling="tail:latency")
    while roll_up(con, T0_NS + 10**13):
        pass
    con.execute("delete from requests")
    found = history(con, Window(), "e2e")
    assert (found.sampling, found.p95, found.error_ratio, found.n) == (
        "biased",
        None,
        None,
        int((SLOW & ~ERROR).sum()),
    )
    assert {p.p50 for p in found.points} == {None}
    assert "chooses by what happened" in found.reasons["p95"]


@pytest.mark.parametrize(
    ("kept", "columns", "counters", "share"),
    [
        (ALL, {}, True, 1.0),
        (ALL, {}, False, None),
        (HEAD, {"sampling": "th:e6666666666668", "sample_weight": 10.0}, True, 0.1),
        (HEAD, {"sampling": "th:e6666666666668", "sample_weight": 10.0}, False, 0.1),
    ],
)
def test_coverage_for_rules_is_of_what_is_stored_not_of_what_it_stands_for(
    kept: np.ndarray[Any, Any],
    columns: dict[str, Any],
    counters: bool,
    share: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[float | None] = []
    judge = report_module.diagnose

    def watched(*args: Any, **named: Any) -> Any:
        seen.append(named["coverage"])
        return judge(*args, **named)

    monkeypatch.setattr(report_module, "diagnose", watched)
    recorded(kept, counters=counters, **columns)
    assert seen == [share if share is None else pytest.approx(share, abs=0.01)]
