"""Small real stores for tests: DuckDB with the collector's own schema and views, and rows with sensible defaults."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

from overrun.analysis.numbers.stages.budget import STAGES
from overrun.analysis.numbers.window import RequestFrame, Window, load
from overrun.collector.normalise.stages import ROLE, STAGE
from tests.conftest import empty_store

ROOT = Path(__file__).parents[2]
T0 = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
T0_NS = int(T0.timestamp()) * 1_000_000_000
TTFT_SOURCE = {"none": 0, "attribute": 1, "event": 2, "engine": 3}

_ZERO = {f"{stage}_ns": 0 for stage in (*STAGES, "wait_user")}
_DEFAULTS: dict[str, Any] = {
    "root_span_id": 1,
    "service": "chat",
    "name": "POST /chat",
    "route": "/chat",
    "model": "m",
    "error": False,
    "complete": True,
    "server_root": True,
    "engine_only": False,
    "ttft_source": 1,
    "llm_calls": 1,
    "tool_calls": 0,
    "spans": 3,
    "inferred_ns": 0,
    "clipped_spans": 0,
    "skewed_spans": 0,
    "output_tokens": 100,
    "input_tokens": 500,
} | _ZERO


def store() -> duckdb.DuckDBPyConnection:
    """Return an empty in-memory store with the collector's schema and views: one that nobody holds any more, emptied, which takes a twentieth of making one."""
    return _taken()[0]


@contextmanager
def lent_store() -> Iterator[duckdb.DuckDBPyConnection]:
    """As `store`, and closed at the end, whoever holds it: what a report holds in a circle would keep its store until garbage is collected."""
    con, given_back = _taken()
    try:
        yield con
    finally:
        con.close()
        given_back()


def _taken() -> tuple[duckdb.DuckDBPyConnection, Callable[[], object]]:
    made = _unused.pop() if _unused else _new_store()
    for (table,) in made.execute(
        "select table_name from duckdb_tables() where database_name = 'memory' and estimated_size > 0"
    ).fetchall():
        made.execute(f"truncate {table}")
    made.execute("insert into meta from meta_at_first")
    con = made.cursor()
    return con, weakref.finalize(con, _unused.append, made)


_unused: list[duckdb.DuckDBPyConnection] = []


def _new_store() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config={"asof_loop_join_threshold": 0})
    con.execute(f"attach '{empty_store()}' as empty (read_only)")
    con.execute("copy from database empty to memory")
    con.execute("create temp table meta_at_first as from meta")
    con.execute("detach empty")
    return con


def requests(n: int, *, every_s: float = 1.0, **columns: Any) -> pl.DataFrame:
    """Return n rows of the `requests` table; a column is one value for all rows or a sequence of n.

    Stages are given in ms as `<stage>_ms` (and `ttft_<stage>_ms`); e2e is their sum unless given as `e2e_ms`, and so is
    ttft where a `ttft_<stage>_ms` is given. Starts are `every_s` apart unless given as `start_s` after T0.
    """
    start_s = _spread(columns.pop("start_s", np.arange(n) * every_s), n)
    data: dict[str, Any] = dict(_DEFAULTS) | {"trace_hi": 1, "trace_lo": np.arange(1, n + 1)}
    data["start_ns"] = T0_NS + (start_s * 1e9).astype(np.int64)
    for name, value in columns.items():
        if name.endswith("_ms"):
            data[name.removesuffix("_ms") + "_ns"] = _nanoseconds(value, n)
        else:
            data[name] = value
    if "e2e_ns" not in data:
        data["e2e_ns"] = sum(_spread(data[f"{stage}_ns"], n) for stage in STAGES)
    on_path = [
        _spread(data[f"ttft_{stage}_ns"], n) for stage in STAGES if f"ttft_{stage}_ns" in data
    ]
    if on_path and "ttft_ns" not in data:
        data["ttft_ns"] = sum(on_path)
    filled = {name: value if _is_sequence(value) else [value] * n for name, value in data.items()}
    return pl.DataFrame(
        {name: pl.Series(name, value, strict=False) for name, value in filled.items()}
    )


def insert(con: duckdb.DuckDBPyConnection, *frames: pl.DataFrame) -> None:
    """Insert request rows; ids are made unique over all frames."""
    for number, frame in enumerate(frames, start=1):
        rows = frame.with_columns(trace_hi=pl.lit(number, pl.UInt64))
        con.execute("insert into requests by name select * from rows")
        del rows


