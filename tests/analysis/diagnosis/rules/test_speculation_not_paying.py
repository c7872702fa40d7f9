"""speculation_not_paying: fires when acceptance falls and tokens slow down, silent when either stays."""

import numpy as np
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the
from tests.analysis.diagnosis.rules.engine_world import LATE, N, engine

SECONDS = [float(t) for t in range(0, N, 15)]


def acceptance(before: float, now: float) -> dict[str, dict[float, float]]:
    return {"spec_accept_rate": {t: before if t < N / 2 else now for t in SECONDS}}


def test_fires_when_acceptance_falls_and_tokens_slow_down() -> None:
    found = run(engine(token_ms=np.where(LATE, 40.0, 10.0)), slo=E2E, gauges=acceptance(0.7, 0.3))
    finding = the(found, "speculation_not_paying")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "decode",
        "speculation_not_paying",
        ["speculation_not_paying"],
    )
    assert (finding.evidence["accept_now"], finding.evidence["accept_before"]) == (
        pytest.approx(0.3),
        pytest.approx(0.7),
    )


@pytest.mark.parametrize(
    ("accepted", "fix"), [(20.0, "speculation_draft"), (5.0, "speculation_off")]
)
def test_a_draft_that_still_pays_is_not_to_be_switched_off(accepted: float, fix: str) -> None:
    # 40 tokens a second of which 20 were drafted are 2 a step; 5 of 40 are 1.14, less than drafting costs.
    gauges = acceptance(0.7, 0.3) | {
        "output_tokens": dict.fromkeys(SECONDS, 40.0),
        "spec_accepted_tokens": dict.fromkeys(SECONDS, accepted),
    }
    finding = the(
        run(engine(token_ms=np.where(LATE, 40.0, 10.0)), slo=E2E, gauges=gauges),
        "speculation_not_paying",
    )
    assert finding.fix is not None
    assert finding.fix.id == fix
    assert finding.evidence["tokens_a_step"] == pytest.approx(40.0 / (40.0 - accepted))


def test_silent_when_acceptance_stayed() -> None:
    found = run(engine(token_ms=np.where(LATE, 40.0, 10.0)), slo=E2E, gauges=acceptance(0.3, 0.3))
    assert of(found, "speculation_not_paying") is None
    assert any(out.what == "speculation_not_paying" for out in found.verdict.ruled_out)


def test_without_metrics_it_says_what_to_record_where_only_tokens_are_slower() -> None:
    slo = Slo(e2e_ms=1_200.0)
    found = run(engine(token_ms=np.where(LATE, 16.0, 8.0)), slo=slo)
    assert of(found, "speculation_not_paying") is None
    assert found.skipped["speculation_not_paying"].startswith(
        "tokens take 2.00 times as long at equal batch sizes, and no metric of drafts was recorded"
    )
    assert (
        "speculation_not_paying"
        not in run(engine(token_ms=8.0, retrieval_ms=np.where(LATE, 2_000.0, 5.0)), slo=slo).skipped
    )


@pytest.mark.parametrize(("accepted", "named"), [(0.02, True), (0.6, False)])
def test_drafts_that_began_with_the_slower_tokens_and_are_refused_cost_more_than_they_gain(
    accepted: float, named: bool
) -> None:
    gauges = {
        "running": dict.fromkeys(SECONDS, 4.0),
        "spec_accept_rate": {t: accepted for t in SECONDS if t >= N / 2},
    }
    found = run(engine(token_ms=np.where(LATE, 40.0, 10.0)), slo=E2E, gauges=gauges)
    assert (of(found, "speculation_not_paying") is not None) == named
    if named:
        assert (found.verdict.stage, found.verdict.cause) == ("decode", "speculation_not_paying")
        finding = the(found, "speculation_not_paying")
        assert finding.evidence["accept_before"] is None
        assert finding.fix is not None
        assert finding.fix.id == "speculation_off"
