"""token_rate_sag: fires when the provider's tokens come slower, is silent when answers are longer or an engine tells why."""

import numpy as np
import pytest

from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the
from tests.analysis.diagnosis.rules.hosted import LATE, N, hosted


def test_fires_with_both_paces() -> None:
    found = run(hosted(token_ms=np.where(LATE, 30.0, 10.0)), slo=E2E)
    finding = the(found, "token_rate_sag")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "decode",
        "token_rate_sag",
        ["token_rate_sag"],
    )
    assert (finding.evidence["token_ms_slow"], finding.evidence["token_ms_usual"]) == (
        pytest.approx(30.0),
        pytest.approx(10.0),
    )
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after == pytest.approx(1_500.0, abs=60.0)


def test_a_slow_host_is_told_by_its_wait_and_its_pace() -> None:
    """Every fourth call waits and is written slowly: the wait belongs to the same host, and the others keep their pace."""
    fourth = LATE & (np.arange(N) % 4 == 0)
    found = run(hosted(np.where(fourth, 6_000.0, 400.0), np.where(fourth, 40.0, 10.0)), slo=E2E)
    finding = the(found, "token_rate_sag")
    assert (found.verdict.cause, causes(found)) == ("token_rate_sag", ["token_rate_sag"])
    assert "some hosts" in found.verdict.sentence
    assert finding.evidence["slow_paced_of_slow"] == 1.0
    assert finding.evidence["share_of_excess"] > 0.95
    everyone = run(hosted(token_ms=np.where(LATE, 30.0, 10.0)), slo=E2E)
    assert the(everyone, "token_rate_sag").evidence["slow_paced_of_slow"] is None


@pytest.mark.parametrize("stalled", [True, False])
def test_tokens_that_stop_for_the_callers_own_prompts_are_said_to(stalled: bool) -> None:
    """Tokens come half as fast, and what follows takes 0.8 s longer, where a prompt of 8,000 tokens is sent within a second of the first token, or where
    chance will have it as often."""
    rng = np.random.default_rng(3)
    start, long = np.sort(rng.uniform(0.0, 600.0, N)), rng.random(N) < 0.15
    begun = start + 0.4
    beside = np.searchsorted(start[long], begun + 1.0) > np.searchsorted(start[long], begun)
    slow = (start >= 300.0) & (beside if stalled else rng.permutation(beside))
    rows = hosted(
        token_ms=np.where(slow, 20.0, 10.0),
        post_ms=np.where(slow, 1_000.0, 200.0),
        start_s=start,
        input_tokens=np.where(long, 8_000, 500),
    )
    found = run(rows, slo=E2E)
    assert set(causes(found)) == {"slow_dependency", "token_rate_sag"}
    assert ("other prompts of your application" in the(found, "token_rate_sag").headline) is stalled


def test_says_before_only_where_there_is_a_before() -> None:
    """Paces that vary from call to call all the time have no time before: the figure beside them is that of healthy requests."""
    late = run(hosted(token_ms=np.where(LATE, 30.0, 10.0)), slo=E2E)
    always = run(
        hosted(token_ms=np.where(np.random.default_rng(5).random(N) < 0.6, 30.0, 10.0)), slo=E2E
    )
    assert (late.verdict.cause, always.verdict.cause) == ("token_rate_sag", "token_rate_sag")
    assert "30 ms for a token, 10 ms before" in late.verdict.sentence
    assert "30 ms for a token, 10 ms in healthy requests" in always.verdict.sentence


def test_silent_when_answers_are_longer() -> None:
    rows = hosted(output_tokens=np.where(LATE, 300, 100))
    rows = rows.with_columns(
        decode_ns=rows["output_tokens"] * 10_000_000,
        e2e_ns=rows["first_token_ns"] + rows["output_tokens"] * 10_000_000,
    )
    found = run(rows, slo=E2E)
    assert found.verdict.cause == "long_outputs"
    assert of(found, "token_rate_sag") is None


def test_silent_where_an_engine_of_ones_own_is_slower() -> None:
    pace = np.where(LATE, 30.0, 10.0)
    found = run(requests(N, prefill_ms=100.0, decode_ms=99.0 * pace, tpot_ms=pace), slo=E2E)
    assert of(found, "token_rate_sag") is None
