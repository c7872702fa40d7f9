"""How does telemetry that another tool stores get into a database here, or into a running server? By the road of live traffic, piece of time by piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from overrun.analysis.assembly.assemble import assemble
from overrun.analysis.front.asked import Source
from overrun.analysis.front.client import Client
from overrun.analysis.front.file_import import Into
from overrun.analysis.front.question_table import Texts
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.finding import say_count
from overrun.analysis.words.times import parse_duration, parse_time
from overrun.collector.config import Settings
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.sources.importer import Imported
from overrun.collector.sources.remote.pull import (
    PROGRESS,
    Progress,
    Pulled,
    Taker,
    Wanted,
    pull,
)
from overrun.collector.store.database import open_store

# What is read where no window is asked for.
_DEFAULT_SINCE = "1h"


@dataclass(slots=True)
class Fetched:
    """What came of a pull: the account of what was read, the items that were stored, and the window (UTC)."""

    pulled: Pulled
    items: int
    rejected: int
    start: datetime
    end: datetime

    def window(self) -> dict[str, str | None]:
        """The window as parameters of a question."""
        return {"since": None, "from": self.start.isoformat(), "to": self.end.isoformat()}

    def sentence(self) -> str:
        """What came of it, in a line."""
        read = f"{self.pulled.received / 1e6:,.1f} MB in {say_count(self.pulled.asked, 'question')}"
        parts = [f"{read}, {self.start:%Y-%m-%d %H:%M} to {self.end:%H:%M} UTC"]
        if self.items:
            parts.append(f"{self.items:,} spans and data points stored")
        if self.rejected:
            parts.append(f"{say_count(self.rejected, 'item')} refused")
        parts += [f"went on where an earlier pull of {name} ended" for name in self.pulled.resumed]
        return "; ".join([*parts, *dict.fromkeys(self.pulled.notes)])


def window_of(texts: Texts, now: datetime) -> tuple[datetime, datetime]:
    """The window that --since, --from and --to ask for, else the one around both sides of a comparison, else the last hour.

    Raises:
        AnalysisError: they contradict each other, or cannot be read.
    """
    since, start, end = (texts.get(name) for name in ("since", "from", "to"))
    if since and start:
        raise AnalysisError("--since and --from were both given: use one of them")
    sides = [texts.get("before") or "", texts.get("after") or ""]
    if not (since or start or end) and all(".." in side for side in sides):
        moments = [parse_time(text, now) for side in sides for text in side.split("..")]
        return min(moments), max(moments)
    until = parse_time(end, now) if end else now
    if start:
        return parse_time(start, now), until
    return until - parse_duration(since or _DEFAULT_SINCE), until


def fetch(
    source: Source,
    window: tuple[datetime, datetime],
    settings: Settings,
    *,
    url: str | None,
    shown: Callable[[float], None],
) -> Fetched:
    """Read a window of the tools of a source into the settings' database, or through the server at `url`; returns after assembly.

    Raises:
        ConfigError, ImportFailed: bad input, or a source that does not answer; the same command then goes on from there.
    """
    start, end = window
    wanted = Wanted(source.remote, source.match, start.timestamp(), end.timestamp())
    if url is not None:
        with Client(url.rstrip("/"), right="ingest") as client:
            taker = Taker(client.send, lambda: None, shown)
            return _fetched(pull(wanted, Progress(None), taker), 0, 0)
    db = Path(settings.collector.db)
    store = open_store(db, create=True, memory_limit=settings.collector.memory_limit)
    pipeline = Pipeline(store, settings.collector, settings.privacy, assemble, settings.words)
    done = Imported()
    into = Into(pipeline, done)
    tools = ", ".join(map(str, source.remote))
    try:
        progress = Progress(db.with_name(db.name + PROGRESS))
        pulled = pull(
            wanted,
            progress,
            Taker(lambda signal, body: into.take(signal, body, tools), into.settle, shown),
        )
        into.settle()
        pipeline.drain()
    finally:
        pipeline.close()
    return _fetched(pulled, into.fresh, done.rejected)


def _fetched(pulled: Pulled, items: int, rejected: int) -> Fetched:
    moments = [datetime.fromtimestamp(at, UTC) for at in (pulled.start_s, pulled.end_s)]
    return Fetched(pulled, items, rejected, moments[0], moments[1])
