"""What slow requests share: planted attributes are found, chance is not, and the tests agree with slow references."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from overrun.analysis.numbers.comparison.cohorts import (
    Box,
    Cohorts,
    cohorts,
    cramers_v,
    fisher_greater,
    kolmogorov,
)
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import (
    at,
    calls_of,
    insert,
    insert_calls,
    insert_spans,
    requests,
    spans_of,
    store,
)

SLO = Slo(e2e_ms=1_000.0)


def found(n: int, *, box: Box | None = None, **columns: Any) -> Cohorts:
    con = store()
    insert(con, requests(n, **columns))
    return cohorts(con, Window(), SLO, "e2e", box)


def test_planted_tenant_is_told_with_its_instance_merged_and_what_p99_would_be_without() -> None:
    rng = np.random.default_rng(1)
    bad = rng.random(2000) < 0.05
    answer = found(
        2000,
        prefill_ms=np.where(bad, 5_000.0, 100.0),
        tenant=["acme" if b else f"t{i % 7}" for i, b in enumerate(bad)],
        instance=["gpu-3" if b else f"gpu-{i % 3}" for i, b in enumerate(bad)],
        session=[f"s{i}" for i in range(2000)],
    )
    first = answer.cohorts[0]
    assert (first.attribute, first.value, first.same_as) in [
        ("tenant", "acme", ["instance gpu-3"]),
        ("instance", "gpu-3", ["tenant acme"]),
    ]
    assert (first.slow, first.rest, first.lift) == (int(bad.sum()), 0, None)
    assert (first.p99_ms, first.p99_without_ms) == (5_000.0, 100.0)
    assert len(answer.cohorts) == 1
    assert "another value" in answer.skipped["session"]
    assert "is over 1.00 s" in answer.selection


def test_long_outputs_are_told_as_a_range() -> None:
    rng = np.random.default_rng(2)
    tokens = rng.integers(10, 1000, 1000)
    answer = found(1000, decode_ms=tokens * 1.2, output_tokens=tokens)
    first = answer.cohorts[0]
    assert first.attribute == "output_tokens"
    assert first.value.startswith("> 8")
    assert first.slow_ratio == 1.0


def test_requests_that_tell_of_no_cached_tokens_have_none() -> None:
    lost = np.arange(1000) % 5 == 0
    columns: dict[str, Any] = {"prefill_ms": np.where(lost, 2_000.0, 200.0), "input_tokens": 4_000}
    first = found(
        1000, **columns, cached_tokens=[None if gone else 3_600 for gone in lost]
    ).cohorts[0]
    assert (first.attribute, first.value, first.slow_ratio, first.rest_ratio) == (
        "cached_ratio",
        "<= 0",
        1.0,
        0.0,
    )
    assert found(1000, **columns).skipped["cached_ratio"] == "not recorded"


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_told_where_slow_requests_share_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    answer = found(
        800,
        prefill_ms=rng.lognormal(5, 1, 800),
        tenant=rng.choice(["a", "b", "c"], 800).tolist(),
        input_tokens=rng.integers(1, 999, 800),
    )
    assert [c.attribute for c in answer.cohorts if c.q_value < 0.01] == []


def test_box_of_time_and_latency_selects_its_requests() -> None:
    inside = np.arange(600) >= 500
    answer = found(
        600,
        prefill_ms=np.where(inside, 400.0, 100.0),
        version=["v2" if i else "v1" for i in inside],
        box=Box(at(500), at(600), 300.0, None),
    )
    assert (answer.n_slow, answer.n_rest) == (100, 500)
    assert (answer.cohorts[0].attribute, answer.cohorts[0].value) == ("version", "v2")
    assert "E2E from 300 ms" in answer.selection


def test_box_without_an_inside_is_refused_and_a_thin_one_is_said() -> None:
    with pytest.raises(AnalysisError, match="empty"):
        found(10, box=Box(min_ms=5.0, max_ms=5.0))
    assert (
        "3 selected"
        in found(100, prefill_ms=np.arange(100.0), box=Box(min_ms=97.0)).reasons["cohorts"]
    )


def test_stages_and_spreads_show_what_differs_in_a_box() -> None:
    inside = np.arange(600) >= 500
    answer = found(
        600,
        prefill_ms=np.where(inside, 400.0, 100.0),
        retrieval_ms=50.0,
        version=["v2" if i else "v1" for i in inside],
        tenant=[f"t{i % 3}" for i in range(600)],
        output_tokens=np.arange(600) * 10,
        box=Box(at(500), at(600), 300.0, None),
    )
    sides = {one.stage: (one.these_ms, one.rest_ms) for one in answer.stages}
    assert sides == {"prefill": (400.0, 100.0), "retrieval": (50.0, 50.0)}
    spreads = {one.attribute: one for one in answer.spreads}
    assert [one.attribute for one in answer.spreads][:2] == ["version", "output_tokens"]
    assert spreads["version"].distance == 1.0
    assert [(one.value, one.these, one.rest, one.where) for one in spreads["version"].bins] == [
        ("v1", 0, 500, "version:v1"),
        ("v2", 100, 0, "version:v2"),
    ]
    assert spreads["tenant"].distance < 2.0 * spreads["tenant"].by_chance
    bins = spreads["output_tokens"].bins
    assert 2 < len(bins) <= 10
    assert (sum(one.these for one in bins), sum(one.rest for one in bins)) == (100, 500)
    assert sum(one.these_ratio for one in bins) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("tenant:t1", (33, 167)),
        ("-tenant:t1", (67, 333)),
        ("output_tokens:0..3000", (0, 300)),
        ("tenant:t1;version:v2", (33, 0)),
        ("session:(none)", (100, 500)),
    ],
)
def test_conditions_hold_on_both_sides(where: str, left: tuple[int, int]) -> None:
    con = store()
    inside = np.arange(600) >= 500
    insert(
        con,
        requests(
            600,
            prefill_ms=np.where(inside, 400.0, 100.0),
            version=["v2" if i else "v1" for i in inside],
            tenant=[f"t{i % 3}" for i in range(600)],
            output_tokens=np.arange(600) * 10,
        ),
    )
    answer = cohorts(con, Window(), SLO, "e2e", Box(min_ms=300.0), where=where, by="tenant")
    assert (answer.n_slow, answer.n_rest) == left
    assert answer.where == [part.replace("(none)", "%28none%29") for part in where.split(";")]
    assert sum(one.these for one in answer.groups) == left[0]


@pytest.mark.parametrize(
    ("where", "why"),
    [("tenat:t1", "tenant"), ("tenant", "lacks a value"), ("output_tokens:many", "no number")],
)
def test_a_condition_that_cannot_be_read_is_refused(where: str, why: str) -> None:
    with pytest.raises(AnalysisError, match=why):
        cohorts(_one_request(), Window(), SLO, "e2e", where=where)


def _one_request() -> Any:
    con = store()
    insert(con, requests(1))
    return con


def test_a_range_that_is_drawn_selects_its_requests() -> None:
    con = store()
    insert(con, requests(900, prefill_ms=np.geomspace(1, 2000, 900), output_tokens=np.arange(900)))
    drawn = {one.attribute: one for one in cohorts(con, Window(), SLO, "e2e").spreads}
    for one in drawn["output_tokens"].bins:
        again = cohorts(con, Window(), SLO, "e2e", where=one.where)
        assert (again.n_slow, again.n_rest) == (one.these, one.rest)


def test_the_engine_and_the_longest_operation_are_attributes() -> None:
    con = store()
    frame = requests(200, prefill_ms=np.where(np.arange(200) % 4 == 0, 4000.0, 100.0))
    insert(con, frame)
    slow = [i % 4 == 0 for i in range(200)]
    insert_calls(con, calls_of(frame, engine_instance=["gpu-2" if s else "gpu-1" for s in slow]))
    answer = cohorts(con, Window(), SLO, "e2e")
    assert (answer.cohorts[0].attribute, answer.cohorts[0].value) == ("engine_instance", "gpu-2")


def test_requests_whose_spans_were_not_read_are_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overrun.analysis.numbers.comparison.cohorts.MOST_TRACED", 30)
    con = store()
    slow = np.arange(400) % 10 == 0
    frame = requests(400, prefill_ms=np.where(slow, 4000.0, 100.0))
    insert(con, frame)
    insert_spans(
        con,
        spans_of(frame, "search", "retrieval", 0.0, 50.0, keep=slow),
        spans_of(frame, "chat", "decode", 0.0, 50.0, keep=~slow),
    )
    [operation] = [
        one for one in cohorts(con, Window(), SLO, "e2e").spreads if one.attribute == "operation"
    ]
    assert {one.value: (one.these_ratio, one.rest_ratio) for one in operation.bins} == {
        "search": (1.0, 0.0),
        "chat": (0.0, 1.0),
    }
    assert operation.known == 60


def test_fisher_agrees_with_counting_every_draw() -> None:
    for n, marked, slow in [(9, 4, 3), (10, 5, 5), (8, 2, 6)]:
        draws = [sum(i < marked for i in draw) for draw in itertools.combinations(range(n), slow)]
        for hits in range(min(marked, slow) + 1):
            assert fisher_greater(hits, marked, slow, n) == pytest.approx(
                np.mean([d >= hits for d in draws])
            )


def test_fisher_of_a_million_requests_is_finite() -> None:
    assert (
        0.0 <= fisher_greater(30_000, 100_000, 50_000, 1_000_000) < 1e-300
        or fisher_greater(30_000, 100_000, 50_000, 1_000_000) == 0.0
    )
    assert fisher_greater(5_000, 100_000, 50_000, 1_000_000) == pytest.approx(0.5, abs=0.01)


def test_kolmogorov_keeps_its_level() -> None:
    rng = np.random.default_rng(3)
    low = 0
    for _ in range(300):
        a, b = np.sort(rng.random(80)), np.sort(rng.random(200))
        points = np.concatenate([a, b])
        gap = np.abs(
            np.searchsorted(a, points, "right") / 80 - np.searchsorted(b, points, "right") / 200
        ).max()
        low += kolmogorov(float(gap), 80, 200) < 0.05
    assert 0.01 <= low / 300 <= 0.08


def test_cramers_v_is_phi() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.random(500) < 0.3, rng.random(500) < 0.5
    assert cramers_v(a, b) == pytest.approx(abs(np.corrcoef(a, b)[0, 1]))
    assert cramers_v(a, ~a) == pytest.approx(1.0)
    assert not math.isnan(cramers_v(a, np.ones(500, np.bool_)))
