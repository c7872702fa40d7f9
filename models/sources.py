"""Where do the requests to learn from come from?

Recorded traces in Parquet, CSV or JSON lines (Azure, Mooncake, Bailian, BurstGPT, or our own names) and the store's `v_llm_calls` view
become one table of requests in the columns of `COLUMNS`, in order of time.
"""

import csv
import difflib
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa

from overrun.models.errors import SourceError

_TIME: Final = pl.Datetime("us", "UTC")
# What training reads. Only time, input_tokens and output_tokens must be present; the others are null where the source
# does not say. A prompt is turned into numbers as soon as it has been read (`overrun.models.dataset`).
COLUMNS: Final[Mapping[str, pl.DataType]] = {
    "time": _TIME,
    "route": pl.String(),
    "model": pl.String(),
    "input_tokens": pl.Int64(),
    "output_tokens": pl.Int64(),
    "max_tokens": pl.Int64(),
    "temperature": pl.Float64(),
    "stream": pl.Boolean(),
    "turn": pl.Int64(),
    "session": pl.String(),
    "tenant": pl.String(),
    "prefix_hash": pl.String(),
    "finish_reason": pl.String(),
    "e2e_ms": pl.Float64(),
    "prompt": pl.String(),
    # What the collector kept of an opted-in prompt in place of its text (`overrun.collector.normalise.prompt_features`).
    "prompt_numbers": pl.String(),
}
# As in a request that is asked about (`overrun.models.request`).
_MOST_TOKENS: Final = 10**9
# Seconds since 1970 beyond this are the year 5138: milliseconds, rather.
_LATEST_S: Final = 1e11


@dataclass(frozen=True, slots=True)
class Layout:
    """One vocabulary of trace files: its required columns, and what each column is called here."""

    name: str
    required: frozenset[str]
    renamed: Mapping[str, str]


# In order of recognition; the first whose required columns are all present is taken.
LAYOUTS: Final = (
    Layout(
        "Azure LLM inference trace",
        frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}),
        {"TIMESTAMP": "time", "ContextTokens": "input_tokens", "GeneratedTokens": "output_tokens"},
    ),
    Layout(
        "BurstGPT trace",  # HPMLL/BurstGPT, release 2.0: seconds from the first midnight; failures have 0 response tokens
        frozenset({"Timestamp", "Request tokens", "Response tokens"}),
        {
            "Timestamp": "time",
            "Request tokens": "input_tokens",
            "Response tokens": "output_tokens",
            "Model": "model",
            "Session ID": "session",
            "Log Type": "route",
            "Elapsed time": "e2e_ms",
        },
    ),
    Layout(
        "Bailian trace",  # alibaba-edu/qwen-bailian-usagetraces-anon: seconds from the start; a chat is one request, its parent the turn before
        frozenset({"chat_id", "timestamp", "input_length", "output_length"}),
        {
            "timestamp": "time",
            "input_length": "input_tokens",
            "output_length": "output_tokens",
            "type": "route",
            "hash_ids": "prefix_hash",
        },
    ),
    Layout(
        "Mooncake trace",
        frozenset({"timestamp", "input_length", "output_length"}),
        {
            "timestamp": "time",
            "input_length": "input_tokens",
            "output_length": "output_tokens",
            "hash_ids": "prefix_hash",
        },
    ),
    Layout("requests", frozenset({"time", "input_tokens", "output_tokens"}), {}),
    Layout(
        "v_llm_calls",
        frozenset({"start", "input_tokens", "output_tokens"}),
        {"start": "time", "streaming": "stream"},
    ),
)


def load_traces(traces: Sequence[tuple[str | Path, str | None]]) -> pl.DataFrame:
    """Return the requests of several files as one table: columns `COLUMNS`, one row a request, in order of time.

    Each entry is a path (.parquet, .csv, .jsonl or .json lines, the text ones also .gz) and the route its requests
    belong to; None keeps the file's own `route` column, if any.

    Raises:
        SourceError: a file cannot be read or understood; or files with dates are mixed with files that count from their
        start.
    """
    frames = [
        _named_route(from_table(_read_table(Path(path)), str(path)), route)
        for path, route in traces
    ]
    if not frames:
        raise SourceError("no trace file given, expected at least one")
    relative = {
        str(path): _is_relative(frame)
        for (path, _), frame in zip(traces, frames, strict=True)
        if frame.height
    }
    if len(set(relative.values())) > 1:
        counted = ", ".join(path for path, is_relative in relative.items() if is_relative)
        raise SourceError(
            f"{counted} counts time from its start and the other files have dates: train on them one at a time"
        )
    return pl.concat(frames).sort("time", maintain_order=True)


