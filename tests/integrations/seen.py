"""What did a sender's telemetry become? One sentence of figures, the same for a live run and for a recording."""

from __future__ import annotations

from typing import Any

STAGES = (
    *(
        "network",
        "gateway",
        "retrieval",
        "prompt",
        "guardrail",
        "queue",
        "prefill",
        "decode",
        "tool",
    ),
    *("post", "wait_user", "first_token", "generation", "other"),
)
_CALLS = """
select count(*), count(output_tokens), count(ttft_ms), string_agg(distinct model, ', ' order by model)
from v_llm_calls where trace_id in (select trace_id from v_spans where service = $service)
"""
_REQUESTS = """
select count(*), string_agg(distinct route, ', ' order by route)
from v_requests where trace_id in (select trace_id from v_spans where service = $service)
"""
_STAGES = """
select stage from (
    select {sums} from v_requests where trace_id in (select trace_id from v_spans where service = $service)
) unpivot (ms for stage in ({names})) where ms > 0
"""


def seen(cursor: Any, service: str) -> str:
    """The sentence: requests with their routes, model calls with what they carry, and spans by stage."""
    asked = {"service": service}
    requests, routes = cursor.execute(_REQUESTS, asked).fetchone()
    calls, tokens, ttft, models = cursor.execute(_CALLS, asked).fetchone()
    sums = ", ".join(f"sum({stage}_ms) as {stage}" for stage in STAGES)
    stages = cursor.execute(_STAGES.format(sums=sums, names=", ".join(STAGES)), asked).fetchall()
    parts = [f"{requests} requests" + (f" of `{routes}`" if routes else " without a route")]
    of = f" of `{models}`" if models else " without a model's name"
    parts.append(f"{calls} model calls{of}, {tokens} with tokens, {ttft} with TTFT")
    parts.append("time in " + ", ".join(stage for (stage,) in stages))
    return "; ".join(parts) + "."
