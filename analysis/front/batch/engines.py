"""Which engine answers? DuckDB in this process, or a Spark cluster. Both get the product's own queries, over views of the exported files.

A query is written for DuckDB. What Spark needs of it otherwise is done here and is all there is: the names of parameters, and the two macros and one function
that the queries call, which Spark gets as functions made from the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from overrun.analysis.words.errors import AnalysisError
from overrun.collector.store.answers import fetch_batches, fetch_frame
from overrun.collector.store.database import macros
from overrun.collector.store.exported_files import over_files

ENGINES: Final = ("duckdb", "spark")
LOCAL: Final = "local[*]"
# Files of a training set are written in pieces of so many rows.
_ROWS: Final = 50_000
# The macros that queries over windows call, and Spark's types of their parameters; all others are texts.
_MACROS: Final = ("starts_within", "asked_for")
_TYPES: Final = {
    "start_ns": "bigint",
    "first": "timestamp",
    "until": "timestamp",
    "without": "array<string>",
}
_FUNCTIONS: Final = {
    "epoch_us(t timestamp) returns bigint": "unix_micros(t)",
    "epoch_ns(t timestamp) returns bigint": "unix_micros(t) * 1000",
    "list_contains(texts array<string>, one string) returns boolean": "array_contains(texts, one)",
}
# What a session must have for the queries to mean the same; everything else is the caller's.
_SESSION: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    # All expressions of a query in one method are more than Java compiles here: over 64 kB of it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ROWS),
}


class NoEngine(AnalysisError):
    """An engine that is not installed, or does not start."""


class Unreadable(AnalysisError):
    """Files that an engine cannot read."""


class Engine(Protocol):
    """What answers queries over views of files. Values come in as parameters (`$name`), never in the text."""

    name: str

    def frame(self, sql: str, parameters: Mapping[str, object]) -> pl.DataFrame:
        """The answer to a query."""

    def save(self, sql: str, parameters: Mapping[str, object], out: Path) -> int:
        """Write the answer to a query as one Parquet file; returns how many rows it has."""

    def close(self) -> None:
        """Let go of the engine."""


class DuckDb:
    """DuckDB in this process."""

    name = "duckdb"

    def __init__(self, views: Mapping[str, Sequence[str]]) -> None:
        with self._reading():
            self._con = over_files(views)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """A file may be cut short, of another program, or be replaced while it is read."""
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise NoEngine(
                f"DuckDB has too little memory: {_first_line(error)}. Ask about a shorter period, or with --engine spark"
            ) from error
        except duckdb.Error as error:
            raise _unreadable(error) from error

    def frame(self, sql: str, parameters: Mapping[str, object]) -> pl.DataFrame:
        with self._reading():
            return fetch_frame(self._con, sql, parameters)

    def save(self, sql: str, parameters: Mapping[str, object], out: Path) -> int:
        with self._reading():
            return _written(fetch_batches(self._con, sql, parameters, _ROWS), out)

    def close(self) -> None:
        self._con.close()


class Spark:
    """A Spark cluster, or Spark in this process (`local[*]`). `settings` are Spark's own, such as `spark.executor.memory`."""

    name = "spark"

    def __init__(
        self,
        views: Mapping[str, Sequence[str]],
        master: str = LOCAL,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        try:
            from pyspark.errors import PySparkException
            from pyspark.sql import SparkSession
        except ModuleNotFoundError as error:
            raise NoEngine(
                f"--engine spark needs {error.name}, which is not installed: pip install 'overrun[spark]', and Java 17 or newer"
            ) from error
        self._failed = PySparkException
        built = SparkSession.builder.master(master).appName("overrun explain batch")
        for name, value in {"spark.ui.enabled": "false", **(settings or {})}.items():
            built = built.config(name, value)
        try:
            self._session: Any = built.getOrCreate()
        except (PySparkException, OSError, RuntimeError) as error:
            raise NoEngine(
                f"Spark does not start on {master!r}: {_first_line(error)}. Is Java 17 or newer there, and does a master answer at that address?"
            ) from error
        self._session.sparkContext.setLogLevel("ERROR")
        for name, value in _SESSION.items():
            self._session.conf.set(name, value)
        for text in functions():
            self._session.sql(text)
        try:
            for name, files in views.items():
                found = self._session.read.option("mergeSchema", "true").parquet(*files)
                found.selectExpr("*", "epoch_ns(start) as start_ns").createOrReplaceTempView(name)
        except PySparkException as error:
            self.close()
            raise _unreadable(error) from error

    def frame(self, sql: str, parameters: Mapping[str, object]) -> pl.DataFrame:
        found = pl.from_arrow(self._asked(sql, parameters))
        assert isinstance(found, pl.DataFrame)
        return found

    def save(self, sql: str, parameters: Mapping[str, object], out: Path) -> int:
        found = self._asked(sql, parameters)
        return _written(found.to_reader(_ROWS), out)

    def close(self) -> None:
        self._session.stop()

    def _asked(self, sql: str, parameters: Mapping[str, object]) -> pa.Table:
        try:
            return self._session.sql(in_spark(sql), args=dict(parameters)).toArrow()
        except self._failed as error:
            raise NoEngine(f"Spark failed: {_first_line(error)}") from error


def open_engine(
    name: str,
    views: Mapping[str, Sequence[str]],
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
) -> Engine:
    """Return an engine with a view for each name over files of that name.

    Raises:
        NoEngine: it is not known, not installed, or does not start.
        Unreadable: a file is none of Parquet, or of other columns.
    """
    if name not in ENGINES:
        raise NoEngine(f"engine {name[:32]!r} is not known: give {' or '.join(ENGINES)}")
    return DuckDb(views) if name == "duckdb" else Spark(views, master, settings)


def in_spark(sql: str) -> str:
    """Return a query with its parameters as Spark names them; the types beside them are DuckDB's."""
    return re.sub(r"\$([a-z_]\w*)(?:::\w+(?:\[\])?)?", r":\1", sql)


def functions() -> list[str]:
    """Return the statements that make the functions which queries call, in Spark: from the text of our macros."""
    made = [
        f"create or replace temporary function {head} return {body}"
        for head, body in _FUNCTIONS.items()
    ]
    for name in _MACROS:
        found = re.search(
            rf"create or replace macro {name}\(([^)]*)\) as\s(.*?);", macros(), re.DOTALL
        )
        if found is None:
            raise AssertionError(f"there is no macro {name}")
        names = [part.strip() for part in found[1].split(",")]
        typed = ", ".join(f"{one} {_TYPES.get(one, 'string')}" for one in names)
        body = re.sub(r"::\w+(?:\[\])?", "", found[2])
        made.append(
            f"create or replace temporary function {name}({typed}) returns boolean return {body}"
        )
    return made


def _written(batches: pa.RecordBatchReader, out: Path) -> int:
    """How many rows were written. A file that is there already is replaced by a whole one, or stays."""
    rows, part = 0, out.with_name(f"{out.name}.part")
    try:
        with pq.ParquetWriter(part, batches.schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return rows


def _unreadable(error: Exception) -> Unreadable:
    return Unreadable(
        f"the files cannot be read: {_first_line(error)}. Delete a file that is cut short, and let `overrun store export --folder` write its hour again"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
