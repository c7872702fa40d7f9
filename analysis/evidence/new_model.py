"""Which model answers now and did not before?"""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.case import Case

MIN_OF_SLOW: Final = 0.5
MIN_SLOWER: Final = 1.2
# A model with fewer of the former calls than this, and so many times as many now, is new; own defaults.
ABSENT: Final = 0.15
MORE: Final = 4.0


class Newcomer(NamedTuple):
    """A model that answers now and did not before, and the one whose part it took: their names, shares of the calls before and now by model, calls of the
    former one before and of the new one now, its share of the slow requests' time, and how many times as long its calls take."""

    name: str
    former: str
    old: dict[str, float]
    new: dict[str, float]
    theirs: pl.DataFrame
    its: pl.DataFrame
    served: float
    slower: float

    @property
    def replaced(self) -> bool:
        """Whether it took over requests of the former one, slow ones above all, and is slower."""
        gave_up = self.old[self.former] - self.new.get(self.former, 0.0)
        return self.served >= MIN_OF_SLOW and self.slower >= MIN_SLOWER and gave_up > 0.0


def newcomer(case: Case) -> Newcomer | None:
    """Return the model that answers now and did not before; of several the one that took most of the slow requests' time, None without any."""
    before = case.calls_before
    if before is None or not len(before) or not len(case.slow_calls):
        return None
    old, new = _shares(before.frame), _shares(case.calls.frame)
    # A baseline may end a little after the change.
    fresh = [
        name
        for name in new
        if old.get(name, 0.0) <= ABSENT and new[name] >= MORE * old.get(name, 0.0)
    ]
    if not fresh or not old:
        return None
    served = _served(case.slow_calls.frame, fresh)
    name = max(served, key=lambda one: served[one])
    former = max(old, key=lambda one: old[one] - new.get(one, 0.0))
    theirs, its = (
        before.frame.filter(pl.col("model") == former),
        case.calls.frame.filter(pl.col("model") == name),
    )
    return Newcomer(
        name,
        former,
        old,
        new,
        theirs,
        its,
        served[name],
        _median(its, "e2e_ms") / max(_median(theirs, "e2e_ms"), 1.0),
    )


def _shares(calls: pl.DataFrame) -> dict[str, float]:
    """Share of the calls that each model answered."""
    names = calls["model"].drop_nulls()
    return (
        {str(name): n / len(names) for name, n in names.value_counts().iter_rows()}
        if len(names)
        else {}
    )


def _served(slow: pl.DataFrame, names: list[str]) -> dict[str, float]:
    """Share of the slow requests' time in model calls that each of these models took: a quick check beside each is half of the calls, not of the wait."""
    spent = slow["e2e_ms"].fill_null(0.0).to_numpy()
    return {
        name: float(
            spent[(slow["model"] == name).fill_null(False).to_numpy()].sum()
            / max(float(spent.sum()), 1e-9)
        )
        for name in names
    }


def _median(calls: pl.DataFrame, column: str) -> float:
    values = calls[column].drop_nulls().to_numpy()
    return float(np.median(values)) if len(values) else 0.0
