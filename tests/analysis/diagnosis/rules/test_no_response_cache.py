"""no_response_cache: lists repeated prompts, silent where they differ, and says what to record."""

import numpy as np
import pytest

from overrun.collector.normalise.stages import ROLE
from tests.analysis.builders import requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, of, run, the

N = 400
FRAME = requests(N, generation_ms=np.where(np.arange(N) % 10 == 0, 9_000.0, 500.0))


def asked(hashes: list[str]) -> list:
    return [
        spans_of(
            FRAME,
            "chat m",
            "generation",
            0.0,
            400.0,
            role=ROLE["llm"],
            attributes={"overrun.prompt_hash": hashes},
        )
    ]


def test_listed_with_the_repeated_share() -> None:
    found = run(FRAME, spans=asked([str(k % 100) for k in range(N)]), slo=E2E)
    finding = the(found, "no_response_cache")
    assert finding.severity == "info"
    assert found.verdict.cause != "no_response_cache"
    # 100 distinct prompts of 400.
    assert (finding.evidence["repeated_ratio"], finding.evidence["distinct"]) == (
        pytest.approx(0.75),
        100,
    )
    assert finding.fix is not None
    assert finding.fix.parameters == {"hit_ratio": 0.75, "hit_ms": 50.0}


def test_silent_on_distinct_prompts() -> None:
    assert (
        of(run(FRAME, spans=asked([str(k) for k in range(N)]), slo=E2E), "no_response_cache")
        is None
    )


def test_missing_hashes_are_said() -> None:
    assert "overrun.prompt_hash" in run(FRAME, slo=E2E).skipped["no_response_cache"]


def test_few_hashes_are_said() -> None:
    some = [
        spans_of(
            FRAME.head(20),
            "chat m",
            "generation",
            0.0,
            400.0,
            role=ROLE["llm"],
            attributes={"overrun.prompt_hash": ["a"] * 20},
        )
    ]
    assert (
        run(FRAME, spans=some, slo=E2E).skipped["no_response_cache"]
        == "20 model calls carry overrun.prompt_hash, at least 50 are needed: widen the window"
    )
