"""kill -9 in the midst of what a file goes through: checkpoint, migration, retention, rollup, erasing, recovery. One round of each, with its checks.

What is offline happens in a process of its own (crash_steps.py) to a copy of a file that was made once, and is killed at a moment drawn from the time that
the step takes. Afterwards the file is opened as the next start would, compared with what it has to hold, and the step is run to its end and compared again.
Checks are by ids and values; nothing may be left beside the file.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import zstandard

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.config import CollectorSettings, PrivacySettings
from overrun.collector.errors import StoreVersion
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import TRACES
from overrun.collector.lifecycle.forget import found_in_bytes, names
from overrun.collector.lifecycle.migrate import migrate
from overrun.collector.store.database import BATCH_BITS, open_store, tables
from overrun.collector.store.proof import Contents, contents
from tests.benchmarks import results
from tests.benchmarks.crash import PATIENCE_S, Load, count
from tests.benchmarks.crash_steps import LEAVING
from tests.benchmarks.results import Figure, add_write_flag, measured, record
from tests.benchmarks.sent import compare, known
from tests.collector.conftest import body, span
from tests.conftest import ServerProcess

ROOT = Path(__file__).parents[2]
EARLIER: Final = sorted((ROOT / "tests/collector/data").glob("schema_*.db.zst"))
BODIES, SPANS = 240, 30  # of the file that is erased from and folded
COPIES = 1_500  # of what an earlier build's file holds, under other ids
KEPT_S = 4.0  # of the retention rounds
LOG_BYTES = 160 * 65_536  # a checkpoint comes when the log is so long (store/database.py)
MINUTE_NS = 60 * 10**9


@dataclass(frozen=True)
class Verdict:
    """What one round showed; `midst` says whether the kill came before the step had ended."""

    moment: str
    lost: int = 0
    changed: int = 0
    doubled: int = 0
    leftovers: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    midst: bool = True
    spans: int = 0

    @property
    def right(self) -> bool:
        """Whether nothing is lost, changed, doubled or left."""
        return not (self.lost or self.changed or self.doubled or self.leftovers or self.wrong)


@dataclass
class Rounds:
    """What the rounds share: their folder, the dice, how long each step takes here, and files that are made once."""

    folder: Path
    dice: random.Random
    takes_s: dict[str, float] = field(default_factory=dict)
    load: Load = field(default_factory=Load)

    @property
    def db(self) -> Path:
        """The file of the round."""
        return self.folder / "t.db"

    def fresh(self) -> None:
        """Take away the file of the round before, and what was left with it."""
        for path in self.folder.glob("t.db*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    # --- files that are made once ---

    @cached_property
    def full(self) -> Path:
        """A file of requests over some days, a third of them by the user who leaves."""
        path = self.folder / "full.db"
        settings = CollectorSettings(db=str(path), quiet_s=3600.0)
        pipeline = Pipeline(open_store(path, create=True), settings, PrivacySettings(), assemble)
        for first in range(1, BODIES + 1, 10):
            stored = [pipeline.writer.submit(TRACES, whose(n)) for n in range(first, first + 10)]
            for future in stored:
                future.result(PATIENCE_S)
        pipeline.drain()
        pipeline.close()
        return path

    @cached_property
    def staying(self) -> list[pa.Table]:
        """The spans of `full` that stay."""
        return [known(whose(n)) for n in range(1, BODIES + 1) if n % 3]

    @cached_property
    def leaving(self) -> list[pa.Table]:
        """The spans of `full` that are erased."""
        return [known(whose(n)) for n in range(1, BODIES + 1) if not n % 3]

    def earlier(self, path: Path) -> tuple[Path, dict[str, Contents]]:
        """A file of an earlier build, with many more rows; and what it holds once migrated."""
        grown = self.folder / path.name.removesuffix(".zst")
        if not grown.exists():
            data = zstandard.ZstdDecompressor().decompress(path.read_bytes(), 1 << 26)
            grown.write_bytes(data)
            grow(grown)
        migrated = self.folder / f"migrated-{grown.name}"
        if not migrated.exists():
            shutil.copy(grown, migrated)
            migrate(migrated)
        return grown, held(migrated)

    # --- steps in a process of their own ---

    def interrupted(self, step: str) -> bool:
        """Run a step on the file and kill it at a random moment; whether that came before its end."""
        process = begun(step, self.db)
        began = time.monotonic()
        takes_s = self.takes_s.setdefault(step, 0.3)
        time.sleep(self.dice.random() * takes_s)
        midst = process.poll() is None
        process.kill()
        assert process.stdout is not None
        midst = midst and b"done" not in process.stdout.read()
        process.wait()
        process.stdout.close()
        # So that most kills come in the midst, and some right after the end, however busy the machine is.
        self.takes_s[step] = (
            takes_s * 1.15 if midst else max(0.02, 0.85 * (time.monotonic() - began))
        )
        return midst

    def ended(self, step: str) -> None:
        """Run a step on the file to its end."""
        process = begun(step, self.db)
        assert process.stdout is not None
        said = process.stdout.read()
        process.stdout.close()
        assert process.wait() == 0, f"{step} does not end after a kill"
        assert b"done" in said


def begun(step: str, db: Path) -> subprocess.Popen[bytes]:
    """A process that has begun a step."""
    command = [sys.executable, "-m", "tests.benchmarks.crash_steps", step, str(db)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begin\n", f"{step} does not begin"
    return process


def whose(number: int) -> bytes:
    """The body of a number: a request ten minutes after the one before, every third one of the user who leaves."""
    who = LEAVING if not number % 3 else f"user-who-stays-{number % 7}"
    at = number * 600_000.0
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "user.id": who}
    return body(
        [
            span(number, 1, name="POST /chat", kind=2, start_ms=at, attributes={"user.id": who}),
            span(number, 2, 1, name="chat m", start_ms=at, ms=5, attributes=call),
            *(
                span(number, i, 1, start_ms=at, attributes={"step": f"{number}.{i}"})
                for i in range(3, SPANS + 1)
            ),
        ]
    )


def grow(path: Path) -> None:
    """Many copies of what a file of an earlier build holds, under other ids and numbers of commits."""
    with duckdb.connect(str(path)) as connection:
        columns: dict[str, list[str]] = {}
        for table, column in connection.execute(
            "select table_name, column_name from duckdb_columns() where not internal and database_name = current_database() "
            "and table_name in (select table_name from duckdb_tables())"
        ).fetchall():
            columns.setdefault(table, []).append(column)
        for table, has in columns.items():
            other = {
                "trace_hi": "trace_hi + i.n",
                "batch": "batch + i.n * 1000",
                "seq": f"seq + (i.n::bigint * 1000 << {BATCH_BITS})",
            }
            replaced = [
                f"({other[name]})::{_type(name)} as {name}" for name in has if name in other
            ]
            if replaced and table not in ("span_notes", "points"):
                connection.execute(
                    f"insert into {table} select t.* replace ({', '.join(replaced)}) "
                    f"from {table} t, range(1, {COPIES} + 1) i(n)"
                )
        connection.execute("checkpoint")


def _type(column: str) -> str:
    return "ubigint" if column == "trace_hi" else "bigint"


def held(path: Path) -> dict[str, Contents]:
    """What a file holds, view by view, and how many rows its tables have."""
    open_store(path, create=False).close()
    with duckdb.connect(str(path), read_only=True) as connection:
        views = ("v_spans", "v_requests", "v_llm_calls", "v_metric_points")
        found = {view: contents(connection, view) for view in views}
        for table in tables(connection):
            [(rows,)] = connection.execute(f"select count(*) from {table}").fetchall()
            found[table] = Contents(int(rows), None)
    return found


def leftovers(db: Path) -> tuple[str, ...]:
    """What lies beside a file that was opened and closed, and should not; a file that others may read."""
    kept = {db.name, f"{db.name}.audit.jsonl"}
    left = [path.name for path in db.parent.glob(f"{db.name}*") if path.name not in kept]
    mode = db.stat().st_mode & 0o777
    return (*sorted(left), *([f"mode {mode:o}"] if mode & 0o077 else []))


def unequal_tables(db: Path) -> tuple[str, ...]:
    """Rows without their commit, and commits without their rows."""
    store = open_store(db, create=False)
    connection = store.connection
    wrong = []
    try:
        [(uneven,)] = connection.execute(
            f"select count(*) from batches b full join (select seq >> {BATCH_BITS} as batch, count(*) as n from spans group by all) s "
            "using (batch) where coalesce(b.spans, -1) <> coalesce(n, 0)"
        ).fetchall()
        if uneven:
            wrong.append(f"{uneven} commits have another number of spans than they say")
        [(alone,)] = connection.execute(
            "select count(*) from span_values where seq not in (select seq from spans)"
        ).fetchall()
        if alone:
            wrong.append(f"{alone} rows of span_values have no span")
        for table in ("span_events", "span_links", "points", "span_notes", "requests", "llm_calls"):
            [(without,)] = connection.execute(
                f"select count(*) from {table} where batch not in (select batch from batches)"
            ).fetchall()
            if without:
                wrong.append(f"{without} rows of {table} are of no commit")
        [(twice,)] = connection.execute(
            "select count(*) - count(distinct (trace_hi, trace_lo)) from requests"
        ).fetchall()
        if twice:
            wrong.append(f"{twice} requests stand twice")
    finally:
        store.close()
    return tuple(wrong)


def of_load(moment: str, rounds: Rounds, *, midst: bool = True) -> Verdict:
    """The file of a server that was killed, beside what its senders know."""
    found = count(rounds.db, rounds.load)
    wrong = unequal_tables(rounds.db)
    if found.unknown:
        wrong = (*wrong, f"{found.unknown} spans were never sent")
    return Verdict(
        moment,
        found.lost,
        found.changed,
        found.doubled,
        leftovers(rounds.db),
        wrong,
        midst,
        found.stored,
    )


# --- the moments ---


def commit(rounds: Rounds) -> Verdict:
    """While senders send, after a random number of answers."""
    under_load(rounds, lambda _: rounds.load.reached(wanted(rounds, 100)))
    return of_load("commit", rounds)


def checkpoint(rounds: Rounds) -> Verdict:
    """When the log has grown as long as it may, or within the next tenths of a second."""
    rounds.fresh()
    rounds.load = Load(400)
    log = rounds.folder / "t.db.wal"
    midst = False

    def long(_: ServerProcess) -> None:
        nonlocal midst
        until = time.monotonic() + 300
        while time.monotonic() < until and size(log) < LOG_BYTES:
            time.sleep(0.001)
        time.sleep(rounds.dice.random() * rounds.dice.choice((0.0, 0.02, 0.1, 0.4)))
        # DuckDB writes what is committed meanwhile into a log of another name.
        midst = size(log) >= LOG_BYTES or len([*rounds.folder.glob("t.db*wal*")]) > 1

    under_load(rounds, long)
    verdict = of_load("checkpoint", rounds, midst=midst)
    rounds.fresh()
    rounds.load = Load()
    return verdict


def recovery(rounds: Rounds) -> Verdict:
    """In the start after a kill, once to three times in a row; then in the midst of assembling what was recovered."""
    under_load(rounds, lambda _: rounds.load.reached(wanted(rounds, 60)))
    midst = False
    for _ in range(rounds.dice.randint(1, 2)):
        midst = rounds.interrupted("open") or midst
    server = ServerProcess(rounds.db)
    time.sleep(rounds.dice.random() * 0.5)
    server.kill()
    return of_load("recovery", rounds, midst=midst)


def retention(rounds: Rounds) -> Verdict:
    """While what is older than seconds goes and senders send. What was sent since may not be gone; of a body all spans are there, or none."""
    rounds.fresh()
    rounds.load = load = Load()
    settings = rounds.folder / "retention.toml"
    settings.write_text(
        f"[retention]\nmax_age_days = {KEPT_S / 86_400:.9f}\ncheck_s = 0.3\n", encoding="utf-8"
    )
    sent_ns: dict[int, int] = {}
    load.sending = lambda number: sent_ns.setdefault(number, time.time_ns())

    def until_expired(_: ServerProcess) -> None:
        load.reached(20)
        time.sleep(KEPT_S + rounds.dice.random() * 4)

    under_load(rounds, until_expired, "--config", str(settings))
    kept_since = time.time_ns() - int(KEPT_S * 1e9)
    open_store(rounds.db, create=False).close()
    with duckdb.connect(str(rounds.db), read_only=True) as connection:
        stored = dict(
            connection.execute(
                "select trace_lo, count(*)::int from spans group by trace_lo"
            ).fetchall()
        )
    wrong = []
    parts = [n for n, spans in stored.items() if spans != load.spans]
    if parts:
        wrong.append(f"{len(parts)} bodies are there in part")
    gone = load.acknowledged - set(stored)
    early = {n for n in gone if sent_ns[n] > kept_since}
    if early:
        wrong.append(f"{len(early)} bodies are gone before their time")
    load.acknowledged -= gone - early
    verdict = of_load("retention", rounds, midst=bool(gone))
    rounds.fresh()
    rounds.load = Load()
    return replace(verdict, wrong=(*verdict.wrong, *wrong))


def migration(rounds: Rounds) -> Verdict:
    """Of a file of an earlier build: afterwards it is of that build or of this one, and migrating it again makes it what it would have been."""
    rounds.fresh()
    before, expected = rounds.earlier(rounds.dice.choice(EARLIER))
    shutil.copy(before, rounds.db)
    rounds.db.chmod(0o600)
    midst = rounds.interrupted("migrate")
    with contextlib.suppress(StoreVersion):  # of the earlier build still
        open_store(rounds.db, create=False).close()
    migrate(rounds.db)
    found = held(rounds.db)
    differs = [name for name, was in expected.items() if found.get(name) != was]
    fewer = sum(max(0, expected[name].rows - found[name].rows) for name in differs)
    more = sum(max(0, found[name].rows - expected[name].rows) for name in differs)
    changed = len(differs) if not fewer and not more else 0
    wrong = tuple(f"{before.name}: {name} is not what it was" for name in differs)
    spans = found["spans"].rows
    return Verdict("migration", fewer, changed, more, leftovers(rounds.db), wrong, midst, spans)


def rollup(rounds: Rounds) -> Verdict:
    """Of hours of requests: each minute before the watermark holds its requests once, after the kill and once the rest is folded."""
    rounds.fresh()
    shutil.copy(rounds.full, rounds.db)
    midst = rounds.interrupted("fold")
    wrong = folded_wrong(rounds.db, whole=False)
    rounds.ended("fold")
    wrong += folded_wrong(rounds.db, whole=True)
    found = compare(rounds.db, [*rounds.staying, *rounds.leaving])
    return Verdict(
        "rollup",
        found.lost,
        found.changed,
        found.doubled,
        leftovers(rounds.db),
        (*wrong, *unequal_tables(rounds.db)),
        midst,
        found.stored,
    )


def folded_wrong(db: Path, *, whole: bool) -> tuple[str, ...]:
    """Minutes whose rollup is not the number of their requests; those from the watermark on have none (`whole`: there are none from it on)."""
    store = open_store(db, create=False)
    try:
        through = int(store.meta("rolled_up_through") or 0)
        minute = f"start_ns // {MINUTE_NS} * {MINUTE_NS}"
        [(wrong, folded, left)] = store.connection.execute(
            f"with r as (select {minute} as m, count(*) as n from requests group by all), "
            "f as (select minute_ns as m, sum(requests) as k from rollup_counts group by all) "
            "select count(*) filter (where case when m < $through then coalesce(n, 0) <> coalesce(k, 0) else k is not null end), "
            "coalesce(sum(k), 0), count(*) filter (where m >= $through) from r full join f using (m)",
            {"through": through},
        ).fetchall()
    finally:
        store.close()
    if wrong:
        return (f"{wrong} minutes are folded wrongly",)
    return ("nothing was folded",) if whole and (left or not folded) else ()


def erasing(rounds: Rounds) -> Verdict:
    """Of a user's requests: afterwards all of them are there or none, and erasing again leaves no byte of their name."""
    rounds.fresh()
    shutil.copy(rounds.full, rounds.db)
    midst = rounds.interrupted("erase")
    open_store(rounds.db, create=False).close()
    wrong = list(leftovers(rounds.db))
    found = compare(rounds.db, rounds.staying, rounds.leaving)
    stay, leave = (sum(t.num_rows for t in part) for part in (rounds.staying, rounds.leaving))
    if found.stored not in (stay, stay + leave):
        wrong.append(f"{found.stored - stay} of {leave} spans are erased in part")
    lost, changed, doubled = found.lost, found.changed, found.doubled
    rounds.ended("erase")
    found = compare(rounds.db, rounds.staying)
    wrong += [f"{found.unknown} spans were not erased"] if found.unknown else []
    store = open_store(rounds.db, create=False)
    named = names(store.salt(), user=LEAVING)
    store.close()
    if found_in_bytes(rounds.db, named):
        wrong.append("the user's name is still in the file")
    return Verdict(
        "erasing",
        lost + found.lost,
        changed + found.changed,
        doubled + found.doubled,
        leftovers(rounds.db),
        (*wrong, *unequal_tables(rounds.db)),
        midst,
        found.stored,
    )


