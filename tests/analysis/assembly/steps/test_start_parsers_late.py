"""What works on a stream begins where the call ends that it reads."""

from __future__ import annotations

import pytest

from tests.analysis.assembly.assembling import request_of, root, stages_ms
from tests.collector.oracle_build import Made, chat


@pytest.mark.parametrize(
    ("begins", "post"),
    [
        (200, 100),  # within the call: it waits for tokens until 800
        (850, 50),
    ],
)
def test_a_parser_counts_from_the_end_of_the_call_that_it_reads(begins: float, post: float) -> None:
    parser = Made(3, "parse", begins, 900, 1, attributes={"overrun.stage": "post"})
    request = request_of(root(1000), chat(2, 100, 800), parser)
    assert {k: v for k, v in stages_ms(request).items() if k == "post"} == {"post": post}
