"""How many data-parallel ranks stand behind one server? It has one name in its spans and one instance a rank in its metrics.

Which rank served a call is told by neither, so a server stays one engine with the seats and the KV cache of all its ranks. Placing each call on the rank with
fewest in flight was tried on simulated pairs: 1 to 3 % of E2E P95 either way, but off by a factor where calls queue, for a misplaced one moves others.
"""

from __future__ import annotations

import re
from typing import Final

import polars as pl

# As collector/normalise/metric_instances.py names them.
_RANK: Final = re.compile(r"(?:(.*)/)?(?:engine|rank) \d+")


def ranks_of(points: pl.DataFrame) -> dict[str, list[str]]:
    """Return the ranks of each server whose metrics come rank by rank, two or more, by the server's name (empty where none is known)."""
    found: dict[str, list[str]] = {}
    for name in sorted(points["instance"].drop_nulls().unique().to_list()):
        if match := _RANK.fullmatch(name):
            found.setdefault(match[1] or "", []).append(name)
    return {name: ranks for name, ranks in found.items() if len(ranks) > 1}
