"""CSV and Parquet with one request a row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from overrun.collector.errors import BadPayload
from overrun.collector.sources.load_tests.result import (
    LoadTest,
    Request,
    Run,
    checked,
    say_unmeasured,
)
from overrun.collector.sources.load_tests.values import MS, count, failure, moment, ns, text_of


def read_table(path: Path) -> LoadTest:
    """The requests of a CSV or Parquet file.

    Raises:
        BadPayload: it cannot be read, or lacks a column.
    """
    import pyarrow.csv  # mapped into memory only where asked for
    import pyarrow.parquet

    try:
        table = (
            pyarrow.parquet.read_table(path)
            if path.suffix == ".parquet"
            else pyarrow.csv.read_csv(path)
        )
    except (pa.ArrowException, OSError) as why:
        raise BadPayload(f"not a table: {str(why).splitlines()[0][:200]}") from why
    columns = set(table.column_names)
    time = next((name for name in ("time", "start", "start_time") if name in columns), None)
    if time is None or not columns & {"e2e_ms", "end"}:
        raise BadPayload(
            f"its columns are {', '.join(table.column_names[:12]) or '(none)'}; expected time and e2e_ms (or end), and ttft_ms, input_tokens, "
            "output_tokens, error, model, route, tenant where known"
        )
    out = LoadTest("load-test")
    unmeasured = 0
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):  # Python's moments have microseconds
            table = table.set_column(
                number,
                column.name,
                table.column(number).cast(pa.timestamp("us", column.type.tz), safe=False),
            )
    for row in table.to_pylist():
        start_ns = moment(row[time], time)
        end_ns = moment(row.get("end"), "end")
        e2e_ns = ns(row.get("e2e_ms"), MS)
        e2e_ns = (
            end_ns - start_ns
            if e2e_ns is None and end_ns is not None and start_ns is not None
            else e2e_ns
        )
        error, code = failure(row.get("error"))
        if start_ns is None or (e2e_ns is None and error is None):
            unmeasured += 1
            continue
        out.requests.append(
            Request(
                start_ns,
                e2e_ns or 0,
                ns(row.get("ttft_ms"), MS),
                count(row.get("input_tokens")),
                count(row.get("output_tokens")),
                count(row.get("cached_tokens")),
                error,
                code,
                model=text_of(row.get("model")),
                route=text_of(row.get("route")),
                tenant=text_of(row.get("tenant")),
            )
        )
    say_unmeasured(out, unmeasured)
    out.runs = [Run("table", out.requests)]
    return checked(out)
