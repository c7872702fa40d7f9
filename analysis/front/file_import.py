"""Who takes in what files hold: a database here, or a running server? Both by the road of live traffic."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from overrun.analysis.assembly.assemble import assemble
from overrun.analysis.front.client import TIMEOUT_S, Client, Refused
from overrun.analysis.front.predictor_watch import Lengths
from overrun.analysis.words.finding import printable, say_count
from overrun.collector.config import Settings
from overrun.collector.errors import CollectorError, ImportFailed, QueueFull
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import LOGS, METRICS, TRACES, Stored
from overrun.collector.normalise import log_records
from overrun.collector.process import compiled
from overrun.collector.sources import log_events
from overrun.collector.sources.account import Account, merged
from overrun.collector.sources.importer import (
    Imported,
    find_files,
    is_page,
    own_forms,
    read_bodies,
    says_its_times,
)
from overrun.collector.sources.page_times import engines_of, page_times
from overrun.collector.store.counts import counted
from overrun.collector.store.database import open_store

# Bodies handed to the writer before their commits are awaited: enough to fill a commit, few enough to bound memory.
IN_FLIGHT = 64
# Up to so many bytes are taken in without compiled code: loading it costs as much (0.25 MiB: 2.7 s of CPU, 2026-11-28), compiling it more (50 s).
_FEW_BYTES, _MORE_BYTES = 1 << 20, 16 << 20


def import_files(
    paths: Sequence[Path],
    settings: Settings,
    *,
    url: str | None,
    progress: Callable[[int, int], None],
    watched: Lengths | None = None,
    every_s: float | None = None,
    map_file: Path | None = None,
) -> str:
    """Take files in, into the settings' database or through a server; returns after assembly with a sentence about what came of it.

    `watched` predicts the calls as they are assembled into the database. Saved metrics pages were read `every_s` apart, in the order of their names.

    Raises:
        ImportFailed: nothing to import, or a file that is not OTLP (what came before it is stored). CollectorError: nobody took it.
    """
    done = take_in(
        paths,
        settings,
        url=url,
        progress=progress,
        watched=watched,
        every_s=every_s,
        map_file=map_file,
    )
    return _told(done)


def take_in(
    paths: Sequence[Path],
    settings: Settings,
    *,
    url: str | None,
    progress: Callable[[int, int], None],
    watched: Lengths | None = None,
    every_s: float | None = None,
    strict: bool = True,
    map_file: Path | None = None,
) -> Imported:
    """Take files in as `import_files` does, and return the account of it; unless `strict`, a named file that is no telemetry is left out as one of a folder."""
    files = find_files(paths)
    done = Imported(own=own_forms(settings, map_file))
    named = {path for path in paths if path.is_file()} if strict else set()
    pages = [path for path in files if is_page(path)]
    done.engines = engines_of(pages)
    times = page_times(pages, every_s, says_its_times)
    if url is not None:
        _import_over_http(files, named, times, url.rstrip("/"), done, progress)
    else:
        if few := are_few(paths):
            settings = replace(settings, collector=replace(settings.collector, decoder="upb"))
        with compiled.for_few(few):
            _import_into(settings, files, named, times, done, progress, watched)
    if strict and not done.files:
        raise ImportFailed(
            f"none of {say_count(len(done.left_out), 'file')} can be imported; the first one: {done.why}"
        )
    return done


def are_few(paths: Sequence[Path]) -> bool:
    """Whether what files and folders hold is taken in, and asked about, without compiled code."""
    most = _FEW_BYTES if compiled.is_kept("decode") else _MORE_BYTES
    files = (one for path in paths for one in (path, *path.rglob("*")) if one.is_file())
    return sum(one.stat().st_size for one in files) <= most


def _import_into(
    settings: Settings,
    files: Sequence[Path],
    named: set[Path],
    times: Mapping[Path, int],
    done: Imported,
    progress: Callable[[int, int], None],
    watched: Lengths | None,
) -> None:
    """Take files into the settings' database; one that was made for them is removed again where nothing came of them."""
    db = Path(settings.collector.db)
    is_new = not db.exists()
    store = open_store(db, create=True, memory_limit=settings.collector.memory_limit)
    assembled = watched.assemble if watched else assemble
    pipeline = Pipeline(store, settings.collector, settings.privacy, assembled, settings.words)
    kept = False
    try:
        before = counted(store)
        into = Into(pipeline, done)
        try:
            for at, path in enumerate(files):
                progress(at, len(files))
                for signal, body in _bodies(path, named, times, done):
                    into.take(signal, body, path)
        finally:  # what came before a file that cannot be read is stored
            into.settle()
        pipeline.drain()
        done.became = counted(store).since(before)
        _refuse_useless(done)
        kept = bool(done.files)
    except ImportFailed:
        kept = bool(done.items)  # what came before a file that cannot be read is stored
        if kept:
            pipeline.drain()
            kept = counted(store).is_useful
        raise
    finally:
        pipeline.close()
        if is_new and not kept:
            for left in (db, db.with_name(f"{db.name}.wal")):
                left.unlink(missing_ok=True)


def _refuse_useless(done: Imported) -> None:
    """Refuse rows that were read by the words of their columns, or by a map, and became nothing that a question can use.

    Raises:
        ImportFailed: all that was stored is of such files.
    """
    by_columns = [one for one in done.accounts if one.is_concluded]
    if done.items and not done.became.is_useful and len(by_columns) == len(done.accounts):
        raise ImportFailed(
            f"{by_columns[0].name} was read as {by_columns[0].what}, and of its {say_count(done.items, 'span')} none is a request, a call of a model or a "
            "sample of a metric: no row names a model, tokens or an address of a model's API"
        )


