"""What did the model calls of a stretch of time look like? Columns that are worked out from others."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.calls import Calls, come_together


def test_a_call_that_was_given_up_counts_with_the_cached_share_of_the_answered_ones() -> None:
    frame = pl.DataFrame(
        {
            "error": [False, False, False, True, True],
            "input_tokens": [1_000, 3_000, 1_000, 2_000, None],
            "cached_tokens": [900, 2_100, None, None, None],
        },
        schema_overrides={"input_tokens": pl.Int64, "cached_tokens": pl.Int64},
    )
    calls = Calls(frame)
    # 3,000 of 5,000 input tokens of answered calls were cached, so 1,200 of 2,000; an answer that tells of no cached token had none.
    assert calls.cached_tokens.tolist() == [900.0, 2_100.0, 0.0, 1_200.0, 0.0]
    assert calls.new_tokens[:4].tolist() == [100.0, 900.0, 1_000.0, 800.0]


def test_a_call_whose_callers_span_was_lost_counts_with_the_cached_share_of_the_others() -> None:
    frame = pl.DataFrame(
        {
            "error": False,
            "input_tokens": [1_000, 3_000, 2_000],
            "cached_tokens": [900, 2_100, None],
            "engine_alone": [0, 0, 1],
        }
    )
    assert Calls(frame).cached_tokens.tolist() == [900.0, 2_100.0, 1_500.0]
    # Where engines alone tell, and none of a cache, nothing is known of one.
    alone = pl.DataFrame(
        {
            "error": False,
            "input_tokens": [1_000, 2_000],
            "cached_tokens": pl.Series([None, None], dtype=pl.Int64),
            "engine_alone": 1,
        }
    )
    assert Calls(alone).new_tokens.tolist() == [1_000.0, 2_000.0]


def test_what_goes_to_models_of_which_no_engine_tells_is_left_out_where_one_does() -> None:
    frame = pl.DataFrame(
        {
            "model": ["llama", "llama", None, "gpt"],
            "prefill_ms": [50.0, None, 50.0, None],
            "decode_ms": [900.0, None, 900.0, None],
        }
    )
    calls = Calls(frame)
    # The second was given up before its engine told; a span of the engine that names no model is the engine's all the same.
    assert calls.to_models(calls.where(calls.has_engine).names("model")).frame[
        "model"
    ].to_list() == ["llama", "llama", None]
    assert calls.to_models([]) is calls
    assert calls.to_models(["llama", "gpt"]) is calls


def test_requests_of_a_conversation_come_together_however_many_calls_they_make() -> None:
    calls = pl.DataFrame(
        {"session": ["a", "a", "a", "b", None, None], "trace_key": [1, 1, 2, 3, 4, 5]}
    )
    assert come_together(calls) == (4 + 1 + 1 + 1) / (
        2 + 1 + 1 + 1
    )  # two requests, one, and two without a session
    assert come_together(calls.clear()) == 1.0


def test_models_that_write_hardly_anything_answer_nobody() -> None:
    frame = pl.DataFrame(
        {
            "model": ["main", "guard", "main", "router", None],
            "output_tokens": [400, 6, 300, 20, 200],
        }
    )
    # 26 of 926 tokens; a call without a model is a model of its own.
    assert Calls(frame).writers.tolist() == [True, False, True, False, True]
    assert Calls(frame.with_columns(output_tokens=pl.lit(None, pl.Int64))).writers.all()


def test_some_of_the_calls_keep_who_was_beside_them() -> None:
    """Ten calls at once, of which the last three are looked at: each of them ran among ten."""
    calls = Calls(
        pl.DataFrame(
            {
                "trace_key": range(10),
                "start_s": [0.0] * 10,
                "e2e_ms": [1_000.0] * 10,
                "queue_ms": [0.0] * 10,
                "prefill_ms": [100.0] * 10,
                "ttft_ms": [100.0] * 10,
                "decode_ms": [900.0] * 10,
                "error": [False] * 10,
                "engine_instance": ["gpu-0"] * 10,
                "input_tokens": [90] * 10,
                "cached_tokens": [0] * 10,
                "output_tokens": [10] * 10,
            }
        )
    )
    late = np.arange(10) >= 7
    assert calls.some(late).running == pytest.approx(np.full(3, 10.0))
    assert calls.where(late).running == pytest.approx(np.full(3, 3.0))


@pytest.mark.parametrize(
    "start_s",
    [
        np.repeat(np.arange(5) * 18.0, 40) + np.tile(np.arange(40) * 0.045, 5),  # bursts
        np.arange(200) * 0.45,
        np.cumsum(np.random.default_rng(1).exponential(0.45, 200)),
    ],
    ids=["bursts", "even", "at random"],
)
def test_calls_come_for_as_long_as_their_rate_is_right(start_s: np.ndarray) -> None:
    """200 calls in 90 s each, whether or not the last burst lies long before the end."""
    calls = Calls(pl.DataFrame({"start_s": start_s}))
    assert len(calls) / calls.seconds == pytest.approx(200 / 90.0, rel=0.1)
