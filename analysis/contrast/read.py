"""Which spans do the judged requests have? Whole requests as assembly joins them, with every attribute, and an operation's name for each span."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly.columns import ERROR, int_column
from overrun.analysis.assembly.critical_path import Paths
from overrun.analysis.assembly.nesting import tops
from overrun.analysis.contrast.attributes import Attribute, Attributes, attribute_of, attributes_of
from overrun.analysis.numbers.window import query
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.timestamps import from_us
from overrun.collector.ingest.reading import spans_with_texts

# Requests whose spans are looked at, and spans of these: of more, one trace in so many, chosen by its key; own defaults.
MOST_REQUESTS: Final = 4_000
MOST_SPANS: Final = 40_000
# Columns that every sender's attributes were brought to, and that are traits of a span as its own attributes are.
CANONICAL: Final = (
    "model", "provider", "operation", "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "max_tokens", "temperature",
    "streaming", "finish_reason", "error_type", "http_status", "attempts", "route", "session", "tenant", "user_hash", "workload", "turn", "version",
    "instance", "prefix_hash",
)  # fmt: skip
# Where the address of a call stands, and its path; the host is no part of an operation, so that it is the same one elsewhere.
_URLS: Final = (
    *("url.template", "url.full", "http.url", "url.path", "http.target", "http.route"),
    *("http.path", "uri"),
)
_HOSTS: Final = ("server.address", "net.peer.name", "http.host", "peer.hostname", "peer.service")
_METHODS: Final = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "HTTP", "HTTPS"}
_IDS: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{13,}|\b[0-9a-f]{12,}\b|\b\d{3,}\b|(?<=/)\d+(?=/|$)", re.IGNORECASE
)


@dataclass(frozen=True)
class Spans:
    """Spans of judged requests, a row each; times in ms from `origin_ns`.

    `request` is the place of the judged request that a span belongs to, -1 where it is none that is judged. `paths` has parents, roles and stages as assembly
    settled them, and the pieces of the critical paths. `operation` is a code of `operations`, the span's name without ids; `service` one of `services`.
    """

    table: pa.Table
    paths: Paths
    attributes: Attributes
    request: IntArray
    root: IntArray
    origin_ns: int
    start: FloatArray
    end: FloatArray
    service: IntArray
    services: list[str]
    operation: IntArray
    operations: list[str]
    process: IntArray
    failed: BoolArray

    @property
    def parent(self) -> IntArray:
        """Per row its parent, -1 for roots."""
        return self.paths.parent


def read(
    con: duckdb.DuckDBPyConnection, requests: pl.DataFrame, margin: timedelta = timedelta(minutes=1)
) -> Spans | None:
    """Return the spans of requests (columns trace_key, start_us, end_us), None where none is stored any more; a request's place is its row."""
    starts = requests["start_us"]
    if not requests.height:
        return None
    keys = pa.table({"trace_key": requests["trace_key"].cast(pl.UInt64).to_arrow()})
    since, until = from_us(int(starts.to_numpy().min())), from_us(int(starts.to_numpy().max()))
    traces, spans, texts = spans_with_texts(con, keys, since - margin, until + margin)
    if not traces.num_rows:
        return None
    # Loads the schema of OTLP: a client that asks a server needs this module's types alone.
    from overrun.analysis.assembly.assemble import walk_trace

    table, paths = walk_trace(spans)
    # A request that is listed twice has its spans once, so that each stays one row.
    first = requests.select("trace_key").with_row_index("request").unique("trace_key", keep="first")
    known = _frame(traces).join(first, on="trace_key")
    return _spans(con, table, paths, known, texts)