def _bodies(
    path: Path, named: set[Path], times: Mapping[Path, int], done: Imported
) -> Iterator[tuple[str, bytes]]:
    """The trace and metrics bodies of a file. In a folder, a file that is not OTLP at all is left out and told of; a named one is an error."""
    read = 0
    account = Account(path.name)
    bodies = read_bodies(path, account, times.get(path), done.engines.get(path), done.own)
    try:
        for signal, body in bodies:
            read += 1
            calls = log_events.calls(body)[1] if signal == "logs" else b""
            if calls:
                yield "traces", calls
            if signal != "logs" or log_records.told(body)[1]:
                yield signal, body
            else:
                done.logs += not calls
    except ImportFailed as error:
        if path in named or read:
            raise
        done.left_out.append(path)
        done.why = done.why or str(error)
    else:
        done.files += 1
        done.accounts.append(account)
        done.notes += account.notes


class Into:
    """Hands bodies to a database's writer and counts in `done` what came of each; `fresh` counts items without those that were stored already."""

    def __init__(self, pipeline: Pipeline, done: Imported) -> None:
        self._pipeline, self._done = pipeline, done
        self._waiting: deque[tuple[object, Future[Stored]]] = deque()
        self.fresh = 0

    def take(self, signal: str, body: bytes, source: object) -> None:
        """Queue one body; waits for the oldest where many are queued: small files share a commit, so that none is waited for at the end of each."""
        kind = {"traces": TRACES, "logs": LOGS}.get(signal, METRICS)
        if kind == LOGS:
            kept = log_records.told(body)[1]
            if not kept:
                return
            body = log_records.pack(kept)
        self._waiting.append((source, submit(self._pipeline, kind, body)))
        while len(self._waiting) > IN_FLIGHT:
            self._count()

    def settle(self) -> None:
        """Wait until everything that was taken is stored."""
        while self._waiting:
            self._count()

    def _count(self) -> None:
        source, future = self._waiting.popleft()
        stored, done = _result(future, source), self._done
        done.bodies += 1
        done.items += stored.items
        done.rejected += stored.rejected
        done.duplicates += stored.duplicate
        self.fresh += 0 if stored.duplicate else stored.items


def submit(pipeline: Pipeline, signal: int, body: bytes) -> Future[Stored]:
    """Hand a body to the writer; waits while its queue is full."""
    while True:
        try:
            return pipeline.writer.submit(signal, body)
        except QueueFull as full:
            time.sleep(full.retry_after_s / 10)


def _result(future: Future[Stored], source: object) -> Stored:
    try:
        return future.result()
    except CollectorError as error:
        full = "No space left" in str(error)
        remedy = ". Free some space on that disk and import again: nothing counts twice"
        raise ImportFailed(f"{source}: {error}{remedy if full else ''}") from error


def _import_over_http(
    files: Sequence[Path],
    named: set[Path],
    times: Mapping[Path, int],
    server: str,
    done: Imported,
    progress: Callable[[int, int], None],
) -> None:
    with Client(server, right="ingest") as client:
        for at, path in enumerate(files):
            progress(at, len(files))
            for signal, body in _bodies(path, named, times, done):
                _post(client, signal, body, path)
                done.bodies += 1
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and client.pending_traces():
            time.sleep(0.2)


def _post(client: Client, signal: str, body: bytes, path: Path) -> None:
    try:
        client.send(signal, body)
    except Refused as error:
        raise ImportFailed(f"{path}: {error}") from error


def _told(done: Imported) -> str:
    """The account of an import: what the files were read as, a block each (of many alike one), then what came of them in a sentence."""
    parts = [f"{say_count(done.files, 'file')}, {say_count(done.bodies, 'OTLP request')}"]
    if done.items:
        parts.append(f"{done.items:,} spans and data points stored")
    if done.became.is_useful:
        parts.append(done.became.sentence())
    if done.duplicates:
        parts.append(f"{done.duplicates} were already stored")
    if done.rejected:
        parts.append(
            f"{say_count(done.rejected, 'item')} refused (ids missing or of the wrong length)"
        )
    if done.logs:
        parts.append(
            f"{say_count(done.logs, 'OTLP log request')} left out (not about a call; logs are not stored)"
        )
    if done.left_out:
        shown = ", ".join(path.name for path in done.left_out[:3])
        parts.append(
            f"{say_count(len(done.left_out), 'file')} in the folders left out, because they are not OTLP ({shown}{', ...' if len(done.left_out) > 3 else ''})"
        )
    parts += done.notes
    return "\n".join(["; ".join(parts), *account_lines(done)])


def brief_account(done: Imported) -> str:
    """What was read, in one line."""
    kinds = list(dict.fromkeys(account.what for account in done.accounts if account.what))
    shown = f"{', '.join(kinds[:3])}{', ...' if len(kinds) > 3 else ''}"
    came = done.became.sentence() if done.became.is_useful else "nothing that a question can use"
    return printable(f"{say_count(done.files, 'file')} read as {shown}: {came}.", 400)


def account_lines(done: Imported) -> list[str]:
    """What the files were read as and what was in them, a line for each statement; files that were read alike share one."""
    groups: dict[str, list[Account]] = {}
    for account in done.accounts:
        groups.setdefault(account.what, []).append(account)
    out = []
    for alike in groups.values():
        first, *others = merged(alike).lines()
        out += [first, *(f"  {line}" for line in others)]
    return [printable(line, 600) for line in out]
