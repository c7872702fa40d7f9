"""Which picture shows a cause? Measured on stores whose right picture is known; the tables name rules and facts that exist."""

import numpy as np
import pytest

from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.evidence.decisive_chart import OF_RULE, USUAL
from overrun.analysis.evidence.fact_table import ROWS
from overrun.analysis.front.proof_list import Proof, proofs, read_findings
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of, insert, insert_calls, requests, store

SLO = Slo(ttft_ms=500.0)
N = 1200


@pytest.fixture(scope="module")
def shown() -> dict[str, Proof]:
    """Ten minutes and ten more in which the cache holds half as much and gpu-2 alone is three times as slow."""
    con = store()
    late = np.arange(N) >= N // 2
    there = np.arange(N) % 3 == 0
    prefill = np.where(late & there, 900.0, 300.0) + np.arange(N) % 7
    frame = requests(
        N,
        ttft_queue_ms=1.0,
        queue_ms=1.0,
        ttft_prefill_ms=prefill,
        prefill_ms=prefill,
        decode_ms=1_000.0,
        ttft_source=3,
        input_tokens=[1_000 + i % 400 for i in range(N)],
        cached_tokens=np.where(late, 400, 800).tolist(),
        tenant=["big" if one else "small" for one in there],
    )
    insert(con, frame)
    insert_calls(
        con, calls_of(frame, engine_instance=["gpu-2" if one else "gpu-1" for one in there])
    )
    asked = (
        "prefix_cache_lost",
        "straggler_replica",
        "under_capacity",
        "prompt_bloat",
        "slow_dependency",
    )
    found = proofs(con, Window(), SLO, None, ";".join(f"{rule}:prefill" for rule in asked))
    assert not found.reasons
    return {one.rule: one for one in found.proofs}


def test_cache_hits_fall_over_time(shown: dict[str, Proof]) -> None:
    chart = shown["prefix_cache_lost"].chart
    assert chart is not None
    values = [value for value in chart.lines[0].values if value is not None]
    assert chart.kind == "course"
    half = len(values) // 2
    assert np.mean(values[: half - 1]) == pytest.approx(800 / 1200, rel=0.05)
    assert np.mean(values[half + 1 :]) == pytest.approx(400 / 1200, rel=0.05)
    first = shown["prefix_cache_lost"].facts[0]
    assert (first.name, first.clear) == ("cache", True)


def test_the_slow_replica_stands_first_and_out(shown: dict[str, Proof]) -> None:
    chart = shown["straggler_replica"].chart
    assert chart is not None
    first, second = chart.bars
    assert (first.name, second.name) == ("gpu-2", "gpu-1")
    assert first.now > 1.3 * second.now  # type: ignore[operator]
    assert first.before == pytest.approx(second.before, rel=0.05)


def test_arrivals_are_held_against_what_is_taken_up(shown: dict[str, Proof]) -> None:
    chart = shown["under_capacity"].chart
    assert chart is not None
    arrived, taken = ([v for v in line.values if v is not None] for line in chart.lines)
    assert np.median(arrived) == pytest.approx(1.0, rel=0.1)  # one request a second
    assert np.median(taken) == pytest.approx(1.0, rel=0.1)


def test_lengths_are_shares_of_both_sides(shown: dict[str, Proof]) -> None:
    chart = shown["prompt_bloat"].chart
    assert chart is not None
    assert sum(bar.now or 0.0 for bar in chart.bars) == pytest.approx(1.0)
    assert sum(bar.before or 0.0 for bar in chart.bars) == pytest.approx(1.0)


def test_a_rule_without_a_chart_of_its_own_shows_its_stage(shown: dict[str, Proof]) -> None:
    chart = shown["slow_dependency"].chart
    assert chart is not None
    assert chart.title == "Time of a request in prefill"
    high = [value for value in chart.lines[0].values if value is not None]
    assert high[-1] > 2.0 * high[0]


def test_three_to_five_facts_stand_beside_every_chart(shown: dict[str, Proof]) -> None:
    assert all(3 <= len(one.facts) <= 5 for one in shown.values())


def test_the_table_names_rules_and_facts_that_exist() -> None:
    assert set(OF_RULE) <= set(rules())
    assert {name for one in OF_RULE.values() for name in one.facts} | set(USUAL) <= set(ROWS)


def test_findings_that_cannot_be_read_are_refused() -> None:
    assert read_findings("long_outputs:decode") == [("long_outputs", "decode")]
    with pytest.raises(AnalysisError, match="long_outputs"):
        read_findings("long_output:decode")
    with pytest.raises(AnalysisError, match="at most"):
        read_findings(";".join(["long_outputs:decode"] * 13))
