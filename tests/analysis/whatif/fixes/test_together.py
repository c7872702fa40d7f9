"""Several fixes at once: arithmetic adds up, engines are changed one after the other, and bounds are not combined."""

from dataclasses import replace

import numpy as np
import pytest

from overrun.analysis.whatif import catalogue
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fixes import clip, together
from overrun.analysis.whatif.prediction import WhatIfError
from overrun.analysis.words.slo import Slo
from tests.analysis.whatif.builders import calls, facts_of, requests_of

N = 400


def two_slow_stages() -> Facts:
    rng = np.random.default_rng(1)
    retrieval, tool = rng.uniform(100.0, 900.0, N), rng.uniform(100.0, 900.0, N)
    made = calls(N, e2e_ms=1_000.0)
    rows = requests_of(
        made, e2e_ms=1_000.0 + retrieval + tool, retrieval_ms=retrieval, tool_ms=tool
    )
    return facts_of(made, requests=rows, slo=Slo(e2e_ms=2_000.0))


def test_two_stages_held_to_a_limit_save_both() -> None:
    facts = two_slow_stages()
    one = clip.predict(facts, stage="retrieval", limit_ms=100.0)
    both = together.predict(
        facts, fixes="clip(stage=retrieval,limit_ms=100)+clip(stage=tool,limit_ms=100)"
    )
    assert one.predicted is not None
    assert both.predicted is not None
    assert both.predicted.after == pytest.approx(1_200.0, rel=0.01)
    assert both.predicted.after < one.predicted.after
    assert both.method == "exact"
    assert both.goodput_after == 1.0
    # One stage's saving is what is left if both save the same time: the interval reaches there.
    assert both.predicted.interval is not None
    assert both.predicted.interval[1] > 1_500.0


def test_one_fix_alone_is_that_fix() -> None:
    facts = two_slow_stages()
    alone = clip.predict(facts, stage="tool", limit_ms=200.0)
    same = together.predict(facts, fixes="clip(stage=tool,limit_ms=200)")
    assert alone.predicted == same.predicted
    assert same.title == alone.title
    assert facts.parts is None


def test_a_bound_is_not_combined() -> None:
    facts = two_slow_stages()
    answer = together.predict(
        facts, fixes="clip(stage=queue,limit_ms=1)+clip(stage=tool,limit_ms=1)"
    )
    assert answer.predicted is None
    assert "is a bound" in answer.reasons["predicted"]


def test_a_fix_without_an_answer_says_which_and_why() -> None:
    answer = together.predict(two_slow_stages(), fixes="clip(stage=tool,limit_ms=1)+admission")
    # Twice the engine: once to be told its part, never to predict.
    assert answer.predicted is None
    assert answer.reasons["predicted"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no fix"),
        ("cap(512)", "is no fix"),
        ("cape(max_tokens=1)", "cap"),
        ("together(fixes=cap)", "inside of itself"),
        ("admission+admission", "stands twice"),
        ("+".join(f"clip(stage=tool,limit_ms={k})" for k in range(7)), "at most 6"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, why: str) -> None:
    with pytest.raises(WhatIfError, match=why):
        together.read(text)


def test_what_is_written_is_read() -> None:
    asked = [("cap", {"max_tokens": "512"}), ("admission", {})]
    assert together.read(together.written(asked)) == asked
    assert together.read("prefix-cache(hit_ratio=0.5)")[0][0] == "prefix_cache"


def test_limits_of_parameters_are_known() -> None:
    [ratio] = catalogue.parameters("prefix_cache")
    assert (ratio.least, ratio.most, ratio.open_ends) == (0.0, 1.0, ("most",))
    assert catalogue.within(0.0, ratio.least, ratio.most, ratio.open_ends)
    assert not catalogue.within(1.0, ratio.least, ratio.most, ratio.open_ends)
    limit = next(one for one in catalogue.parameters("clip") if one.name == "limit_ms")
    assert limit.least == 0.0


def test_the_recorded_times_stay_as_they_are() -> None:
    facts = two_slow_stages()
    before = facts.ms("e2e_ms").copy()
    together.predict(replace(facts), fixes="clip(stage=tool,limit_ms=1)")
    assert np.array_equal(facts.ms("e2e_ms"), before)
