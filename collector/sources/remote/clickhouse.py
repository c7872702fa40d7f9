"""Which spans does a table of ClickHouse hold of a window? `otel_traces`, the schema of the Collector's exporter, which ClickStack uses too, or SigNoz's.

`match` names another table (`database.table`); without it, SigNoz's is read where there is no `otel_traces`. The query is
read-only (`readonly=1`) and takes its times as parameters. CLICKHOUSE_USER and CLICKHOUSE_PASSWORD sign the requests.
Source: the table definitions of clickhouseexporter and of SigNoz, ClickHouse's HTTP interface.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from overrun.collector.errors import ConfigError, ImportFailed
from overrun.collector.sources.exports import otlp, signoz
from overrun.collector.sources.remote.documents import Notes, read
from overrun.collector.sources.remote.fetching import Fetcher, TooMuch

_TABLE: Final = re.compile(r"[A-Za-z_]\w{0,127}(\.[A-Za-z_]\w{0,127})?")
_AT_ONCE: Final = 20_000  # spans of one answer
_ROWS_A_BODY: Final = 1_000
_QUERY: Final = """
select TraceId, SpanId, ParentSpanId, TraceState, SpanName, SpanKind, ServiceName, ResourceAttributes, ScopeName, SpanAttributes,
    toUnixTimestamp64Nano(Timestamp) as StartNs, Duration, StatusCode, StatusMessage,
    arrayMap(t -> toUnixTimestamp64Nano(t), `Events.Timestamp`) as EventNs, `Events.Name` as EventNames, `Events.Attributes` as EventAttributes
from {table} where Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}) and Timestamp < fromUnixTimestamp64Milli({to_ms:Int64})
order by Timestamp, SpanId limit {most:UInt32} format JSONEachRow
"""
# Rows of SigNoz also carry the beginning of their half an hour (s), by which the table is ordered.
_SIGNOZ_QUERY: Final = """
select trace_id, span_id, parent_span_id, trace_state, name, kind_string, duration_nano, status_code_string, status_message, attributes_string,
    attributes_number, attributes_bool, resources_string, events, links, toUnixTimestamp64Nano(timestamp) as start_ns
from {table} where timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}) and timestamp < fromUnixTimestamp64Milli({to_ms:Int64})
    and ts_bucket_start >= intDiv({from_ms:Int64}, 1000) - 1800 and ts_bucket_start <= intDiv({to_ms:Int64}, 1000)
order by timestamp, span_id limit {most:UInt32} format JSONEachRow
"""
_USUAL: Final = "otel_traces"
_TABLES_QUERY: Final = f"""
select database, name from system.tables where name in ('{_USUAL}', 'distributed_signoz_index_v3') order by name desc, database limit 10 format JSONEachRow
"""
_KINDS: Final = {"unset": 0, "unspecified": 0, **otlp.KINDS}
_STATUS: Final = {"ok": 1, "error": otlp.ERROR}


def headers(environment: Mapping[str, str]) -> dict[str, str]:
    """The credentials of ClickHouse's own variables, in its own headers."""
    user = environment.get("CLICKHOUSE_USER")
    if not user:
        return {}
    return {
        "x-clickhouse-user": user,
        "x-clickhouse-key": environment.get("CLICKHOUSE_PASSWORD", ""),
    }


