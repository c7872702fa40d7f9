"""What do the processes of a lake agree on? The tables of catalog.sql in its PostgreSQL database: stored bodies, numbers, the lease of the assembler.

Each call is one statement of its own. What must hold together with a snapshot is done by the trigger of catalog.sql instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from overrun.collector.errors import StoreError, StoreUnavailable

COLLECTOR: Final = "overrun collector"
ASSEMBLER: Final = "overrun assembler"
MIGRATION: Final = "overrun migration"
# A PostgreSQL that does not answer is given up after so long; senders are asked to come again meanwhile.
_CONNECT_S = 5
# Advisory locks: under which a lake is made; which every commit shares, and a deletion has alone; of maintenance.
_LOCK, _CHANGES, _MAINTENANCE = 0x6F7665727275, 0x6F7665727276, 0x6F7665727277
# A commit waits so long for a deletion, and then goes on: at worst DuckLake refuses one of the two, which is tried again.
_DELETION_S, _ASK_AGAIN_S = 4.0, 0.03
# A reader asks for the newest snapshot at most so often: its answers are as old as that at most.
_SNAPSHOT_S = 0.25


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to assemble. A later holder has a higher epoch; `through` is the snapshot up to which earlier ones have assembled every trace."""

    epoch: int
    through: int


@dataclass(frozen=True, slots=True)
class Turn:
    """The right to commit: a number that no other commit has, and how often shapes and sources have been deleted so far."""

    number: int
    swept: int


@dataclass(frozen=True, slots=True)
class Erasing:
    """One that is not complete. `assembled`: whether every span of before is assembled; `rewritten`, `expired`: what is done."""

    number: int
    assembled: bool
    rewritten: bool
    expired: bool
    age_s: float


@dataclass(frozen=True, slots=True)
class Overview:
    """Counts of a lake: snapshots and the age of the oldest, who holds which lease, erasings that are not complete, files that wait to be deleted."""

    snapshots: int
    oldest_s: float
    erasings: int
    files_to_delete: int
    holders: dict[str, str]