def calls_of(frame: pl.DataFrame, **columns: Any) -> pl.DataFrame:
    """Return rows of `llm_calls`: one call per request row, with the request's model stages; columns given replace those."""

    def ms(stage: str) -> pl.Expr:
        return (
            pl.col(f"{stage}_ns").cast(pl.Int64)
            if f"{stage}_ns" in frame.columns
            else pl.lit(0, pl.Int64)
        )

    engine = ms("queue") + ms("prefill") > 0
    model = sum(
        (
            ms(stage)
            for stage in (
                *("prefill", "decode", "first_token", "generation", "kv_transfer", "network"),
            )
        ),
        ms("queue"),
    )
    optional = [
        c
        for c in (
            *("tpot_ns", "itl_ns", "itl_max_ns", "cached_tokens", "reasoning_tokens"),
            *("max_tokens", "tenant", "session", "instance", "provider"),
        )
        if c in frame.columns
    ]
    first = pl.when(ms("first_token") > 0).then(ms("first_token"))
    rows = frame.select(
        "trace_lo",
        "service",
        "route",
        "model",
        "error",
        "input_tokens",
        "output_tokens",
        *optional,
        span_id=pl.int_range(pl.len(), dtype=pl.UInt64) + 1,
        on_path=pl.lit(True),
        start_ns=pl.col("start_ns") + pl.col("e2e_ns") - model,
        duration_ns=model,
        engine_instance=pl.when(engine).then(pl.lit("gpu-0")),
        queue_ns=pl.when(engine).then(ms("queue")),
        prefill_ns=pl.when(engine).then(ms("prefill")),
        decode_ns=pl.when(engine).then(ms("decode")),
        ttft_ns=pl.when(engine).then(ms("queue") + ms("prefill")).otherwise(first),
        ttft_source=pl.when(engine).then(3).otherwise(1),
    )
    for name, value in columns.items():
        known = _nanoseconds(value, frame.height) if name.endswith("_ms") else value
        column = name.removesuffix("_ms") + "_ns" if name.endswith("_ms") else name
        filled = known if _is_sequence(known) else [known] * frame.height
        rows = rows.with_columns(pl.Series(column, filled, strict=False))
    return rows


def insert_calls(con: duckdb.DuckDBPyConnection, *frames: pl.DataFrame) -> None:
    """Insert call rows; frame k belongs to the k-th frame of requests."""
    for number, frame in enumerate(frames, start=1):
        rows = frame.with_columns(trace_hi=pl.lit(number, pl.UInt64))
        con.execute("insert into llm_calls by name select * from rows")
        del rows


def spans_of(
    frame: pl.DataFrame, name: str, stage: str, start_ms: Any, duration_ms: Any, **columns: Any
) -> pl.DataFrame:
    """Return rows of `spans`: one span per request row, `start_ms` after the request's start. `keep` (booleans) leaves some requests out.

    Span 1 is the root's id; give `span_id` above 1. `attributes` is a dict of texts, equal for all rows or lists of them.
    """
    keep = columns.pop("keep", None)
    n = frame.height
    start = frame["start_ns"].to_numpy() + _nanoseconds(_spread(start_ms, n), n)
    attributes = columns.pop("attributes", {})
    data: dict[str, Any] = {
        "trace_lo": frame["trace_lo"],
        "span_id": 2,
        "parent_id": 1,
        "start_ns": start,
        "duration_ns": _nanoseconds(_spread(duration_ms, n), n),
        "name": name,
        "stage": STAGE[stage],
        "role": ROLE["plain"],
        "kind": 1,
        "status": 1,
        "flags": 0,
        "source_id": 1,
        "batch": 1,
    } | columns
    filled = {key: value if _is_sequence(value) else [value] * n for key, value in data.items()}
    rows = pl.DataFrame({key: pl.Series(key, value, strict=False) for key, value in filled.items()})
    texts = {
        key: value if _is_sequence(value) else [value] * n for key, value in attributes.items()
    }
    values = [[texts[key][i] for key in texts] for i in range(n)]
    rows = rows.with_columns(
        attribute_values=pl.Series(values, dtype=pl.List(pl.String)),
        keys=pl.Series([list(texts)] * n, dtype=pl.List(pl.String)),
    )
    return rows if keep is None else rows.filter(pl.Series(np.asarray(keep)))


def insert_spans(con: duckdb.DuckDBPyConnection, *frames: pl.DataFrame) -> None:
    """Insert span rows of the first frame of requests, with their resource and the keys of their attributes."""
    con.execute(
        """insert into sources values (1, 'chat', 'app-0', null, null, null, '', '', map {}, map {}, '', '')"""
    )
    con.execute("create or replace temp macro written(items) as array_to_string(items, chr(31))")
    for shape, frame in enumerate(frames, start=1):
        rows = frame.with_columns(
            trace_hi=pl.lit(1, pl.UInt64),
            shape=pl.lit(shape, pl.Int32),
            seq=pl.int_range(pl.len()) + shape * 2**24,
        )
        optional = (
            *("model", "operation", "http_status", "error_type", "output_tokens"),
            *("input_tokens", "depends_on"),
        )
        rows = rows.with_columns(
            pl.lit(None).alias(name) for name in optional if name not in rows.columns
        )
        con.execute("""insert into shapes by name select any_value(shape) as shape, any_value(source_id) as source_id, any_value(kind) as kind,
            any_value(status) as status, 0 as flags, any_value(stage) as stage, any_value(role) as role, any_value(model)::varchar as model,
            any_value(operation)::varchar as operation, any_value(http_status)::usmallint as http_status,
            any_value(error_type)::varchar as error_type, any_value(keys) as keys from rows""")
        con.execute("""insert into spans by name select seq, trace_hi, trace_lo, span_id, parent_id, start_ns, duration_ns, name, shape,
            case when len(attribute_values) > 0 then written(attribute_values) end as attribute_values from rows""")
        con.execute("""insert into span_values by name select seq, start_ns, output_tokens::bigint as output_tokens, input_tokens::bigint as input_tokens,
            depends_on::varchar as depends_on from rows""")
        del rows


