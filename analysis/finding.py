"""What does a rule see, and what does it answer?

The case, the finding with its fix, and how numbers are said in words.
"""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import numpy as np
import polars as pl

from analysis.budget import GROUP_OF, GROUPS, BoolArray, Budgets, FloatArray, StageTimes
from analysis.slo import Slo
from analysis.tail import Tail, share_interval

# A cause must explain at least this part of the excess to be named; own default.
MIN_SHARE: Final = 0.5
# Fewest breaching requests to name a cause from: the low-traffic rule of SLO burn alerts.
MIN_BREACHING: Final = 10
MOST_EXEMPLARS: Final = 5
# Error budget spent 14.4 times too fast uses 2 % of a 30-day budget in an hour and pages someone (Google SRE
# Workbook, ch. 5).
CRITICAL_BURN: Final = 14.4
SEED: Final = 20_251

Method = Literal["exact", "simulated", "resampled", "estimate"]
Severity = Literal["info", "warning", "critical"]
Owner = Literal["app", "platform", "provider"]


class Predicted(msgspec.Struct, kw_only=True):
    """What a fix changes: one quantile (0..1) of one metric, before and after, in milliseconds; interval is 90 %.

    `touched_ratio` is the share of requests that the fix changes, `cost` what it takes away (ratios 0..1).
    """

    metric: str
    quantile: float
    before: float
    after: float
    interval: tuple[float, float] | None
    touched_ratio: float
    cost: dict[str, float]
    backtest_error_ratio: float | None = None
    reasons: dict[str, str] = {}


class Fix(msgspec.Struct, kw_only=True):
    """What to change, with the exact setting, how the gain was computed, and the gain (null if unknown).

    `assumption` completes "the gain holds if ...".
    """

    id: str
    title: str
    detail: str
    assumption: str
    method: Method
    predicted: Predicted | None
    reasons: dict[str, str] = {}


class Finding(msgspec.Struct, kw_only=True):
    """One diagnosed cause with its evidence. `stage` is the stage that lost the time, `confidence` 0..1."""

    rule: str
    stage: str
    service: str | None
    severity: Severity
    confidence: float
    headline: str
    evidence: dict[str, Any]
    exemplars: list[str]
    fix: Fix | None
    reasons: dict[str, str] = {}


@dataclass(frozen=True)
class Diagnosis:
    """A finding and what the verdict says beside it when this is the main cause.

    `because` completes the sentence "... because ...", `explained_ratio` (0..1) of the excess ranks competing causes.
    """

    finding: Finding
    explained_ratio: float
    because: str
    owner: Owner
    mitigation: str
    rollback: str
    recheck_after_s: int


@dataclass(frozen=True)
class NotEnoughData:
    """Why no answer can be given, and what to record or wait for."""

    reason: str


@dataclass(frozen=True)
class Case:
    """All that a rule may look at. Arrays and `rows` have one entry per successful request with the judged metric.

    `values` is the judged metric in ms, `times` its stage times, `breaching` who is over the limit. `reference` holds
    the rows that the tail is compared with. `points` are engine indicators (see `RequestFrame`). `burn` is how many
    times faster than allowed requests go bad. `trace_ids` looks up ids for a few rows; `spender` names the service
    and the operation that spent a stage's time in a few traces.
    """

    rows: pl.DataFrame
    values: FloatArray
    times: StageTimes
    tail: Tail
    reference: pl.DataFrame
    budgets: Budgets
    breaching: BoolArray
    slo: Slo
    metric: str
    points: pl.DataFrame
    burn: float
    trace_ids: Callable[[pl.DataFrame], list[str]]
    spender: Callable[[list[str], str], tuple[str, str] | None]

    def share_interval(self, stage: str) -> list[float] | None:
        """Return the 95 % interval [low, high] of the part of the excess that a stage explains."""
        interval = share_interval(self.tail, self.times, stage, np.random.default_rng(SEED))
        return None if interval is None else list(interval)

    def exemplars(self, stage: str) -> list[str]:
        """Return trace ids of at most five requests near the SLO percentile, most time in the stage first."""
        index = self.tail.tail_index
        spent = self.times.ms[stage][index] if stage in self.times.ms else self.values[index]
        return self.trace_ids(self.rows[index[np.argsort(-spent, kind="stable")[:MOST_EXEMPLARS]]])

    def severity(self) -> Severity:
        """Return how urgent a main cause is: critical when the error budget burns fast enough to page someone."""
        return "critical" if self.burn >= CRITICAL_BURN else "warning"

    def stage_limit_ms(self, stage: str) -> float:
        """Return what a stage may take: its own budget, else what its group's budget leaves beside the other members.

        Where that is nothing, or no budget exists (TPOT or ITL judged), it is the stage's mean among the reference
        requests.
        """
        if stage in self.budgets.stage_ms:
            return self.budgets.stage_ms[stage]
        group = GROUP_OF[stage]
        usual_ms = self.tail.reference_ms.get(stage, 0.0)
        if group not in self.budgets.group_ms:
            return usual_ms
        others = sum(self.tail.reference_ms.get(other, 0.0) for other in GROUPS[group] if other != stage)
        left_ms = self.budgets.group_ms[group] - others
        return left_ms if left_ms > 0.0 else usual_ms


def too_few_breaches(case: Case) -> NotEnoughData | None:
    """Return why no cause may be named yet, None when there are enough breaching requests."""
    n = int(case.breaching.sum())
    if n >= MIN_BREACHING:
        return None
    return NotEnoughData(f"{n} requests are over the limit, a cause needs at least {MIN_BREACHING}: widen the window")


def say_ms(value_ms: float) -> str:
    """Return a time in the unit that people use for its size: `7.3 ms`, `377 ms`, `54.4 s`."""
    if abs(value_ms) >= 10_000.0:
        return f"{value_ms / 1000.0:,.1f} s"
    if abs(value_ms) >= 1_000.0:
        return f"{value_ms / 1000.0:.2f} s"
    return f"{value_ms:.0f} ms" if abs(value_ms) >= 10.0 else f"{value_ms:.1f} ms"


def say_ratio(ratio: float) -> str:
    """Return a share in per cent: `24.5%`, `92%`, `100%`."""
    text = f"{100.0 * ratio:.1f}"
    return f"{text.removesuffix('.0')}%"


def printable(text: str | None, most: int = 60) -> str:
    """Return a telemetry string that is safe to print: one line, no control or formatting characters, bounded.

    Names and routes are written by whoever sends telemetry. Escape sequences, bidirectional overrides and line breaks
    are removed, and square brackets become round ones so that terminal markup is never interpreted.
    """
    if text is None:
        return "unknown"
    kept = "".join(" " if char.isspace() else char for char in text[: 4 * most])
    kept = "".join(
        char for char in kept if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    )
    kept = " ".join(kept.replace("[", "(").replace("]", ")").split())
    return (kept if len(kept) <= most else kept[: most - 3].rstrip() + "...") or "unnamed"
