"""When would the spans of a trace have run if some of them were gone or side by side? Exact replay of a span tree.

A child starts as long after the sibling that ended last before it as it did, or, without one, as long after its parent's start. A parent ends as long
after the last child it waited for as it did. What is shortened moves everything that waited for it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import polars as pl

# A sibling counts as over when it ends at most this long after the next one starts: clocks and rounding.
TOLERANCE_MS: Final = 0.5
# Trees deeper than this are left as they are.
_DEEPEST: Final = 200
_AS_IT_WAS: Final[Mapping[int, float]] = MappingProxyType({})


class Tree:
    """The spans of one trace: times in ms after the root's start, children in order of start. Rows are positions in the trace."""

    def __init__(
        self,
        ids: Sequence[str],
        parents: Sequence[str | None],
        start_us: Sequence[int],
        duration_ms: Sequence[float],
    ) -> None:
        place = {span: at for at, span in enumerate(ids)}
        self.parent = [place.get(parent or "", -1) for parent in parents]
        roots = [at for at, parent in enumerate(self.parent) if parent < 0]
        self.root = min(roots, key=lambda at: (start_us[at], -duration_ms[at])) if roots else -1
        zero = start_us[self.root] if roots else 0
        self.start = [(at - zero) / 1000.0 for at in start_us]
        self.end = [begin + took for begin, took in zip(self.start, duration_ms, strict=True)]
        self.children: list[list[int]] = [[] for _ in ids]
        for at in sorted(range(len(ids)), key=lambda at: self.start[at]):
            if self.parent[at] >= 0 and at != self.root:
                self.children[self.parent[at]].append(at)

    def depth_fits(self) -> bool:
        """Return whether the tree is shallow enough to be walked, and has one root."""
        level, seen = [self.root] if self.root >= 0 else [], 0
        for _ in range(_DEEPEST):
            if not level:
                return self.root >= 0
            seen += len(level)
            level = [child for at in level for child in self.children[at]]
        return False

    def replay(
        self,
        gone: Iterable[int] = (),
        together: Iterable[Sequence[int]] = (),
        scaled: Mapping[int, float] = _AS_IT_WAS,
    ) -> tuple[list[float], list[float]]:
        """Return new (start, end) of every span without the time of `gone` ones, and with each group of siblings in `together` starting at once.

        `scaled` has a factor for the own time of some spans: what passes before, between and after the children that they wait for.
        """
        skipped, leader = set(gone), {member: group[0] for group in together for member in group}
        start, end = list(self.start), list(self.end)
        self._place(self.root, 0.0, skipped, leader, scaled, start, end)
        return start, end

    def _place(
        self,
        at: int,
        begin: float,
        skipped: set[int],
        leader: dict[int, int],
        scaled: Mapping[int, float],
        start: list[float],
        end: list[float],
    ) -> None:
        start[at], own = begin, scaled.get(at, 1.0)
        if at in skipped:
            end[at] = begin
            return
        waited, latest, before = 0.0, None, -1.0
        for child in self.children[at]:
            model = leader.get(child, child)
            past = [
                other
                for other in self.children[at]
                if other != model and self.end[other] <= self.start[model] + TOLERANCE_MS
            ]
            last = max(past, key=lambda other: self.end[other], default=None)
            if last is None:
                begins = begin + own * (self.start[model] - self.start[at])
            else:
                # It waited for all that had ended: when the one that ended last is gone or shorter, the next of them is what holds it up.
                begins = max(end[other] for other in past) + own * max(
                    0.0, self.start[model] - self.end[last]
                )
            self._place(child, begins, skipped, leader, scaled, start, end)
            if self.end[child] <= self.end[at] + TOLERANCE_MS:
                waited, before = max(waited, end[child]), max(before, self.end[child])
                latest = child
        end[at] = (
            begin + own * (self.end[at] - self.start[at])
            if latest is None
            else waited + own * max(0.0, self.end[at] - before)
        )


def trees(spans: pl.DataFrame) -> Iterable[tuple[str, pl.DataFrame, Tree]]:
    """Yield each trace with its rows and its tree (columns of sql/whatif_spans.sql)."""
    for (trace,), rows in spans.group_by("trace_id", maintain_order=True):
        tree = Tree(
            rows["span_id"].to_list(),
            rows["parent_span_id"].to_list(),
            rows["start_us"].to_list(),
            rows["duration_ms"].to_list(),
        )
        if tree.depth_fits():
            yield str(trace), rows, tree
