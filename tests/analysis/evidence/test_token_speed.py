"""What of the decode in slow requests is length and what is speed? A planner writes before the first token that a user sees."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.token_speed import decode_parts

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
N = 20


def side(*, token_ms: float, plan: int, thought: int) -> tuple[pl.DataFrame, Calls]:
    """Requests of a plan and an answer of 300 tokens: the first token comes 100 ms after plan and thought were written at `token_ms` a token."""
    written = (plan + thought) * token_ms
    rows = pl.DataFrame(
        {
            "trace_key": range(N),
            "start_us": [int(ORIGIN.timestamp() * 1e6)] * N,
            "ttft_ms": [written + 100.0] * N,
            "ttft_decode_ms": [written] * N,
            "output_tokens": [plan + 300] * N,
        }
    )
    calls = [
        {
            "trace_key": key,
            "start_s": 0.0,
            "e2e_ms": plan * token_ms,
            "output_tokens": plan,
            "reasoning_tokens": None,
        }
        for key in range(N)
    ]
    calls += [
        {
            "trace_key": key,
            "start_s": plan * token_ms / 1e3,
            "e2e_ms": 9_000.0,
            "output_tokens": 300,
            "reasoning_tokens": thought,
        }
        for key in range(N)
    ]
    return rows, Calls(pl.DataFrame(calls, schema_overrides={"reasoning_tokens": pl.Int64}))


def case(slow: tuple[pl.DataFrame, Calls], usual: tuple[pl.DataFrame, Calls]) -> Any:
    return SimpleNamespace(
        times=SimpleNamespace(path="ttft"),
        origin=ORIGIN,
        slow=slow[0],
        slow_calls=slow[1],
        reference=usual[0],
        usual_calls=usual[1],
    )


def test_a_plan_that_is_written_more_slowly_is_speed_whatever_some_calls_think() -> None:
    parts = decode_parts(
        case(side(token_ms=40.0, plan=100, thought=6), side(token_ms=20.0, plan=100, thought=1))
    )
    assert parts == pytest.approx({"length": 5 * 20.0, "speed": 106 * 20.0})


def test_a_longer_plan_and_more_thought_are_length() -> None:
    parts = decode_parts(
        case(side(token_ms=20.0, plan=150, thought=50), side(token_ms=20.0, plan=80, thought=20))
    )
    assert parts == pytest.approx({"length": 100 * 20.0, "speed": 0.0})
