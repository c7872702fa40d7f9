"""model_changed: fires when another model answers more slowly, silent when it is as fast or was there before."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the
from tests.analysis.diagnosis.rules.hosted import LATE, N, hosted


def test_fires_on_a_new_snapshot() -> None:
    found = run(
        hosted(
            token_ms=np.where(LATE, 30.0, 10.0),
            model=["m-2026-10" if late else "m-2026-04" for late in LATE],
        ),
        slo=E2E,
    )
    finding = the(found, "model_changed")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "decode",
        "model_changed",
        ["model_changed"],
    )
    assert (finding.evidence["model"], finding.evidence["former_model"]) == (
        "m-2026-10",
        "m-2026-04",
    )
    assert (finding.evidence["tpot_ms_before"], finding.evidence["tpot_ms_now"]) == (
        pytest.approx(10.0),
        pytest.approx(30.0),
    )
    # 400 + 99 x 30 against 400 + 99 x 10 ms.
    assert finding.evidence["slower"] == pytest.approx(3_370 / 1_390, rel=0.03)


def test_slow_requests_that_met_its_slowest_tokens_are_the_new_models() -> None:
    pace = np.exp(np.random.default_rng(3).normal(0.0, 0.12, N)) * np.where(LATE, 12.8, 10.0)
    rows = hosted(token_ms=pace, model=["m-2026-10" if late else "m-2026-04" for late in LATE])
    found = run(rows, slo=Slo(e2e_ms=2_000.0, percentile=99.0, goodput_target=0.99))
    assert found.verdict.cause == "model_changed"
    assert causes(found) == ["model_changed"]


def test_silent_when_the_same_model_is_slower() -> None:
    assert (
        of(
            run(hosted(token_ms=np.where(LATE, 30.0, 10.0), model="m-2026-04"), slo=E2E),
            "model_changed",
        )
        is None
    )


def test_silent_when_both_models_answered_before() -> None:
    rows = hosted(
        token_ms=np.where(LATE, 30.0, 10.0), model=["a" if k % 2 else "b" for k in range(N)]
    )
    assert of(run(rows, slo=E2E), "model_changed") is None


def test_what_only_some_of_its_calls_wait_is_the_providers() -> None:
    # All tokens take twice as long: 1 s more. In every second minute the first token comes 1.5 s later as well.
    waits = LATE & ((np.arange(N) // 60) % 2 == 0)
    rows = hosted(
        token_ms=np.where(LATE, 20.0, 10.0),
        first_ms=np.where(waits, 1_900.0, 400.0),
        model=["m-2026-10" if late else "m-2026-04" for late in LATE],
    )
    assert sorted(causes(run(rows, slo=E2E))) == ["model_changed", "provider_queueing"]


def test_quick_checks_beside_each_call_take_no_part_of_its_time() -> None:
    """Each request asks a small model first, for 50 ms: half of the slow calls are that model's, and none of the wait."""
    rows = hosted(
        token_ms=np.where(LATE, 30.0, 10.0),
        model=["m-2026-10" if late else "m-2026-04" for late in LATE],
    )
    checks = calls_of(rows, model="guard", duration_ms=50.0, output_tokens=5).with_columns(
        span_id=pl.col("span_id") + 10_000
    )
    finding = the(
        run(rows, calls=[pl.concat([calls_of(rows), checks], how="diagonal_relaxed")], slo=E2E),
        "model_changed",
    )
    assert finding.evidence["share_of_slow"] == pytest.approx(3_370 / 3_420, abs=0.01)
    assert finding.evidence["share_of_excess"] > 0.9
