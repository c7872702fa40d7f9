"""Does a case that asks about other slow requests read its periods again?"""

from dataclasses import replace
from unittest.mock import patch

import numpy as np

from overrun.analysis.diagnosis.ranking import Ranked
from overrun.analysis.evidence.case import Case
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import run


def test_what_is_known_of_the_periods_is_handed_over_and_what_is_asked_of_the_slow_ones_is_not() -> (
    None
):
    kept: list[Case] = []

    def rules_on(case: Case, *rest: object) -> Ranked:
        kept.append(case)
        case.calls, case.calls_before, case.demand, case.slow_calls, case.usual_calls  # noqa: B018
        return Ranked([], [], [], {})

    late = np.arange(400) >= 200
    with patch("overrun.analysis.diagnosis.diagnose.run_rules", rules_on):
        run(
            requests(400, retrieval_ms=np.where(late, 4_000.0, 100.0), decode_ms=500.0),
            slo=Slo(e2e_ms=2500.0),
        )
    case = kept[0]
    other = case.about(tail=replace(case.tail, tail_index=case.tail.tail_index[:20]))
    assert other.calls is case.calls
    assert other.calls_before is case.calls_before
    assert other.demand is case.demand
    assert (other.slow.height, len(other.slow_calls)) == (20, 20)
