"""A worker's trace belongs to the request that queued its job."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.ingest.reading import LINK_COLUMNS
from tests.analysis.assembly.assembling import root, spans_of, stages_ms
from tests.collector.oracle_build import Made, body, chat

PRODUCER, CONSUMER = 4, 5


def linked(*made: Made, job: int, to: tuple[int, int]) -> list[dict[str, Any]]:
    """The requests of these spans, of which `job` links to a span of another trace."""
    spans = spans_of(body(*made))
    ids = spans.column("span_id").to_pylist()
    for name, value in zip(LINK_COLUMNS, (0, *to), strict=True):
        spans = spans.append_column(
            name, pa.array([value if one == job else 0 for one in ids], pa.uint64())
        )
    rows: list[dict[str, Any]] = assemble(spans).requests.to_pylist()
    return sorted(rows, key=lambda row: row["start_ns"])


@pytest.mark.parametrize(
    ("until", "seen"),
    [
        # The request goes on until the job is done: it waited.
        (1000, [{"queue": 200, "generation": 300, "other": 500}]),
        # It was over before: the job is a request of its own, from the message on.
        (250, [{"other": 250}, {"queue": 190, "generation": 300, "other": 100}]),
    ],
)
def test_a_job_in_a_trace_of_its_own_is_its_senders_while_that_waits(
    until: float, seen: list[dict[str, float]]
) -> None:
    requests = linked(
        root(until),
        Made(2, "send answer", 100, 110, 1, PRODUCER),
        Made(3, "run answer", 300, 700, 0, CONSUMER, service="worker", trace=2),
        chat(4, 350, 650, 3, service="worker", trace=2),
        job=3,
        to=(1, 2),
    )
    assert [{k: v for k, v in stages_ms(row).items() if v} for row in requests] == seen
