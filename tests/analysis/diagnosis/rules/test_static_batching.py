"""static_batching: lists calls that end together although their answers differ, silent when they end on their own."""

import numpy as np
import pytest

from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, of, run, the

N = 400
K = np.arange(N) % 8


def batch(together: bool) -> object:
    """Eight calls begin 10 ms apart; they end together 5 s later, or each after its own tokens."""
    tokens = 50 + 20 * K
    spent = 4_800.0 - 10.0 * K if together else tokens * 20.0
    return requests(
        N,
        start_s=(np.arange(N) // 8) * 10.0 + K * 0.01,
        queue_ms=1.0,
        prefill_ms=100.0,
        decode_ms=spent,
        output_tokens=tokens,
    )


def test_listed_with_group_size() -> None:
    found = run(batch(True), slo=E2E)
    finding = the(found, "static_batching")
    assert finding.severity == "info"
    assert found.verdict.cause != "static_batching"
    assert (finding.evidence["together_ratio"], finding.evidence["group_size"]) == (
        1.0,
        pytest.approx(8.0),
    )


def test_silent_under_continuous_batching() -> None:
    assert of(run(batch(False), slo=E2E), "static_batching") is None


def test_silent_where_many_end_at_one_step_and_others_go_on() -> None:
    # A busy engine: 64 calls a second, steps of 40 ms, so two to three end together at every step by chance.
    start, tokens = np.arange(N) / 64.0, 20 + (37 * np.arange(N)) % 101
    until = np.ceil((start + 0.101 + 0.04 * tokens) / 0.04) * 0.04
    spent = 1000.0 * (until - start) - 101.0
    assert (
        of(
            run(
                requests(
                    N,
                    start_s=start,
                    queue_ms=1.0,
                    prefill_ms=100.0,
                    decode_ms=spent,
                    output_tokens=tokens,
                ),
                slo=E2E,
            ),
            "static_batching",
        )
        is None
    )
