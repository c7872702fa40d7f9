"""Every verdict on something that is wrong says who acts, what is safe to do at once and how to undo it, also where no cause has a name."""

import numpy as np
import pytest

from overrun.analysis.diagnosis.mitigation import owner_of_errors, stopgap
from overrun.analysis.diagnosis.verdict import Verdict
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import run


def complete(verdict: Verdict) -> bool:
    return None not in (
        verdict.owner,
        verdict.mitigation,
        verdict.rollback,
        verdict.recheck_after_s,
    )


def test_a_verdict_without_a_cause_still_says_what_is_safe_to_do_now() -> None:
    slow = np.where(np.arange(400) % 5 == 0, 9_000.0, 100.0)
    found = run(
        requests(400, prefill_ms=10.0, ttft_ms=10.0, decode_ms=slow, output_tokens=None),
        baseline="none",
    )
    assert (found.verdict.status, found.verdict.cause) == ("over_budget", None)
    assert complete(found.verdict), found.verdict.reasons


def test_what_clients_alone_see_is_for_the_provider_to_mend() -> None:
    slow = np.where(np.arange(400) % 5 == 0, 9_000.0, 100.0)
    found = run(
        requests(
            400,
            first_token_ms=10.0,
            ttft_first_token_ms=10.0,
            ttft_ms=10.0,
            decode_ms=slow,
            output_tokens=None,
        ),
        baseline="none",
    )
    assert (found.verdict.cause, found.verdict.stage, found.verdict.owner) == (
        None,
        "decode",
        "provider",
    )
    assert "another deployment" in (found.verdict.mitigation or "")


@pytest.mark.parametrize(
    ("error", "owner"),
    [
        ("503", "platform"),
        ("RateLimitError", "platform"),
        ("400", "app"),
        ("AuthenticationError", "app"),
        ("Weird", None),
    ],
)
def test_errors_are_for_who_made_them_and_latency_within_its_limit_is_ruled_out(
    error: str, owner: str | None
) -> None:
    failing = np.arange(400) % 3 == 0
    found = run(
        requests(
            400,
            prefill_ms=10.0,
            ttft_ms=10.0,
            decode_ms=100.0,
            error=failing,
            error_type=[error if bad else None for bad in failing],
        )
    )
    assert found.verdict.status == "failing"
    assert found.verdict.owner == owner
    assert ("owner" in found.verdict.reasons) is (owner is None)
    told = {out.what: out.figure for out in found.verdict.ruled_out}
    assert told["e2e"] == "P95 of 266 answered requests is 110 ms of 2.50 s allowed"


def test_errors_of_a_far_side_are_the_providers() -> None:
    assert owner_of_errors("429 Too Many Requests", own_engines=False) == "provider"
    assert owner_of_errors("429", own_engines=True) == "platform"
    assert owner_of_errors("404", own_engines=False) == "app"
    assert owner_of_errors(None, own_engines=False) is None


def test_a_step_for_each_owner_can_be_undone() -> None:
    for stage, owner in (
        ("decode", "platform"),
        ("first_token", "provider"),
        ("retrieval", "app"),
        ("other", "app"),
    ):
        step, undo = stopgap(stage, owner, [])  # type: ignore[arg-type]
        assert step.endswith(".")
        assert undo.endswith(".")
