"""How many different things may come, and how fast? New sources beyond a number become one source per service, new shapes beyond a rate lose their attributes.

A resource attribute with a new value in each body (a request id, by mistake or on purpose) makes a row of `sources` each, a key with a number in it a row of
`shapes`: small bodies that would fill memory and the file with what nobody can look at. What was put together is counted.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from overrun.collector.normalise.points import Points
from overrun.collector.normalise.spans import Normalized
from overrun.collector.store.layout import OTHER

# The file knows at most so many sources (70 bytes of memory each): 1,000 pods a day with ten instrumentations each for a month, and as many again.
MOST_SOURCES = 500_000
# ...and of new ones in ten minutes: a fleet of 2,000 pods that restarts at once, with ten instrumentations each. Shapes: ten of each of these in ten minutes.
NEW_SOURCES, NEW_SHAPES = 20_000, 200_000
PERIOD_S = 600.0

Count = Callable[[str, int], None]


class Allowance:
    """So many new things in each period, on the monotonic clock."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._since_s, self._taken = clock(), 0

    def take(self, wanted: int) -> int:
        """How many of `wanted` may come now."""
        if self._clock() - self._since_s >= PERIOD_S:
            self._since_s, self._taken = self._clock(), 0
        given = min(wanted, self._most - self._taken)
        self._taken += given
        return given


class Sources:
    """The sources that are stored, and what becomes of too many new ones. Of the writer's thread."""

    def __init__(
        self, known: set[int], services: set[str], allowance: Allowance, most: int = MOST_SOURCES
    ) -> None:
        self.known, self._services = known, services
        self._allowance, self._most = allowance, most

    def fold(
        self, spans: Sequence[Normalized], points: Sequence[Points], count: Count
    ) -> list[Normalized]:
        """The spans with one source per service in place of each new source beyond the limits; points likewise, in place."""
        listed = [pair for part in spans for pair in part.sources]
        listed += [pair for part in points for pair in part.sources]
        fresh = {i: row for i, row in listed if i not in self.known}
        room = self._allowance.take(min(len(fresh), max(self._most - len(self.known), 0)))
        if room >= len(fresh):
            return list(spans)
        over = dict([*fresh.items()][room:])
        others = {i: self._other(row["service"]) for i, row in over.items()}
        count("sources", len(over))
        for part in points:
            part.sources = _without(part.sources, others)
            for row in part.rows:
                if row["source_id"] in others:
                    row["source_id"] = others[row["source_id"]][0]
        return [_folded(part, others) for part in spans]

    def _other(self, service: str) -> tuple[int, dict[str, Any]]:
        """The source of all that is too much of a service; of services that are too many as well, one for them together."""
        named = service if service in self._services else OTHER
        digest = hashlib.blake2b(
            f"{OTHER}\0{named}".encode("utf-8", "surrogatepass"), digest_size=8
        )
        row: dict[str, Any] = {"service": named, "scope_name": OTHER}
        row |= dict.fromkeys(("instance", "version", "namespace", "environment"))
        row |= dict.fromkeys(("scope_version", "resource_schema_url", "scope_schema_url"), "")
        row |= {"resource_attributes": [], "scope_attributes": []}
        return int.from_bytes(digest.digest(), "big"), row

    def remember(self, rows: Mapping[int, Mapping[str, Any]]) -> None:
        """These are stored."""
        self.known |= rows.keys()
        self._services |= {row["service"] for row in rows.values()}


def _without(
    sources: Sequence[tuple[int, dict[str, Any]]], others: Mapping[int, tuple[int, dict[str, Any]]]
) -> list[tuple[int, dict[str, Any]]]:
    return list(
        {i: (i, row) for i, row in (others.get(i, (i, row)) for i, row in sources)}.values()
    )


def _folded(part: Normalized, others: Mapping[int, tuple[int, dict[str, Any]]]) -> Normalized:
    return replace(
        part,
        spans=_mapped(part.spans, others),
        aside=None if part.aside is None else _mapped(part.aside, others),
        sources=_without(part.sources, others),
    )


def _mapped(spans: pa.Table, others: Mapping[int, tuple[int, dict[str, Any]]]) -> pa.Table:
    ids, inverse = np.unique(spans.column("source_id").to_numpy(), return_inverse=True)
    new = [others[i][0] if i in others else i for i in ids.tolist()]
    at = spans.schema.get_field_index("source_id")
    return spans.set_column(at, "source_id", pa.array(np.array(new, dtype=np.uint64)[inverse]))