class Catalog:
    """The agreements of one lake. Thread-safe; connects again when PostgreSQL comes back."""

    def __init__(self, address: str) -> None:
        self._address, self._driver = address, _driver()
        self._lock = threading.Lock()
        self._connection: Any = None
        self._snapshot, self._asked_s = 0, float("-inf")

    def _ask(
        self, sql: str, values: Sequence[object] | Mapping[str, object] = ()
    ) -> list[tuple[Any, ...]]:
        """The rows of one statement.

        Raises:
            StoreUnavailable: PostgreSQL does not answer.
        """
        with self._lock:
            for last in (False, True):
                try:
                    found = self._connected().execute(sql, values)
                    return found.fetchall() if found.description else []
                except self._driver.OperationalError as error:
                    self._drop()  # PostgreSQL was restarted: the second time shows whether it is back
                    if last:
                        raise StoreUnavailable(
                            f"the lake's PostgreSQL does not answer: {str(error).splitlines()[0]}"
                        ) from error
        raise AssertionError

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = self._driver.connect(
                self._address, autocommit=True, connect_timeout=_CONNECT_S
            )
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            self._drop()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One process at a time, for what is done once in the life of a lake."""
        self._ask("select pg_advisory_lock(%s)", [_LOCK])
        try:
            yield
        finally:
            self._ask("select pg_advisory_unlock(%s)", [_LOCK])

    @contextmanager
    def committing(self) -> Iterator[Turn]:
        """For the commit of a writer: for as long as the block lasts, nobody deletes.

        DuckLake refuses a commit that inserts into a table from which another one has deleted since it began, and the other way round.
        """
        until_s, held, rows = time.monotonic() + _DELETION_S, False, list[tuple[Any, ...]]()
        while not held and time.monotonic() < until_s:
            rows = self._ask(
                "select locked, case when locked then nextval('overrun_commits') end, (select value from overrun_counters where name = 'swept') "
                "from (select pg_try_advisory_lock_shared(%s) as locked offset 0) l",
                [_CHANGES],
            )
            held = bool(rows[0][0])
            if not held:
                time.sleep(_ASK_AGAIN_S)
        try:
            yield Turn(int(rows[0][1] or self.next_commit()), int(rows[0][2]))
        finally:
            if held:
                with suppress(StoreUnavailable):  # the lock went with the connection
                    self._ask("select pg_advisory_unlock_shared(%s)", [_CHANGES])

    def deleting(self) -> AbstractContextManager[None]:
        """No writer commits for as long as the block lasts, which is to be short."""
        return self._locked(_CHANGES)

    def maintaining(self) -> AbstractContextManager[None]:
        """One round of maintenance at a time, of all processes."""
        return self._locked(_MAINTENANCE)

    @contextmanager
    def _locked(self, lock: int) -> Iterator[None]:
        """Of a connection of its own: locks of one connection do not exclude each other."""
        other = Catalog(self._address)
        try:
            other._ask("select pg_advisory_lock(%s)", [lock])
            yield
        finally:
            other.close()

    def is_made(self) -> bool:
        """Whether the lake has our tables, of this build. They are made last."""
        [(found,)] = self._ask("select to_regclass('overrun_moved') is not null")
        return bool(found)

    def has_lake(self) -> bool:
        """Whether an earlier build has made the lake's own tables."""
        [(found,)] = self._ask("select to_regclass('overrun_leases') is not null")
        return bool(found)

    def make(self) -> None:
        """Make our tables, in one transaction."""
        self._ask(f"begin; {Path(__file__).with_suffix('.sql').read_text(encoding='utf-8')} commit")

    def next_commit(self) -> int:
        """A number that no other commit has."""
        [(number,)] = self._ask("select nextval('overrun_commits')")
        return int(number)

    def reserve_shapes(self, n: int) -> int:
        """The first of `n` numbers of shapes that nobody else uses."""
        [(after,)] = self._ask(
            "update overrun_counters set value = value + %s where name = 'shapes' returning value",
            [n],
        )
        return int(after) - n + 1

    def count_sweep(self) -> int:
        """Note, while `deleting`, that shapes and sources go; the last number that a shape has. Collectors then look up which ones are stored."""
        self._ask("update overrun_counters set value = value + 1 where name = 'swept'")
        [(last,)] = self._ask("select value from overrun_counters where name = 'shapes'")
        return int(last)

    def stored(self, digests: Sequence[bytes]) -> set[bytes]:
        """Which of these bodies were stored in the last day."""
        rows = self._ask("select hash from overrun_bodies where hash = any(%s)", [list(digests)])
        return {bytes(row[0]) for row in rows}

    def forget_bodies(self, age_s: float) -> None:
        """Delete the hashes of bodies that were stored longer ago."""
        self._ask(
            "delete from overrun_bodies where stored < now() - make_interval(secs => %s)", [age_s]
        )

    def claim(self, holder: str, lasts_s: float, name: str = "assembler") -> Lease | None:
        """Take or keep a lease; None while another process has it."""
        rows = self._ask(
            "update overrun_leases set epoch = epoch + (holder <> %(me)s)::int, holder = %(me)s, until = now() + make_interval(secs => %(lasts)s) "
            "where name = %(name)s and (holder = %(me)s or until < now()) returning epoch, through",
            {"me": holder, "lasts": lasts_s, "name": name},
        )
        return Lease(*map(int, rows[0])) if rows else None

    def note(self, key: str) -> str | None:
        """What was noted under this key."""
        rows = self._ask("select value from overrun_notes where key = %s", [key])
        return str(rows[0][0]) if rows else None

    def set_note(self, key: str, value: str, lease: str, epoch: int) -> None:
        """Note something, as the holder of a lease.

        Raises:
            StoreUnavailable: another process holds the lease now.
        """
        done = self._ask(
            "insert into overrun_notes select %s, %s from overrun_leases where name = %s and epoch = %s "
            "on conflict (key) do update set value = excluded.value returning key",
            [key, value, lease, epoch],
        )
        if not done:
            raise StoreUnavailable(f"another process holds the lease of {lease} now")

    def release(self, holder: str) -> None:
        """Let another process take its leases at once."""
        self._ask(
            "update overrun_leases set until = '-infinity' where holder = %s",
            [holder],
        )

    def move_mark(self, epoch: int, through: int) -> None:
        """Note that every trace up to this snapshot is assembled, where that took no rows. Without effect for a holder of before."""
        self._ask(
            "update overrun_leases set through = %s where name = 'assembler' and epoch = %s and through < %s",
            [through, epoch, through],
        )

    def has_committed(self, epoch: int, round_: int) -> bool:
        """Whether this commit was the last one of the lease with this epoch."""
        [(same,)] = self._ask(
            "select epoch = %s and round = %s from overrun_leases where name = 'assembler'",
            [epoch, round_],
        )
        return bool(same)

    def last_snapshot(self) -> int:
        """The newest snapshot."""
        [(last,)] = self._ask("select coalesce(max(snapshot_id), 0) from ducklake_snapshot")
        return int(last)

    def collected(self, after: int, most: int) -> list[int]:
        """The first snapshots after this one with which collectors stored telemetry."""
        rows = self._ask(
            "select snapshot_id from ducklake_snapshot_changes where snapshot_id > %s and author = %s order by 1 limit %s",
            [after, COLLECTOR, most],
        )
        return [int(row[0]) for row in rows]

    def unread_since(self, kept_s: float) -> float:
        """Since when snapshots are wanted (Unix s): those of the last `kept_s` seconds, and those that the assembler has not passed."""
        [(since,)] = self._ask(
            "select extract(epoch from least(now() - make_interval(secs => %s), (select min(snapshot_time) from ducklake_snapshot "
            "where snapshot_id >= (select through from overrun_leases where name = 'assembler'))))",
            [kept_s],
        )
        return float(since)

    def note_erasing(self, traces: Sequence[tuple[int, int]]) -> None:
        """Note, after their rows were deleted, that these traces are to go from every file."""
        self._ask(
            "with made as (insert into overrun_erasings (snapshot) select max(snapshot_id) from ducklake_snapshot returning id) "
            "insert into overrun_erased select id, hi, lo from made, unnest(%s::numeric[], %s::numeric[]) t(hi, lo)",
            [[hi for hi, _ in traces], [lo for _, lo in traces]],
        )

    def erasings(self) -> list[Erasing]:
        """Those that are not complete, the oldest first."""
        rows = self._ask(
            "select id, not exists (select 1 from ducklake_snapshot_changes c join overrun_leases l on l.name = 'assembler' "
            "where c.author = %s and c.snapshot_id > l.through and c.snapshot_id <= e.snapshot), "
            "rewritten is not null, expired is not null, extract(epoch from now() - asked)::float8 from overrun_erasings e order by id",
            [COLLECTOR],
        )
        return [Erasing(*row) for row in rows]

    def erased(self, number: int) -> list[tuple[int, int]]:
        """The traces of an erasing."""
        rows = self._ask("select trace_hi, trace_lo from overrun_erased where id = %s", [number])
        return [(int(hi), int(lo)) for hi, lo in rows]

    def note_rewritten(self, number: int) -> None:
        """Note that the newest snapshot has no file with rows of an erasing."""
        self._ask(
            "update overrun_erasings set rewritten = (select max(snapshot_id) from ducklake_snapshot) where id = %s",
            [number],
        )

    def end_erasings(self, least_age_s: float) -> int:
        """Note which ones have no snapshot of before any more, and end those whose files are deleted, too; how many ended."""
        self._ask(
            "update overrun_erasings set expired = now() where expired is null and rewritten <= (select min(snapshot_id) from ducklake_snapshot)"
        )
        # DuckLake keeps the first and last text of each column of a table; those of files that are gone, too.
        self._ask(
            "update ducklake_table_column_stats s set min_value = f.least, max_value = f.most from (select c.table_id, c.column_id, "
            """case when bool_and(value_count = 0 or min_value is not null) then min(min_value collate "C") end as least, """
            """case when bool_and(value_count = 0 or max_value is not null) then max(max_value collate "C") end as most """
            "from ducklake_column c left join ducklake_file_column_stats using (table_id, column_id) where c.column_type = 'varchar' "
            "group by c.table_id, c.column_id) f where f.table_id = s.table_id and f.column_id = s.column_id"
        )
        ended = self._ask(
            "delete from overrun_erasings where expired is not null and asked < now() - make_interval(secs => %s) "
            "and not exists (select 1 from ducklake_files_scheduled_for_deletion where schedule_start <= expired) returning id",
            [least_age_s],
        )
        return len(ended)

    def numbers_for(self, name: str, batches: int, shapes: int) -> tuple[int, int]:
        """What is added to the numbers of a file's commits and shapes, so that no other has them; the same each time for the same file."""
        held = f"move {name}"
        with self.deleting():
            self._ask(
                "insert into overrun_counters select %(batch)s, last_value from overrun_commits where not exists (select 1 from overrun_counters where name = %(batch)s) "
                "on conflict do nothing",
                {"batch": f"{held} batch"},
            )
            self._ask(
                "select setval('overrun_commits', greatest(last_value, (select value from overrun_counters where name = %s) + %s)) from overrun_commits",
                [f"{held} batch", batches + 1],
            )
            self._ask(
                "insert into overrun_counters select %(shape)s, value from overrun_counters where name = 'shapes' on conflict do nothing",
                {"shape": f"{held} shape"},
            )
            self._ask(
                "update overrun_counters set value = greatest(value, (select value from overrun_counters where name = %s) + %s) where name = 'shapes'",
                [f"{held} shape", shapes],
            )
        rows = self._ask(
            "select value from overrun_counters where name like %s order by name", [f"{held} %"]
        )
        [(batch,), (shape,)] = rows
        return int(batch), int(shape)

    def moved(self, name: str) -> set[int]:
        """The parts of a file that are stored."""
        rows = self._ask("select part from overrun_moved where part like %s", [f"{name}:%"])
        return {int(part.rpartition(":")[2]) for (part,) in rows}

    def add_bodies(self, bodies: Sequence[tuple[bytes, int]]) -> None:
        """Bodies that were stored elsewhere, with when (ns): those of the last day count as stored."""
        self._ask(
            "insert into overrun_bodies select hash, to_timestamp(ns / 1e9) from unnest(%s::bytea[], %s::bigint[]) t(hash, ns) "
            "where to_timestamp(ns / 1e9) > now() - interval '1 day' on conflict do nothing",
            [[digest for digest, _ in bodies], [ns for _, ns in bodies]],
        )

    def overview(self) -> Overview:
        """Counts of this moment."""
        [(snapshots, oldest_s, erasings, files)] = self._ask(
            "select count(*), coalesce(extract(epoch from now() - min(snapshot_time)), 0)::float8, (select count(*) from overrun_erasings), "
            "(select count(*) from ducklake_files_scheduled_for_deletion) from ducklake_snapshot"
        )
        held = self._ask(
            "select name, case when until > now() then holder else '' end from overrun_leases order by name"
        )
        holders = {str(name): str(holder) for name, holder in held}
        return Overview(int(snapshots), float(oldest_s), int(erasings), int(files), holders)

    def table_sizes(self) -> list[tuple[str, int, int, int, int]]:
        """Per table: name, rows, files, bytes and files of deleted rows in the newest snapshot."""
        rows = self._ask(
            "select t.table_name, coalesce(sum(f.record_count), 0)::bigint, count(f.data_file_id), coalesce(sum(f.file_size_bytes), 0)::bigint, "
            "(select count(*) from ducklake_delete_file d where d.table_id = t.table_id and d.end_snapshot is null) "
            "from ducklake_table t left join ducklake_data_file f on f.table_id = t.table_id and f.end_snapshot is null "
            "where t.end_snapshot is null group by t.table_id, t.table_name order by t.table_name"
        )
        return [(str(row[0]), *map(int, row[1:])) for row in rows]  # type: ignore[misc]

    def files(self) -> list[tuple[str, int]]:
        """Every file of data that a snapshot has: its place below the folder, and its rows."""
        rows = self._ask(
            "select s.path || t.path || f.path, f.record_count from ducklake_data_file f join ducklake_table t on t.table_id = f.table_id and t.end_snapshot is null "
            "join ducklake_schema s on s.schema_id = t.schema_id and s.end_snapshot is null where f.path_is_relative"
        )
        return [(str(path), int(n)) for path, n in rows]

    def newest_snapshot(self) -> int:
        """The newest snapshot, as of a quarter of a second ago."""
        if time.monotonic() - self._asked_s >= _SNAPSHOT_S:
            self._snapshot = self.last_snapshot()
            self._asked_s = time.monotonic()
        return int(self._snapshot)

    def assembled_until(self) -> float | None:
        """When the first snapshot came that is not assembled as a whole (Unix s); None if there is none."""
        [(at,)] = self._ask(
            "select extract(epoch from min(snapshot_time)) from ducklake_snapshot join ducklake_snapshot_changes using (snapshot_id) "
            "where author = %s and snapshot_id > (select through from overrun_leases where name = 'assembler')",
            [COLLECTOR],
        )
        return None if at is None else float(at)


def _driver() -> Any:
    """The module that speaks to PostgreSQL, which only a lake needs."""
    try:
        import psycopg
    except ModuleNotFoundError as error:
        raise StoreError(
            "a lake needs a driver of PostgreSQL: pip install 'overrun[lake]'"
        ) from error
    return psycopg
