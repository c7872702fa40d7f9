"""What do the processes of a lake agree on? The tables of catalog.sql in its PostgreSQL database: stored bodies, numbers, the lease of the assembler.

Each call is one statement of its own. What must hold together with a snapshot is done by the trigger of catalog.sql instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from overrun.collector.errors import StoreError, StoreUnavailable

COLLECTOR: Final = "overrun collector"
ASSEMBLER: Final = "overrun assembler"
# A PostgreSQL that does not answer is given up after so long; senders are asked to come again meanwhile.
_CONNECT_S = 5
_LOCK = 0x6F7665727275  # of the advisory lock under which a lake is made
# A reader asks for the newest snapshot at most so often: its answers are as old as that at most.
_SNAPSHOT_S = 0.25


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to assemble. A later holder has a higher epoch; `through` is the snapshot up to which earlier ones have assembled every trace."""

    epoch: int
    through: int


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

    def is_made(self) -> bool:
        """Whether the lake has our tables. They are made last."""
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

    def newest_snapshot(self) -> int:
        """The newest snapshot, as of a quarter of a second ago."""
        if time.monotonic() - self._asked_s >= _SNAPSHOT_S:
            [(self._snapshot,)] = self._ask(
                "select coalesce(max(snapshot_id), 0) from ducklake_snapshot"
            )
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
