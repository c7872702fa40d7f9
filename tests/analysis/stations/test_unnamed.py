"""Names that nobody knows: times that are added up still say where requests are."""

import numpy as np

from tests.analysis.stations.world import level, plant, rate, steps, times, told

N = 80


def test_the_stage_whose_unknown_time_grew_is_the_place() -> None:
    """An answer of an embedding (20 ms), a search (30 ms, then 500 ms) and 1 s of writing: 0.47 s more, all of it the search."""
    many = np.full(N, 4.0)
    search = steps(0.03, 0.5, noise=0.02)
    page = {"instance": "api", "model": "", "name": "acme_stage_duration_seconds"}
    rows = [
        {**times("x", many, seconds, labels={"stage": stage}, **page), "indicator": None}
        for stage, seconds in (
            ("embed", np.full(N, 0.02)),
            ("search", search),
            ("write", np.ones(N)),
        )
    ]
    whole = times("x", many, 1.02 + search, instance="api", name="acme_request_duration_seconds")
    made = told(*rows, {**whole, "indicator": None, "model": ""})
    place = made.places[0]
    assert place.operation == "acme_stage search"
    assert place.excess_ms is not None
    assert 440.0 < place.excess_ms < 500.0
    assert made.mechanism is None


def test_a_sum_without_a_histogram_is_counted_by_its_stems_counter() -> None:
    spent = rate(None, [0.2] * N, name="acme_query_time_milliseconds_total", model="")
    many = rate(None, [4.0] * N, name="acme_query_total", model="")
    [group] = plant(spent, many).groups
    mean = group.time_of("e2e")
    assert mean is not None
    assert abs(float(np.nanmean(mean)) - 0.2e-3 / 4.0) < 1e-9


def test_beside_a_station_with_a_known_name_unknown_ones_stay_changes() -> None:
    made = plant(level("running", [3.0] * N), rate(None, [0.2] * N, name="acme_time_seconds_total"))
    assert [group.role for group in made.groups] == ["engine"]
