"""What can go wrong in analysis: one small tree. Each error says the value seen, what is wanted and the remedy.

All of these are bad input (exit code 2 on the command line, 400 over HTTP); missing data is never an error
but a null with its reason, or `finding.NotEnoughData`.
"""

import difflib
from collections.abc import Iterable


class AnalysisError(Exception):
    """Base of every error that this package raises on purpose."""


class WindowError(AnalysisError):
    """A time, duration, range or filter text that cannot be read."""


class SloError(AnalysisError):
    """An SLO text with an unknown key, a value out of range or an unclear unit."""


class BudgetError(AnalysisError):
    """A stage budget for an unknown stage, or with a value that is no time."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ` (nearest known: ...)` for an unknown name, or the list of all known ones when none is near."""
    names = list(known)
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return f"nearest known is {close[0]!r}" if close else "known are " + ", ".join(names)
