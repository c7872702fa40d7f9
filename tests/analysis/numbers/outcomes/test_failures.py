"""Accounts of failed, abandoned, truncated and repeated work against hand-counted stores."""

import duckdb
import pytest

from overrun.analysis.numbers.outcomes.failures import abandoned, errors, retries
from overrun.analysis.numbers.window import Window
from tests.analysis.builders import T0_NS, frame_of, requests, store

KINDS = (
    [None] * 80
    + ["asyncio.CancelledError"] * 6
    + ["APIConnectionAborted"] * 4
    + ["RateLimitError"] * 10
)


def test_clients_that_gave_up_are_told_from_errors_with_how_long_they_waited() -> None:
    rows = frame_of(
        requests(
            100,
            prefill_ms=[100.0] * 80 + [9_000.0] * 10 + [50.0] * 10,
            error=[k is not None for k in KINDS],
            error_type=KINDS,
        )
    ).rows
    found = errors(rows)
    assert (found.ratio, found.abandoned_ratio, found.abandoned_after_ms) == (0.2, 0.1, 9_000.0)
    assert found.error_types == {
        "RateLimitError": 10,
        "asyncio.CancelledError": 6,
        "APIConnectionAborted": 4,
    }
    assert abandoned(rows).sum() == 10


@pytest.mark.parametrize("kind", [None, "499"])
def test_a_request_that_its_client_closed_is_no_unnamed_error(kind: str | None) -> None:
    rows = frame_of(
        requests(
            100,
            prefill_ms=1.0,
            error=[True] * 9 + [False] * 91,
            http_status=[499] * 8 + [500] + [200] * 91,
            error_type=[kind] * 8 + [None] * 92,
        )
    ).rows
    found = errors(rows)
    assert (found.ratio, found.abandoned_ratio, found.error_types) == (
        0.09,
        0.08,
        {"client closed request": 8},
    )


def test_errors_without_a_type_leave_abandonment_unknown() -> None:
    found = errors(frame_of(requests(100, prefill_ms=1.0, error=[True] * 9 + [False] * 91)).rows)
    assert (found.ratio, found.abandoned_ratio) == (0.09, None)
    assert "9 of 9" in found.reasons["abandoned_ratio"]


def test_no_failure_is_no_abandonment() -> None:
    assert errors(frame_of(requests(50, prefill_ms=1.0)).rows).abandoned_ratio == 0.0


def call(
    con: duckdb.DuckDBPyConnection,
    trace: int,
    start_s: float,
    ms: float,
    *,
    error: str | None = None,
    attempts: int | None = None,
) -> None:
    con.execute(
        """insert into llm_calls by name select $trace::ubigint as trace_hi, 1::ubigint as trace_lo, (random() * 1e15)::ubigint as span_id, true as on_path,
           $start as start_ns, $ns as duration_ns, 'chat' as service, 'm' as model, 0::utinyint as ttft_source, $error is not null as error,
           $error as error_type, $attempts::integer as attempts, 10::bigint as input_tokens""",
        {
            "trace": trace,
            "start": T0_NS + int(start_s * 1e9),
            "ns": int(ms * 1e6),
            "error": error,
            "attempts": attempts,
        },
    )


def test_failed_calls_that_a_later_call_replaced_are_wasted() -> None:
    con = store()
    call(con, 1, 0.0, 700.0, error="RateLimitError", attempts=1)
    call(con, 1, 1.0, 900.0, attempts=1)
    call(con, 2, 0.0, 5_000.0, error="APITimeoutError", attempts=1)
    call(con, 2, 6.0, 800.0, attempts=1)
    call(
        con, 3, 0.0, 400.0, error="BadRequestError", attempts=1
    )  # never tried again: an error, not a wasted attempt
    found = retries(con, Window())
    assert (
        found.attempts,
        found.wasted_ms,
        found.wasted_tokens,
        found.on_slow,
        found.on_error,
    ) == (5, 5_700.0, 20, 1, 1)
    assert found.reasons == {}


def test_attempts_that_a_client_hides_are_unknown_and_not_zero() -> None:
    con = store()
    call(con, 1, 0.0, 700.0)
    found = retries(con, Window())
    assert (found.attempts, found.wasted_ms, found.on_slow) == (None, None, None)
    call(con, 2, 0.0, 700.0, attempts=3)
    counted = retries(con, Window())
    assert (counted.attempts, counted.wasted_ms) == (3, None)
    assert "2 further attempts" in counted.reasons["wasted_ms"]


def test_attempts_inside_a_call_cost_what_is_known_of_them() -> None:
    con = store()
    call(con, 1, 0.0, 700.0, attempts=2)
    call(con, 2, 0.0, 700.0, attempts=3)
    con.execute(
        "update llm_calls set wasted_ns = 127_000_000, wasted_tokens = 0, retry_cause = 'error' where attempts = 2"
    )
    con.execute(
        "update llm_calls set wasted_ns = 5_000_000_000, wasted_tokens = 40, retry_cause = 'slow' where attempts = 3"
    )
    found = retries(con, Window())
    assert (
        found.attempts,
        found.wasted_ms,
        found.wasted_tokens,
        found.on_slow,
        found.on_error,
    ) == (5, 5_127.0, 40, 2, 1)
    assert not found.reasons


@pytest.mark.parametrize("field", ["attempts", "wasted_ms", "wasted_tokens", "on_slow", "on_error"])
def test_no_call_gives_reasons(field: str) -> None:
    assert field in retries(store(), Window()).reasons
