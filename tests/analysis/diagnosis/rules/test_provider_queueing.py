"""provider_queueing: fires when first tokens are late at the same prompts, is silent on longer prompts and on single spikes."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.words.finding import say_ms
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of
from tests.analysis.diagnosis.rules.cases import causes, of, run, the
from tests.analysis.diagnosis.rules.hosted import LATE, N, hosted, uncounted

TTFT = Slo(ttft_ms=1_000.0)


def test_fires_on_first_tokens_that_are_late_for_minutes() -> None:
    # Half a minute of every one: 2 s more.
    waits = LATE & ((np.arange(N) // 60) % 2 == 0)
    found = run(hosted(np.where(waits, 2_400.0, 400.0)), slo=TTFT)
    finding = the(found, "provider_queueing")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "first_token",
        "provider_queueing",
        ["provider_queueing"],
    )
    assert finding.evidence["first_token_ms_before"] == pytest.approx(400.0, rel=0.05)
    assert finding.evidence["dispersion"] > 5.0
    assert finding.evidence["share_of_excess"] > 0.8
    assert found.verdict.owner == "provider"
    assert finding.fix is not None
    assert set(finding.fix.parameters) == {"after_ms"}
    assert (
        f"Time out the first token at {say_ms(float(finding.fix.parameters['after_ms']))}"
        in finding.fix.detail
    )


def test_every_step_of_an_agent_waits() -> None:
    """Three calls in a row of 400 ms to the first token, then 700 ms: a request waits for 900 ms more."""
    each = np.where(LATE, 700.0, 400.0)
    rows = hosted(3.0 * each, llm_calls=3)
    one = calls_of(rows)
    wait = pl.col("ttft_ns") // 3
    steps = [
        one.with_columns(
            ttft_ns=wait,
            start_ns=pl.col("start_ns") + k * wait,
            span_id=pl.col("span_id") + k * N,
            duration_ns=wait + (pl.col("duration_ns") - 3 * wait) * (k == 2),
        )
        for k in range(3)
    ]
    found = run(rows, slo=Slo(e2e_ms=2_700.0), calls=[pl.concat(steps)])
    finding = the(found, "provider_queueing")
    assert found.verdict.cause == "provider_queueing"
    assert finding.evidence["share_of_excess"] > 0.8


def test_silent_when_the_prompts_are_longer() -> None:
    n_in = np.where(LATE, 5_000, 500) + np.random.default_rng(1).integers(0, 400, N)
    found = run(hosted(np.where(LATE, 200.0, 200.0) + 0.4 * n_in, input_tokens=n_in), slo=TTFT)
    assert found.verdict.cause == "prompt_bloat"
    assert of(found, "provider_queueing") is None


@pytest.mark.parametrize("refused", [False, True])
def test_uncounted_calls_name_the_provider_only_where_it_refuses_some(refused: bool) -> None:
    busy = LATE & ((np.arange(N) // 60) % 2 == 0)
    kinds = np.where(refused & busy & (np.arange(N) % 10 == 0), "RateLimitError", None)
    rows = uncounted(hosted(np.where(busy, 4_000.0, 400.0)))
    found = run(rows, slo=Slo(ttft_ms=1_500.0), calls=[calls_of(rows, error_type=kinds.tolist())])
    assert (of(found, "provider_queueing") is not None) is refused
    assert ("provider_queueing" in found.skipped) is not refused


def test_silent_on_spikes_here_and_there() -> None:
    spikes = LATE & (np.arange(N) % 8 == 0)  # at one in thirteen the window still meets its target
    found = run(hosted(np.where(spikes, 9_000.0, 400.0)), slo=TTFT)
    assert causes(found) == ["provider_spikes"]


def test_a_baseline_is_asked_for() -> None:
    found = run(hosted(np.where(np.arange(N) % 10 == 0, 4_000.0, 400.0)), slo=TTFT)
    assert found.baseline is None
    assert "baseline" in found.skipped["provider_queueing"]


@pytest.mark.parametrize("mine", [False, True])
def test_without_a_baseline_what_neither_prompts_nor_ones_own_load_explain_is_the_providers(
    mine: bool,
) -> None:
    """Half of the first tokens take 400 ms and half 1.4 s, by chance, or where eight calls are out at a time instead of one."""
    late = (np.arange(N) // 8) % 2 == 0 if mine else np.random.default_rng(3).random(N) < 0.5
    starts = (
        np.where(late, np.arange(N) // 8 * 4.0, np.arange(N) * 0.5) if mine else np.arange(N) * 0.5
    )
    found = run(hosted(np.where(late, 1_400.0, 400.0), start_s=starts), slo=TTFT)
    assert found.baseline is None
    assert (of(found, "provider_queueing") is None) is mine
    if not mine:
        assert (found.verdict.stage, found.verdict.cause) == ("first_token", "provider_queueing")
