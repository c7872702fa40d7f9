"""Burn rates against hand-made traffic, and the pairs that fire."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.numbers.outcomes.burn_rate import Burn, burn
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import at, insert, requests, store

SLO = Slo(e2e_ms=1_000.0, goodput_target=0.99)
DAY = 86_400.0


def burned(*frames: pl.DataFrame) -> Burn:
    con = store()
    insert(con, *frames)
    return burn(con, Window(end=at(3 * DAY)), SLO, at(0))


def steady(first_s: float, last_s: float, every_s: float, bad_share: float) -> pl.DataFrame:
    starts = np.arange(first_s, last_s, every_s)
    n = len(starts)
    return requests(
        n,
        start_s=starts,
        prefill_ms=np.where((np.arange(n) * bad_share) % 1.0 + bad_share >= 1.0, 5_000.0, 100.0),
    )


def test_steady_loss_burns_at_its_share_over_the_budget_in_every_window() -> None:
    found = burned(steady(0, 3 * DAY, 20, 0.02))
    for pair in found.pairs:
        assert pair.long_burn is not None
        assert abs(pair.long_burn - 2.0) < 0.56  # one request of the shortest window
    assert [pair.firing for pair in found.pairs] == [False, False, True]  # 2 is over 1 only
    assert found.firing


def test_fresh_outage_fires_the_fast_pair_and_a_past_one_does_not() -> None:
    outage = burned(steady(0, 3 * DAY - 3_600, 20, 0.0), steady(3 * DAY - 3_600, 3 * DAY, 20, 0.3))
    assert outage.pairs[0].firing
    over = burned(
        steady(0, 3 * DAY - 3_600, 20, 0.0),
        steady(3 * DAY - 3_600, 3 * DAY - 600, 20, 0.3),
        steady(3 * DAY - 600, 3 * DAY, 20, 0.0),
    )
    assert not over.pairs[0].firing
    assert over.pairs[0].short_burn == 0.0


def test_few_bad_requests_fire_nothing() -> None:
    found = burned(requests(8, start_s=3 * DAY - 200 + np.arange(8) * 20, prefill_ms=5_000.0))
    assert found.pairs[0].long_burn is not None
    assert not found.firing


def test_a_burn_is_of_all_requests_and_not_of_what_a_sampler_kept() -> None:
    kept = steady(3 * DAY - 3_600, 3 * DAY, 10, 0.3)
    bad = kept["prefill_ns"].to_numpy() > 1e9
    # Every bad request is kept, of the others one in ten: 3 % of all are bad where 30 % of the stored ones are.
    weighted = kept.with_columns(
        sampling=pl.lit("th:e6"), sample_weight=pl.Series(np.where(bad, 1.0, 10.0))
    )
    assert burned(weighted).pairs[0].long_burn == pytest.approx(
        100.0 * bad.sum() / (bad.sum() + 10.0 * (~bad).sum())
    )
    chosen = burned(kept.with_columns(sampling=pl.lit("tail:errors")))
    assert (chosen.pairs[0].long_burn, chosen.firing) == (None, False)
    assert "tail:errors" in chosen.pairs[0].reasons["long_burn"]
    assert burned(kept).pairs[0].firing


def test_silence_has_no_burn_and_says_so() -> None:
    found = burned()
    assert [pair.long_burn for pair in found.pairs] == [None, None, None]
    assert "long_burn" in found.pairs[0].reasons
