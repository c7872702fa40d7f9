"""Ranking: the first link of a chain is named, and what follows from it is not blamed beside it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from overrun.analysis.diagnosis.ranking import rank
from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.numbers.stages.budget import StageTimes
from overrun.analysis.words.finding import Diagnosis, Finding
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import run

EXCESS = {"queue": 800.0, "decode": 200.0}


def cause(rule: str, queue_ms: float, **more: Any) -> Diagnosis:
    """A cause that claims some of the queue."""
    finding = Finding(
        rule=rule,
        stage="queue",
        service=None,
        severity="warning",
        confidence=0.5,
        headline="",
        evidence={},
        exemplars=[],
        fix=None,
    )
    return Diagnosis(finding, {"queue": queue_ms}, "of it", "app", "", "", 60, **more)


def ranked(*found: Diagnosis, limit_ms: float = 1_000.0) -> tuple[list[str], list[str]]:
    """Rules that are named, and those that are ruled out, of ten requests that take 2 s where the reference takes 1 s."""
    times = StageTimes(
        "e2e", np.full(10, 2_000.0), {"queue": np.full(10, 900.0), "decode": np.full(10, 1_100.0)}
    )
    tail = SimpleNamespace(
        excess_ms=EXCESS,
        excess_total_ms=1000.0,
        tail_index=np.arange(10),
        usual_ms=lambda stage: {"queue": 100.0, "decode": 900.0}[stage],
    )
    case: Any = SimpleNamespace(
        tail=tail,
        times=times,
        limits_ms=limit_ms,
        excess_ms=lambda *stages: sum(EXCESS.get(stage, 0.0) for stage in stages),
    )
    causes, followed, _ = rank(case, list(found))
    return [one.finding.rule for one in causes], [one.what for one in followed]


def test_a_cause_takes_its_time_and_the_next_is_measured_on_the_rest() -> None:
    assert ranked(cause("second", 500.0), cause("first", 700.0)) == (["first"], ["second"])
    assert ranked(cause("second", 300.0), cause("first", 500.0)) == (["first", "second"], [])


@pytest.mark.parametrize(("limit_ms", "named"), [(1_750.0, ["first"]), (1_650.0, [])])
def test_a_cause_of_less_than_two_fifths_is_named_where_most_requests_would_keep_their_limit_without_it(
    limit_ms: float, named: list[str]
) -> None:
    """Of 1 s too much it brings 0.3 s: requests that miss their limit by 0.25 s keep it without that, and those that miss it by 0.35 s do not."""
    assert ranked(cause("first", 300.0), limit_ms=limit_ms)[0] == named


@pytest.mark.parametrize(
    ("tenant_ms", "named", "out"),
    [
        (500.0, ["noisy_tenant"], ["prompt_bloat"]),
        (250.0, ["noisy_tenant"], ["prompt_bloat"]),
        (150.0, ["prompt_bloat"], ["noisy_tenant"]),
    ],
)
def test_a_root_comes_before_what_it_brings_where_it_explains_half_of_that(
    tenant_ms: float, named: list[str], out: list[str]
) -> None:
    assert ranked(cause("noisy_tenant", tenant_ms), cause("prompt_bloat", 400.0)) == (named, out)


def test_causes_that_do_not_bring_each_other_come_by_what_they_explain() -> None:
    assert ranked(cause("burst_arrivals", 350.0), cause("prompt_bloat", 400.0)) == (
        ["prompt_bloat", "burst_arrivals"],
        [],
    )


def test_the_first_link_of_a_chain_is_named_whatever_stands_between() -> None:
    # A tenant's prompts are longer, and other answers stop while these are read.
    found = [
        cause("decode_stall", 600.0),
        cause("prompt_bloat", 500.0),
        cause("noisy_tenant", 400.0),
    ]
    assert ranked(*found) == (["noisy_tenant"], ["decode_stall", "prompt_bloat"])


@pytest.mark.parametrize(("first_ms", "named"), [(350.0, "under_capacity"), (200.0, "retry_storm")])
def test_a_driven_cause_follows_what_may_drive_it(first_ms: float, named: str) -> None:
    """The first link explains a third of the excess and the storm most of the rest: together enough to name the first link."""
    found = [cause("retry_storm", 600.0, driven=True), cause("under_capacity", first_ms)]
    assert ranked(*found)[0][0] == named


def test_what_may_drive_another_cause_ranks_by_itself_where_that_is_not_driven() -> None:
    found = [cause("kv_pressure", 500.0), cause("under_capacity", 390.0)]
    assert ranked(*found)[0] == ["kv_pressure", "under_capacity"]
    driven = [cause("kv_pressure", 500.0, driven=True), cause("under_capacity", 390.0)]
    assert ranked(*driven) == (["under_capacity"], ["kv_pressure"])


@pytest.mark.parametrize(
    ("each_ms", "named"),
    [(300.0, ["under_capacity", "prompt_bloat"]), (150.0, ["retry_storm"])],
)
def test_a_driven_cause_follows_several_that_drive_it_together(
    each_ms: float, named: list[str]
) -> None:
    """Two causes explain 0.6 of the excess together, more than half of what the storm explains (0.78); or less than half, too little to be listed."""
    storm = cause("retry_storm", 780.0, driven=True)
    found = [storm, cause("under_capacity", each_ms), cause("prompt_bloat", each_ms)]
    assert ranked(*found)[0] == named


@pytest.mark.parametrize(("stage", "named"), [("decode", ["first", "few"]), ("queue", ["first"])])
def test_a_cause_that_struck_few_requests_hard_is_listed_unless_its_stage_has_one(
    stage: str, named: list[str]
) -> None:
    few = cause("few", 0.0, dominates=0.2)
    few.finding.stage = stage
    few = replace(few, claims_ms={"queue": 50.0, "decode": 100.0})
    assert ranked(cause("first", 700.0), few)[0] == named


@pytest.mark.parametrize(("left_ms", "named"), [(50.0, ["first"]), (150.0, ["first", "few"])])
def test_a_cause_that_struck_few_requests_is_not_listed_where_others_took_nearly_all_that_it_claims(
    left_ms: float, named: list[str]
) -> None:
    few = cause("few", 0.0, dominates=0.2, least=0.2)
    few.finding.stage = "decode"
    few = replace(few, claims_ms={"queue": 500.0, "decode": 200.0})
    first = replace(cause("first", 0.0), claims_ms={"queue": 800.0, "decode": 200.0 - left_ms})
    assert ranked(first, few)[0] == named


def test_what_one_replica_lacks_beside_its_peers_is_not_what_all_of_them_share() -> None:
    # Longer prompts could explain all of the queue; 300 of it the slow replica adds to what its peers' requests wait.
    assert ranked(cause("prompts", 800.0), cause("replica", 300.0, apart=True)) == (
        ["prompts", "replica"],
        [],
    )
    assert ranked(cause("prompts", 800.0), cause("replica", 300.0)) == (["prompts"], ["replica"])


def test_below_ten_slow_requests_no_cause_is_named_and_none_is_ruled_out() -> None:
    # Eight of 60 answers are ten times as long: over the target by more than chance, too few for a cause.
    long = np.arange(60) % 7 == 6
    rows = requests(
        60,
        decode_ms=np.where(long, 9_000.0, 900.0),
        output_tokens=np.where(long, 900, 90),
        prefill_ms=10.0,
        ttft_ms=10.0,
    )
    found = run(rows, baseline="none")
    slow = int(long.sum())
    assert (slow, found.verdict.status) == (8, "over_budget")
    assert found.verdict.cause is None
    assert found.verdict.reasons["cause"].startswith(
        f"{slow} requests are over the limit, a cause needs at least 10: widen the window"
    )
    assert not {out.what for out in found.verdict.ruled_out} & set(rules())
    assert set(found.skipped) >= set(rules())
