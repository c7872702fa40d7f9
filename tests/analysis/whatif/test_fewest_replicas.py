"""The fewest replicas that meet every limit: the smallest number that does, found in few questions, and the same one in a report and in a plan."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from overrun.analysis.diagnosis.simulated_gains import _fewest as fix_of
from overrun.analysis.front.plan import _more
from overrun.analysis.whatif.fewest_replicas import MOST_TIMES, fewest_for, meets
from overrun.analysis.whatif.prediction import Effect, Fitted, Prediction
from overrun.analysis.words.finding import Fix, Predicted
from overrun.analysis.words.slo import parse_slo

FACTS: Any = SimpleNamespace(metric="ttft", percentile=95.0)
LIMITS = {"ttft": 1000.0, "itl": 1.0}


class Pool:
    """Replicas whose TTFT P95 is a second at `needed` of them; counts what it is asked."""

    def __init__(self, seen: int, needed: int) -> None:
        self.seen, self.needed, self.asked = seen, needed, list[int]()

    def __call__(self, facts: Any, fix: str, texts: Mapping[str, str | None]) -> Prediction:
        many = int(texts["replicas"] or 0)
        self.asked.append(many)
        after = 1000.0 * self.needed / many
        gain = Predicted(
            metric="ttft",
            quantile=0.95,
            before=9e4,
            after=after,
            interval=(0.5 * after, 2.0 * after),
            touched_ratio=1.0,
            cost={"replicas_factor": many / self.seen},
        )
        effect = Effect(
            metric="ttft", quantile=0.95, before=9e4, after=after, interval=gain.interval
        )
        return Prediction(
            fix=fix,
            title=f"Run {many} replicas",
            method="simulated",
            assumption="they are equal",
            parameters={},
            requests=100,
            predicted=gain,
            effects=[effect],
            engine=[fitted(self.seen)],
        )


def fitted(replicas: int) -> Fitted:
    return Fitted(
        model="m",
        replicas=replicas,
        calls=100,
        scheduler="chunked prefill",
        token_budget=2048,
        max_sequences=256,
        kv_tokens=None,
        identity_error={},
        holdout_error={},
        seconds=0.0,
    )


@pytest.mark.parametrize(
    ("seen", "needed"),
    [(1, 2), (1, 3), (1, 8), (2, 3), (3, 17), (8, 9), (8, 12), (8, 64), (20, 33)],
)
def test_it_is_the_smallest_number_that_meets_the_limits(seen: int, needed: int) -> None:
    pool = Pool(seen, needed)
    found = fewest_for(FACTS, pool, LIMITS, seen, {})
    assert found is not None
    assert found[0] == needed
    assert len(set(pool.asked)) == len(pool.asked) <= 2 * (needed - seen).bit_length() + 1


def test_there_is_none_where_eight_times_as_many_do_not() -> None:
    assert fewest_for(FACTS, Pool(2, 2 * MOST_TIMES + 1), LIMITS, 2, {}) is None


def test_a_limit_is_surely_met_with_the_whole_interval() -> None:
    told = Pool(1, 3)(FACTS, "replicas", {"replicas": "4"})
    judged = ("ttft", 95.0, {"ttft": 1000.0})
    assert (meets(told, *judged), meets(told, *judged, surely=True)) == (True, False)
    assert not meets(told, "e2e", 95.0, {"ttft": 1000.0})


@pytest.mark.parametrize("proposed", [2, 4, 9])
def test_a_report_and_a_plan_propose_the_same_number(proposed: int) -> None:
    pool, slo = Pool(1, 3), parse_slo("ttft:1000 e2el:5000")
    fix = Fix(
        id="replicas",
        title=f"Run {proposed} replicas instead of 1",
        detail="Arithmetic.",
        assumption="",
        method="exact",
        predicted=None,
        whatif="replicas",
        parameters={"replicas": proposed},
    )
    answer = pool(FACTS, "replicas", {"replicas": str(proposed)})
    told, gain = fix_of(pool, FACTS, fix, answer, slo)
    assert (told.title, told.parameters) == ("Run 3 replicas instead of 1", {"replicas": 3})
    assert gain.title == "Run 3 replicas"
    assert _more(1, FACTS, Pool(1, 3), {"ttft": 1000.0, "e2e": 5000.0}) == [3, 2]
