"""batch_past_knee: fires when more sequences run at a time at the same arrival rate, silent when the engine is slower at equal batches."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.batch_knee import token_time_knee
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of, requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

# Groups of calls that start together: 4 at a time before, 16 at a time since the onset, at the same rate.
N = 1600
LATE = np.arange(N) >= 800
SIZE = np.where(LATE, 16, 4)


def batches(size: np.ndarray, pace: np.ndarray | float = 1.0) -> pl.DataFrame:
    """Every token takes 2 ms and 2 ms more for each call of the batch, times `pace`."""
    rng = np.random.default_rng(2)
    start = np.r_[
        (np.arange(800) // 4) * 4.0, 800.0 + (np.arange(800) // size[-1]) * float(size[-1])
    ]
    token = (2.0 + 2.0 * size) * pace
    tokens = rng.integers(95, 106, N)
    return requests(
        N,
        start_s=start,
        queue_ms=1.0,
        prefill_ms=20.0,
        decode_ms=token * (tokens - 1),
        output_tokens=tokens,
        input_tokens=100,
        tpot_ms=token,
    )


def test_fires_on_larger_batches_at_the_same_rate() -> None:
    found = run(
        batches(SIZE),
        slo=E2E,
        gauges={"running": {float(t): 4.0 if t < 800 else 16.0 for t in range(0, 1600, 15)}},
    )
    finding = the(found, "batch_past_knee")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "decode",
        "batch_past_knee",
        ["batch_past_knee"],
    )
    assert finding.evidence["running_now"] / finding.evidence["running_before"] == pytest.approx(
        4.0, rel=0.1
    )
    # 2 + 2 x 16 = 34 ms a token instead of 2 + 2 x 4 = 10.
    assert (finding.evidence["token_ms_slow"], finding.evidence["token_ms_usual"]) == (
        pytest.approx(34.0, abs=0.5),
        pytest.approx(10.0, abs=0.5),
    )
    assert "--max-num-seqs" in (finding.fix.detail if finding.fix else "")


def test_of_a_sample_nobody_knows_how_many_run() -> None:
    found = run(batches(SIZE), slo=E2E, coverage=0.1)
    assert of(found, "batch_past_knee") is None
    assert "10 % of the calls are stored" in found.skipped["batch_past_knee"]


def crowded() -> pl.DataFrame:
    """Half as many requests again, and four times the batch: a limit that stayed where it was would not let that many in."""
    rows = batches(SIZE)
    late = pl.int_range(pl.len()) >= 800
    start_ns = pl.col("start_ns").cast(pl.Int64)
    return rows.with_columns(
        start_ns=pl.when(late)
        .then(
            start_ns.min()
            + 800_000_000_000
            + (start_ns - start_ns.min() - 800_000_000_000) * 2 // 3
        )
        .otherwise(start_ns)
    )


def test_fires_on_spans_alone_where_more_requests_come_and_the_batch_is_larger_than_ever() -> None:
    finding = the(run(crowded(), slo=E2E), "batch_past_knee")
    assert finding.evidence["running_now"] / finding.evidence["running_before"] == pytest.approx(
        4.0, rel=0.1
    )


@pytest.mark.parametrize(("clock_now", "throttled"), [(1.4e9, True), (1.7e9, False)])
def test_much_lower_clocks_fill_a_batch_by_themselves(clock_now: float, throttled: bool) -> None:
    # Four ran at a time and sixteen do: no batch of now is like one of before, and a seventh of the clock is what a fuller GPU's power limit takes.
    found = run(
        crowded(),
        slo=E2E,
        gauges={
            "gpu_clock": {float(t): 1.98e9 if t < 800 else clock_now for t in range(0, 1600, 15)}
        },
    )
    assert found.verdict.cause == ("gpu_throttled" if throttled else "batch_past_knee")
    assert (
        any(
            out.what == "batch_past_knee" and "fills a batch by itself" in out.figure
            for out in found.verdict.ruled_out
        )
        is throttled
    )


def test_silent_when_the_same_batches_are_slower() -> None:
    found = run(batches(np.full(N, 4), np.where(LATE, 3.4, 1.0)), slo=E2E)
    assert found.verdict.stage == "decode"
    assert of(found, "batch_past_knee") is None


def test_knee_is_found_where_there_is_one() -> None:
    rng = np.random.default_rng(0)
    batch = rng.uniform(1.0, 60.0, 500)
    bent = 10.0 + np.maximum(batch - 30.0, 0.0) * 1.5 + rng.normal(0.0, 0.5, 500)
    found = token_time_knee(batch, bent)
    assert found is not None
    assert found == pytest.approx(30.0, abs=4.0)
    assert token_time_knee(batch, 10.0 + 0.3 * batch + rng.normal(0.0, 0.5, 500)) is None
    assert token_time_knee(batch[:20], bent[:20]) is None


def test_as_many_as_ever_ran_well_may_run() -> None:
    """Before, every tenth group came together with the one before it: eight at a time, 4.4 on average, of which a limit would keep many waiting."""
    joins = (np.arange(N) < 800) & ((np.arange(N) // 4) % 10 == 9)
    rows = batches(SIZE).with_columns(
        start_ns=pl.col("start_ns") - pl.Series(np.where(joins, 4_000_000_000, 0))
    )
    fix = the(run(rows.sort("start_ns"), slo=E2E), "batch_past_knee").fix
    assert fix is not None
    assert fix.parameters == {"sequences": 8}


def test_silent_when_a_router_takes_calls_off_a_slow_replica() -> None:
    """Tokens take 2 ms and 2 ms more a call on either replica; one then needs 3 times as long, and its peer runs 12 at a time instead of 6."""
    rng = np.random.default_rng(2)
    slow = np.arange(N) % 3 == 0
    size = np.where(LATE, np.where(slow, 6, 12), 6)
    tokens = rng.integers(95, 106, N)
    token = (2.0 + 2.0 * size) * np.where(LATE & slow, 3.0, 1.0)
    replica = np.where(LATE, np.where(slow, 0, 1), np.arange(N) % 2)
    start = np.zeros(N)
    for side in (0, 1):
        mine = np.flatnonzero(replica == side)
        start[mine] = np.cumsum((token * tokens / 1e3 / size)[mine])
    start = np.where(LATE, start + start[~LATE].max() - start[LATE].min(), start)
    order = np.argsort(start, kind="stable")
    rows = requests(
        N,
        start_s=start[order],
        queue_ms=1.0,
        prefill_ms=20.0,
        decode_ms=(token * (tokens - 1))[order],
        output_tokens=tokens[order],
        input_tokens=100,
        tpot_ms=token[order],
    )
    found = run(
        rows,
        calls=[calls_of(rows, engine_instance=[f"gpu-{k}" for k in replica[order]])],
        slo=Slo(e2e_ms=3_000.0),
    )
    assert of(found, "batch_past_knee") is None
    assert found.verdict.cause == "straggler_replica"


def at_times(waited: bool) -> pl.DataFrame:
    """Four at a time as ever, but for one of ten that runs beside seven others since the onset; before, one of twenty waited half a second (or nobody)."""
    group = np.arange(N) // 4
    late, crowd = np.arange(N) >= 800, (group % 20 >= 18) & (np.arange(N) >= 800)
    start = np.where(crowd & (group % 20 == 19), group - 1, group) * 4.0
    size = np.where(crowd, 8, 4)
    token = 2.0 + 2.0 * size
    queue = np.where(waited & ~late & (np.arange(N) % 20 == 0), 500.0, 1.0)
    return requests(
        N,
        start_s=start,
        queue_ms=queue,
        prefill_ms=20.0,
        decode_ms=token * 99.0,
        output_tokens=100,
        input_tokens=100,
        tpot_ms=token,
    )


def test_fires_where_slow_calls_alone_ran_beside_more_than_a_former_limit_let_in() -> None:
    slo = Slo(e2e_ms=1600.0, percentile=95.0)
    finding = the(run(at_times(waited=True), slo=slo), "batch_past_knee")
    assert (finding.evidence["running_now"], finding.evidence["running_before"]) == (
        pytest.approx(8.0, rel=0.05),
        pytest.approx(4.0, rel=0.05),
    )
    assert finding.fix is not None
    assert finding.fix.parameters == {"sequences": 4}
    # Nobody had waited: these came together, and no limit was lifted.
    assert of(run(at_times(waited=False), slo=slo), "batch_past_knee") is None
