"""How far a gain by arithmetic may be from the truth: what others gain from the work that a fix takes off an engine is in its interval, and only that."""

import numpy as np
import polars as pl
import pytest

from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import of, run

N = 500
# From the middle of the window on one request in five is hit; before that all are alike.
HIT = (np.arange(N) >= N // 2) & (np.arange(N) % 5 == 4)


def test_the_bound_of_a_fix_that_frees_an_engine_reaches_down_to_what_was_usual() -> None:
    """Before, all took 200 + 100 x 10 ms. Answers of 600 tokens cut at 160 still take 1,790 ms by themselves, and leave the engine to the others."""
    tokens = np.where(HIT, 600, 100)
    found = of(
        run(
            requests(
                N, prefill_ms=200.0, output_tokens=tokens, ttft_ms=200.0, decode_ms=tokens * 10.0
            )
        ),
        "long_outputs",
    )
    assert found is not None
    assert found.fix is not None
    assert found.fix.predicted is not None
    assert found.fix.predicted.after == pytest.approx(200.0 + 6000.0 * 159 / 599)
    assert found.fix.predicted.interval == (
        pytest.approx(1200.0),
        pytest.approx(found.fix.predicted.after),
    )
    assert "baseline's percentile" in found.fix.reasons["interval"]


def test_the_gain_of_a_fix_that_no_load_hangs_on_is_as_sure_as_its_sample() -> None:
    rows: pl.DataFrame = requests(
        N,
        prefill_ms=200.0,
        output_tokens=100,
        ttft_ms=200.0,
        decode_ms=1000.0,
        retrieval_ms=np.where(HIT, 5000.0, 50.0),
    )
    found = of(run(rows), "slow_dependency")
    assert found is not None
    assert found.fix is not None
    assert found.fix.predicted is not None
    assert "interval" not in found.fix.reasons