class ClickHouse:
    """The spans of one table."""

    width_s = 300

    def __init__(self, fetch: Fetcher, match: str = "") -> None:
        if match and not _TABLE.fullmatch(match):
            raise ConfigError(f"--match {match[:80]!r} is not a table such as default.otel_traces")
        self._fetch, self._table = fetch, match
        self.notes: list[str] = Notes()

    def begin(self, start_s: float, end_s: float) -> None:
        """Look for the table where none was named. A user who may not list tables gets the usual one."""
        if self._table:
            return
        self._table, rows = _USUAL, []
        with contextlib.suppress(ImportFailed):
            rows = self._fetch.lines("/", {"readonly": 1}, _TABLES_QUERY)
        found = [
            f"{row.get('database')}.{row.get('name')}" for row in rows if isinstance(row, dict)
        ]
        if f"default.{_USUAL}" not in found:
            self._table = next((name for name in found if _TABLE.fullmatch(name)), _USUAL)

    def _reads(self) -> tuple[str, Callable[[dict[str, Any]], Any], str]:
        """The query of the table, what makes a span of a row, and a column that every row has."""
        of_signoz = "signoz" in self._table
        query = (_SIGNOZ_QUERY if of_signoz else _QUERY).replace("{table}", self._table)
        return (query, signoz.span, "trace_id") if of_signoz else (query, _span, "TraceId")

    def pull(self, start_s: float, end_s: float) -> Iterator[tuple[str, bytes]]:
        """Trace requests of the spans that began in the time.

        Raises:
            TooMuch: there are more than one answer may hold.
        """
        asked: dict[str, str | int] = {
            "readonly": 1,
            "param_from_ms": round(start_s * 1e3),
            "param_to_ms": round(end_s * 1e3),
            "param_most": _AT_ONCE,
            "output_format_json_quote_64bit_integers": 1,
        }
        query, span, column = self._reads()
        rows = self._fetch.lines("/", asked, query)
        if not all(isinstance(row, dict) and column in row for row in rows):
            raise ImportFailed(f"{self._fetch.url} answered with other columns than {self._table}")
        if len(rows) >= _AT_ONCE:
            raise TooMuch(f"there are more than {_AT_ONCE:,} spans at once")
        for at in range(0, len(rows), _ROWS_A_BODY):
            for request in otlp.request(map(span, rows[at : at + _ROWS_A_BODY])):
                yield from read(request, self.notes)


def _span(row: dict[str, Any]) -> tuple[dict[str, Any], str, dict[str, Any]]:
    resource = {"service.name": str(row.get("ServiceName") or "unknown_service")}
    resource |= _map(row.get("ResourceAttributes"))
    start = int(row.get("StartNs") or 0)
    kind = str(row.get("SpanKind") or "").lower().removeprefix("span_kind_")
    status = str(row.get("StatusCode") or "").lower().removeprefix("status_code_")
    return (
        resource,
        str(row.get("ScopeName") or ""),
        {
            "traceId": otlp.hex_id(row.get("TraceId"), 32),
            "spanId": otlp.hex_id(row.get("SpanId"), 16),
            "parentSpanId": otlp.hex_id(row.get("ParentSpanId"), 16),
            "traceState": str(row.get("TraceState") or ""),
            "name": str(row.get("SpanName") or ""),
            "kind": _KINDS.get(kind, 0),
            "startTimeUnixNano": start,
            "endTimeUnixNano": start + int(row.get("Duration") or 0),
            "attributes": otlp.attributes(_typed(_map(row.get("SpanAttributes")))),
            "events": _events(row),
            "status": {
                "code": _STATUS.get(status, 0),
                "message": str(row.get("StatusMessage", "")),
            },
        },
    )


def _events(row: dict[str, Any]) -> list[dict[str, Any]]:
    columns = [row.get(name) for name in ("EventNs", "EventNames", "EventAttributes")]
    times, names, attributes = (c if isinstance(c, list) else [] for c in columns)
    return [
        {
            "timeUnixNano": int(time_ns),
            "name": str(name),
            "attributes": otlp.attributes(_typed(_map(told))),
        }
        for time_ns, name, told in zip(times, names, attributes, strict=False)
    ]


def _map(value: Any) -> dict[str, Any]:
    return {str(k): v for k, v in value.items()} if isinstance(value, dict) else {}


def _typed(values: dict[str, Any]) -> dict[str, Any]:
    """The map's texts as the numbers that they were before the exporter wrote them as text."""
    return {key: _number(value) for key, value in values.items()}


_INTEGER: Final = re.compile(r"-?(0|[1-9]\d{0,17})")
_DECIMAL: Final = re.compile(r"-?\d{1,15}\.\d{1,17}(e[+-]?\d{1,3})?")


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if _INTEGER.fullmatch(value):
        return int(value)
    if _DECIMAL.fullmatch(value):
        return float(value)
    return {"true": True, "false": False}.get(value, value)
