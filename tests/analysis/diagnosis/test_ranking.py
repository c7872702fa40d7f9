"""Ranking: the first link of a chain is named, and what follows from it is not blamed beside it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from overrun.analysis.diagnosis.ranking import rank
from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.incident.no_baseline import WORTH_ANYWAY
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
    return Diagnosis(
        finding, {"queue": queue_ms}, "of it", "app", "", "", 60, **{"weight": 1.0} | more
    )


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


def test_what_a_cause_brings_follows_from_it_however_much_it_explains() -> None:
    assert ranked(
        cause("tenant", 500.0, brings=frozenset({"prompts"})), cause("prompts", 400.0)
    ) == (["tenant"], ["prompts"])
    assert ranked(
        cause("tenant", 300.0, brings=frozenset({"prompts"})), cause("prompts", 400.0)
    ) == (["prompts", "tenant"], [])


def test_what_brings_another_cause_goes_before_it_where_it_explains_nearly_as_much() -> None:
    assert ranked(
        cause("tenant", 350.0, brings=frozenset({"prompts"})), cause("prompts", 400.0)
    ) == (["tenant"], ["prompts"])
    assert ranked(cause("tenant", 350.0), cause("prompts", 400.0)) == (["prompts", "tenant"], [])


@pytest.mark.parametrize(("first_ms", "named"), [(350.0, ["first"]), (150.0, ["storm"])])
def test_an_amplifier_follows_the_cause_that_feeds_it(first_ms: float, named: list[str]) -> None:
    """The first link explains a third of the excess and the storm most of the rest: together enough to name the first link."""
    assert ranked(cause("storm", 600.0, amplifier=True), cause("first", first_ms))[0] == named


@pytest.mark.parametrize(("each_ms", "named"), [(300.0, ["load", "prompts"]), (150.0, ["storm"])])
def test_an_amplifier_follows_several_causes_that_feed_it_together(
    each_ms: float, named: list[str]
) -> None:
    """Half of what the storm explains (0.39 of the excess) is more than either explains, and less than both do."""
    assert (
        ranked(
            cause("storm", 780.0, amplifier=True), cause("load", each_ms), cause("prompts", each_ms)
        )[0]
        == named
    )


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
    few = cause("few", 0.0, dominates=0.2, least=0.2, weight=0.1)
    few.finding.stage = "decode"
    few = replace(few, claims_ms={"queue": 1_000.0 - left_ms, "decode": left_ms})
    assert ranked(cause("first", 800.0), few)[0] == named


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
    assert set(found.skipped) >= set(rules()) - WORTH_ANYWAY
