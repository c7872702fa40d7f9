"""one_kind_of_call: fires when calls of one format wait and the others do not; silent when all wait alike, or the format has more to read."""

import numpy as np
import pytest

from overrun.analysis.words.slo import Slo
from overrun.collector.normalise.stages import ROLE
from tests.analysis.builders import spans_of
from tests.analysis.diagnosis.rules.cases import of, run, the
from tests.analysis.diagnosis.rules.hosted import LATE, N, hosted

JSON = np.arange(N) % 4 == 0
FORMAT = {"gen_ai.output.type": ["json" if one else "text" for one in JSON]}
TTFT = Slo(ttft_ms=1_500.0)


def judged(late: np.ndarray, **columns: object):  # type: ignore[no-untyped-def]
    frame = hosted(np.where(late, 5_000.0, 400.0), **columns)
    calls = spans_of(
        frame, "chat m", "first_token", 0.0, 1_000.0, role=ROLE["llm"], attributes=FORMAT
    )
    return run(frame, slo=TTFT, spans=[calls])


def test_fires_on_the_format_whose_calls_alone_wait() -> None:
    found = judged(LATE & JSON)
    evidence = the(found, "one_kind_of_call").evidence
    assert (found.verdict.stage, found.verdict.cause) == ("first_token", "one_kind_of_call")
    assert (evidence["family"], evidence["value"]) == ("response format", "json")
    assert (evidence["late"], evidence["n"], evidence["other_late"]) == (150, 150, 0)
    assert evidence["before_late"] == 0
    assert "429" not in (found.verdict.mitigation or "")


@pytest.mark.parametrize("late", [LATE, LATE & (np.arange(N) % 4 == np.arange(N) // 4 % 4)])
def test_silent_when_late_calls_are_of_any_format(late: np.ndarray) -> None:
    assert of(judged(late), "one_kind_of_call") is None


def test_silent_when_the_format_has_more_to_read() -> None:
    found = judged(LATE & JSON, input_tokens=np.where(LATE & JSON, 40_000, 500))
    assert of(found, "one_kind_of_call") is None
    assert found.verdict.cause == "prompt_bloat"


def placed(late: np.ndarray, **columns: object):  # type: ignore[no-untyped-def]
    frame = hosted(np.where(late, 5_000.0, 400.0), **columns)
    at = {"server.address": ["west" if one else "east" for one in JSON]}
    calls = spans_of(frame, "chat m", "first_token", 0.0, 1_000.0, role=ROLE["llm"], attributes=at)
    return run(frame, slo=TTFT, spans=[calls])


def test_fires_on_the_deployment_of_a_model_that_alone_is_late() -> None:
    found = placed(LATE & JSON)
    evidence = the(found, "one_kind_of_call").evidence
    assert (evidence["family"], evidence["value"]) == ("deployment", "west")
    assert "another deployment" in (found.verdict.mitigation or "")


def test_another_address_of_another_model_is_no_deployment_of_one() -> None:
    found = placed(LATE & JSON, model=np.where(JSON, "large", "small"))
    assert of(found, "one_kind_of_call") is None
