"""Output cap: each request keeps its own speed, and the cut answers are counted."""

import numpy as np
import pytest

from overrun.analysis.numbers.stages.budget import StageTimes
from overrun.analysis.whatif.fixes.cap import cap
from overrun.analysis.words.finding import Predicted


def run(times: StageTimes, tokens: list[float], most: int, **options: float) -> Predicted:
    return cap(
        times,
        np.array(tokens),
        most,
        metric="e2e",
        percentile=50.0,
        rng=np.random.default_rng(0),
        **options,
    )


def decode(ms: list[float]) -> StageTimes:
    return StageTimes(
        "e2e", np.array(ms) + 100.0, {"prefill": np.full(len(ms), 100.0), "decode": np.array(ms)}
    )


def test_decode_shrinks_to_the_cap_at_its_own_time_per_token() -> None:
    # 1,000 ms for 101 tokens is 10 ms for each after the first; 51 tokens leave 500 ms.
    result = run(decode([1000.0]), [101.0], 51)
    assert (result.before, result.after) == (1100.0, pytest.approx(600.0))
    assert result.cost == {"truncated_ratio": 1.0, "tokens_saved_ratio": pytest.approx(50 / 101)}


def test_shorter_answers_and_unknown_lengths_stay_as_they_are() -> None:
    result = run(decode([1000.0, 1000.0, 500.0]), [50.0, float("nan"), 51.0], 51)
    assert result.touched_ratio == 0.0
    assert result.cost == {"truncated_ratio": 0.0, "tokens_saved_ratio": 0.0}


def test_cap_of_one_token_leaves_no_decode() -> None:
    assert run(decode([1000.0]), [101.0], 1).after == pytest.approx(100.0)


def test_unsplit_generation_shrinks_by_the_given_time_per_token() -> None:
    times = StageTimes("e2e", np.array([1000.0]), {"generation": np.array([1000.0])})
    assert run(times, [60.0], 10, generation_token_ms=10.0).after == pytest.approx(500.0)
    assert run(times, [600.0], 10, generation_token_ms=10.0).after == 0.0
    assert run(times, [60.0], 10).touched_ratio == 0.0
