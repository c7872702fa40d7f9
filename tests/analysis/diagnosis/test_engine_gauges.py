"""What do gauges without a latency histogram say? The course is that of a real llama.cpp server in a Prometheus that scraped every 15 s."""

from collections.abc import Sequence

import pytest

from overrun.analysis.diagnosis.engine_answer import follow
from overrun.analysis.diagnosis.engine_gauges import by_gauges
from overrun.analysis.diagnosis.verdict import Verdict
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import from_us
from tests.analysis.stations.world import STEP_S, T0_S, level, plant

SLO = Slo(ttft_ms=1_500.0)


def judged(**courses: Sequence[float]) -> Verdict:
    """The verdict of one instance's gauges, a scrape after the other."""
    found = plant(*(level(name, course) for name, course in courses.items()))
    verdict, explanation = by_gauges(found, list(courses), SLO)
    assert verdict is not None
    follow(verdict, explanation, "platform")
    return verdict


@pytest.mark.parametrize("calm", [4, 7, 20])
def test_a_queue_is_dated_from_four_scrapes_of_calm_on(calm: int) -> None:
    """4.5 times the prompt tokens arrive as one runs at a time: too little capacity."""
    verdict = judged(
        queue_depth=[0] * calm + [6, 7, 7, 6] * 10,
        running=[0, 1] * (calm // 2) + [0] * (calm % 2) + [1] * 40,
        prompt_tokens=[62] * calm + [277] * 40,
    )
    assert verdict.stage == "queue"
    assert verdict.cause == "under_capacity"
    assert verdict.onset == from_us((T0_S + calm * STEP_S) * 1_000_000)
    assert (
        "requests wait in 100 % of the samples (6 on average, at most 7) since " in verdict.sentence
    )


def test_two_scrapes_of_calm_date_nothing() -> None:
    verdict = judged(queue_depth=[0] * 2 + [7] * 40)
    assert (verdict.stage, verdict.onset) == ("queue", None)


@pytest.mark.parametrize("calm", [8, 20])
def test_a_queue_that_comes_and_goes_is_not_dated(calm: int) -> None:
    assert judged(queue_depth=[0, 3, 0, 2] * calm).onset is None


@pytest.mark.parametrize(
    ("running", "at_end"),
    [([1, 1, 1, 1], True), ([8, 8, 7, 8], True), ([5, 9, 7, 3], False)],
)
def test_seats_are_as_many_each_time_where_no_cache_is_reported(
    running: list[int], at_end: bool
) -> None:
    """Without the cache's usage it is no cause: a full one would look the same."""
    verdict = judged(queue_depth=[4] * 40, running=running * 10)
    assert verdict.cause is None
    assert ("At a ceiling: number running" in verdict.sentence) is at_end
    assert ("no resource is seen at its end" in verdict.sentence) is not at_end