def gauge(
    con: duckdb.DuckDBPyConnection,
    indicator: str,
    samples: Mapping[float, float],
    *,
    instance: str = "gpu-0",
) -> None:
    """Insert gauge samples {seconds after T0: value}."""
    rows = pl.DataFrame(
        {
            "time_ns": [T0_NS + int(second * 1e9) for second in samples],
            "value": [float(value) for value in samples.values()],
        }
    )
    con.execute(
        """insert into points by name
           select 1 as batch, 1 as source_id, time_ns, 0 as start_ns, $name as name, '' as unit, 1 as kind, 0 as temporality, false as monotonic,
               $series as series, $instance as instance, $indicator as indicator, value, map {} as attributes from rows""",
        {
            "name": f"vllm:{indicator}",
            "series": hash(indicator) % 2**63,
            "instance": instance,
            "indicator": indicator,
        },
    )
    del rows


def frame_of(*frames: pl.DataFrame, **window: Any) -> RequestFrame:
    """Insert request rows into a new store and load them back through the view."""
    con = store()
    insert(con, *frames)
    return load(con, Window(**window))


def at(second: float) -> datetime:
    """Return T0 plus some seconds."""
    return T0 + timedelta(seconds=second)


def vllm_spans() -> pl.DataFrame:
    """Return the 1,499 finished requests of a 150 s continuous-batching run (truth of the engine, microseconds)."""
    truth = pl.read_parquet(Path(__file__).parent / "data" / "vllm_spans.parquet").cast(pl.Int64)
    ms = {
        name: (truth[f"{name}_us"] / 1000.0).to_numpy()
        for name in ("queue", "prefill", "decode", "ttft", "e2e")
    }
    other = ms["ttft"] - ms["queue"] - ms["prefill"]
    return requests(
        truth.height,
        start_s=(truth["start_us"] / 1e6).to_numpy(),
        service="vllm",
        name="llm_request",
        route=None,
        engine_only=True,
        server_root=False,
        ttft_source=TTFT_SOURCE["engine"],
        e2e_ms=ms["e2e"],
        ttft_ms=ms["ttft"],
        queue_ms=ms["queue"],
        prefill_ms=ms["prefill"],
        decode_ms=ms["decode"],
        other_ms=ms["e2e"] - ms["queue"] - ms["prefill"] - ms["decode"],
        ttft_queue_ms=ms["queue"],
        ttft_prefill_ms=ms["prefill"],
        ttft_other_ms=other,
        tpot_ms=[
            (e2e - ttft) / (n - 1) if n > 1 else None
            for e2e, ttft, n in zip(ms["e2e"], ms["ttft"], truth["output_tokens"], strict=True)
        ],
        input_tokens=truth["input_tokens"],
        output_tokens=truth["output_tokens"],
        cached_tokens=truth["cached_tokens"],
        max_tokens=truth["max_tokens"],
        truncated=truth["truncated"].cast(pl.Boolean),
    )


def vllm_gauges(con: duckdb.DuckDBPyConnection) -> None:
    """Insert that run's gauges, every 5 s.

    Waiting 38 at +45 s, 543 at +80 s and 394 at the end, KV usage 0.98 from +45 s.
    """
    seconds = np.arange(5.0, 155.0, 5.0)
    waiting = np.interp(seconds, [5, 40, 45, 80, 150], [0, 0, 38, 543, 394])
    kv = np.interp(seconds, [5, 10, 15, 20, 40, 45, 150], [0.3, 0.6, 0.98, 0.5, 0.6, 0.98, 0.98])
    gauge(con, "queue_depth", dict(zip(seconds.tolist(), waiting.tolist(), strict=True)))
    gauge(con, "kv_cache_usage", dict(zip(seconds.tolist(), kv.tolist(), strict=True)))


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (np.ndarray, pl.Series)) or (
        isinstance(value, Sequence) and not isinstance(value, str)
    )


def _spread(value: Any, n: int) -> Any:
    return np.asarray(value) if _is_sequence(value) else np.full(n, value)


def _nanoseconds(value: Any, n: int) -> Any:
    if not _is_sequence(value):
        return None if value is None else round(value * 1e6)
    if isinstance(value, np.ndarray):
        return np.rint(value * 1e6).astype(np.int64)
    return [None if item is None else round(item * 1e6) for item in value]
