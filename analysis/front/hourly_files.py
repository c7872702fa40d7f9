"""How do closed hours become files? One Parquet file per kind, hour and store, written once and again only when the hour has changed.

The folder is the only memory: each file says in its metadata what it was made from (`held_hours.Note`), and a round compares that with what the store holds
now. A file is written under another name in its folder, and takes its place in one step. What retention has let go of stays as it was exported.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Final, Protocol

from overrun.analysis.front import export
from overrun.analysis.front.export import BadExport
from overrun.analysis.front.held_hours import HOUR, HOUR_FORM, MOST_HOURS, HeldHours, Note
from overrun.analysis.numbers.window import make_window
from overrun.analysis.words.finding import say_count
from overrun.analysis.words.times import rfc3339

# A trace that never goes quiet is assembled every 15 minutes at least (`max_trace_age_s`): by then an hour has what was under way at its end.
GRACE: Final = timedelta(minutes=15)
# Hours close once an hour; late spans are rare.
EVERY_S: Final = 300.0
# What a round writes unless kinds are named: prompts are on request.
KINDS: Final = ("requests", "llm-calls", "spans", "metrics")
_SHARD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOUR: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}")
_PART: Final = ".part"


class Hours(Protocol):
    """A store to export from, a file or a server."""

    def hours(self, kind: str, start: str | None, end: str) -> HeldHours:
        """The hours of [start, end) with rows."""

    def save(self, kind: str, start: str, end: str, out: IO[bytes]) -> None:
        """Write the rows of [start, end) as Parquet."""


@dataclass(slots=True)
class Round:
    """What one round did, in files; `kept` hours have changed in the store, which no longer holds all of what the file has. `left_out` hours are too old."""

    new: int = 0
    again: int = 0
    unchanged: int = 0
    kept: int = 0
    left_out: int = 0

    @property
    def written(self) -> int:
        """Files that were written."""
        return self.new + self.again

    def __str__(self) -> str:
        text = f"wrote {say_count(self.new, 'file')} of new hours and {say_count(self.again, 'file')} of hours that had changed; {self.unchanged:,} are unchanged"
        if self.kept:
            text += f"\n{say_count(self.kept, 'file')} stayed as exported: the hours have changed, but retention has deleted a part of them"
        if self.left_out:
            text += f"\nonly the newest {MOST_HOURS:,} hours of a kind were looked at, {self.left_out:,} are older: choose those with --from and --to"
        return text


@dataclass(slots=True)
class HourlyFiles:
    """A folder of files `KIND/hour=HOUR/shard=SHARD/KIND.parquet`. `shard` None: the store's own name."""

    folder: Path
    shard: str | None = None
    _notes: dict[Path, tuple[tuple[int, int, int], Note | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.shard is not None:
            check_shard(self.shard)

    def write(
        self,
        store: Hours,
        kinds: Sequence[str],
        asked: Mapping[str, str | None],
        now: datetime,
    ) -> Round:
        """Write the closed hours of a window (`since`, `from`, `to`) that are not there as the store holds them.

        Raises:
            WindowError: a time that cannot be read.
            BadExport: the folder has files of another store under this name, another process writes there, or the store answers with something else.
            OSError: the folder cannot be written.
        """
        window = make_window(
            now=now, since=asked.get("since"), from_=asked.get("from"), to=asked.get("to")
        )
        start, closed = window.start, min(now - GRACE, window.end or now)
        done = Round()
        if start is not None and start >= closed:
            return done
        texts = (rfc3339(start) if start else None, rfc3339(closed))
        for kind in kinds:
            export.check(kind, "parquet")
            self._write_kind(store, kind, store.hours(kind, *texts), done)
        return done

    def _write_kind(self, store: Hours, kind: str, held: HeldHours, done: Round) -> None:
        shard = check_shard(self.shard or held.store)
        place = _Place(self.folder, kind, shard)
        done.left_out += held.left_out
        with place.locked():
            place.remove_parts()
            marks = {_checked(found.hour): found.mark for found in held.hours[:MOST_HOURS]}
            # Of an hour that was erased as a whole nothing is listed; its file must go empty, too.
            gone = [
                hour
                for hour in place.hours()
                if hour not in marks and (held.since or "") <= hour < (held.until or "9999")
            ]
            for hour in sorted([*marks, *gone]):
                was = self._note(place.file(hour), held.store)
                if was is not None and was.mark == marks.get(hour, ""):
                    done.unchanged += 1
                elif was is None:
                    self._write_hour(store, place, hour, was)
                    done.new += 1
                elif _is_held(was, held.first_commit) and self._write_hour(store, place, hour, was):
                    done.again += 1
                else:
                    done.kept += hour in marks

    def _note(self, path: Path, store: str) -> Note | None:
        """What a file says of itself; None where there is none, or none that can be read."""
        try:
            stat = path.stat()
        except FileNotFoundError:
            return None
        seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        known = self._notes.get(path)
        if known is None or known[0] != seen:
            try:
                note = export.read_note(path)
            except BadExport:  # damaged: it is written anew
                return None
            known = self._notes[path] = seen, note
        note = known[1]
        if note is None or note.store != store:
            raise BadExport(
                f"{path} is of another store: give this one a name of its own with --shard"
            )
        return note

    def _write_hour(self, store: Hours, place: _Place, hour: str, was: Note | None) -> bool:
        """Put an hour in its place; False where the store has let go of a part of it meanwhile."""
        start = datetime.strptime(hour, HOUR_FORM).replace(tzinfo=UTC)
        path = place.file(hour)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}{_PART}")
        try:
            with _created(part) as out:
                store.save(place.kind, rfc3339(start), rfc3339(start + HOUR), out)
                out.flush()
                os.fsync(out.fileno())
            note = export.read_note(part)
            if note is None or (note.kind, note.hour) != (place.kind, hour):
                raise BadExport(
                    f"the answer is not the file of {place.kind} of {hour}: is the server as new as this Overrun?"
                )
            if was is not None and not _is_held(was, note.held_from):
                return False
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return True


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the files of one kind and shard are."""

    folder: Path
    kind: str
    shard: str

    def file(self, hour: str) -> Path:
        return self._of(f"hour={hour}") / f"{self.kind}.parquet"

    def _of(self, hour: str) -> Path:
        return self.folder / self.kind / hour / f"shard={self.shard}"

    def hours(self) -> list[str]:
        """The hours that have a file."""
        names = (
            path.name.removeprefix("hour=") for path in (self.folder / self.kind).glob("hour=*")
        )
        return [name for name in names if _HOUR.fullmatch(name) and self.file(name).exists()]

    def remove_parts(self) -> None:
        """What a killed round left behind."""
        for hour in (self.folder / self.kind).glob("hour=*"):
            self._of(hour.name).joinpath(f".{self.kind}.parquet{_PART}").unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among the processes that write this shard."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _created(self.folder / f".{self.shard}.lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BadExport(
                    f"another process writes the shard {self.shard!r} in {self.folder}: let one do it, or use another --shard"
                ) from error
            yield


def check_shard(name: str) -> str:
    """Return a name that can be a part of a path on any system.

    Raises:
        BadExport: it cannot.
    """
    if not _SHARD.fullmatch(name):
        raise BadExport(
            f"shard {name[:64]!r} is no name: use up to 64 letters, digits, '-', '_' and '.', the first a letter or digit"
        )
    return name


def _checked(hour: str) -> str:
    """An hour as a server says it, which becomes a part of a path."""
    with suppress(ValueError):
        if _HOUR.fullmatch(hour) and datetime.strptime(hour, HOUR_FORM):  # noqa: DTZ007
            return hour
    raise BadExport(f"hour {hour[:32]!r} is not written as 2026-11-26T14: is it an Overrun server?")


def _is_held(note: Note, first_commit: int) -> bool:
    """Whether a store that holds the commits from `first_commit` on holds all that a file was made from."""
    return note.first_commit is None or note.first_commit >= first_commit


def _created(path: Path) -> IO[bytes]:
    """A file that its owner alone may read."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, 0o600)

    return open(path, "wb", opener=opener)
