"""A synthetic store of any size for the analysis benchmark: requests, calls, spans and gauges written as SQL into the collector's own schema.

One request a trace: a SERVER root with retrieval, prompt, guardrail, model call and engine phases (10 spans). Ten percent are slow in retrieval in
the last third of the time, so that a report has something to find. The rows are what assembly would have made; ingest
would take hours at 10 M spans.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from overrun.collector.store.database import open_store
from overrun.collector.store.store import Store

END = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SPANS_A_REQUEST = 10
_STAGES = (
    "network",
    "gateway",
    "retrieval",
    "prompt",
    "guardrail",
    "queue",
    "kv_transfer",
    "prefill",
    "decode",
    "tool",
    "post",
    "wait_user",
    "other",
    "first_token",
    "generation",
)
_TAKES = {
    "network": 12,
    "retrieval": 80,
    "prompt": 5,
    "guardrail": 20,
    "queue": 30,
    "prefill": 150,
    "decode": 900,
    "post": 8,
    "other": 10,
}
_BEFORE_TOKEN = ("network", "retrieval", "prompt", "guardrail", "queue", "prefill", "other")


def make(
    path: Path, requests: int, days: float, *, spans: bool = True, calls: bool | None = None
) -> Store:
    """Create the store with `requests` spread evenly over `days` before END; without `spans`, what rollups need and no more, and model calls where these are
    asked for."""
    store = open_store(path, create=True, memory_limit="4GB")
    con = store.connection
    first_ns = int((END - timedelta(days=days)).timestamp()) * 10**9
    step_ns = int(days * 86_400e9 / requests)
    con.execute("select setseed(0.5)")
    con.execute(
        f"""create temp table drawn as
        select i, {first_ns} + i * {step_ns} as start_ns, 1 + (random() * 400)::int as tokens, (random() * 3)::int as version, {_drawn(requests)}
        from range({requests}) t(i)"""
    )
    _requests(con)
    if spans if calls is None else calls:
        _calls(con)
    if spans:
        _spans(con)
    con.execute("drop table drawn")
    con.execute("checkpoint")
    return store


def _drawn(requests: int) -> str:
    """Nanoseconds per stage, lognormal by Box-Muller; retrieval of a tenth is thirty times slower in the last third of the time."""
    normal = "sqrt(-2.0 * ln(1.0 - random())) * cos(2.0 * pi() * random())"
    slow = f"case when i % 10 = 0 and i > {requests * 2 // 3} then 30 else 1 end"
    return ", ".join(
        f"(exp(0.4 * {normal}) * {ms} * 1e6 * {slow if name == 'retrieval' else 1})::bigint as {name}_ns"
        for name, ms in _TAKES.items()
    )


def _requests(con: duckdb.DuckDBPyConnection) -> None:
    stages = ", ".join(f"{name}_ns" if name in _TAKES else f"0 as {name}_ns" for name in _STAGES)
    ttft = ", ".join(
        f"{name}_ns as ttft_{name}_ns" if name in _BEFORE_TOKEN else f"0 as ttft_{name}_ns"
        for name in _STAGES
    )
    first = " + ".join(f"{name}_ns" for name in _BEFORE_TOKEN)
    con.execute(
        f"""insert into requests by name
        select 7::ubigint as trace_hi, i::ubigint as trace_lo, 1::ubigint as root_span_id, start_ns, {" + ".join(f"{n}_ns" for n in _TAKES)} as e2e_ns,
            'shop' as service, 'pod-' || (i % 5) as instance, 'v' || version as version, '/chat/' || (i % 4) as route, 'POST /chat' as name,
            'm-' || (i % 2) as model, 'openai' as provider, 'tenant-' || (i % 50) as tenant, i % 211 = 0 as error,
            case when i % 211 = 0 then 'APIError' end as error_type,
            true as complete, true as server_root, false as engine_only, {first} as ttft_ns, 1::utinyint as ttft_source, {first} as first_model_token_ns,
            decode_ns / tokens::double as tpot_ns, 500 as input_tokens, tokens as output_tokens, 1::int as llm_calls, 0::int as tool_calls,
            {SPANS_A_REQUEST} as spans, 0 as inferred_ns, 0 as clipped_spans, 0 as skewed_spans, false as truncated, {stages}, {ttft}
        from drawn"""
    )


def _calls(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(
        """insert into llm_calls by name
        select 7::ubigint as trace_hi, i::ubigint as trace_lo, 2::ubigint as span_id, 3::ubigint as engine_span_id, true as on_path, start_ns,
            queue_ns + prefill_ns + decode_ns as duration_ns, 'shop' as service, '/chat/' || (i % 4) as route, 'm-' || (i % 2) as model, 'openai' as provider,
            500 as input_tokens, tokens as output_tokens, queue_ns + prefill_ns as ttft_ns, 1::utinyint as ttft_source, queue_ns + prefill_ns as ttft_client_ns,
            queue_ns, prefill_ns, decode_ns, decode_ns / tokens::double as tpot_ns, i % 211 = 0 as error
        from drawn"""
    )


def _spans(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(
        """insert into shapes by name select k::int as shape, 1::ubigint as source_id, 1::utinyint as kind, 0::utinyint as status, 0::uinteger as flags,
               [12, 2, 3, 4, 12, 5, 7, 8, 10, 0][k + 1]::utinyint as stage, 0::utinyint as role, 'openai' as provider, []::varchar[] as keys
           from range(10) t(k)"""
    )
    con.execute(
        f"""insert into spans by name
        select i * {SPANS_A_REQUEST} + k as seq, 7::ubigint as trace_hi, i::ubigint as trace_lo, (k + 1)::ubigint as span_id, (k > 0)::ubigint as parent_id,
            start_ns + k * 1000000 as start_ns, 10000000 as duration_ns, 'step ' || k as name, k::int as shape
        from drawn, range({SPANS_A_REQUEST}) t(k)"""
    )
    con.execute(
        """insert into sources by name select 1::ubigint as source_id, 'shop' as service, '' as scope_name, '' as scope_version, map {} as resource_attributes,
           map {} as scope_attributes, '' as resource_schema_url, '' as scope_schema_url"""
    )
