"""Hedging: the earlier of the call's own first token and a second call's, drawn from its neighbours."""

import numpy as np

from overrun.analysis.whatif.fixes import hedging
from tests.analysis.whatif.builders import calls, facts_of


def test_independent_spikes_are_cut_to_delay_plus_a_usual_wait() -> None:
    ttft = np.full(400, 200.0)
    ttft[::20] = 30_000.0
    facts = facts_of(calls(400, every_s=0.5, ttft_ms=ttft, e2e_ms=ttft + 800.0), percentile=97.0)
    answer = hedging.predict(facts, delay_ms=500.0)
    assert answer.predicted is not None
    assert answer.predicted.before == 30_800.0
    assert answer.predicted.after == 500.0 + 200.0 + 800.0
    assert answer.cost["duplicate_ratio"] == 0.05
    # The band reaches towards a second call that is as slow as the first.
    assert answer.predicted.interval is not None
    assert answer.predicted.interval[1] > 10_000.0


def test_nothing_is_gained_where_all_calls_are_alike() -> None:
    answer = hedging.predict(facts_of(calls(100, ttft_ms=900.0, e2e_ms=1500.0)), delay_ms=500.0)
    assert answer.predicted is not None
    assert answer.predicted.after == answer.predicted.before


def test_too_few_calls_to_draw_from_are_refused() -> None:
    answer = hedging.predict(facts_of(calls(20, ttft_ms=900.0)), delay_ms=500.0)
    assert answer.predicted is None
    assert "at least 40" in answer.reasons["predicted"]
