"""A job counts as far as its request waits for it."""

from __future__ import annotations

import pytest

from tests.analysis.assembly.assembling import assembled, root, stages_ms
from tests.collector.oracle_build import Made, chat


@pytest.mark.parametrize(
    ("beside", "until", "seen"),
    [
        (None, 1000, {"queue": 200, "generation": 300, "other": 500}),  # waited for
        (
            (120, 140),
            1000,
            {"queue": 200, "generation": 300, "other": 500},
        ),  # somebody asked meanwhile whether it was done
        ((150, 980), 1000, {"generation": 830, "other": 170}),
        (None, 500, {"other": 500}),
    ],
)  # the request did something else, or was over before
def test_a_job_that_its_request_waits_for_is_the_requests(
    beside: tuple[float, float] | None, until: float, seen: dict[str, float]
) -> None:
    """Celery: the span that sends the job ends at once, a worker's begins at 300 ms and ends at 700."""
    sent = Made(2, "apply_async/answer", 100, 110, 1, 4)
    job = Made(3, "run/answer", 300, 700, 2, 5, service="worker")
    more = (
        [chat(6, *beside, 1)]
        if beside and beside[1] > 500
        else [Made(6, "poll", *beside, 1)]
        if beside
        else []
    )
    [request], _ = assembled(root(until), sent, job, chat(4, 350, 650, 3, service="worker"), *more)
    assert {k: v for k, v in stages_ms(request).items() if v} == seen
