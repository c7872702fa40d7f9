"""How long was a key not used, and how many others were meanwhile? Exact on a few calls."""

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.reuse import other_keys, silence_s

START = [0.0, 10.0, 11.0, 40.0, 41.0]


def calls(models: list[str | None]) -> Calls:
    return Calls(pl.DataFrame({"start_s": START, "e2e_ms": [2_000.0] * 5, "model": models}))


def test_silence_counts_from_the_last_end_of_the_same_key() -> None:
    some = calls(["a", "b", "a", "a", "b"])
    np.testing.assert_array_equal(
        silence_s(some, some.codes("model")), [np.nan, np.nan, 9.0, 27.0, 29.0]
    )


def test_a_key_in_use_is_not_silent() -> None:
    some = Calls(pl.DataFrame({"start_s": [0.0, 1.0, 5.0], "e2e_ms": [9_000.0, 500.0, 500.0]}))
    np.testing.assert_array_equal(silence_s(some, np.zeros(3, np.int64)), [np.nan, 0.0, 0.0])


def test_other_keys_are_counted_once_each_since_the_last_use() -> None:
    some = calls(["a", "b", "a", "a", "b"])
    np.testing.assert_array_equal(
        other_keys(some, some.codes("model")), [np.nan, np.nan, 1.0, 0.0, 1.0]
    )


def test_one_key_takes_nobodys_place() -> None:
    some = calls(["a", None, "a", "a", None])
    assert np.isnan(other_keys(some, some.codes("model"))).all()
