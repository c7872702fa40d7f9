"""Who takes in what files hold: a database here, or a running server? Both by the road of live traffic."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from overrun.analysis.assembly.assemble import assemble
from overrun.analysis.front.client import TIMEOUT_S, Client, Refused
from overrun.analysis.front.predictor_watch import Lengths
from overrun.analysis.words.finding import say_count
from overrun.collector.config import Settings
from overrun.collector.errors import CollectorError, ImportFailed, QueueFull
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import LOGS, METRICS, TRACES, Stored
from overrun.collector.normalise import log_records
from overrun.collector.sources import log_events
from overrun.collector.sources.importer import (
    Imported,
    find_files,
    is_page,
    read_bodies,
    says_its_times,
)
from overrun.collector.sources.page_times import engines_of, page_times
from overrun.collector.store.database import open_store

# Bodies handed to the writer before their commits are awaited: enough to fill a commit, few enough to bound memory.
IN_FLIGHT = 64


def import_files(
    paths: Sequence[Path],
    settings: Settings,
    *,
    url: str | None,
    progress: Callable[[int, int], None],
    watched: Lengths | None = None,
    every_s: float | None = None,
) -> str:
    """Take files in, into the settings' database or through a server; returns after assembly with a sentence about what came of it.

    `watched` predicts the calls as they are assembled into the database. Saved metrics pages were read `every_s` apart, in the order of their names.

    Raises:
        ImportFailed: nothing to import, or a file that is not OTLP (what came before it is stored). CollectorError: nobody took it.
    """
    return _told(
        take_in(paths, settings, url=url, progress=progress, watched=watched, every_s=every_s)
    )


def take_in(
    paths: Sequence[Path],
    settings: Settings,
    *,
    url: str | None,
    progress: Callable[[int, int], None],
    watched: Lengths | None = None,
    every_s: float | None = None,
    strict: bool = True,
) -> Imported:
    """Take files in as `import_files` does, and return the account of it; unless `strict`, a named file that is no telemetry is left out as one of a folder."""
    files = find_files(paths)
    done = Imported()
    named = {path for path in paths if path.is_file()} if strict else set()
    pages = [path for path in files if is_page(path)]
    done.engines = engines_of(pages)
    times = page_times(pages, every_s, says_its_times)
    if url is not None:
        _import_over_http(files, named, times, url.rstrip("/"), done, progress)
    else:
        store = open_store(
            Path(settings.collector.db), create=True, memory_limit=settings.collector.memory_limit
        )
        pipeline = Pipeline(
            store,
            settings.collector,
            settings.privacy,
            watched.assemble if watched else assemble,
            settings.words,
        )
        try:
            _import_here(files, named, times, pipeline, done, progress)
            pipeline.drain()
        finally:
            pipeline.close()
    if strict and not done.files:
        raise ImportFailed(
            f"none of {say_count(len(done.left_out), 'file')} can be imported; the first one: {done.why}"
        )
    return done


def _bodies(
    path: Path, named: set[Path], times: Mapping[Path, int], done: Imported
) -> Iterator[tuple[str, bytes]]:
    """The trace and metrics bodies of a file. In a folder, a file that is not OTLP at all is left out and told of; a named one is an error."""
    read = 0
    try:
        for signal, body in read_bodies(path, done.notes, times.get(path), done.engines.get(path)):
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


def _import_here(
    files: Sequence[Path],
    named: set[Path],
    times: Mapping[Path, int],
    pipeline: Pipeline,
    done: Imported,
    progress: Callable[[int, int], None],
) -> None:
    waiting: deque[tuple[Path, Future[Stored]]] = deque()
    try:
        for at, path in enumerate(files):
            progress(at, len(files))
            for signal, body in _bodies(path, named, times, done):
                if signal == "logs":
                    told = log_records.pack(log_records.told(body)[1])
                    waiting.append((path, submit(pipeline, LOGS, told)))
                else:
                    kind = TRACES if signal == "traces" else METRICS
                    waiting.append((path, submit(pipeline, kind, body)))
                while len(waiting) > IN_FLIGHT:
                    _settle(waiting, done)
    finally:  # what came before a file that cannot be read is stored
        while waiting:
            _settle(waiting, done)


def _settle(waiting: deque[tuple[Path, Future[Stored]]], done: Imported) -> None:
    """Count what was longest on its way; small files share a commit, so that none is waited for at the end of each."""
    path, future = waiting.popleft()
    _count(done, _result(future, path))


def submit(pipeline: Pipeline, signal: int, body: bytes) -> Future[Stored]:
    """Hand a body to the writer; waits while its queue is full."""
    while True:
        try:
            return pipeline.writer.submit(signal, body)
        except QueueFull as full:
            time.sleep(full.retry_after_s / 10)


def _result(future: Future[Stored], path: Path) -> Stored:
    try:
        return future.result()
    except CollectorError as error:
        full = "No space left" in str(error)
        remedy = ". Free some space on that disk and import again: nothing counts twice"
        raise ImportFailed(f"{path}: {error}{remedy if full else ''}") from error


def _count(done: Imported, stored: Stored) -> None:
    done.bodies += 1
    done.items += stored.items
    done.rejected += stored.rejected
    done.duplicates += stored.duplicate


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
    parts = [f"{say_count(done.files, 'file')}, {say_count(done.bodies, 'OTLP request')}"]
    if done.items:
        parts.append(f"{done.items:,} spans and data points stored")
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
    return "; ".join(parts)
