"""A box in a URL: what was drawn comes back, and nothing else is a box."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.dashboard.heatmap_box import Box
from tests.analysis.builders import at


@given(
    start=st.integers(0, 10**6),
    length=st.integers(1, 10**6),
    low=st.floats(0.01, 1e4),
    times=st.floats(1.01, 100.0),
)
def test_a_box_survives_its_url(start: int, length: int, low: float, times: float) -> None:
    box = Box(at(start), at(start + length), low, low * times)
    read = Box.read(box.text())
    assert read is not None
    assert (read.start, read.end) == (box.start, box.end)
    assert read.min_ms == pytest.approx(low, rel=1e-3)
    assert read.max_ms == pytest.approx(low * times, rel=1e-5)
    assert len(box.text()) < 60


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "20261120T100000-20261120T090000_1-2",
        "20261120T100000-20261120T110000_2-1",
        "20261320T100000-20261120T110000_1-2",
        "20261120T100000-20261120T110000_1-2<script>",
        "20261120T100000-20261120T110000_e-2",
        "20261120T100000-20261120T110000_1-1e999+",
    ],
)
def test_what_is_no_box_is_none(text: str) -> None:
    assert Box.read(text) is None
