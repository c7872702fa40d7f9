"""In which unit do durations stand whose column has none? The only one that fits what else the rows say, or none.

Three things are asked, in this order: when each row was written after it began, how many tokens a second the calls then write, and whether calls of a
model take so long. Each leaves one unit, or is no answer.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

SCALE_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
# Tokens a second of a model's answer, its wait included: from a CPU's large model to the fastest accelerators.
_WRITTEN_A_SECOND = (0.3, 3_000.0)
# Seconds that the median call of a model takes, by the unit: nobody counts what takes 10 ms in microseconds of which there are ten thousand.
_TAKES_S = {"s": (0.01, 300.0), "ms": (0.01, 300.0), "us": (0.1, 300.0), "ns": (0.1, 300.0)}
_WRITTEN_WITHIN_S = 1.5  # a log's clock may have whole seconds
_LEAST_TIMED = 3  # rows that must agree on the unit


@dataclass(frozen=True, slots=True)
class Timed:
    """A row's duration without a unit: with tokens written, and seconds from the begin to when it was written down, where they are known; whether a model
    was asked to answer."""

    number: float
    tokens: float | None
    written_s: float | None
    answers: bool


def unit_of(rows: Sequence[Timed]) -> tuple[str, str]:
    """The one unit that fits, "" where there is none or more than one, and why."""
    rows = [row for row in rows if row.number > 0.0]
    late = [(row.number, row.written_s) for row in rows if row.written_s is not None]
    if len(late) >= _LEAST_TIMED:
        off = {
            unit: statistics.median(abs(n * scale / 1e9 - s) for n, s in late)
            for unit, scale in SCALE_NS.items()
        }
        if unit := _only([unit for unit, seconds in off.items() if seconds <= _WRITTEN_WITHIN_S]):
            return unit, "so long after its begin each row was written"
    return _by_answers([row for row in rows if row.answers])


def _by_answers(rows: Sequence[Timed]) -> tuple[str, str]:
    """The unit in which a model's answers take as long, and are written as fast, as models do."""
    if len(rows) < _LEAST_TIMED:
        return "", ""
    typical = statistics.median(row.number for row in rows)
    lasting = [
        unit
        for unit, (least, most) in _TAKES_S.items()
        if least <= typical * SCALE_NS[unit] / 1e9 <= most
    ]
    written = [row.tokens / row.number for row in rows if row.tokens]
    if len(written) >= _LEAST_TIMED:
        least, most = _WRITTEN_A_SECOND
        a_second = statistics.median(written)
        fits = [u for u, scale in SCALE_NS.items() if least <= a_second * 1e9 / scale <= most]
        if unit := _only(fits) or _only([unit for unit in fits if unit in lasting]):
            return (
                unit,
                "the only one in which these calls write as many tokens a second as models do",
            )
        return "", ""
    if unit := _only(lasting):
        seconds = typical * SCALE_NS[unit] / 1e9
        return (
            unit,
            f"the only one in which these calls take as long as models do ({seconds:.3g} s)",
        )
    return "", ""


def _only(units: list[str]) -> str:
    return units[0] if len(units) == 1 else ""


def scaled(number: float, unit: str) -> int:
    """Nanoseconds of a duration in a unit as columns name it (`ms`, `millis`, `seconds`, `us`)."""
    short = unit if unit in SCALE_NS else {"m": "ms", "s": "s", "u": "us", "n": "ns"}[_letter(unit)]
    return round(number * SCALE_NS[short])


def _letter(unit: str) -> str:
    """The first letter of a unit; that of `micros` is u."""
    return "u" if unit.startswith("micro") else unit[0]
