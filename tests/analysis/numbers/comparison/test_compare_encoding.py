"""A comparison travels as JSON: every number of it is a plain one."""

import msgspec
import numpy as np

from overrun.analysis.numbers.comparison.compare import Comparison, compare, read_sides
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import T0, insert, requests, store


def test_a_comparison_of_few_and_many_requests_is_encoded() -> None:
    con = store()
    insert(
        con,
        requests(79, every_s=0.1, other_ms=np.linspace(500, 900, 79), ttft_other_ms=300.0),
        requests(
            1100,
            start_s=8 + np.arange(1100) * 0.15,
            other_ms=np.linspace(3000, 5000, 1100),
            ttft_other_ms=2000.0,
            trace_hi=2,
        ),
    )
    sides = read_sides(
        Window(),
        "2026-11-20T10:00:00Z..2026-11-20T10:00:08Z",
        "2026-11-20T10:00:08Z..2026-11-20T10:04:00Z",
        T0,
    )
    found = compare(con, sides, Slo(ttft_ms=1500.0, e2e_ms=2500.0))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Comparison) == found
