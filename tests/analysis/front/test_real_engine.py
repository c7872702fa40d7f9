"""Two real vLLM 0.19 runs on GPUs (300 requests each, 10/s): every number of the report against numpy and a plain loop.

Data: casys-kaist/LLMServingSim, bench/examples, MIT (data/LICENSE.vllm_real); times as the engine logged them, in microseconds from its first request.
"""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.engine_overview import knees
from overrun.analysis.front.report import Report, build
from overrun.analysis.numbers.stages.budget import STAGES
from overrun.analysis.numbers.window import Window, load
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import TTFT_SOURCE, insert, requests, store

DATA = Path(__file__).parents[1] / "data"
SLO = Slo(ttft_ms=1_000.0, tpot_ms=60.0, e2e_ms=30_000.0)
RUNS = ["rtx4090", "rtxpro6000"]


def truth(run: str) -> dict[str, np.ndarray]:
    rows = pl.read_parquet(DATA / f"vllm_real_{run}.parquet").cast(pl.Float64)
    t = {name: rows[name].to_numpy() for name in rows.columns}
    ms = {
        "queue": t["scheduled_us"] - t["queued_us"],
        "prefill": t["first_us"] - t["scheduled_us"],
        "decode": t["last_us"] - t["first_us"],
    }
    found = {name: value / 1000.0 for name, value in ms.items()}
    found["ttft"], found["e2e"] = (
        found["queue"] + found["prefill"],
        found["queue"] + found["prefill"] + found["decode"],
    )
    found["tpot"] = found["decode"] / np.maximum(t["output_tokens"] - 1, 1)
    return found | {
        "start_s": t["queued_us"] / 1e6,
        "output_tokens": t["output_tokens"],
        "input_tokens": t["input_tokens"],
    }


def recorded(run: str) -> pl.DataFrame:
    t = truth(run)
    return requests(
        len(t["e2e"]),
        start_s=t["start_s"],
        service="vllm",
        name="llm_request",
        route=None,
        engine_only=True,
        server_root=False,
        ttft_source=TTFT_SOURCE["engine"],
        queue_ms=t["queue"],
        prefill_ms=t["prefill"],
        decode_ms=t["decode"],
        ttft_queue_ms=t["queue"],
        ttft_prefill_ms=t["prefill"],
        tpot_ms=[v if n > 1 else None for v, n in zip(t["tpot"], t["output_tokens"], strict=True)],
        input_tokens=t["input_tokens"].astype(int),
        output_tokens=t["output_tokens"].astype(int),
    )


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest) -> tuple[str, Report]:
    con = store()
    insert(con, recorded(request.param))
    return request.param, build(con, Window(), SLO)


@pytest.mark.parametrize("metric", ["ttft", "tpot", "e2e"])
def test_percentiles_are_those_of_numpy(run: tuple[str, Report], metric: str) -> None:
    name, report = run
    t = truth(name)
    values = t[metric][t["output_tokens"] > 1] if metric == "tpot" else t[metric]
    stats = getattr(report.latency, f"{metric}_ms")
    assert stats.n == len(values)
    assert [stats.p50, stats.p75, stats.p90, stats.p95, stats.p99] == pytest.approx(
        np.percentile(values, [50, 75, 90, 95, 99]), rel=1e-6
    )
    assert stats.p95_interval[0] <= np.percentile(values, 95) <= stats.p95_interval[1]


def test_goodput_is_that_of_a_plain_loop(run: tuple[str, Report]) -> None:
    name, report = run
    t, good = truth(name), 0
    for ttft, tpot, e2e, n in zip(t["ttft"], t["tpot"], t["e2e"], t["output_tokens"], strict=True):
        good += ttft <= 1_000.0 and (n <= 1 or tpot <= 60.0) and e2e <= 30_000.0
    assert (report.goodput.good, report.goodput.bad) == (good, len(t["e2e"]) - good)
    assert report.goodput.ratio == good / len(t["e2e"])


def test_stages_sum_to_the_request_and_to_the_gap_that_is_shown(run: tuple[str, Report]) -> None:
    name, report = run
    con = store()
    insert(con, recorded(name))
    rows = load(con, Window()).rows
    sums = sum(rows[f"{stage}_ms"].fill_null(0.0).to_numpy() for stage in STAGES)
    assert np.abs(sums - rows["e2e_ms"].to_numpy()).max() < 1e-6
    stages = [row for row in report.stages if row.stage is not None and row.tail_ms is not None]
    groups = [row for row in report.stages if row.stage is None and row.tail_ms is not None]
    assert sum(row.tail_ms or 0.0 for row in stages) == pytest.approx(
        sum(row.tail_ms or 0.0 for row in groups)
    )


@pytest.mark.parametrize("name", RUNS)
def test_both_runs_are_over_budget_by_their_queue(name: str) -> None:
    assert truth(name)["queue"].mean() > 50.0 * truth(name)["prefill"].mean()
    con = store()
    insert(con, recorded(name))
    verdict = build(con, Window(), Slo(ttft_ms=1_000.0), with_findings=False).verdict
    assert (verdict.status, verdict.metric, verdict.stage) == ("over_budget", "ttft", "queue")


def test_knees_of_real_runs_carry_an_interval_or_a_reason() -> None:
    for name in RUNS:
        con = store()
        insert(con, recorded(name))
        for found in knees(load(con, Window())):
            assert (found.at is None) == ("at" in found.reasons)
            assert (
                found.interval is None
                or found.interval[0] <= (found.at or 0.0) <= found.interval[1]
            )
