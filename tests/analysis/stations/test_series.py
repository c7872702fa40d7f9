"""One unit on one grid: rates, Little's law, counters that begin anew, and pages that lie."""

import numpy as np
import pytest

from overrun.analysis.stations.series import LONGEST_GAP
from tests.analysis.stations.world import STEP_S, T0_S, level, plant, rate, recorded, times

N = 20


def test_seconds_a_second_are_the_number_inside() -> None:
    """Little: 3 requests a second that take 4 s each are 12 inside, by a histogram, by a total of microseconds, and by a gauge."""
    for row in (
        times("e2e", [3.0] * N, [4.0] * N),
        rate("e2e_total", [12e6] * N, scale=1e-6),
        level("running", [12.0] * N),
    ):
        [group] = plant(row, rate("finished", [3.0] * N)).groups
        inside = group.inside()
        assert inside is not None
        assert np.nanmean(inside) == pytest.approx(12.0)


def test_a_histogram_has_sums_and_counts_a_second() -> None:
    [one] = recorded(times("ttft", [2.0] * N, [0.5] * N)).series
    assert one.counts is not None
    assert one.values[1:] == pytest.approx(np.full(N - 1, 1.0))
    assert one.counts[1:] == pytest.approx(np.full(N - 1, 2.0))
    assert np.isnan(one.values[0])


def test_a_counter_that_falls_began_anew() -> None:
    """150, 300, then a restart: 75 and 150 more; 10, 5 and 5 a second."""
    row = rate("output_tokens", [0.0] * 4)
    row["value"] = [150.0, 300.0, 75.0, 150.0]
    made = recorded(row)
    assert made.series[0].values[1:].tolist() == [10.0, 5.0, 5.0]
    assert made.resets == {"gpu-0": [T0_S + 2 * STEP_S]}


def test_a_series_that_is_younger_than_its_instance_began_at_zero() -> None:
    late = rate("finished", [0.0] * 5, first=10)
    late["value"] = [30.0] * 5
    made = recorded(level("running", [1.0] * N), late)
    finished = made.series[1]
    assert finished.values[10] == 30.0 / STEP_S
    assert finished.late_s == 10 * STEP_S


def test_a_gap_is_not_filled_with_what_was_counted_behind_it() -> None:
    row = rate("finished", [2.0] * N)
    kept = [at for at in range(N) if not 5 <= at < 5 + 2 * LONGEST_GAP]
    for key in ("time_ns", "start_ns", "value", "sum", "count"):
        row[key] = [row[key][at] for at in kept]
    values = recorded(level("running", [1.0] * N), row).series[1].values
    assert np.isnan(values[5 : 4 + 2 * LONGEST_GAP]).all()
    assert values[5 + 2 * LONGEST_GAP] == 2.0


def test_deltas_count_since_the_sample_before_where_no_start_is_said() -> None:
    row = rate("finished", [0.0] * N)
    row |= {"temporality": 1, "value": [30.0] * N}
    assert recorded(row).series[0].values.tolist() == [30.0 / STEP_S] * N


def test_nothing_is_a_grid_without_a_bin() -> None:
    assert recorded().grid.bins == 0


def test_a_long_recording_has_bounded_bins() -> None:
    row = level("running", [1.0] * 5_000)
    made = recorded(row)
    assert made.grid.bins <= 242
    assert made.series[0].values[1:-1].tolist() == [1.0] * (made.grid.bins - 2)
