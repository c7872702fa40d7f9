"""What do the processes of a lake agree on? The tables of catalog.sql in its PostgreSQL database: stored bodies, numbers, the lease of the assembler.

Each call is one statement of its own. What must hold together with a snapshot is done by the trigger of catalog.sql instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from overrun.collector.errors import StoreError, StoreUnavailable

COLLECTOR: Final = "overrun collector"
ASSEMBLER: Final = "overrun assembler"
MIGRATION: Final = "overrun migration"
# A PostgreSQL that does not answer is given up after so long; senders are asked to come again meanwhile.
_CONNECT_S = 5
# Advisory locks: under which a lake is made; which every commit shares, and a deletion has alone.
_LOCK, _CHANGES = 0x6F7665727275, 0x6F7665727276
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

    @contextmanager
    def deleting(self) -> Iterator[None]:
        """No writer commits for as long as the block lasts, which is to be short. Of a connection of its own: locks of one connection do not exclude each other."""
        other = Catalog(self._address)
        try:
            other._ask("select pg_advisory_lock(%s)", [_CHANGES])
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