def _spans(
    con: duckdb.DuckDBPyConnection,
    table: pa.Table,
    paths: Paths,
    known: pl.DataFrame,
    texts: pa.Table,
) -> Spans:
    ids = _frame(table.select(["trace_hi", "trace_lo", "span_id", "start_ns"]))
    root = tops(paths.parent)
    trace, of_root = ["trace_hi", "trace_lo"], ids[root].rename({"span_id": "turn"})
    # A trace that is a request has all of its roots, and a turn the one that it begins with.
    turns = known.filter(pl.col("turn") > 0).select(*trace, "turn", "request")
    request = of_root.join(turns, on=[*trace, "turn"], how="left", maintain_order="left").join(
        known.filter(pl.col("turn") == 0).select(*trace, whole="request"),
        on=trace,
        how="left",
        maintain_order="left",
    )
    canonical = _frame(table.select(CANONICAL)).with_columns(
        uncached_tokens=pl.col("input_tokens") - pl.col("cached_tokens")
    )
    packed = _frame(texts).unique(ids.columns, keep="first")
    attributes = attributes_of(
        ids.join(packed, on=ids.columns, how="left", maintain_order="left").with_columns(
            pl.col("shape").fill_null(-1)
        ),
        _shapes(con),
        canonical,
    )
    service, services = _codes(table.column("service"))
    names = _operations(_frame(table.select(["name"]))["name"], attributes)
    status = int_column(table, "http_status")
    origin = int(paths.start.min())
    process = _codes(
        pc.binary_join_element_wise(
            table.column("service"), pc.fill_null(table.column("instance"), ""), "\x1f"
        )
    )[0]
    return Spans(
        table=table,
        paths=paths,
        attributes=attributes,
        request=request.select(pl.coalesce("request", "whole").cast(pl.Int64).fill_null(-1))
        .to_series()
        .to_numpy(),
        root=root,
        origin_ns=origin,
        start=(paths.start - origin) / 1e6,
        end=(paths.end - origin) / 1e6,
        service=service,
        services=services,
        operation=names.codes,
        operations=names.texts,
        process=process,
        failed=(int_column(table, "status") == ERROR) | (status >= 400),
    )


def _frame(table: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(table))


def _shapes(con: duckdb.DuckDBPyConnection) -> dict[int, tuple[list[str], dict[str, str]]]:
    found = con.execute(query("shapes_with_attributes")).fetchall()
    return {shape: (keys or [], resource or {}) for shape, keys, resource in found}


def _codes(column: pa.ChunkedArray) -> tuple[IntArray, list[str]]:
    """Codes of a text column without nulls, and the texts."""
    encoded = pc.fill_null(column, "").combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_pylist()


def template(text: str) -> str:
    """Return a name or path without ids and numbers: `/articles/:id/chat`, `get_user #`."""
    return _IDS.sub("#", text)


def _operations(names: pl.Series, attributes: Attributes) -> Attribute:
    """The name of each span's operation; a mere method is followed by the path that is called."""
    url = attributes.get(*_URLS)
    frame = pl.DataFrame({"name": names.fill_null("")})
    bare = frame["name"].str.to_uppercase().str.strip_prefix("HTTP ").is_in(list(_METHODS))
    if url is not None and bare.any():
        paths = [_path(text) for text in url.texts]
        there = pl.Series(url.codes).replace_strict(
            list(range(len(paths))), paths, default=None, return_dtype=pl.String
        )
        full = pl.concat_str([pl.col("name"), pl.lit(" "), there])
        frame = frame.with_columns(
            name=pl.when(bare & there.is_not_null()).then(full).otherwise(pl.col("name"))
        )
    unique = frame["name"].unique()
    named = frame["name"].replace_strict(unique, [template(one) for one in unique])
    return attribute_of(named)


def _path(url: str) -> str:
    """The path of an address without host and query."""
    found = re.match(r"(?:[a-z]+://[^/?]*)?([^?#]*)", url)
    return (found[1] if found else "") or "/"


def hosts(spans: Spans) -> Attribute | None:
    """The host that each span calls, where senders say it."""
    return spans.attributes.get(*_HOSTS)
