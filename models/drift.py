"""Has traffic moved away from what the artifact was trained on? Kept beside the predictor as finished requests are reported."""

from collections import deque
from typing import Final, TypedDict

# The newest finished requests that count; below MIN_ROWS nothing is said: at 200 a coverage of .90 has a standard error of .02.
WINDOW: Final = 1_000
MIN_ROWS: Final = 200
# The rule for training again: P90 coverage outside these, or an error less than this share below the route's recent median.
COVERAGE: Final = (0.87, 0.93)
LEAST_REDUCTION: Final = 0.02


class State(TypedDict):
    """What the newest `rows` finished requests say; None while they are too few.

    `p90_coverage` share that generated at most the answered P90; `error_reduction` 1 - error / error of the route's recent median, on routes answered by
    the model (None if there are too few of these); `retrain` the reason to train again, None if there is none.
    """

    rows: int
    p90_coverage: float | None
    error_reduction: float | None
    retrain: str | None


class Drift:
    """A window of outcomes: whether P90 held, and the errors of the answer and of the route's median where the model answered."""

    def __init__(self) -> None:
        self._held: deque[bool] = deque(maxlen=WINDOW)
        self._errors: deque[tuple[float, float]] = deque(maxlen=WINDOW)

    def add(self, generated: int, p50: float, p90: float, median: float, *, modelled: bool) -> None:
        """Count one finished request: what it generated, what was answered, and the route's median before it."""
        self._held.append(generated <= p90)
        if modelled:
            self._errors.append((abs(generated - p50), abs(generated - median)))

    def state(self) -> State:
        """Return what can be said now."""
        coverage = sum(self._held) / len(self._held) if len(self._held) >= MIN_ROWS else None
        reduction = None
        if len(self._errors) >= MIN_ROWS:
            own, median = (sum(errors) for errors in zip(*self._errors, strict=True))
            reduction = 1.0 - own / median if median else None
        retrain = None
        if coverage is not None and not COVERAGE[0] <= coverage <= COVERAGE[1]:
            low, high = (f"{100.0 * edge:.0f} %" for edge in COVERAGE)
            retrain = f"P90 covers {100.0 * coverage:.3g} % of the last {len(self._held):,} requests, expected {low} to {high}"
        elif reduction is not None and reduction < LEAST_REDUCTION:
            retrain = f"the error is {100.0 * reduction:+.1f} % below the routes' recent median, expected at least {100.0 * LEAST_REDUCTION:.0f} %"
        return {
            "rows": len(self._held),
            "p90_coverage": coverage,
            "error_reduction": reduction,
            "retrain": retrain,
        }
