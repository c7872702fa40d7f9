"""What the open diagnosis does to causes of rules."""

import msgspec
import pytest

from overrun.analysis.diagnosis.agreement import CONTRADICTED, agreed, inside, without_harm
from overrun.analysis.diagnosis.ranking import Ranked
from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.words.explanation import Explanation, Place
from overrun.analysis.words.finding import Diagnosis, Finding, Fix

FIX = Fix(id="f", title="Fail over", detail="", assumption="", method="arithmetic", predicted=None)
FINDING = Finding(
    rule="provider_queueing", stage="generation", service=None, severity="critical", confidence=0.9,
    headline="", evidence={}, exemplars=[], fix=FIX,
)  # fmt: skip
PLACE = Place(
    stage="generation", service="app", operation="chat", where="edge", excess_ms=900.0, share=0.9,
    interval=None, caller="app", callee="proxy", words="generation: before POST begins",
)  # fmt: skip
FOUND = Explanation(
    source="spans", mode="some", metric="e2e", sentence="", places=[PLACE], place_confidence=0.9
)


@pytest.mark.parametrize(("where", "confidence"), [("edge", CONTRADICTED), ("itself", 0.9)])
def test_a_cause_inside_of_what_answers_holds_no_time_on_the_way_to_it(
    where: str, confidence: float
) -> None:
    place = msgspec.structs.replace(PLACE, where=where)
    cause = Diagnosis(FINDING, {"generation": 900.0}, "of it", "app", "", "", 60)
    agreement = agreed(Ranked([cause], [], {}), msgspec.structs.replace(FOUND, places=[place]))
    finding = agreement.ranked.causes[0].finding
    assert finding.confidence == confidence
    [kept] = without_harm([finding], FOUND, agreement)
    assert (kept.fix is None) == (where == "edge")


def test_rules_that_are_inside_of_what_answers_exist() -> None:
    assert inside() <= set(rules())