def from_llm_calls(
    calls: pl.DataFrame | pa.Table, prompts: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return the successful calls of the `v_llm_calls` view: columns `COLUMNS`, one row a call, in order of time.

    `prompts` is the export of that name: what was measured of the prompts of some spans. A span with several has each message under a key of its
    own; the last one is what was asked.

    Failed calls teach nothing about length and are left out.

    Raises:
        SourceError: the table lacks start, input_tokens or output_tokens.
    """
    frame = calls if isinstance(calls, pl.DataFrame) else pl.DataFrame(pl.from_arrow(calls))
    if prompts is not None and prompts.height:
        newest = prompts.sort(
            pl.col("key").str.extract(r"\.(\d+)\.").cast(pl.Int64).fill_null(-1),
            "key",
            maintain_order=True,
        )
        newest = newest.unique(["trace_id", "span_id"], keep="last", maintain_order=True).select(
            "trace_id", "span_id", prompt_numbers="line"
        )
        frame = frame.join(newest, on=["trace_id", "span_id"], how="left", maintain_order="left")
    return from_table(frame, "v_llm_calls").sort("time", maintain_order=True)


def from_table(table: pl.DataFrame, origin: str) -> pl.DataFrame:
    """Return `table`, in any layout of `LAYOUTS`, in the columns `COLUMNS`; `origin` names it in errors.

    Rows of failed calls (`error` set) are left out; those without a time or output tokens by `overrun.models.dataset`, which counts them.

    Raises:
        SourceError: no layout fits, an unknown column looks like a misspelt one, or a value does not fit its column.
    """
    layout = _recognise(table.columns, origin)
    if "error" in table.columns:
        table = table.filter(~_is_error(table.schema["error"]))
    if "e2e_ms" not in table.columns and {"start", "end"} <= set(table.columns):
        table = table.with_columns(
            e2e_ms=(
                _as_time(table, "end", origin) - _as_time(table, "start", origin)
            ).dt.total_microseconds()
            / 1000.0
        )
    present = set(table.columns)
    table = table.rename(
        {old: new for old, new in layout.renamed.items() if old in present and new not in present}
    )
    table = _units(layout, table)
    return _cast(table, origin)


def _recognise(columns: Sequence[str], origin: str) -> Layout:
    for layout in LAYOUTS:
        if layout.required <= set(columns):
            known = set(COLUMNS) | set(layout.renamed) | layout.required
            _refuse_misspelt(
                [name for name in columns if name not in known], known - set(columns), origin
            )
            return layout
    nearly = [
        (layout, lacked) for layout in LAYOUTS if len(lacked := layout.required - set(columns)) == 1
    ]
    if nearly:
        wanted = ", or ".join(f"{', '.join(lacked)} ({layout.name})" for layout, lacked in nearly)
        raise SourceError(
            f"{origin} has the columns {', '.join(columns)}; a column is missing: {wanted}: rename the columns"
        )
    wanted = "; ".join(
        f"{', '.join(sorted(layout.required))} ({layout.name})" for layout in LAYOUTS
    )
    raise SourceError(
        f"{origin} has the columns {', '.join(columns) or '(none)'}; expected one of: {wanted}: rename the columns"
    )


def _refuse_misspelt(unknown: Iterable[str], absent: Iterable[str], origin: str) -> None:
    """Refuse a column that is nearly a known name, which would be lost without a word; other extra columns are fine."""
    candidates = sorted(absent)
    for name in unknown:
        close = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=0.85)
        if close:
            raise SourceError(
                f"{origin} has a column {name!r}, expected {close[0]!r}: rename it, or drop it if it is something else"
            )


def _is_error(dtype: pl.DataType) -> pl.Expr:
    if dtype == pl.Boolean:
        return pl.col("error").fill_null(value=False)
    return (
        pl.col("error")
        .cast(pl.String, strict=False)
        .fill_null("")
        .is_in(["", "false", "False"])
        .not_()
    )


def _units(layout: Layout, table: pl.DataFrame) -> pl.DataFrame:
    """Turn what a layout counts otherwise into seconds, milliseconds, sessions and one prefix hash."""
    if layout.name.startswith("Mooncake"):
        return _with_prefix(
            table.with_columns(time=pl.col("time").cast(pl.Float64, strict=False) / 1000.0)
        )
    if layout.name.startswith("Bailian"):
        return _with_prefix(_with_roots(table))
    if layout.name.startswith("BurstGPT"):
        answered = table.filter(
            pl.col("output_tokens").cast(pl.Float64, strict=False).fill_null(1.0) > 0
        )
        return (
            answered.with_columns(pl.col("e2e_ms").cast(pl.Float64, strict=False) * 1000.0)
            if "e2e_ms" in table.columns
            else answered
        )
    return table


def _with_roots(table: pl.DataFrame) -> pl.DataFrame:
    """Name each request's session by the first chat of its line of parents (-1: none)."""
    if "parent_chat_id" not in table.columns or "session" in table.columns:
        return table
    parents = dict(table.select(pl.col("chat_id", "parent_chat_id").cast(pl.String)).iter_rows())
    roots: dict[str | None, str | None] = {}
    for chat in parents:
        line, seen = [chat], {chat}
        while (
            (parent := parents.get(line[-1])) in parents
            and parent not in seen
            and line[-1] not in roots
        ):
            line.append(parent)
            seen.add(parent)
        root = roots.get(line[-1], line[-1])
        roots.update(dict.fromkeys(line, root))
    return table.with_columns(
        session=pl.Series(
            [roots[chat] for chat in table.get_column("chat_id").cast(pl.String)], dtype=pl.String
        )
    )


def _with_prefix(table: pl.DataFrame) -> pl.DataFrame:
    """Turn the prefix blocks of a prompt into one prefix hash.

    The hash is the first block that fewer than half of the requests share: the first block of all is the same system
    prompt in all 12,031 requests of Mooncake's public trace, the next one tells conversations apart.
    """
    if "prefix_hash" not in table.columns:
        return table
    if not isinstance(table.schema["prefix_hash"], pl.List):
        return table
    blocks = pl.col("prefix_hash").cast(pl.List(pl.String), strict=False)
    table = table.with_columns(prefix_hash=blocks).with_row_index("_row")
    exploded = table.select("_row", "prefix_hash").explode("prefix_hash").drop_nulls()
    common = (
        exploded.unique().group_by("prefix_hash").len().filter(pl.col("len") * 2 > table.height)
    )
    first = (
        exploded.join(common, on="prefix_hash", how="anti", maintain_order="left")
        .group_by("_row", maintain_order=True)
        .first()
    )
    return (
        table.drop("prefix_hash")
        .join(first, on="_row", how="left", maintain_order="left")
        .drop("_row")
    )


def _cast(table: pl.DataFrame, origin: str) -> pl.DataFrame:
    series = []
    for name, dtype in COLUMNS.items():
        if name not in table.columns:
            series.append(pl.Series(name, [None] * table.height, dtype=dtype))
        elif name == "time":
            series.append(_as_time(table, name, origin).alias(name))
        else:
            series.append(_as_type(table.get_column(name), dtype, origin))
    # A limit of 0 or -1 is how some servers write that there is none.
    frame = pl.DataFrame(series).with_columns(
        pl.when(pl.col("max_tokens") >= 1).then("max_tokens").alias("max_tokens")
    )
    for name in ("input_tokens", "output_tokens", "max_tokens"):
        lowest = frame.get_column(name).min()
        if isinstance(lowest, int) and lowest < 0:
            raise SourceError(
                f"{origin}: {name} is {lowest} in some row, expected 0 or more: remove the row"
            )
        highest = frame.get_column(name).max()
        if isinstance(highest, int) and highest > _MOST_TOKENS:
            raise SourceError(
                f"{origin}: {name} is {highest} in some row, expected at most {_MOST_TOKENS}: check its unit"
            )
    return frame


def _as_type(values: pl.Series, dtype: pl.DataType, origin: str) -> pl.Series:
    wanted = {
        pl.Int64: "whole numbers",
        pl.Float64: "numbers",
        pl.Boolean: "true or false",
        pl.String: "text",
    }[type(dtype)]
    try:
        if dtype == pl.Boolean and values.dtype == pl.String:
            values = values.str.to_lowercase().replace_strict(
                {"true": True, "false": False, "1": True, "0": False}, return_dtype=pl.Boolean
            )
        if values.dtype.is_float():
            values = values.fill_nan(None)
        return values.cast(dtype)
    except pl.exceptions.PolarsError as error:
        raise SourceError(
            f"{origin}: column {values.name} holds {values.dtype}, expected {wanted}: {_first_line(error)}"
        ) from error


def _as_time(table: pl.DataFrame, name: str, origin: str) -> pl.Series:
    """Return a column as UTC times: dates are UTC unless they say otherwise, numbers are seconds since 1970."""
    values = table.get_column(name)
    try:
        if values.dtype == pl.String:
            # Azure's CSV has seven decimals; the pattern reads any number of them.
            values = (
                values.str.replace(" ", "T", literal=True)
                .str.replace(r"Z$", "+00:00")
                .str.replace(r"([+-]\d\d)(\d\d)$", "$1:$2")
            )
            zoned = (
                pl.when(values.str.contains(r"[+-]\d\d:\d\d$"))
                .then(values)
                .otherwise(values + "+00:00")
            )
            values = (
                pl.select(zoned)
                .to_series()
                .str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%:z", time_unit="us", strict=True)
            )
        elif values.dtype.is_numeric():
            latest = values.cast(pl.Float64).fill_nan(None).max()
            if isinstance(latest, float) and latest > _LATEST_S:
                raise SourceError(
                    f"{origin}: column {name} holds {latest:.0f}, expected seconds since 1970: divide milliseconds by 1,000 (or write RFC 3339)"
                )
            values = (
                (values.cast(pl.Float64).fill_nan(None) * 1e6)
                .round()
                .cast(pl.Int64)
                .cast(pl.Datetime("us"))
            )
        if isinstance(values.dtype, pl.Datetime) and values.dtype.time_zone is None:
            values = values.dt.replace_time_zone("UTC")
        return values.cast(_TIME)
    except pl.exceptions.PolarsError as error:
        raise SourceError(
            f"{origin}: column {name} is not a time ({_first_line(error)}); expected RFC 3339 or seconds since 1970"
        ) from error


def _is_relative(frame: pl.DataFrame) -> bool:
    """Tell whether times count from the start of the recording: nothing was recorded on the first days of 1970."""
    first = frame.get_column("time").dt.epoch("s").min()
    return isinstance(first, int) and first < 30 * 86_400


def _named_route(frame: pl.DataFrame, route: str | None) -> pl.DataFrame:
    return frame if route is None else frame.with_columns(route=pl.lit(route))


def _read_table(path: Path) -> pl.DataFrame:
    name = path.name.lower().removesuffix(".gz")
    try:
        if name.endswith(".parquet"):
            return pl.read_parquet(path)
        data = (
            gzip.decompress(path.read_bytes())
            if path.name.lower().endswith(".gz")
            else path.read_bytes()
        )
        text = data.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError, pl.exceptions.PolarsError) as error:
        raise SourceError(f"{path} cannot be read: {_first_line(error)}") from error
    if name.endswith(".csv"):
        return _read_csv(text, path)
    if name.endswith((".jsonl", ".json", ".ndjson")):
        return _read_json_lines(text, path)
    raise SourceError(
        f"{path} has an unknown suffix, expected .parquet, .csv or .jsonl (the last two also .gz)"
    )


def _read_csv(text: str, path: Path) -> pl.DataFrame:
    if not text.strip() or "\n" not in text.strip():
        header = next(csv.reader([text.strip()]), [])
        return pl.DataFrame(schema=dict.fromkeys(header, pl.String))
    try:
        separator = max(",;\t", key=text.partition("\n")[0].count)
        return pl.read_csv(text.encode(), infer_schema_length=None, separator=separator)
    except pl.exceptions.PolarsError as error:
        raise SourceError(f"{path} is not readable as CSV: {_first_line(error)}") from error


def _read_json_lines(text: str, path: Path) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"{path} line {number} is not JSON ({type(error).__name__}), expected one object per line"
            ) from error
        if not isinstance(row, dict):
            raise SourceError(
                f"{path} line {number} holds a {type(row).__name__}, expected one object per line"
            )
        rows.append(row)
    try:
        return pl.DataFrame(rows, infer_schema_length=None)
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise SourceError(f"{path} has a column of mixed types: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
