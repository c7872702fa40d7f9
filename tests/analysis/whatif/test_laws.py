"""Laws that every fix obeys whatever the figures: what changes nothing changes nothing, and more of a good thing is never worse."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from overrun.analysis.simulator.engine import Setup
from overrun.analysis.whatif import catalogue
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Prediction
from tests.analysis.whatif.builders import calls, facts_of, requests_of
from tests.analysis.whatif.recording import arrivals, recorded


@pytest.fixture(scope="module")
def engine() -> Facts:
    """One engine near its capacity with few KV blocks, two tenants, a tenth of each answer reasoning; a rough calibration does for laws."""
    came = arrivals(250, rate=8.0, seed=6)
    facts = recorded(
        came,
        Setup(kv_tokens=20_000),
        tenant=["big" if k % 4 else "small" for k in range(250)],
        reasoning_tokens=came.output_tokens // 10,
    )
    facts.effort = 0.3
    _ = facts.engines
    return facts


@pytest.fixture(scope="module")
def client() -> Facts:
    """What a client alone sees."""
    rng = np.random.default_rng(7)
    first, rest = rng.lognormal(6.0, 0.5, 400), rng.lognormal(7.0, 0.4, 400)
    made = calls(
        400, ttft_ms=first, e2e_ms=first + rest, output_tokens=(rest / 20.0).astype(int) + 2
    )
    spent = rng.lognormal(5.0, 0.8, 400)
    return facts_of(
        made,
        percentile=95.0,
        requests=requests_of(
            made, retrieval_ms=spent, ttft_retrieval_ms=spent, e2e_ms=first + rest + spent
        ),
    )


def ask(facts: Facts, fix: str, parameters: Mapping[str, Any]) -> Prediction:
    answer = catalogue.ask(facts, fix, {name: str(value) for name, value in parameters.items()})
    assert answer.predicted is not None, answer.reasons
    return answer


NOTHING = [
    ("cap", {"max_tokens": 10_000_000}),
    ("context_limit", {"max_input_tokens": 10_000_000}),
    ("prefix_cache", {"hit_ratio": 0.0}),
    ("replicas", {"replicas": 1}),
    ("load", {"factor": 1.0}),
    ("kv_size", {"factor": 1.0}),
    ("hardware", {"time_factor": 1.0}),
    ("quantisation", {"step_factor": 1.0}),
    ("max_sequences", {"sequences": 100_000}),
    ("tenant_quota", {"share_ratio": 1.0}),
    ("step_cap", {"steps": 50}),
    ("speculation", {"accepted_length": 1.0, "draft_cost_ratio": 0.0}),
]


@pytest.mark.parametrize(("fix", "parameters"), NOTHING, ids=[fix for fix, _ in NOTHING])
def test_a_fix_that_changes_nothing_says_so(
    engine: Facts, fix: str, parameters: dict[str, Any]
) -> None:
    answer = ask(engine, fix, parameters)
    assert answer.predicted is not None
    assert answer.predicted.after == pytest.approx(answer.predicted.before, rel=1e-9)
    assert answer.predicted.touched_ratio == 0.0
    assert answer.goodput_after == pytest.approx(answer.goodput_before)
    assert "gains nothing here" in answer.reasons["touched"]


NOTHING_CLIENT = [
    ("clip", {"stage": "retrieval", "limit_ms": 1e8}),
    ("clip", {"stage": "tool", "limit_ms": 0}),
    ("hedging", {"delay_ms": 1e8}),
    ("timeout_fallback", {"timeout_ms": 1e8, "fallback_ms": 10}),
    ("cap", {"max_tokens": 10_000_000}),
    ("context_limit", {"max_input_tokens": 10_000_000}),
]


@pytest.mark.parametrize(
    ("fix", "parameters"), NOTHING_CLIENT, ids=[fix for fix, _ in NOTHING_CLIENT]
)
def test_so_it_does_where_a_client_alone_is_seen(
    client: Facts, fix: str, parameters: dict[str, Any]
) -> None:
    answer = ask(client, fix, parameters)
    assert answer.predicted is not None
    assert (answer.predicted.after, answer.predicted.touched_ratio) == (
        answer.predicted.before,
        0.0,
    )
    assert "gains nothing here" in answer.reasons["touched"]
    assert answer.method in ("exact", "resampled")


# Values of a parameter from the least help to the most. Batches shift with every change, so that a step to the better may cost a per cent or two.
MONOTONE = [
    ("cap", "max_tokens", (1000, 400, 200, 100, 20), {}),
    ("context_limit", "max_input_tokens", (8000, 2000, 1000, 300), {}),
    ("prompt_trim", "ratio", (0.1, 0.3, 0.6, 0.9), {}),
    ("prefix_cache", "hit_ratio", (0.1, 0.3, 0.6, 0.9), {}),
    ("replicas", "replicas", (1, 2, 4, 8), {}),
    ("replicas", "replicas", (1, 2, 4, 8), {"router": "round_robin"}),
    ("load", "factor", (1.5, 1.2, 1.0, 0.8, 0.5), {}),
    ("kv_size", "factor", (0.7, 1.0, 1.5, 4.0), {}),
    ("hardware", "time_factor", (1.5, 1.0, 0.7, 0.4), {}),
    ("reasoning_effort", "factor", (0.9, 0.5, 0.0), {}),
    ("max_sequences", "sequences", (2, 4, 8), {}),
]


@pytest.mark.parametrize(
    ("fix", "parameter", "values", "others"),
    MONOTONE,
    ids=[f"{fix}-{k}" for k, (fix, *_) in enumerate(MONOTONE)],
)
def test_more_of_a_fix_is_never_worse(
    engine: Facts, fix: str, parameter: str, values: tuple[float, ...], others: dict[str, Any]
) -> None:
    found = [ask(engine, fix, {parameter: value} | others).predicted for value in values]
    after = np.array([one.after for one in found if one is not None])
    assert (after[1:] <= after[:-1] * 1.03).all(), after


@pytest.mark.parametrize(
    ("fix", "parameter", "values", "others"),
    [
        ("clip", "limit_ms", (1000, 300, 100, 0), {"stage": "retrieval"}),
        ("timeout_fallback", "timeout_ms", (9000, 3000, 1000, 100), {"fallback_ms": 50}),
        ("cap", "max_tokens", (200, 100, 50, 10), {}),
    ],
)
def test_exact_fixes_are_monotone_without_tolerance(
    client: Facts, fix: str, parameter: str, values: tuple[float, ...], others: dict[str, Any]
) -> None:
    found = [ask(client, fix, {parameter: value} | others).predicted for value in values]
    after = [one.after for one in found if one is not None]
    assert after == sorted(after, reverse=True)


def test_settings_that_the_recording_ran_with_are_not_outside_of_it(engine: Facts) -> None:
    [made], _ = engine.engines

    def width(budget: int) -> float:
        answer = ask(
            engine,
            "chunked_prefill",
            {"token_budget": budget, "enabled": not made.setup.prefill_first},
        )
        assert answer.predicted is not None
        assert answer.predicted.interval is not None
        return float(np.log(answer.predicted.interval[1] / answer.predicted.interval[0]))

    assert width(made.setup.token_budget) < 0.97 * width(2 * made.setup.token_budget)


@pytest.mark.parametrize(
    ("fix", "parameters", "said"),
    [
        ("eject", {}, "one replica was seen"),
        ("tenant_quota", {"tenant": "bigg"}, "nearest known is 'big'"),
        (
            "route_models",
            {"route": "/chatt", "first_factor": 1, "token_factor": 1},
            "nearest known is '/chat'",
        ),
        ("second_provider", {"provider": "b"}, "no call names a provider"),
    ],
)
def test_an_unknown_name_is_told_beside_the_known_ones(
    engine: Facts, fix: str, parameters: dict[str, Any], said: str
) -> None:
    assert (
        said
        in catalogue.ask(
            engine, fix, {name: str(value) for name, value in parameters.items()}
        ).reasons["predicted"]
    )
