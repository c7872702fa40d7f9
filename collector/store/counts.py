"""What is in a store that a question can use? Counted before and after an import, the difference is what came of it."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path

from overrun.collector.store.store import Store

_SQL = (Path(__file__).parent / "sql" / "counted.sql").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests, calls of models (those that failed, with a first token, with tokens), points of metrics, and notes."""

    requests: int = 0
    calls: int = 0
    failed: int = 0
    with_first: int = 0
    with_tokens: int = 0
    points: int = 0
    notes: int = 0

    @property
    def is_useful(self) -> bool:
        """Whether any question can use something of it."""
        return bool(self.requests or self.calls or self.points or self.notes)

    def since(self, before: Counts) -> Counts:
        """What came since another count; nothing where copies were taken together meanwhile."""
        pairs = zip(astuple(self), astuple(before), strict=True)
        return Counts(*(max(now - then, 0) for now, then in pairs))

    def sentence(self) -> str:
        """The counts in words."""
        parts = []
        if self.requests or self.calls:
            parts.append(
                f"{self.requests:,} {'request' if self.requests == 1 else 'requests'}, {self.calls:,} {'call' if self.calls == 1 else 'calls'} of models "
                f"({self.failed:,} failed, {self.with_first:,} with a first token, {self.with_tokens:,} with tokens)"
            )
        if self.points:
            parts.append(
                f"{self.points:,} {'sample' if self.points == 1 else 'samples'} of metrics"
            )
        return ", ".join(parts) or "notes alone"


def counted(store: Store) -> Counts:
    """What a store holds now."""
    with store.asking() as cursor:
        [row] = cursor.execute(_SQL).fetchall()
    return Counts(*row)
