"""Which hourly files hold a period? Chosen by the hour in their path (`KIND/hour=2026-11-26T14/shard=NAME/KIND.parquet`, as `overrun store export --folder` writes them)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from overrun.analysis.front.held_hours import HOUR, HOUR_FORM
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.times import rfc3339

_HOUR: Final = re.compile(r"hour=(\d{4}-\d{2}-\d{2}T\d{2})")


class NoFiles(AnalysisError):
    """A folder without files of the kind and period that were asked for."""


def hourly(
    folder: Path, kind: str, start: datetime | None = None, end: datetime | None = None
) -> list[str]:
    """Return the files of a kind whose hour overlaps [start, end), either side open if None, in order of time.

    Raises:
        NoFiles: there is none.
    """
    held = [
        (hour, path)
        for path in folder.glob(f"{kind}/hour=*/shard=*/{kind}.parquet")
        if (hour := _hour(path))
    ]
    if not held:
        raise NoFiles(
            f"{folder} has no files {kind}/hour=.../shard=.../{kind}.parquet: name the folder that `overrun store export {kind} --folder` writes to"
        )
    found = [
        (hour, path)
        for hour, path in held
        if (end is None or hour < end) and (start is None or hour + HOUR > start)
    ]
    if not found:
        hours = sorted(hour for hour, _ in held)
        raise NoFiles(
            f"{folder} has no {kind} of that period: its hours are of {rfc3339(hours[0])} to {rfc3339(hours[-1] + HOUR)}"
        )
    return [str(path) for _, path in sorted(found)]


def _hour(path: Path) -> datetime | None:
    named = _HOUR.fullmatch(path.parent.parent.name)
    try:
        return datetime.strptime(named[1], HOUR_FORM).replace(tzinfo=UTC) if named else None
    except ValueError:  # no day or hour has these digits
        return None
