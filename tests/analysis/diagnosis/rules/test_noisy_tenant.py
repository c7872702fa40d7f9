"""noisy_tenant: fires when one tenant's work makes others wait, is silent when it only waits for itself or all tenants grew."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.builders import at, requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the
from tests.analysis.diagnosis.rules.test_under_capacity import crowd

# 300 requests of four tenants in 300 s, then 600 in 300 s.
N = 900
LATE = np.arange(N) >= 300
START = np.r_[np.arange(300.0), 300.0 + np.arange(600) / 2.0]
NAMES = ["initech", "acme", "globex", "hooli"]


def traffic(tenant: np.ndarray, waits: np.ndarray, n_in: np.ndarray | int = 500) -> pl.DataFrame:
    return requests(
        N,
        start_s=START,
        queue_ms=np.where(waits, 4_000.0, 5.0),
        prefill_ms=np.full(N, n_in) * 0.2,
        decode_ms=500.0,
        input_tokens=np.full(N, n_in),
        tenant=[NAMES[k] for k in tenant],
    )


def test_fires_on_the_tenant_that_brought_the_work() -> None:
    # Every second request since the onset is acme's, four times as long; everybody waits.
    tenant = np.where(LATE, np.where(np.arange(N) % 2 == 0, 1, 3), np.arange(N) % 4)
    found = run(
        traffic(tenant, LATE & (np.arange(N) % 3 == 0), np.where(LATE & (tenant == 1), 2_000, 500)),
        slo=E2E,
    )
    finding = the(found, "noisy_tenant")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "queue",
        "noisy_tenant",
        ["noisy_tenant"],
    )
    assert finding.evidence["tenant"] == "acme"
    assert finding.evidence["share_before"] == pytest.approx(0.25, abs=0.01)
    # A call takes 0.2 ms an input token and 505 ms to write: acme adds (400 + 505) - (100 + 505) / 4 ms a second of 400 + 505.
    assert finding.evidence["part_of_added_work"] == pytest.approx(0.833, abs=0.02)
    assert finding.evidence["share_of_slow_by_others"] == pytest.approx(0.5, abs=0.01)


def test_a_sample_must_show_clearly_that_most_was_one_tenants() -> None:
    """Of the one request a second that was added, acme brings 0.55, give or take 0.06: in a sample that may be less than half."""
    rng = np.random.default_rng(1)
    place = rng.permutation(600) < 240
    tenant = np.r_[np.arange(300) % 4, np.where(place, 1, np.array([0, 2, 3])[np.arange(600) % 3])]
    rows = traffic(tenant, LATE & (np.arange(N) % 3 == 0))
    assert the(run(rows, slo=E2E), "noisy_tenant").evidence["part_of_added_work"] == pytest.approx(
        0.55, abs=0.01
    )
    assert of(run(rows, slo=E2E, coverage=0.1), "noisy_tenant") is None


def test_where_nobody_counts_tokens_calls_count() -> None:
    tenant = np.where(LATE, np.where(np.arange(N) % 2 == 0, 1, 3), np.arange(N) % 4)
    rows = traffic(tenant, LATE & (np.arange(N) % 3 == 0)).with_columns(
        input_tokens=pl.lit(None, pl.Int64), output_tokens=pl.lit(None, pl.Int64)
    )
    finding = the(run(rows, slo=E2E), "noisy_tenant")
    # One call in two of two a second, one in four of one a second before: 0.75 of the one that was added.
    assert (finding.evidence["tenant"], finding.evidence["share_now"]) == (
        "acme",
        pytest.approx(0.5, abs=0.01),
    )
    assert finding.evidence["part_of_added_work"] == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize(("growth", "pace"), [(1.25, 1.0), (1.1, 1.3)])
def test_silent_where_tokens_are_slower_in_batches_as_before(growth: float, pace: float) -> None:
    """One tenant brings all that is more; an engine that needs 1.3 times as long for a token in a batch of any size is not slow for that."""
    rows = crowd(growth, pace=pace)
    index = np.arange(rows.height)
    theirs = (index >= 800) & (index % 5 == 0)
    rows = rows.with_columns(
        tenant=pl.Series(np.where(theirs, "acme", np.where(index % 2 == 0, "hooli", "globex")))
    )
    found = run(rows, slo=Slo(e2e_ms=1_600.0))
    assert (of(found, "noisy_tenant") is None) is (pace > 1.0)
    assert any(
        "at equal batch sizes" in out.figure
        for out in found.verdict.ruled_out
        if out.what == "noisy_tenant"
    ) is (pace > 1.0)


def test_the_quota_is_the_tenants_former_share_of_the_tokens_and_not_of_the_work() -> None:
    # acme's prompts are twice as long as the others' from the start: two fifths of the tokens, less of the work.
    tenant = np.where(LATE, np.where(np.arange(N) % 2 == 0, 1, 3), np.arange(N) % 4)
    found = run(
        traffic(
            tenant,
            LATE & (np.arange(N) % 3 == 0),
            np.where(tenant == 1, np.where(LATE, 4_000, 1_000), 500),
        ),
        slo=E2E,
    )
    finding = the(found, "noisy_tenant")
    assert finding.fix is not None
    assert finding.fix.parameters["share_ratio"] == pytest.approx(0.4, abs=0.03)
    assert finding.evidence["share_before"] == pytest.approx(0.28, abs=0.03)


def test_it_is_as_much_the_tenants_work_where_the_window_begins_before_the_telemetry() -> None:
    tenant = np.where(LATE, np.where(np.arange(N) % 2 == 0, 1, 3), np.arange(N) % 4)
    rows = traffic(
        tenant, LATE & (np.arange(N) % 3 == 0), np.where(LATE & (tenant == 1), 2_000, 500)
    )
    found = run(rows, slo=E2E, start=at(-3_600.0), end=at(600.0))
    assert the(found, "noisy_tenant").evidence["part_of_added_work"] == pytest.approx(
        0.833, abs=0.02
    )


def test_silent_where_a_few_long_conversations_happen_to_fall_together() -> None:
    # The same calls as above, but acme's are three conversations, as one of the others might have had.
    tenant = np.where(LATE, np.where(np.arange(N) % 2 == 0, 1, 3), np.arange(N) % 4)
    rows = traffic(
        tenant, LATE & (np.arange(N) % 3 == 0), np.where(LATE & (tenant == 1), 2_000, 500)
    )
    found = run(
        rows.with_columns(
            session=pl.Series(
                np.where(tenant == 1, np.arange(N) // 250, np.arange(N) + 10).astype(str)
            )
        ),
        slo=E2E,
    )
    assert of(found, "noisy_tenant") is None
    assert any(
        "as much" in out.figure for out in found.verdict.ruled_out if out.what == "noisy_tenant"
    )


def test_silent_when_all_tenants_grew_alike() -> None:
    found = run(traffic(np.arange(N) % 4, LATE & (np.arange(N) % 3 == 0)), slo=E2E)
    assert of(found, "noisy_tenant") is None
    assert found.verdict.cause == "under_capacity"


def test_a_tenant_that_waits_for_itself_alone_is_no_neighbour() -> None:
    tenant = np.where(LATE & (np.arange(N) % 2 == 0), 1, np.arange(N) % 4)
    found = run(
        traffic(
            tenant,
            LATE & (tenant == 1) & (np.arange(N) % 3 == 0),
            np.where(LATE & (tenant == 1), 2_000, 500),
        ),
        slo=E2E,
    )
    assert of(found, "noisy_tenant") is None
    assert any(
        out.what == "noisy_tenant" and "acme's own" in out.figure for out in found.verdict.ruled_out
    )


@pytest.mark.parametrize(("others", "named"), [(170, ["noisy_tenant"]), (140, [])])
def test_what_one_tenant_adds_counts_though_the_others_ask_for_less_unless_all_work_has_shrunk(
    others: int, named: list[str]
) -> None:
    """300 requests of four tenants in 300 s, then 150 of acme's instead of 75 beside 170 of the others' (1.07 times the work) or 140 (0.97 times)."""
    now = np.r_[np.ones(150, np.int64), np.resize([0, 2, 3], others)]
    tenant = np.r_[np.arange(300) % 4, np.random.default_rng(4).permutation(now)]
    n, late = len(tenant), np.arange(len(tenant)) >= 300
    start = np.r_[np.arange(300.0), 300.0 + np.linspace(0.0, 300.0, len(now), endpoint=False)]
    rows = requests(
        n,
        start_s=start,
        queue_ms=np.where(late & (np.arange(n) % 3 == 0), 4_000.0, 5.0),
        prefill_ms=100.0,
        decode_ms=500.0,
        input_tokens=500,
        tenant=[NAMES[k] for k in tenant],
    )
    assert [rule for rule in causes(run(rows, slo=E2E)) if rule == "noisy_tenant"] == named


@pytest.mark.parametrize(("others_wait", "cause"), [(True, "noisy_tenant"), (False, None)])
def test_a_tenant_that_sends_most_of_all_is_heard_where_the_others_wait_as_often(
    others_wait: bool, cause: str | None
) -> None:
    """One tenant sends four in five of the requests now, so most of the slow ones are its own: it counts whether others wait as often."""
    tenant = np.where(LATE & (np.arange(N) % 5 != 0), 1, np.arange(N) % 4)
    start = np.r_[np.arange(N // 2) * 1.0, N // 2 + np.arange(N - N // 2) * 0.25]
    waits = LATE & (np.arange(N) % 3 == 0) & (others_wait | (tenant == 1))
    rows = requests(
        N,
        start_s=start,
        queue_ms=np.where(waits, 4_000.0, 5.0),
        prefill_ms=100.0,
        decode_ms=500.0,
        input_tokens=500,
        tenant=[NAMES[k] for k in tenant],
    )
    found = run(rows, slo=E2E)
    assert (of(found, "noisy_tenant") is not None) == (cause is not None)
