"""Who spends the time: own time on the critical path, by operation, with calls a request and the shape of their durations."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.operations import Operations
from overrun.analysis.evidence.span_tree import Tree
from overrun.collector.normalise.stages import MODEL_STAGES

_TEXTS = ("host", "url", "method", "collection", "store", "model", "error_type", "depends_on")


def spans(*rows: dict[str, Any]) -> Tree:
    """A tree of rows with key, parent, start and duration in ms."""
    defaults: dict[str, Any] = {
        "trace": 1,
        "parent": None,
        "service": "app",
        "stage": "other",
        "role": "plain",
        "kind": "internal",
        "output_tokens": None,
        "ttft_ms": None,
        "http_status": None,
        **dict.fromkeys(_TEXTS),
    }
    full = [defaults | row for row in rows]
    return Tree(
        pl.DataFrame(
            {
                "trace_key": pl.Series([row["trace"] for row in full], dtype=pl.UInt64),
                "span_key": pl.Series([row["key"] for row in full], dtype=pl.UInt64),
                "parent_key": pl.Series([row["parent"] for row in full], dtype=pl.UInt64),
                "root": [row["parent"] is None for row in full],
                "start_s": [row["at"] / 1e3 for row in full],
                "duration_ms": [float(row["ms"]) for row in full],
                "name": [row["name"] for row in full],
                "ttft_ms": pl.Series([row["ttft_ms"] for row in full], dtype=pl.Float64),
                "output_tokens": pl.Series([row["output_tokens"] for row in full], dtype=pl.Int64),
                "http_status": pl.Series([row["http_status"] for row in full], dtype=pl.Int64),
                **{
                    name: [row[name] for row in full]
                    for name in ("service", "stage", "role", "kind")
                },
                **{
                    name: pl.Series([row[name] for row in full], dtype=pl.String) for name in _TEXTS
                },
            }
        )
    )


def one(trace: int, vendor_ms: float) -> list[dict[str, Any]]:
    """A request through a gateway that sends telemetry before it returns."""
    whole = 1_040.0 + vendor_ms
    http = {"method": "POST", "kind": "client", "stage": "network"}
    return [
        {
            "trace": trace,
            "key": 1,
            "name": "POST /ask",
            "at": 0,
            "ms": whole,
            "kind": "server",
            "role": "container",
        },
        {
            "trace": trace,
            "key": 2,
            "parent": 1,
            "name": "POST",
            "at": 10,
            "ms": whole - 20,
            "url": "http://gateway/v1/chat/completions",
            **http,
        },
        {
            "trace": trace,
            "key": 3,
            "parent": 2,
            "name": "POST /v1/chat/completions",
            "service": "gateway",
            "at": 15,
            "ms": whole - 30,
            "kind": "server",
            "role": "container",
        },
        {
            "trace": trace,
            "key": 4,
            "parent": 3,
            "name": "chat m",
            "service": "gateway",
            "at": 20,
            "ms": 1000,
            "role": "llm",
            "stage": "generation",
            "kind": "client",
            "output_tokens": 5,
        },
        {
            "trace": trace,
            "key": 5,
            "parent": 3,
            "name": "POST",
            "service": "gateway",
            "at": 1020,
            "ms": vendor_ms,
            "url": "https://api.honeycomb.io/1/batch/7731",
            **http,
        },
    ]


def test_time_is_exclusive_and_sums_to_the_request() -> None:
    found = Operations(spans(*one(1, 1500.0)), spans(*one(2, 10.0)))
    assert found.slow["own_ms"].sum() == pytest.approx(2_540.0)
    vendor, *others = found.all
    assert (vendor.label, vendor.purpose) == (
        "POST to api.honeycomb.io/{id}/batch/{id} in gateway",
        "vendor",
    )
    assert (vendor.slow_ms, vendor.usual_ms, vendor.calls, vendor.after_answer) == (
        1500.0,
        10.0,
        1.0,
        True,
    )
    # The call around it is on the way to the gateway: 10 ms of its own.
    [around] = [other for other in others if other.purpose == "hop"]
    assert around.slow_ms == pytest.approx(10.0)
    assert found.most("network") is vendor


def test_shape_tells_few_long_calls_from_all_longer_ones() -> None:
    few = [one(k, 3_500.0 if k % 20 == 0 else 100.0) for k in range(100)]
    usual = [one(k, 100.0) for k in range(200, 300)]
    found = Operations(
        spans(*(row for rows in few for row in rows)),
        spans(*(row for rows in usual for row in rows)),
    )
    assert "5 % of them take 3.50 s, the others 100 ms" in found.all[0].shape
    longer = Operations(spans(*one(1, 800.0)), spans(*one(2, 100.0)))
    assert (
        longer.all[0].shape == "1 a request (1 usually), 800 ms each at the median (100 ms usually)"
    )


def test_only_the_path_up_to_the_first_token_counts_where_that_is_judged() -> None:
    until = pl.DataFrame({"trace_key": [1], "until_ms": [520.0]}).cast({"trace_key": pl.UInt64})
    found = Operations(spans(*one(1, 1500.0)), spans(), until)
    assert found.slow["own_ms"].sum() == pytest.approx(520.0)
    assert set(found.slow["stage"]) & {*MODEL_STAGES} == {"generation"}
    assert "vendor" not in set(found.slow["purpose"])


@pytest.mark.parametrize(
    ("given", "purpose"),
    [
        ({"name": "INSERT", "role": "write", "stage": "post", "store": "postgresql"}, "write"),
        ({"name": "SELECT", "stage": "retrieval", "store": "postgresql"}, "read"),
        ({"name": "connect", "stage": "retrieval", "store": "postgresql"}, "pool"),
        ({"name": "pg-pool.connect", "stage": "retrieval", "store": "postgresql"}, "pool"),
        ({"name": "HikariDataSource.getConnection", "stage": "other", "store": "mysql"}, "pool"),
        ({"name": "SELECT connections", "stage": "retrieval", "store": "postgresql"}, "read"),
        (
            {
                "name": "SELECT",
                "stage": "retrieval",
                "store": "postgresql",
                "collection": "LiteLLM_VerificationToken",
            },
            "check",
        ),
        (
            {"name": "GET", "stage": "network", "method": "GET", "url": "http://keys/v1/quota/77"},
            "check",
        ),
        ({"name": "query", "stage": "retrieval", "store": "qdrant"}, "search"),
        ({"name": "embeddings text-embedding-3-small", "stage": "retrieval"}, "embedding"),
        ({"name": "cohere.rerank", "stage": "retrieval"}, "rerank"),
        ({"name": "moderation", "stage": "guardrail"}, "guardrail"),
        (
            {"name": "POST", "stage": "network", "method": "POST", "url": "http://weather/v1/now"},
            "http",
        ),
        (
            {
                "name": "POST",
                "stage": "network",
                "method": "POST",
                "host": "http-intake.logs.datadoghq.eu",
            },
            "vendor",
        ),
        (
            {
                "name": "POST",
                "stage": "network",
                "method": "POST",
                "url": "http://collector:4318/v1/traces",
            },
            "vendor",
        ),
        ({"name": "format", "stage": "post"}, "own"),
    ],
)
def test_purpose_follows_role_host_path_and_words(given: dict[str, Any], purpose: str) -> None:
    tree = spans(
        {"key": 1, "name": "POST /ask", "at": 0, "ms": 100, "kind": "server", "role": "container"},
        {"key": 2, "parent": 1, "at": 10, "ms": 70, "kind": "client", **given},
    )
    found = Operations(tree, tree)
    assert {one.purpose for one in found.all if one.slow_ms == 70.0} == {purpose}


def test_no_spans_are_no_operations() -> None:
    found = Operations(spans(), spans())
    assert found.all == []
    assert found.most("retrieval") is None
    assert np.size(found.spent("retrieval")) == 0
