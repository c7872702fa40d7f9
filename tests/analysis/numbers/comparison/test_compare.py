"""Two windows with known differences: what is told, what is put down to traffic, and what is left alone."""

from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

from overrun.analysis.front.compare_text import document
from overrun.analysis.front.text_layout import render
from overrun.analysis.numbers.comparison.compare import (
    Comparison,
    _said,
    cliffs_delta,
    compare,
    compare_frames,
    read_sides,
    weighted_quantile,
)
from overrun.analysis.numbers.statistics.bootstrap import blocks
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.errors import WindowError
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import at, frame_of, insert, requests, store

SLO = Slo(e2e_ms=2_000.0)


def traffic(
    n: int,
    seed: int,
    *,
    token_ms: float = 10.0,
    tokens: float = 5.0,
    load_ms: float = 0.0,
    every_s: float = 1.0,
    **columns: Any,
) -> pl.DataFrame:
    """Requests whose decode takes `token_ms` a token; lengths are lognormal around exp(`tokens`)."""
    rng = np.random.default_rng(seed)
    lengths = np.maximum(2, rng.lognormal(tokens, 0.5, n)).astype(int)
    prefill = rng.lognormal(4.0, 0.3, n) + load_ms
    return requests(
        n,
        start_s=np.cumsum(rng.exponential(every_s, n)),
        prefill_ms=prefill,
        ttft_prefill_ms=prefill,
        decode_ms=lengths * token_ms * rng.lognormal(0, 0.1, n),
        output_tokens=lengths,
        input_tokens=rng.integers(400, 600, n),
        **columns,
    )


def compared(before: pl.DataFrame, after: pl.DataFrame) -> Comparison:
    return compare_frames(frame_of(before), frame_of(after), ("a", "b"), SLO)


def quantile(found: Comparison, metric: str, p: float) -> Any:
    return next(
        q for m in found.metrics if m.metric == metric for q in m.quantiles if q.quantile == p
    )


@pytest.mark.parametrize("seed", range(4))
def test_two_windows_of_the_same_traffic_are_unchanged(seed: int) -> None:
    found = compared(traffic(800, 2 * seed), traffic(800, 2 * seed + 1))
    assert found.outcome == "unchanged", found.sentence
    assert found.change_at is None


def test_slower_tokens_are_a_regression_that_traffic_does_not_explain() -> None:
    found = compared(traffic(1500, 1), traffic(1500, 2, token_ms=14.0))
    p95 = quantile(found, "e2e", 95.0)
    assert found.outcome == "regressed"
    assert p95.significant
    assert p95.adjusted_significant
    assert p95.adjusted_ms == pytest.approx(p95.difference_ms, rel=0.25)
    assert p95.interval[0] < p95.difference_ms < p95.interval[1]
    assert found.stages[0].stage == "decode"


def test_longer_answers_are_put_down_to_the_mix() -> None:
    found = compared(traffic(3000, 1), traffic(3000, 2, tokens=5.4))
    p50, p95 = quantile(found, "e2e", 50.0), quantile(found, "e2e", 95.0)
    assert p95.significant
    assert p95.mix_ms == pytest.approx(p95.difference_ms, rel=0.35)
    assert not p95.adjusted_significant
    assert not p50.adjusted_significant
    assert "output tokens" in found.adjusted_for
    assert (found.outcome, "the change of traffic explains it" in found.sentence) == (
        "unchanged",
        True,
    )


def test_a_change_that_other_traffic_does_not_explain_but_may_be_chance_is_said_so() -> None:
    change = quantile(compared(traffic(3000, 1), traffic(3000, 2, tokens=5.4)), "e2e", 50.0)
    mostly = msgspec.structs.replace(
        change, mix_ms=20.0, adjusted_ms=130.0, adjusted_significant=False
    )
    assert _said(("e2e", mostly)).endswith("with the same traffic it may be chance")
    assert _said(("e2e", msgspec.structs.replace(mostly, mix_ms=130.0, adjusted_ms=20.0))).endswith(
        "the change of traffic explains it"
    )


def test_mix_that_does_not_overlap_is_not_adjusted_but_said() -> None:
    found = compared(traffic(800, 1), traffic(800, 2).with_columns(input_tokens=pl.lit(8_000)))
    assert "input tokens" not in found.adjusted_for
    assert "do not overlap" in found.reasons["input tokens"]


def test_stage_changes_sum_to_the_change_of_the_mean() -> None:
    before, after = traffic(300, 1), traffic(300, 2, retrieval_ms=200.0)
    found = compared(before, after)
    e2e = [frame_of(part).rows["e2e_ms"].to_numpy().mean() for part in (before, after)]
    assert sum(stage.difference_ms for stage in found.stages) == pytest.approx(
        e2e[1] - e2e[0], abs=1e-6
    )
    retrieval = next(stage for stage in found.stages if stage.stage == "retrieval")
    assert retrieval.difference_ms == pytest.approx(200.0)


