"""What do gauges without a latency histogram say? The course is that of a real llama.cpp server in a Prometheus that scraped every 15 s."""

from collections.abc import Sequence

import polars as pl
import pytest

from overrun.analysis.diagnosis.engine_gauges import by_gauges
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import from_us

SCRAPE_US = 15_000_000
SLO = Slo(ttft_ms=1_500.0)


def points(**courses: Sequence[float]) -> pl.DataFrame:
    """One instance's samples of each indicator, a scrape after the other."""
    rows = [
        (scrape * SCRAPE_US, "llama:8080", name, float(value))
        for name, course in courses.items()
        for scrape, value in enumerate(course)
    ]
    return pl.DataFrame(rows, schema=["time_us", "instance", "indicator", "value"], orient="row")


@pytest.mark.parametrize("calm", [4, 7, 20])
def test_a_queue_is_dated_from_four_scrapes_of_calm_on(calm: int) -> None:
    verdict = by_gauges(
        points(
            queue_depth=[0] * calm + [6, 7, 7, 6] * 10,
            running=[0, 1] * (calm // 2) + [0] * (calm % 2) + [1] * 40,
            prompt_tokens=[62] * calm + [277] * 40,
        ),
        ["queue_depth", "running", "prompt_tokens"],
        SLO,
    )
    assert verdict is not None
    assert (verdict.stage, verdict.cause) == ("queue", "under_capacity")
    assert verdict.onset == from_us(calm * SCRAPE_US)
    assert (
        "requests wait in 100 % of the samples (6 on average, at most 7) since 00:"
        in verdict.sentence
    )


def test_two_scrapes_of_calm_date_nothing() -> None:
    verdict = by_gauges(points(queue_depth=[0] * 2 + [7] * 40), ["queue_depth"], SLO)
    assert verdict is not None
    assert (verdict.stage, verdict.onset) == ("queue", None)


@pytest.mark.parametrize("calm", [8, 20])
def test_a_queue_that_comes_and_goes_is_not_dated(calm: int) -> None:
    verdict = by_gauges(points(queue_depth=[0, 3, 0, 2] * calm), ["queue_depth"], SLO)
    assert verdict is not None
    assert verdict.onset is None


@pytest.mark.parametrize(
    ("running", "cause"),
    [
        ([1, 1, 1, 1], "too_few_seats"),
        ([8, 8, 7, 8], "too_few_seats"),
        ([5, 9, 7, 3], "under_capacity"),
    ],
)
def test_seats_are_as_many_each_time_where_no_cache_is_reported(
    running: list[int], cause: str
) -> None:
    found = points(queue_depth=[4] * 40, running=running * 10)
    verdict = by_gauges(found, ["queue_depth", "running"], SLO)
    assert verdict is not None
    assert verdict.cause == cause
