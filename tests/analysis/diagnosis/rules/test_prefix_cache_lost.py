"""prefix_cache_lost: fires with exact numbers, is silent on the twin, and says when data are few."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import causes, of, run, the
from tests.analysis.diagnosis.rules.engine_world import LATE as SINCE
from tests.analysis.diagnosis.rules.engine_world import engine

N = 600
LATE = np.arange(N) >= 300
TTFT = Slo(ttft_ms=1500.0)


def prompts(
    cached: np.ndarray, n_in: np.ndarray | float = 10_000, stage: str = "prefill", **columns: object
) -> pl.DataFrame:
    """Requests whose reading takes 0.2 ms for every token that no cache holds."""
    spent = 100.0 + (n_in - cached) * 0.2
    return requests(
        N,
        **{f"{stage}_ms": spent, f"ttft_{stage}_ms": spent},
        decode_ms=500.0,
        input_tokens=np.full(N, n_in),
        cached_tokens=cached.astype(int),
        **columns,
    )


@pytest.mark.parametrize("stage", ["prefill", "first_token"])
def test_fires_with_the_exact_cost_of_the_lost_tokens(stage: str) -> None:
    rng = np.random.default_rng(1)
    cached = np.where(LATE, 0.0, 9_000.0) + rng.integers(0, 200, N)
    found = run(prompts(cached, stage=stage), slo=TTFT)
    finding = the(found, "prefix_cache_lost")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        stage,
        "prefix_cache_lost",
        ["prefix_cache_lost"],
    )
    # 10,000 x (0.91 - 0.01) = 9,000 tokens more at 0.2 ms: 1.8 s, which is all of the excess.
    assert finding.evidence["prefill_ms_per_new_token"] == pytest.approx(0.2)
    assert finding.evidence["cache_ms"] == pytest.approx(1_800.0, rel=0.01)
    assert finding.evidence["share_of_excess"] == pytest.approx(1.0, abs=0.01)
    assert finding.evidence["hit_ratio_before"] - finding.evidence[
        "hit_ratio_now"
    ] == pytest.approx(0.9, abs=0.005)
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    # With its tokens in the cache again a request reads about 1,000 of them: 100 + 0.2 x 900..1,000 ms.
    assert 260.0 < finding.fix.predicted.after < 300.0 < 2_000.0 < finding.fix.predicted.before
    assert found.verdict.owner == "app"


def test_silent_when_the_same_time_comes_from_longer_prompts() -> None:
    n_in = np.where(LATE, 100_000.0, 10_000.0)
    found = run(prompts(0.9 * n_in, n_in), slo=TTFT)
    assert of(found, "prefix_cache_lost") is None
    assert found.verdict.cause == "prompt_bloat"


def test_who_is_slow_for_the_length_of_its_prompt_says_nothing_of_longer_prompts() -> None:
    """One call in ten found nothing before, whatever its length, and the slowest were among them; now all find nothing, and long ones are slow."""
    rng = np.random.default_rng(3)
    n_in = np.exp(rng.normal(np.log(6_000.0), 0.5, N // 2)).round()
    n_in = np.r_[n_in, n_in]
    found = run(
        prompts(np.where(LATE | (rng.random(N) < 0.1), 0.0, 0.9 * n_in), n_in, "first_token"),
        slo=Slo(ttft_ms=2_000.0),
    )
    assert causes(found) == ["prefix_cache_lost"]


def test_silent_when_the_cache_is_lost_but_something_else_took_the_time() -> None:
    cached = np.where(LATE, 0.0, 9_000.0)
    rows = prompts(cached).with_columns(
        pl.lit(200_000_000).alias("prefill_ns"), pl.lit(200_000_000).alias("ttft_prefill_ns")
    )
    slow = pl.Series("retrieval_ns", np.where(LATE, 4_000_000_000, 100_000_000))
    rows = rows.with_columns(
        slow, slow.alias("ttft_retrieval_ns"), e2e_ns=700_000_000 + slow, ttft_ns=200_000_000 + slow
    )
    assert causes(run(rows, slo=TTFT)) == ["slow_dependency"]


def test_engine_counters_stand_in_where_calls_do_not_tell() -> None:
    rows = prompts(np.where(LATE, 0.0, 9_000.0)).with_columns(cached_tokens=pl.lit(None, pl.Int64))
    gauges = {
        "prefix_cache_hit_rate": {float(t): 0.9 if t < 300 else 0.0 for t in range(0, 600, 15)}
    }
    found = run(rows, slo=TTFT, gauges=gauges)
    finding = the(found, "prefix_cache_lost")
    assert finding.evidence["source"] == "engine metrics"
    assert (finding.evidence["hit_ratio_before"], finding.evidence["hit_ratio_now"]) == (
        pytest.approx(0.9),
        pytest.approx(0.0, abs=0.05),
    )
    blind = run(rows, slo=TTFT)
    assert of(blind, "prefix_cache_lost") is None
    assert "cache_read.input_tokens" in blind.skipped["prefix_cache_lost"]


def test_expiry_at_low_traffic_is_said() -> None:
    # From the 300th on a call comes every 20 s instead of every second.
    start = np.r_[np.arange(300), 300 + 20.0 * np.arange(300)]
    found = run(prompts(np.where(LATE, 0.0, 9_000.0), start_s=start), slo=TTFT)
    assert the(found, "prefix_cache_lost").headline.startswith(
        "fewer calls arrive, so entries expire"
    )


def test_the_stalls_of_others_follow_from_it_though_nobody_could_tell_before_what_reading_costs() -> (
    None
):
    # Before, every prompt had 200 tokens to read, so nothing tells what one costs; since then every second one has 4,000, beside which answers take
    # 0.5 ms a token longer.
    found = run(engine(prefill_cost=0.5, cached=np.where(SINCE, 0, 3_800)), slo=Slo(e2e_ms=1_500.0))
    assert causes(found) == ["prefix_cache_lost"]
    assert any(
        one.what == "decode_stall" and "it is a consequence of prefix_cache_lost" in one.figure
        for one in found.verdict.ruled_out
    )


@pytest.mark.parametrize(("apart_s", "read_ms"), [(2.0, 0.02), (1.6, 0.05), (1.6, 0.005)])
def test_what_writing_loses_to_reading_is_the_readers_doing_however_cheap_reading_is_beside_writing(
    apart_s: float, read_ms: float
) -> None:
    """4.75 times as much to read is 1.05 times the work at 0.02 ms a token, or a small part of its growth beside a quarter more calls: all of the stalls."""
    pair = np.arange(len(SINCE)) // 2
    rows = engine(prefill_cost=0.5, read_ms=read_ms, cached=np.where(SINCE, 0, 3_800))
    at = np.where(SINCE, 500.0 + apart_s * (pair - 250), 2.0 * pair) + np.where(
        np.arange(len(SINCE)) % 2 == 0, 0.0, 0.3
    )
    rows = rows.with_columns(
        start_ns=pl.lit(rows["start_ns"].min()) + pl.Series((at * 1e9).astype(np.int64))
    )
    assert causes(run(rows, slo=Slo(e2e_ms=1_500.0))) == ["prefix_cache_lost"]


@pytest.mark.parametrize("head", [2_000.0, 0.0])
def test_a_client_whose_heads_are_still_found_is_told_that_the_cache_forgets(head: float) -> None:
    # First turns find the 2,000 tokens of the head, a third of the calls are later turns that found 9,000: now these find the head, or nothing.
    later = np.arange(N) % 3 == 0
    found = run(
        prompts(
            np.where(later, np.where(LATE, head, 9_000.0), 2_000.0),
            np.where(later, 10_000, 2_200),
            stage="first_token",
        ),
        slo=TTFT,
    )
    told = next(
        (one.figure for one in found.verdict.ruled_out if one.what == "prefix_cache_lost"), ""
    )
    assert ("the beginnings of prompts still hit" in told) is (head > 0.0)


@pytest.mark.parametrize(
    ("lost", "cause"), [(True, "prefix_cache_lost"), (False, "provider_queueing")]
)
def test_a_client_finds_the_wait_behind_what_is_read_again_in_the_first_token(
    lost: bool, cause: str
) -> None:
    """Since the onset first tokens take 2 s more; 9,000 tokens that are read again at 0.01 ms are 90 ms of them, and fill the far side nine times over."""
    cached = np.where(LATE & lost, 0, 9_000) + np.random.default_rng(1).integers(0, 200, N)
    first = 100.0 + (10_000 - cached) * 0.01 + np.where(LATE, 2_000.0, 0.0)
    found = run(
        requests(
            N,
            first_token_ms=first,
            ttft_first_token_ms=first,
            ttft_ms=first,
            decode_ms=50.0,
            input_tokens=10_000,
            output_tokens=6,
            cached_tokens=cached,
        ),
        slo=TTFT,
    )
    assert (found.verdict.cause, found.verdict.stage) == (cause, "first_token")


@pytest.mark.parametrize(("lost", "fires"), [(1_400, True), (400, False)])
def test_few_points_of_a_high_hit_ratio_are_much_to_read(lost: int, fires: bool) -> None:
    """One prompt in seven loses 14 of its 90 points: a fifth more is read than before, and those are the slow ones. With 4 points it is 6 %."""
    cached = (
        9_000.0
        + np.random.default_rng(1).integers(0, 20, N)
        - np.where(LATE & (np.arange(N) % 7 == 0), lost, 0)
    )
    found = run(prompts(cached), slo=Slo(ttft_ms=350.0))
    assert (of(found, "prefix_cache_lost") is not None) is fires
