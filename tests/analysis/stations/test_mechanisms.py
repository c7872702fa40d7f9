"""The table of mechanisms: it is read whole, no row is a default, and each refuter excludes its row by a figure."""

from typing import Any

import pytest

from overrun.analysis.stations.facts import NAMES
from overrun.analysis.stations.mechanisms import Row, advice_of, mechanism_of, table
from overrun.analysis.words.conditions import Fact, condition
from overrun.analysis.words.explanation import State

STATES = State.__args__  # type: ignore[attr-defined]
NOTHING: dict[str, Fact] = dict.fromkeys(NAMES) | {"which": "", "key": "none", "compared": True}
# Facts that a refuter needs beside those that make its row fit.
FIGURES: dict[str, Any] = {
    name: 1.0 for name in NAMES if name.endswith(("_now", "_before", "_ratio"))
}


def test_no_mechanism_fits_where_nothing_is_known_and_none_without_its_needs() -> None:
    for state in STATES:
        assert mechanism_of(NOTHING | {"state": state})[0] is None
    known = NOTHING | FIGURES | {name: False for name in NAMES if name.endswith(("_grew", "_fell"))}
    for state in STATES:
        assert (
            mechanism_of(known | {"state": state, "peers_free": False, "arrivals_first": False})[0]
            is None
        )


@pytest.mark.parametrize("row", table().mechanism, ids=lambda row: f"{row.id}: {row.needs[:40]}")
def test_each_row_has_a_state_a_refuter_a_step_and_a_sample(row: Row) -> None:
    assert set(row.states) <= set(STATES)
    assert row.refuted
    assert row.do
    assert row.samples
    assert 0.5 < row.most <= 0.9


# What makes a row fit, and for each of its refuters what excludes it.
CASES: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
    ("prefix_cache_lost", {"state": "more_work", "hit_rate_fell": True, "hit_rate_now": 0.1, "hit_rate_before": 0.8},
     [{"hit_rate_before": 0.05, "hit_rate_now": 0.01}, {"cached_tokens_each_ratio": 1.0}]),
    ("speculation_not_paying", {"state": "slower", "drafts_accepted_fell": True, "drafts_accepted_now": 0.2, "drafts_accepted_before": 0.8},
     [{"clock_hz_fell": True}, {"output_tokens_each_ratio": 2.0}]),
    ("prompt_bloat", {"state": "more_work", "prompt_tokens_each_grew": True, "prompt_tokens_each_ratio": 2.0},
     [{"new_tokens_each_ratio": 1.0}, {"which": "output tokens"}]),
    ("long_outputs", {"state": "more_work", "output_tokens_each_grew": True, "output_tokens_each_ratio": 2.0},
     [{"token_s_ratio": 3.0}, {"output_tokens_fell": True}]),
    ("gpu_throttled", {"state": "slower", "clock_hz_fell": True, "clock_hz_now": 1e9, "clock_hz_before": 2e9},
     [{"gpu_util_now": 0.1, "gpu_util_before": 0.9}, {"running_now": 1.0, "running_before": 9.0}]),
    ("kv_pressure", {"state": "at_ceiling", "preemptions_each_now": 0.5, "preemptions_each_before": 0.0},
     [{"kv_high": 0.4}, {"key": "kv_cut"}]),
    ("routing_imbalance", {"state": "held_back", "key": "routing", "peers_free": True}, []),
    ("straggler_replica", {"state": "slower", "key": "peer"}, [{"peer_work_ratio": 1.3}]),
    ("slow_dependency", {"state": "held_back", "key": "transfer"}, [{"kv_now": 0.95}]),
    ("kv_connector_holds", {"state": "held_back", "restarted": True, "new_connector": True},
     [{"kv_now": 0.95}, {"arrivals_first": True, "arrivals_ratio": 2.0}]),
    ("too_few_seats", {"state": "at_ceiling", "key": "seats_cut"}, [{"kv_now": 0.95}]),
    ("under_capacity", {"state": "at_ceiling", "key": "demand", "arrivals_first": True, "arrivals_ratio": 2.0},
     [{"peers_free": True}, {"output_tokens_ratio": 0.5}]),
    ("batch_past_knee", {"state": "normal", "running_ratio": 4.0, "token_s_ratio": 3.0, "output_tokens_ratio": 1.3},
     [{"clock_hz_fell": True}, {"new_tokens_each_ratio": 2.0}]),
    ("token_process", {"state": "at_ceiling", "key": "scheduler"}, [{"kv_now": 0.95}]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fits", "against"), CASES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_row_fits_by_its_needs_and_is_excluded_by_each_refuter(
    name: str, fits: dict[str, Any], against: list[dict[str, Any]]
) -> None:
    made, refuted, row = mechanism_of(NOTHING | fits)
    assert made is not None
    assert row is not None
    assert (made.id, refuted) == (name, [])
    # Nothing could be tried: it stays at one half, and what would decide it is listed.
    tried = [
        one for one in row.refuted if condition(one.when, NAMES).holds(NOTHING | fits) is not None
    ]
    assert made.confidence == pytest.approx(
        min(0.5 + 0.4 * len(tried) / len(row.refuted), row.most)
    )
    for facts in against:
        _, refuted, _ = mechanism_of(NOTHING | fits | facts)
        assert name in [one.id for one in refuted]


def test_advice_is_gated_by_arithmetic() -> None:
    facts = NOTHING | {"state": "slower", "key": "peer", "which": "gpu-1"}
    _, _, row = mechanism_of(facts)
    assert "Restart gpu-1" in advice_of(facts, row, None).do[0]
    assert (
        "Take gpu-1 out of rotation" in advice_of(facts | {"room_without": True}, row, None).do[0]
    )
    held = NOTHING | {"state": "held_back", "key": "held", "peers_free": False}
    made = advice_of(held, None, "Undo it.")
    assert (made.do, made.undo) == ([], "Undo it.")
    assert made.look
    assert made.avoid == [
        "More replicas, refusals or a larger cache: requests wait beside what is free."
    ]
