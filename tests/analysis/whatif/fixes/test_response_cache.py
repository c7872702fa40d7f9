"""A response cache: exact repeats are counted by the hashes of prompts, a share that is given is drawn, and what is lacking is said."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fixes import response_cache
from tests.analysis.whatif.builders import calls, facts_of

N = 200


def asked(every: int, **columns: Any) -> Facts:
    return facts_of(
        calls(N, every_s=2.0, e2e_ms=1000.0, ttft_ms=300.0, **columns).with_columns(
            prompt_hash=hashes(every)
        )
    )


def hashes(every: int) -> pl.Series:
    # Of each pair of calls every few, the second asks what the first did.
    return pl.Series([f"{k - 1 if k % every == 1 else k}" for k in range(N)])


def test_repeats_are_answered_in_the_time_of_a_hit_and_nothing_else_changes() -> None:
    answer = response_cache.predict(asked(2))
    # Every second call repeats the one before, which had ended a second ago: half of the requests take 50 ms.
    assert (answer.method, answer.bound) == ("exact", True)
    assert answer.cost == {"cached_answers_ratio": 0.5}
    assert answer.predicted is not None
    assert answer.predicted.touched_ratio == 0.5
    e2e = {effect.quantile: effect for effect in answer.effects if effect.metric == "e2e"}
    assert (e2e[0.5].before, e2e[0.5].after, e2e[0.95].after) == (
        1000.0,
        pytest.approx(525.0),
        1000.0,
    )
    ttft = {effect.quantile: effect for effect in answer.effects if effect.metric == "ttft"}
    assert (ttft[0.5].before, ttft[0.5].after) == (300.0, pytest.approx(175.0))


def test_a_question_whose_first_answer_is_not_there_yet_or_failed_is_no_hit() -> None:
    early = facts_of(
        calls(N, every_s=0.5, e2e_ms=1000.0, ttft_ms=300.0).with_columns(prompt_hash=hashes(2))
    )
    assert (
        "none of 200 prompts had been answered before"
        in response_cache.predict(early).reasons["predicted"]
    )
    failed = asked(2, error=np.arange(N) % 2 == 0)
    assert not response_cache.repeated(failed).any()
    other = asked(2, model=["a", "b"] * (N // 2))
    assert not response_cache.repeated(other).any()


def test_without_hashes_it_says_what_to_record_and_takes_a_share_that_is_given() -> None:
    bare = facts_of(calls(N, every_s=2.0, e2e_ms=1000.0, ttft_ms=300.0))
    answer = response_cache.predict(bare)
    assert answer.predicted is None
    assert (
        "0 calls carry overrun.prompt_hash, at least 50 are needed" in answer.reasons["predicted"]
    )
    assert "give hit_ratio" in answer.reasons["predicted"]
    drawn = response_cache.predict(bare, hit_ratio=0.6)
    assert drawn.method == "estimate"
    assert drawn.predicted is not None
    assert drawn.predicted.after == pytest.approx(50.0)
