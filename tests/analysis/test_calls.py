"""What did the model calls of a stretch of time look like? Columns that are worked out from others."""

import polars as pl

from analysis.calls import Calls


def test_a_call_that_was_given_up_counts_with_the_cached_share_of_the_answered_ones() -> None:
    frame = pl.DataFrame({"error": [False, False, False, True, True], "input_tokens": [1_000, 3_000, 1_000, 2_000, None],
                          "cached_tokens": [900, 2_100, None, None, None]}, schema_overrides={"input_tokens": pl.Int64, "cached_tokens": pl.Int64})
    calls = Calls(frame)
    # 3,000 of 5,000 input tokens of answered calls were cached, so 1,200 of 2,000; an answer that tells of no cached token had none.
    assert calls.cached_tokens.tolist() == [900.0, 2_100.0, 0.0, 1_200.0, 0.0]
    assert calls.new_tokens[:4].tolist() == [100.0, 900.0, 1_000.0, 800.0]
