"""What is a box on the heat map, and how does it stand in a URL?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_STAMP = "%Y%m%dT%H%M%S"
_BOX = re.compile(r"(\d{8}T\d{6})-(\d{8}T\d{6})_([\d.e+]{1,12})-([\d.e+]{1,12})")

# Bounds that leave no request out.
_ANY_MS = (0.01, 999_999.0)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on the heat map: a stretch of time and of the metric, in ms."""

    start: datetime
    end: datetime
    min_ms: float
    max_ms: float

    @classmethod
    def of_step(cls, start: datetime, step_s: float) -> Box:
        """All requests of a step of time: what a click on a chart over time opens (page.js)."""
        return cls(start, start + timedelta(seconds=max(step_s, 1.0)), *_ANY_MS)

    def text(self) -> str:
        """As it stands in the URL: `20261121T101500-20261121T101530_250-2000`."""
        return f"{self.start:{_STAMP}}-{self.end:{_STAMP}}_{self.min_ms:.4g}-{self.max_ms:.6g}"

    @classmethod
    def read(cls, text: str) -> Box | None:
        """The box of a URL, None if it cannot be read or is empty."""
        found = _BOX.fullmatch(text)
        if found is None:
            return None
        try:
            start, end = (datetime.strptime(found[i], _STAMP).replace(tzinfo=UTC) for i in (1, 2))
            low, high = float(found[3]), float(found[4])
        except ValueError:
            return None
        return cls(start, end, low, high) if start < end and low < high else None