MOMENTS: Final[dict[str, Callable[[Rounds], Verdict]]] = {
    "commit": commit,
    "checkpoint": checkpoint,
    "migration": migration,
    "retention": retention,
    "rollup": rollup,
    "erasing": erasing,
    "recovery": recovery,
}
# Their rounds go on with one file, which grows; the others make theirs anew.
GROWING: Final = ("commit", "recovery")
MOST_BODIES = 6_000  # of a file that grows


def wanted(rounds: Rounds, most: int) -> int:
    """A number of answers that comes soon."""
    return len(rounds.load.acknowledged) + rounds.dice.randint(1, most)


def size(path: Path) -> int:
    """Bytes of a file, 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def under_load(rounds: Rounds, until: Callable[[ServerProcess], object], *arguments: str) -> None:
    """Start a server, send to it until `until` has returned, and kill it."""
    ports = ("--grpc-port", "0", "--http-port", "0")
    server = ServerProcess(rounds.db, *ports, *arguments)
    stop = threading.Event()
    threads = rounds.load.start(server.http, stop)
    try:
        until(server)
        time.sleep(rounds.dice.random() * 0.05)
    finally:
        server.kill()
        stop.set()
    for thread in threads:
        thread.join(600)


def run(
    folder: Path,
    rounds: int,
    seed: int,
    moments: tuple[str, ...] = tuple(MOMENTS),
    within_s: float = math.inf,
) -> list[Verdict]:
    """So many rounds, each moment in turn; none begins after `within_s`."""
    shared = Rounds(folder, random.Random(seed))
    out: list[Verdict] = []
    growing = False
    until = time.monotonic() + within_s
    while len(out) < rounds and time.monotonic() < until:
        moment = moments[len(out) % len(moments)]
        if moment in GROWING and (not growing or len(shared.load.acknowledged) > MOST_BODIES):
            shared.fresh()
            shared.load = Load()
        growing = moment in GROWING
        out.append(MOMENTS[moment](shared))
        print(f"{len(out)}: {out[-1]}", flush=True)
    return out


def figures(found: list[Verdict], seed: int, *, add: bool = False) -> list[Figure]:
    """The headlines for docs/results; with `add`, together with the rounds of the runs that are recorded there."""
    earlier = {figure.what: figure for figure in results.read("durability")} if add else {}
    each = Counter(v.moment for v in found)
    midst = Counter(v.moment for v in found if v.midst)
    rounds = ", ".join(f"{name} {midst[name]} of {n} in the midst" for name, n in each.items())
    conditions = f"{len(found)} rounds of kill -9, seed {seed}: {rounds}"
    sums = {
        "Acknowledged spans lost": (sum(v.lost for v in found), "spans"),
        "Spans stored twice": (sum(v.doubled for v in found), "spans"),
        "Spans with another value": (sum(v.changed for v in found), "spans"),
        "Files left behind, or readable by others": (sum(len(v.leftovers) for v in found), "files"),
        "Rounds with rows of no commit, half an erasing or a wrong rollup": (
            sum(bool(v.wrong) for v in found),
            "rounds",
        ),
    }
    out = []
    for name, (value, unit) in sums.items():
        what = f"{name}: any moment"
        was = earlier.get(what)
        before = 0 if was is None or isinstance(was.value, tuple) else int(was.value)
        rounds_before = 0 if was is None else int(was.more.get("rounds", 0))
        more: dict[str, int | str] = {"rounds": len(found) + rounds_before}
        if was is not None and rounds_before:
            runs = was.more.get("runs", f"{was.build}: {was.conditions.partition(';')[0]}")
            more["runs"] = f"{runs}; {conditions}"
        out.append(
            measured(
                what,
                value + before,
                unit,
                script="make bench-crash",
                conditions=conditions,
                more=more,
            )
        )
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--moment", nargs="+", choices=tuple(MOMENTS), default=list(MOMENTS))
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin none after these")
    add_write_flag(parser)
    parser.add_argument(
        "--add", action="store_true", help="with --write: add to the rounds that are recorded"
    )
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="overrun-crash-") as name:
        moments = tuple(chosen.moment)
        found = run(Path(name), chosen.rounds, chosen.seed, moments, chosen.minutes * 60)
    for figure in figures(found, chosen.seed):
        print(f"{figure.what}: {figure.value} ({figure.conditions})")
    if chosen.write:
        record("durability", figures(found, chosen.seed, add=chosen.add))
    return int(not all(v.right for v in found))


if __name__ == "__main__":
    sys.exit(main())