def test_values_that_came_and_went_and_the_moment_of_change() -> None:
    con = store()
    later = traffic(600, 2, token_ms=25.0, version="v2", every_s=0.5).with_columns(
        start_ns=pl.col("start_ns") + 600_000_000_000
    )
    insert(con, traffic(600, 1, version="v1", every_s=0.5), later)
    sides = read_sides(
        Window(),
        f"{at(0).isoformat()}..{at(600).isoformat()}",
        f"{at(600).isoformat()}..{at(1200).isoformat()}",
        at(2000),
    )
    found = compare(con, sides, SLO)
    assert [(c.attribute, c.value) for c in found.appeared] == [("version", "v2")]
    assert [(c.attribute, c.value) for c in found.vanished] == [("version", "v1")]
    assert found.change_at is not None
    assert abs((found.change_at - at(600)).total_seconds()) < 30
    assert "version" in [c.what for c in found.changed]
    assert "REGRESSED" in render(document(found))
    versions = compare(con, read_sides(Window(), "version=v1", "version=v2", at(2000)), SLO)
    assert versions.outcome == "regressed"
    assert (versions.before.requests, versions.after.requests) == (600, 600)


def test_errors_and_goodput_that_moved_are_told_with_intervals() -> None:
    found = compared(traffic(500, 1), traffic(500, 2, error=[i % 5 == 0 for i in range(500)]))
    assert (found.errors.before, found.errors.after) == (0.0, 0.2)
    assert found.errors.significant
    assert found.outcome == "regressed"
    assert "errors rose from 0 % to 20 %" in found.sentence


def test_too_little_is_said_and_not_judged() -> None:
    found = compared(traffic(3, 1), traffic(3, 2))
    assert (
        quantile(found, "e2e", 95.0).reasons["difference_ms"]
        == "P95 needs at least 59 requests, there are 3 and 3"
    )
    empty = compare_frames(
        frame_of(traffic(3, 1), start=at(-9), end=at(-8)), frame_of(traffic(3, 1)), ("a", "b"), SLO
    )
    assert (empty.outcome, empty.before.requests) == ("not_enough_data", 0)
    render(document(empty))


@pytest.mark.parametrize("text", ["yesterday", "version=", "-1h", "-1h..-2h"])
def test_text_that_is_nothing_to_compare_is_refused(text: str) -> None:
    with pytest.raises(WindowError):
        read_sides(Window(), text, "-1h..now", at(0))


def test_effect_size_is_the_share_of_pairs() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 20, 60).astype(float), rng.integers(5, 25, 40).astype(float)
    pairs = np.sign(b[None, :] - a[:, None])
    assert cliffs_delta(a, b) == pytest.approx(pairs.mean())


def test_equal_weights_give_the_plain_quantile() -> None:
    values = np.random.default_rng(2).lognormal(0, 1, 501)
    for p in (0.5, 0.95, 0.99):
        assert weighted_quantile(values, np.ones(501), p) == pytest.approx(np.quantile(values, p))


def test_bootstrap_interval_of_a_quantile_covers_it() -> None:
    """95 % intervals of a P95 of 300 independent values hold the true one in 87 to 99 % of 120 windows (20 blocks are few, so not quite 95)."""
    rng = np.random.default_rng(3)
    true, hits = float(np.exp(1.6448536)), 0
    for _ in range(120):
        values = rng.lognormal(0, 1, 300)
        low, high = np.percentile(
            blocks(values, np.arange(300) * 1_000_000).quantiles(np.array([0.95]), rng, 300)[:, 0],
            [2.5, 97.5],
        )
        hits += low <= true <= high
    assert 0.87 <= hits / 120 <= 0.99


def test_long_windows_have_longer_blocks_and_the_same_interval() -> None:
    """Three days of independent values are 360 blocks, not 4,320, and their P95's interval is as wide as that of the order statistics."""
    rng = np.random.default_rng(4)
    values, start = rng.lognormal(0, 1, 8_000), np.sort(rng.integers(0, 3 * 86_400 * 10**6, 8_000))
    held = blocks(values, start)
    assert len(held.counts) == 360
    low, high = np.percentile(held.quantiles(np.array([0.95]), rng)[:, 0], [2.5, 97.5])
    ranks = 8_000 * 0.95 + np.array([-1.96, 1.96]) * np.sqrt(8_000 * 0.95 * 0.05)
    assert high - low == pytest.approx(
        float(np.diff(np.sort(values)[ranks.astype(int)])[0]), rel=0.2
    )


def test_three_requests_against_many_and_a_version_that_nobody_runs_are_not_unchanged() -> None:
    few = compared(traffic(3, 1), traffic(400, 2))
    assert (few.outcome, few.goodput.significant) == ("not_enough_data", False)
    con = store()
    insert(con, traffic(200, 3, version="v1"))
    found = compare(
        con, read_sides(Window(), "version=v1", "version=v9", at(0)), Slo(e2e_ms=2_500.0)
    )
    assert (found.outcome, found.sentence) == (
        "not_enough_data",
        "Not enough data: no request of version v9 in the window.",
    )


def test_a_regression_that_could_not_be_adjusted_says_that_traffic_may_explain_it() -> None:
    found = compared(traffic(600, 1), traffic(600, 2, tokens=6.5))
    assert found.outcome == "regressed"
    assert "It is not known how much of it comes from other traffic" in found.sentence
