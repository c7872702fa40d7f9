"""provider_spikes: fires on rare independent spikes with their share, is silent when they come together."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.client_view import clustering
from overrun.analysis.evidence.late_at_random import deviations
from overrun.analysis.words.finding import say_ms
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the
from tests.analysis.diagnosis.rules.hosted import LATE, N, hosted, uncounted

TTFT = Slo(ttft_ms=1_000.0, percentile=99.0, goodput_target=0.99)


def test_fires_on_scattered_spikes() -> None:
    spikes = LATE & (np.random.default_rng(2).random(N) < 0.08)
    found = run(hosted(np.where(spikes, 20_000.0, 400.0)), slo=TTFT)
    finding = the(found, "provider_spikes")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "first_token",
        "provider_spikes",
        ["provider_spikes"],
    )
    assert finding.evidence["spike_ratio"] == pytest.approx(spikes[LATE].mean(), abs=0.015)
    assert finding.evidence["share_of_slow"] == 1.0
    assert finding.evidence["median_ratio"] == pytest.approx(1.0, abs=0.05)
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after < 1_000.0 < finding.fix.predicted.before
    assert finding.fix.title.endswith(f"after {say_ms(float(finding.fix.parameters['delay_ms']))}")


def test_spikes_from_the_beginning_on_are_told_by_the_other_calls() -> None:
    spikes = np.random.default_rng(2).random(N) < 0.15
    found = run(hosted(np.where(spikes, 20_000.0, 400.0)), slo=TTFT)
    finding = the(found, "provider_spikes")
    assert (found.baseline, causes(found)) == (None, ["provider_spikes"])
    assert finding.evidence["spike_ratio"] == pytest.approx(spikes.mean(), abs=0.01)
    assert finding.fix is not None
    assert float(finding.fix.parameters["delay_ms"]) < 1_000.0  # of the calls that are no spikes


def test_what_slows_the_tokens_of_all_calls_takes_nothing_from_the_spikes() -> None:
    """Four of five slow requests are so by tokens that all take three times as long; the spikes among them are most of the time."""
    spikes = LATE & (np.random.default_rng(2).random(N) < 0.08)
    model = ["m-2026-10" if late else "m-2026-04" for late in LATE]
    found = run(
        hosted(np.where(spikes, 20_000.0, 400.0), np.where(LATE, 30.0, 10.0), model=model), slo=E2E
    )
    assert causes(found) == ["model_changed", "provider_spikes"]
    assert the(found, "provider_spikes").evidence["pace_ratio"] == pytest.approx(1.0)


def test_silent_when_the_late_calls_are_written_slowly_too() -> None:
    """Such a call met a slow host: it is no bad luck that a second call would not have."""
    late = LATE & (np.random.default_rng(2).random(N) < 0.08)
    found = run(hosted(np.where(late, 20_000.0, 400.0), np.where(late, 40.0, 10.0)), slo=TTFT)
    assert of(found, "provider_spikes") is None
    assert any(
        one.what == "provider_spikes" and "4.0 times as long" in one.figure
        for one in found.verdict.ruled_out
    )


def test_quick_checks_beside_the_answers_say_nothing_of_the_late_calls_pace() -> None:
    """Each request asks a small model for 5 tokens of 2 ms; the client never hears of two in five of these where the answer came late."""
    late = LATE & (np.random.default_rng(2).random(N) < 0.08)
    rows = hosted(np.where(late, 20_000.0, 400.0))
    unheard = late & (np.random.default_rng(3).random(N) < 0.4)
    checks = calls_of(rows, model="guard", duration_ms=50.0, output_tokens=5, tpot_ms=2.0).filter(
        pl.Series(~unheard)
    )
    calls = pl.concat(
        [calls_of(rows), checks.with_columns(span_id=pl.col("span_id") + 10_000)],
        how="diagonal_relaxed",
    )
    finding = the(run(rows, calls=[calls], slo=TTFT), "provider_spikes")
    assert finding.evidence["pace_ratio"] == pytest.approx(1.0)


@pytest.mark.parametrize("own", [True, False])
def test_silent_when_late_calls_come_behind_long_prompts_of_the_callers_own(own: bool) -> None:
    """As many late calls, scattered as well: right behind a prompt of 30,000 tokens, or behind any."""
    rng = np.random.default_rng(2)
    long = LATE & (rng.random(N) < 0.04)
    behind = np.roll(long, 1) | np.roll(long, 2)
    late = behind if own else LATE & (rng.random(N) < behind[LATE].mean())
    found = run(
        hosted(np.where(late & ~long, 4_000.0, 400.0), input_tokens=np.where(long, 30_000, 500)),
        slo=TTFT,
    )
    assert (of(found, "provider_spikes") is None) is own
    assert (
        any(
            one.what == "provider_spikes" and "long prompts of the same caller" in one.figure
            for one in found.verdict.ruled_out
        )
        is own
    )


@pytest.mark.parametrize("whose", ["acme's", "anybody's"])
def test_what_strikes_one_tenant_is_not_at_random(whose: str) -> None:
    rng = np.random.default_rng(2)
    tenant = np.array(["acme", "globex", "hooli", "initech"])[rng.integers(0, 4, N)]
    late = LATE & (
        rng.random(N) < (np.where(tenant == "acme", 0.24, 0.01) if whose == "acme's" else 0.08)
    )
    found = run(hosted(np.where(late, 20_000.0, 400.0), tenant=tenant.tolist()), slo=TTFT)
    assert (of(found, "provider_spikes") is None) is (whose == "acme's")
    assert any(
        "acme's calls are late" in one.figure
        for one in found.verdict.ruled_out
        if one.what == "provider_spikes"
    ) is (whose == "acme's")


@pytest.mark.parametrize(("squares", "free"), [(6.635, 1), (9.210, 2), (18.475, 7)])
def test_a_chi_square_that_one_in_a_hundred_exceeds_is_as_rare_as_two_and_a_third_deviations(
    squares: float, free: int
) -> None:
    assert deviations(squares, free) == pytest.approx(2.326, abs=0.03)


def test_a_tenant_that_is_struck_twice_as_often_by_chance_is_no_reason() -> None:
    """Of 186 calls of one tenant 11 are late, of 96 of another's 16, of 318 of a dozen others' 19: one in a thousand by chance, among as many tenants."""
    n = np.arange(N)
    order = np.random.default_rng(4).permutation(np.flatnonzero(LATE))
    tenant = np.array([f"t{k % 12}" for k in n], dtype=object)
    acme, globex = (
        order[: int(0.31 * len(order))],
        order[int(0.31 * len(order)) : int(0.47 * len(order))],
    )
    tenant[acme], tenant[globex] = "acme", "globex"
    late = np.zeros(N, dtype=bool)
    for theirs, share in ((acme, 0.06), (globex, 0.17), (order[int(0.47 * len(order)) :], 0.06)):
        late[theirs[: round(share * len(theirs))]] = True
    found = run(
        hosted(np.where(late, 20_000.0, 400.0), tenant=tenant.tolist()),
        slo=Slo(ttft_ms=1500.0, percentile=99.0, goodput_target=0.99),
    )
    assert found.verdict.cause == "provider_spikes"


def test_of_a_sample_late_calls_may_begin_behind_huge_prompts_that_are_not_stored() -> None:
    spikes = LATE & (np.random.default_rng(2).random(N) < 0.08)
    rows = hosted(
        np.where(spikes, 20_000.0, 400.0), input_tokens=np.where(np.arange(N) == 900, 30_000, 500)
    )
    assert of(run(rows, slo=TTFT), "provider_spikes") is not None
    found = run(rows, slo=TTFT, coverage=0.1)
    assert of(found, "provider_spikes") is None
    assert "1 prompts are huge" in found.skipped["provider_spikes"]


def test_uncounted_calls_may_have_had_more_to_read() -> None:
    spikes = LATE & (np.random.default_rng(2).random(N) < 0.08)
    found = run(uncounted(hosted(np.where(spikes, 20_000.0, 400.0))), slo=TTFT)
    assert (found.verdict.stage, found.verdict.cause) == ("first_token", None)
    assert "record gen_ai.usage.input_tokens" in found.skipped["provider_spikes"]
    assert "provider_spikes: " in found.verdict.sentence


def test_spikes_of_a_sample_come_together_where_all_of_them_would() -> None:
    """Late calls in one minute of four, three times as often as chance would have it: in one call of ten that is much."""
    rng = np.random.default_rng(2)
    late = LATE & (rng.random(N) < np.where(np.arange(N) // 120 % 2 == 0, 0.2, 0.02))
    rows = hosted(np.where(late, 20_000.0, 400.0))
    assert of(run(rows, slo=TTFT), "provider_spikes") is not None
    assert of(run(rows, slo=TTFT, coverage=0.1), "provider_spikes") is None


def test_silent_when_the_slow_calls_come_together() -> None:
    together = (np.arange(N) >= 900) & (np.arange(N) < 960)
    found = run(hosted(np.where(together, 20_000.0, 400.0)), slo=TTFT)
    assert of(found, "provider_spikes") is None


def test_clustering_is_one_where_independent() -> None:
    rng = np.random.default_rng(0)
    start, late = np.arange(6_000) * 0.5, rng.random(6_000) < 0.1
    assert clustering(start, late) == pytest.approx(0.9, abs=0.3)
    assert clustering(start, (start // 300) % 2 == 0) > 10.0
    assert clustering(start, np.zeros(6_000, dtype=bool)) == 1.0
    # Chance stays chance in a sample; what is more is as much more as it is thinner.
    assert clustering(start, late, 0.1) == clustering(start, late)
    together = clustering(start, (start // 300) % 2 == 0)
    assert clustering(start, (start // 300) % 2 == 0, 0.1) == pytest.approx(
        1.0 + (together - 1.0) / 0.1
    )
