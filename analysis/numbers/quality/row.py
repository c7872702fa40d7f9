"""What does a data-quality check answer? One row of `data_quality`."""

from typing import Final, Literal

import msgspec

Grade = Literal["ok", "warn", "fail"]

# Shares from which a spoiled minority is said (warn) and from which the metric is no longer one (fail); own defaults.
WARN_SHARE: Final = 0.05
FAIL_SHARE: Final = 0.5
# One percent of traces is enough to move a P99.
ONE_PERCENT: Final = 0.01


class Check(msgspec.Struct, kw_only=True):
    """One check: `fail` spoils the numbers it names, `warn` bends them; `detail` has the figure and what to do."""

    check: str
    status: Grade
    detail: str
