"""Which source is meant, and what of a window is still to be read from it? Pieces of time, halved where an answer would be too large.

The progress stands in a file beside the database, so that a pull that ended early goes on where it stopped: `<database>.pull.json`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec

from overrun.collector.errors import ConfigError, ImportFailed
from overrun.collector.sources.remote import (
    clickhouse,
    langfuse,
    langsmith,
    mlflow,
    phoenix,
)
from overrun.collector.sources.remote.address import Address
from overrun.collector.sources.remote.clickhouse import ClickHouse
from overrun.collector.sources.remote.fetching import Fetcher, TooMuch, credentials
from overrun.collector.sources.remote.jaeger import Jaeger
from overrun.collector.sources.remote.langfuse import Langfuse
from overrun.collector.sources.remote.langsmith import LangSmith
from overrun.collector.sources.remote.mlflow import MLflow
from overrun.collector.sources.remote.phoenix import Phoenix
from overrun.collector.sources.remote.prometheus import Prometheus
from overrun.collector.sources.remote.tempo import Tempo

MAX_WINDOW_S: Final = 31 * 86_400
# Of a search by whole seconds less cannot be asked for.
LEAST_WIDTH_S: Final = 2.0
# Pieces that may be left out. A server that finds every question too large would be asked for every two seconds of a month.
MOST_LEFT_OUT: Final = 1_000
PROGRESS: Final = ".pull.json"


class Source(Protocol):
    """One tool's stored telemetry. `notes` say what was left out."""

    width_s: int
    notes: list[str]

    def begin(self, start_s: float, end_s: float) -> None:
        """Learn what has to be known before the first piece; Unix seconds."""
        ...

    def pull(self, start_s: float, end_s: float) -> Iterator[tuple[str, bytes]]:
        """(signal, protobuf body) of the telemetry of a piece of time.

        Raises:
            TooMuch: ask for less time. ImportFailed: no usable answer.
        """
        ...


