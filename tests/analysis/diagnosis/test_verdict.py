"""What does a verdict say of a cause that it is not sure of?"""

from typing import Final
from unittest.mock import patch

import numpy as np
import pytest

from overrun.analysis.diagnosis.ranking import Ranked
from overrun.analysis.diagnosis.verdict import Verdict
from overrun.analysis.words.finding import Diagnosis, Finding
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import run

LATE: Final = np.arange(400) >= 200


def _named(rule: str, confidence: float, because: str) -> Diagnosis:
    finding = Finding(
        rule=rule,
        stage="retrieval",
        service=None,
        severity="warning",
        confidence=confidence,
        headline=because,
        evidence={"share_of_excess": 0.5},
        exemplars=[],
        fix=None,
        reasons={"service": "none", "fix": "none"},
    )
    return Diagnosis(finding, {"retrieval": 2_000.0}, because, "app", "Do it.", "Undo it.", 300)


def _with(*causes: Diagnosis) -> Verdict:
    ranked = Ranked([*causes], [], {"kv_pressure": "scrape the engine"})
    with patch("overrun.analysis.diagnosis.diagnose.run_rules", return_value=ranked):
        rows = requests(400, retrieval_ms=np.where(LATE, 4_000.0, 100.0), decode_ms=500.0)
        return run(rows, slo=Slo(e2e_ms=2500.0)).verdict


def test_below_half_sure_the_cause_is_not_known_and_nothing_is_advised() -> None:
    verdict = _with(_named("a", 0.45, "the index is slow"), _named("b", 0.3, "the cache is cold"))
    assert (verdict.cause, verdict.cause_status) == ("a", "not_known")
    assert [(one.rule, one.confidence) for one in verdict.candidates] == [("a", 0.45), ("b", 0.3)]
    assert "The cause is not known; most likely the index is slow (a, 45 %)" in verdict.sentence
    assert "or the cache is cold (b, 30 %)" in verdict.sentence
    assert "To distinguish them: scrape the engine." in verdict.sentence
    assert "because" not in verdict.sentence
    assert verdict.mitigation is None
    assert verdict.reasons["mitigation"] == "no cause is 50 % sure"


@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_from_half_sure_on_the_cause_is_known(confidence: float) -> None:
    verdict = _with(_named("a", confidence, "the index is slow"))
    assert (verdict.cause, verdict.cause_status) == ("a", "known")
    assert "because the index is slow" in verdict.sentence
    assert verdict.mitigation == "Do it."


def test_without_a_candidate_no_cause_is_known() -> None:
    verdict = _with()
    assert (verdict.cause, verdict.cause_status, verdict.candidates) == (None, "not_known", [])
