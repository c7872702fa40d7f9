"""How does a file of an earlier build become one of this build? The schema steps that it lacks, in one transaction: all of them or none."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

import duckdb

from overrun.collector.errors import NotAsWritten, StoreError, StoreMissing, StoreVersion
from overrun.collector.store.database import (
    SCHEMA_VERSION,
    connect,
    is_older,
    steps,
    tables,
    version_of,
)
from overrun.collector.store.proof import Claims


class Migrated(NamedTuple):
    """The schema before and after (equal if there was nothing to do), and how many commits were found to lack how many acknowledged spans."""

    before: int
    after: int
    incomplete_commits: int = 0
    missing_spans: int = 0


def migrate(path: Path) -> Migrated:
    """Bring the database at `path` to this build's schema.

    Raises:
        StoreMissing: no file there. StoreLocked: another process has it open. StoreVersion: a later build made it.
        StoreError: not one of ours, or a step failed (disk full, for one); the file is as it was.
    """
    if not path.is_file() or not path.stat().st_size:
        raise StoreMissing(f"there is no database at {path}: name the file to migrate with --db")
    connection = connect(path)
    try:
        seen = version_of(connection, path)
        if seen == str(SCHEMA_VERSION):
            return Migrated(SCHEMA_VERSION, SCHEMA_VERSION)
        if not is_older(seen):
            raise StoreVersion(
                f"{path} is schema {seen}, this build knows up to {SCHEMA_VERSION}: use a newer Overrun"
            )
        _run_steps(connection, int(seen), path)
        [(commits, missing)] = connection.execute(
            "select count(*), coalesce(sum(missing), 0)::bigint from incomplete_commits"
        ).fetchall()
        return Migrated(int(seen), SCHEMA_VERSION, commits, missing)
    finally:
        connection.close()


def _run_steps(connection: duckdb.DuckDBPyConnection, seen: int, path: Path) -> None:
    try:
        connection.begin()
        for version, text in steps().items():
            if version > seen:
                connection.execute(text)
        connection.execute("delete from meta where key = 'views'")
        connection.execute(
            "update meta set value = $version where key = 'schema_version'",
            {"version": str(SCHEMA_VERSION)},
        )
        claims = Claims()
        for table in tables(connection):
            claims.saw(connection, table)
        connection.commit()
    except duckdb.Error as error:
        with contextlib.suppress(duckdb.Error):  # there may be no transaction left to undo
            connection.rollback()
        connection.execute(
            "pragma disable_checkpoint_on_shutdown"
        )  # nothing of a failed commit may get into the file
        raise StoreError(
            f"{path} could not be migrated and is unchanged: {str(error).splitlines()[0]}"
        ) from error
    try:
        claims.prove(connection)
    except (duckdb.Error, NotAsWritten) as error:
        raise StoreError(
            f"{path} was migrated, but not everything can be read back ({error}): use your copy of the former file"
        ) from error