_KINDS: Final[Mapping[str, Callable[[Fetcher, str], Source]]] = {
    "prometheus": Prometheus,
    "tempo": Tempo,
    "jaeger": Jaeger,
    "langfuse": Langfuse,
    "langsmith": LangSmith,
    "phoenix": Phoenix,
    "mlflow": MLflow,
    "clickhouse": ClickHouse,
}
_OWN_HEADERS: Final[Mapping[str, Callable[[Mapping[str, str]], dict[str, str]]]] = {
    "langfuse": langfuse.headers,
    "langsmith": langsmith.headers,
    "phoenix": phoenix.headers,
    "mlflow": mlflow.headers,
    "clickhouse": clickhouse.headers,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be read: sources, narrowed by `match`, and the window [start_s, end_s) in Unix seconds.

    Raises:
        ConfigError: the window is empty or longer than 31 days.
    """

    sources: Sequence[Address]
    match: str
    start_s: float
    end_s: float

    def __post_init__(self) -> None:
        if not 0 < self.end_s - self.start_s <= MAX_WINDOW_S:
            raise ConfigError(
                "the window is empty, or longer than 31 days: choose another --since, or --from and --to"
            )


@dataclass(frozen=True, slots=True)
class Taker:
    """Where the bodies go: `take` gets each, `settle` returns once all that were taken are stored, and `shown` gets the share that is read."""

    take: Callable[[str, bytes], None]
    settle: Callable[[], None]
    shown: Callable[[float], None]


class Pieces(msgspec.Struct, kw_only=True):
    """What is still to be read of one source: [from, to) in Unix seconds."""

    source: str
    match: str
    start_s: float
    end_s: float
    left: list[tuple[float, float]]


class Progress:
    """The pieces of every source, kept in a file until nothing is left; without a path in memory alone."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._kept: dict[str, Pieces] = {}
        if path is not None and path.exists():
            try:
                listed = msgspec.json.decode(path.read_bytes(), type=list[Pieces])
            except (OSError, msgspec.MsgspecError) as error:
                raise ImportFailed(
                    f"{path} is no account of a pull: remove it to begin again"
                ) from error
            self._kept = {_key(p.source, p.match): p for p in listed}

    def of(self, source: Address, wanted: Wanted, width_s: int) -> tuple[Pieces, bool]:
        """The pieces of a source: those left of an earlier pull (and True), else the whole window's, oldest first."""
        key = _key(str(source), wanted.match)
        kept = self._kept.get(key)
        if kept is not None and kept.left:
            return kept, True
        start_s, end_s = wanted.start_s, wanted.end_s
        self._kept[key] = Pieces(
            source=str(source),
            match=wanted.match,
            start_s=start_s,
            end_s=end_s,
            left=_cut(start_s, end_s, width_s),
        )
        return self._kept[key], False

    def save(self) -> None:
        """Write what is left; once nothing is, the file goes."""
        if self._path is None:
            return
        left = [pieces for pieces in self._kept.values() if pieces.left]
        if not left:
            self._path.unlink(missing_ok=True)
            return
        beside = self._path.with_suffix(".tmp")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(msgspec.json.encode(left))
        beside.replace(self._path)


@dataclass(slots=True)
class Pulled:
    """What a pull read: the window (Unix seconds; that of an earlier pull where it went on), bodies, questions asked, bytes, and notes."""

    start_s: float
    end_s: float
    bodies: int = 0
    asked: int = 0
    received: int = 0
    resumed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _key(source: str, match: str) -> str:
    return f"{source}\n{match}"


def _cut(start_s: float, end_s: float, width_s: int) -> list[tuple[float, float]]:
    """The window in pieces whose edges are multiples of the width, so that a later pull asks for the same ones."""
    edges = [start_s]
    edge = (start_s // width_s + 1) * width_s
    while edge < end_s:
        edges.append(edge)
        edge += width_s
    return list(zip(edges, [*edges[1:], end_s], strict=True))


def pull(
    wanted: Wanted,
    progress: Progress,
    taker: Taker,
    *,
    environment: Mapping[str, str] = os.environ,
    sleep: Callable[[float], None] = time.sleep,
) -> Pulled:
    """Hand every body of the window over; a piece of time counts as read once all of it is stored.

    Raises:
        ImportFailed: a source does not answer; what came before it is stored, and the same command goes on from there.
    """
    done = Pulled(wanted.start_s, wanted.end_s)
    for number, address in enumerate(wanted.sources):
        own = _OWN_HEADERS.get(address.kind)
        headers = credentials(environment, own(environment) if own else {})
        with Fetcher(address.url, headers, sleep=sleep) as fetch:
            source = _KINDS[address.kind](fetch, wanted.match)
            pieces, resumed = progress.of(address, wanted, source.width_s)
            if resumed:
                done.resumed.append(str(address))
                done.start_s, done.end_s = pieces.start_s, pieces.end_s
            try:
                source.begin(pieces.start_s, pieces.end_s)
                for part in _all(source, pieces, progress, taker, done):
                    taker.shown((number + part) / len(wanted.sources))
            finally:
                progress.save()
                done.asked += fetch.asked
                done.received += fetch.received
                done.notes += [f"{address.kind}: {note}" for note in dict.fromkeys(source.notes)]
    return done


def _all(
    source: Source, pieces: Pieces, progress: Progress, taker: Taker, done: Pulled
) -> Iterator[float]:
    """Read what is left of a source, and yield the share that is read."""
    span_s = pieces.end_s - pieces.start_s
    left_out = 0
    while pieces.left:
        start_s, end_s = pieces.left[0]
        yield (start_s - pieces.start_s) / span_s
        try:
            for signal, body in source.pull(start_s, end_s):
                taker.take(signal, body)
                done.bodies += 1
            pieces.left.pop(0)
        except TooMuch as error:
            if end_s - start_s < LEAST_WIDTH_S:
                left_out += 1
                if left_out > MOST_LEFT_OUT:
                    raise ImportFailed(
                        f"more than {MOST_LEFT_OUT:,} pieces of {end_s - start_s:g} s could not be read: {error}"
                    ) from error
                source.notes.append(f"{end_s - start_s:g} s were left out: {error}")
                pieces.left.pop(0)
            else:
                middle = (start_s + end_s) / 2
                pieces.left[:1] = [(start_s, middle), (middle, end_s)]
            continue
        taker.settle()
        progress.save()
    yield 1.0
