"""How does a file of an earlier build become one of this build? The schema steps that it lacks, in one transaction: all of them or none."""

from __future__ import annotations

from pathlib import Path

import duckdb

from overrun.collector.errors import StoreError, StoreMissing, StoreVersion
from overrun.collector.store.database import SCHEMA_VERSION, connect, is_older, steps, version_of


def migrate(path: Path) -> tuple[int, int]:
    """Bring the database at `path` to this build's schema; returns the version before and after (equal if there was nothing to do).

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
            return SCHEMA_VERSION, SCHEMA_VERSION
        if not is_older(seen):
            raise StoreVersion(f"{path} is schema {seen}, this build knows up to {SCHEMA_VERSION}: use a newer Overrun")
        _run_steps(connection, int(seen), path)
        return int(seen), SCHEMA_VERSION
    finally:
        connection.close()


def _run_steps(connection: duckdb.DuckDBPyConnection, seen: int, path: Path) -> None:
    try:
        connection.begin()
        for version, text in steps().items():
            if version > seen:
                connection.execute(text)
        connection.execute("delete from meta where key = 'views'")
        connection.execute("update meta set value = $version where key = 'schema_version'", {"version": str(SCHEMA_VERSION)})
        connection.commit()
    except duckdb.Error as error:
        raise StoreError(f"{path} could not be migrated and is as it was: {str(error).splitlines()[0]}") from error
