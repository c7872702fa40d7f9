"""Which spans does a table of ClickHouse hold of a window? `otel_traces`, the schema of the Collector's exporter, which ClickStack uses too, or SigNoz's.

`match` names another table (`database.table`); without it, SigNoz's is read where there is no `otel_traces`. The query is
read-only (`readonly=1`) and takes its times as parameters. CLICKHOUSE_USER and CLICKHOUSE_PASSWORD sign the requests.
Source: the table definitions of clickhouseexporter and of SigNoz, ClickHouse's HTTP interface.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Final

from overrun.collector.errors import ConfigError, ImportFailed
from overrun.collector.sources.remote.documents import Notes, read
from overrun.collector.sources.remote.fetching import Fetcher, TooMuch

_TABLE: Final = re.compile(r"[A-Za-z_]\w{0,127}(\.[A-Za-z_]\w{0,127})?")
_AT_ONCE: Final = 20_000  # spans of one answer
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

    def _reads(self) -> tuple[str, str]:
        """The query of the table, and a column that every row has."""
        of_signoz = "signoz" in self._table
        query = (_SIGNOZ_QUERY if of_signoz else _QUERY).replace("{table}", self._table)
        return query, "trace_id" if of_signoz else "TraceId"

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
        query, column = self._reads()
        rows = self._fetch.lines("/", asked, query)
        if not all(isinstance(row, dict) and column in row for row in rows):
            raise ImportFailed(f"{self._fetch.url} answered with other columns than {self._table}")
        if len(rows) >= _AT_ONCE:
            raise TooMuch(f"there are more than {_AT_ONCE:,} spans at once")
        yield from read(rows, self.notes)
