"""gpu_throttled: fires when clocks fall and tokens slow down, silent when either stays."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the
from tests.analysis.diagnosis.rules.engine_world import LATE, N, engine

TIGHT = Slo(e2e_ms=1_400.0)
SLOWER = np.where(LATE, 40.0, 10.0)


def clocks(before: float, now: float) -> dict[str, dict[float, float]]:
    return {"gpu_clock": {float(t): before if t < N / 2 else now for t in range(0, N, 15)}}


def test_fires_when_clocks_fall_and_tokens_slow_down() -> None:
    found = run(engine(token_ms=SLOWER), slo=E2E, gauges=clocks(1.98e9, 0.99e9))
    finding = the(found, "gpu_throttled")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "decode",
        "gpu_throttled",
        ["gpu_throttled"],
    )
    assert finding.evidence["clock_fall"] == pytest.approx(0.5)


def test_silent_when_clocks_stayed() -> None:
    found = run(engine(token_ms=SLOWER), slo=E2E, gauges=clocks(1.98e9, 1.98e9))
    assert of(found, "gpu_throttled") is None
    assert any(out.what == "gpu_throttled" for out in found.verdict.ruled_out)


def test_an_xid_error_counts_without_clocks() -> None:
    gauges = {"gpu_xid": {float(t): 0.0 if t < N / 2 else 79.0 for t in range(0, N, 15)}}
    assert (
        the(run(engine(token_ms=SLOWER), slo=E2E, gauges=gauges), "gpu_throttled").evidence[
            "xid_errors"
        ]
        is True
    )


def test_without_gpu_metrics_slower_tokens_alone_say_nothing() -> None:
    assert of(run(engine(token_ms=SLOWER), slo=E2E), "gpu_throttled") is None


def slower(writes: float, reads: float) -> pl.DataFrame:
    return engine(
        token_ms=np.where(LATE, 10.0 * writes, 10.0), read_ms=np.where(LATE, 0.05 * reads, 0.05)
    )


def test_without_gpu_metrics_a_machine_that_reads_and_writes_more_slowly_is_named_with_what_to_record() -> (
    None
):
    finding = the(run(slower(1.6, 1.7), slo=TIGHT), "gpu_throttled")
    assert finding.evidence["quick_pace"] == pytest.approx(1.6)
    assert "scrape DCGM" in finding.headline


def test_writing_that_slows_down_alone_is_no_machine() -> None:
    assert of(run(slower(1.6, 1.0), slo=TIGHT), "gpu_throttled") is None
    assert of(run(slower(1.9, 1.21), slo=TIGHT), "gpu_throttled") is None


def test_recorded_clocks_that_stayed_speak_against_it() -> None:
    assert (
        of(run(slower(1.6, 1.7), slo=TIGHT, gauges=clocks(1.98e9, 1.98e9)), "gpu_throttled") is None
    )


def test_another_model_has_a_pace_of_its_own() -> None:
    rows = slower(1.6, 1.7)
    assert (
        of(
            run(
                rows,
                slo=TIGHT,
                calls=[calls_of(rows, model=np.where(LATE, "large", "small").tolist())],
            ),
            "gpu_throttled",
        )
        is None
    )


def test_claims_what_its_clocks_explain_where_the_work_grew_as_well() -> None:
    rows = engine(
        token_ms=np.where(LATE, 12.0, 10.0), prefill_cost=0.5, cached=np.where(LATE, 0, 3_600)
    )
    finding = the(run(rows, slo=E2E, gauges=clocks(2.0e9, 1.6e9)), "gpu_throttled")
    # Answers beside a long prompt take 99 x 12 + 0.5 x 4,000 = 3,188 ms, 1,190 ms before. A fall by a fifth accounts for a fifth of them (638 ms); the other
    # 1,360 ms are shared with the work of an engine that reads 4,000 tokens where it read 400 (1.108 times as much in all): ln 1.25 / (ln 1.25 + ln 1.108).
    assert finding.evidence["claims_ms"]["decode"] == pytest.approx(
        638.0 + 0.685 * 1_360.0, rel=0.01
    )
    assert finding.evidence["share_of_excess"] == pytest.approx(0.785, abs=0.01)


def test_an_idle_sample_of_a_clock_is_no_limit() -> None:
    gauges = clocks(1.98e9, 1.98e9)
    gauges["gpu_clock"][max(gauges["gpu_clock"])] = 0.3e9
    assert of(run(engine(token_ms=SLOWER), slo=E2E, gauges=gauges), "gpu_throttled") is None


def test_prompts_that_grew_leave_no_call_as_quick_as_it_could_be() -> None:
    """Reading and writing take 1.6 times as long, and half of the former prompts were in the cache, or as much as now."""
    for before, named in ((2_000, False), (0, True)):
        rows = engine(
            token_ms=np.where(LATE, 16.0, 10.0),
            read_ms=np.where(LATE, 0.08, 0.05),
            cached=np.where(LATE, 0, before),
        )
        assert (of(run(rows, slo=TIGHT), "gpu_throttled") is not None) is named
