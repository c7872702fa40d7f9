"""stalled_connection: fires on lookups that stall by their spans, and on a resolver's or TCP's constants without; silent on times that are no constant."""

import numpy as np
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.builders import requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, of, run, the
from tests.analysis.diagnosis.rules.hosted import LATE as LATER
from tests.analysis.diagnosis.rules.hosted import N as HOSTED
from tests.analysis.diagnosis.rules.hosted import hosted

N = 600
LATE = np.arange(N) >= 300
TTFT = Slo(ttft_ms=900.0)


@pytest.mark.parametrize("more", [False, True])
def test_lookups_that_stall_are_no_new_connections_unless_there_are_more(more: bool) -> None:
    slow = LATE & (np.arange(N) % 4 == 0)
    lookup = np.where(slow, 5_005.0, 2.0)
    frame = requests(N, network_ms=lookup, first_token_ms=300.0, decode_ms=500.0)
    kept = LATE | (np.arange(N) % 5 == 0) if more else np.ones(N, dtype=bool)
    root = spans_of(frame, "POST /ask", "other", 0.0, lookup + 800.0, span_id=1, parent_id=0)
    lookups = spans_of(frame, "dns.lookup", "network", 0.0, lookup, keep=kept)
    found = run(frame, spans=[root, lookups], slo=E2E)
    finding = the(found, "connection_churn" if more else "stalled_connection")
    assert ("name lookups stall" in found.verdict.sentence) is not more
    assert ("new connection" in found.verdict.sentence) is more
    if not more:
        assert finding.evidence["stalled_ms"] == pytest.approx(5_005.0)
        assert finding.evidence["stalled_ratio"] == pytest.approx(0.25, abs=0.01)
        assert found.verdict.owner == "platform"


@pytest.mark.parametrize(
    ("added_s", "what"),
    [((5.0,), "name lookup"), ((1.0, 1.0, 1.0, 3.0, 3.0, 7.0), "connection attempt"), ((), None)],
)
def test_a_known_constant_is_told_from_times_at_random(
    added_s: tuple[float, ...], what: str | None
) -> None:
    draw = np.random.default_rng(5)
    late = LATER & (draw.random(HOSTED) < 0.12)
    added = draw.choice(added_s, HOSTED) if added_s else draw.uniform(1.0, 9.0, HOSTED)
    rows = hosted(400.0)
    first = rows["ttft_first_token_ns"].to_numpy() / 1e6 * 0.2 + np.where(late, 1e3 * added, 0.0)
    frame = requests(
        HOSTED,
        start_s=np.arange(HOSTED) * 0.5,
        first_token_ms=first,
        ttft_first_token_ms=first,
        decode_ms=990.0,
        tpot_ms=10.0,
        input_tokens=500,
        provider="openai",
    )
    found = run(frame, slo=TTFT)
    if what is None:
        assert of(found, "stalled_connection") is None
        return
    evidence = the(found, "stalled_connection").evidence
    assert found.verdict.cause == "stalled_connection"
    assert evidence["what"] == what
    assert set(evidence["steps"]) == set(added_s)
    assert evidence["hits"] == evidence["late"] == int(late.sum())
    assert of(found, "provider_spikes") is None


@pytest.mark.parametrize(
    ("scatter", "reads", "fires"), [(0.0, 1, True), (0.2, 1, False), (0.0, 40, False)]
)
def test_a_wait_that_is_the_same_each_time_is_no_queue(
    scatter: float, reads: int, fires: bool
) -> None:
    draw = np.random.default_rng(6)
    first = draw.lognormal(np.log(500.0), 0.2, HOSTED)
    first += np.where(LATER, 8_400.0 * np.exp(scatter * draw.standard_normal(HOSTED)), 0.0)
    frame = requests(
        HOSTED,
        start_s=np.arange(HOSTED) * 0.5,
        first_token_ms=first,
        ttft_first_token_ms=first,
        decode_ms=990.0,
        tpot_ms=10.0,
        input_tokens=np.where(LATER, 500 * reads, 500),
        provider="openai",
    )
    found = of(run(frame, slo=TTFT), "stalled_connection")
    assert (found is not None) is fires
    if found is not None:
        assert found.evidence["what"] == "fixed wait"
        assert found.evidence["steps"] == {8.4: int(LATER.sum())}
