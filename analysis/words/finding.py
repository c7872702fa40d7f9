"""What does a rule answer? The finding with its fix, and how numbers are said in words."""

import functools
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

# The causes named must together explain at least this part of the excess, else none is; own default.
MIN_NAMED: Final = 0.4
# ...and this part to be listed at all: of two causes at once, the smaller one rarely brings less; own default.
MIN_LISTED: Final = 0.25
# ...or this part, where all calls show the change and not only the slow ones, which are slow for having drawn more of everything; own default.
MIN_SHIFTED: Final = 0.1
# Share of the slow requests that a cause must have made slow alone to be listed beside one that explains more of the mean; own default.
MIN_DOMINATED: Final = 0.1
# Fewest breaching requests to name a cause from: the low-traffic rule of SLO burn alerts.
MIN_BREACHING: Final = 10
MOST_EXEMPLARS: Final = 5
SEED: Final = 20_251

Method = Literal["exact", "simulated", "resampled", "estimate"]
Severity = Literal["info", "warning", "critical"]
Owner = Literal["app", "platform", "provider"]


class Predicted(msgspec.Struct, kw_only=True):
    """What a fix changes: one quantile (0..1) of one metric, before and after, in milliseconds; interval is 90 %.

    `touched_ratio` is the share of requests that the fix changes, `cost` what it takes away (ratios 0..1; money in `currency`). `over_before_ratio` and
    `over_after_ratio` are the shares of requests over the limit of the metric, each over its own where requests have limits of their own; null where nothing
    limits it. `bound`: arithmetic that leaves out what the fix does to the load of others, so `after` is reached at most if the assumption holds.
    """

    metric: str
    quantile: float
    before: float
    after: float
    interval: tuple[float, float] | None
    touched_ratio: float
    cost: dict[str, float]
    currency: str | None = None
    backtest_error_ratio: float | None = None
    over_before_ratio: float | None = None
    over_after_ratio: float | None = None
    bound: bool = False
    reasons: dict[str, str] = {}


# Why a fix has no simulated figure yet; said in its `reasons`.
SIMULATING: Final = "the simulation is running: ask again in a minute"
# Why a report of very many requests has no findings yet; said in its `reasons`.
FINDING_CAUSES: Final = "the search for causes is running: ask again in a minute"


class Record(msgspec.Struct, kw_only=True):
    """What came of fixes that were applied here: `hits` of `answers` gained what was predicted, `error_ratio` is the median error of the predictions (null where
    none can be computed)."""

    answers: int
    hits: int
    error_ratio: float | None = None


class Fix(msgspec.Struct, kw_only=True):
    """What to change, with the exact setting, how the gain was computed, and the gain (null if unknown).

    `assumption` completes "the gain holds if ...". `whatif` is what `overrun whatif` calls this fix, with the `parameters` asked for here; null where it
    has no counterpart there. `record` is what came of this fix where it was applied here, null where it never was.
    """

    id: str
    title: str
    detail: str
    assumption: str
    method: Method
    predicted: Predicted | None
    whatif: str | None = None
    parameters: dict[str, float | str] = {}
    record: Record | None = None
    reasons: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.whatif is None and "whatif" not in self.reasons:
            self.reasons = {
                **self.reasons,
                "whatif": "no what-if fits it with the data at hand",
            }


class Finding(msgspec.Struct, kw_only=True):
    """One diagnosed cause with its evidence. `stage` is the stage that lost the time, `confidence` 0..1, `record` what came of the fixes that this rule advised here."""

    rule: str
    stage: str
    service: str | None
    severity: Severity
    confidence: float
    headline: str
    evidence: dict[str, Any]
    exemplars: list[str]
    fix: Fix | None
    record: Record | None = None
    reasons: dict[str, str] = {}


class RuledOut(msgspec.Struct, kw_only=True):
    """Something that is not the cause, and the figure that reports it."""

    what: str
    figure: str


@dataclass(frozen=True)
class Diagnosis:
    """A finding and what the verdict says beside it when this is the main cause.

    `because` completes the sentence "... because ...". `claims_ms` is what the cause adds to a slow request, per stage: competing causes
    are ranked by the part of the excess that this is. `driven`: its own figures show that something else makes it happen (retries of slow calls, a cache that
    more work fills), so it comes behind what may drive it. `dominates` is the share of slow requests that would not be slow but for it: a second cause that strikes few requests
    hard is listed for that, however small its part of the mean; `least` is the part of the excess from which any second cause is. `apart`: its claims
    are what it makes worse than for others at the same moments, so that nothing which all of them share is among them. `rather` is another explanation that the
    same figures fit as well; it completes the same sentence.
    """

    finding: Finding
    claims_ms: Mapping[str, float]
    because: str
    owner: Owner
    mitigation: str
    rollback: str
    recheck_after_s: int
    driven: bool = False
    dominates: float = 0.0
    least: float = MIN_LISTED
    apart: bool = False
    rather: str = ""


@dataclass(frozen=True)
class NotEnoughData:
    """Why no answer can be given, and what to record or wait for."""

    reason: str


def begun(text: str) -> str:
    """Return a text as the beginning of a sentence; a name of code or an address that it begins with stays as it is."""
    first = text.partition(" ")[0].rstrip(".,:;")
    return text if any(sign in first for sign in "._/:") else text[:1].upper() + text[1:]


def say_ms(value_ms: float) -> str:
    """Return a time in the unit that people use for its size: `7.3 ms`, `377 ms`, `54.4 s`."""
    if abs(value_ms) >= 10_000.0:
        return f"{value_ms / 1000.0:,.1f} s"
    if abs(value_ms) >= 1_000.0:
        return f"{value_ms / 1000.0:.2f} s"
    return f"{value_ms:.0f} ms" if abs(value_ms) >= 10.0 else f"{round(value_ms, 1) + 0.0:.1f} ms"


def say_s(seconds: float) -> str:
    """Return a length of time in the unit that people use for its size: `150 s`, `60 min`, `24 h`, `4 d`."""
    for least, unit_s, unit in (
        (259_200.0, 86_400.0, "d"),
        (10_800.0, 3_600.0, "h"),
        (600.0, 60.0, "min"),
    ):
        if seconds >= least:
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds:,.0f} s"


def say_rate(per_s: float, what: str) -> str:
    """Return a rate over the unit of time in which it can be counted: `6.28 requests/s`, `18.9 requests/min`, `3.6 requests/h`."""
    rate, unit = next(
        (each for each in ((per_s, "s"), (60.0 * per_s, "min")) if each[0] >= 0.1 or not per_s),
        (3_600.0 * per_s, "h"),
    )
    return f"{rate:,.0f} {what}/{unit}" if rate >= 100.0 else f"{rate:.3g} {what}/{unit}"


def say_limits(limits_ms: float | npt.NDArray[np.float64]) -> str:
    """Return one limit, or those of requests that have different ones: `300 ms`, `300 ms to 2.00 s, by request`."""
    known = np.unique(np.asarray(limits_ms)[np.isfinite(limits_ms)])
    if len(known) < 2:
        return say_ms(float(known[0])) if len(known) else "no limit"
    return f"{say_ms(float(known[0]))} to {say_ms(float(known[-1]))}, by request"


def say_over(predicted: Predicted) -> str:
    """Return the shares over the limit before and after, `12 % -> 3 % over the limit`; empty where nothing limits the metric."""
    if predicted.over_before_ratio is None or predicted.over_after_ratio is None:
        return ""
    return f"{say_ratio(predicted.over_before_ratio)} -> {say_ratio(predicted.over_after_ratio)} over the limit"


def say_after(predicted: Predicted) -> str:
    """Return the value after a fix: `2.06 s`, of a bound `at most 2.06 s`."""
    return f"{'at most ' if predicted.bound else ''}{say_ms(predicted.after)}"


def say_bound(fix: Fix) -> str:
    """Return why the gain of a fix is a bound, in a few words that a figure follows; empty where it is none."""
    if fix.predicted is None or not fix.predicted.bound:
        return ""
    if fix.reasons.get("simulated") == SIMULATING:
        return "A bound by arithmetic, the simulation is running"
    return "A bound by arithmetic, not simulated"


def say_costs(predicted: Predicted) -> str:
    """Return what a fix costs: `truncated 5.5 %, 1.5 times the replicas, network floor 2.3 ms, saved 0.80 USD per 1,000 requests`.

    What is as it was before (names that end with `_now`) costs nothing.
    """
    return ", ".join(
        _say_price(name, value, predicted.currency)
        for name, value in predicted.cost.items()
        if not name.endswith("_now")
    )


def say_money(amount: float) -> str:
    """Return an amount of money: `1,234.50`, `0.80`, `0.0012`."""
    return f"{amount:,.2f}" if abs(amount) >= 0.1 or not amount else f"{amount:.2g}"


def _say_price(name: str, value: float, currency: str | None) -> str:
    words, _, unit = name.rpartition("_")
    if unit == "ratio":
        return f"{words.replace('_', ' ')} {say_ratio(value)}"
    if unit == "factor":
        return f"{value:,.6g} times the {words.replace('_', ' ')}"
    if unit == "ms":
        return f"{words.replace('_', ' ')} {say_ms(value)}"
    if name.endswith("_per_1000_requests"):
        return (
            f"{words.removesuffix('_per_1000')} {say_money(value)} {currency or ''}".rstrip()
            + " per 1,000 requests"
        )
    return f"{name.replace('_', ' ')} {value:,.6g}"


def say_trust(predicted: Predicted) -> str:
    """Return which part of the requests a fix changes, its cost, how far its method was off: `changes 91 % of the requests; cost: truncated 5.5 %; replay error 0.3 %`."""
    parts = [f"changes {say_ratio(predicted.touched_ratio)} of the requests"]
    if say_costs(predicted):
        parts.append(f"cost: {say_costs(predicted)}")
    if predicted.backtest_error_ratio is not None:
        parts.append(f"replay error {say_ratio(predicted.backtest_error_ratio)}")
    return "; ".join(parts)


def say_sample(finding: Finding) -> str:
    """Return what a finding rests on, of a cause with its stage's part and 95 % interval: `n 2,655, 185 slow; decode is 96 % of the excess (94 % to 98 %)`."""
    evidence = finding.evidence
    counted = f"n {evidence.get('n', 0):,}, {evidence.get('n_tail', 0):,} slow"
    share, interval = (
        evidence.get("stage_share_of_excess"),
        evidence.get("stage_share_of_excess_interval"),
    )
    if share is None or not interval:
        return counted
    low, high = map(say_ratio, interval)
    return (
        counted
        if low == high or not evidence.get("claims_ms")
        else f"{counted}; {finding.stage} is {say_ratio(share)} of the excess ({low} to {high})"
    )


def say_count(n: int, what: str) -> str:
    """Return a number of things: `1 request`, `1,000 requests`."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def say_ratio(ratio: float) -> str:
    """Return a share in per cent: `24.5 %`, `92 %`, `100 %`."""
    text = f"{100.0 * ratio:.1f}"
    return f"{text.removesuffix('.0')} %"


def printable(text: str | None, most: int = 60) -> str:
    """Return a telemetry string that is safe to print: one line, no control or formatting characters, bounded.

    Names and routes come from the sender of telemetry. Escape sequences, bidirectional overrides and line breaks
    are removed, and square brackets become round ones so that terminal markup is never interpreted.
    """
    return "unknown" if text is None else _printable(text[: 4 * most], most)


@functools.lru_cache(maxsize=4096)
def _printable(text: str, most: int) -> str:
    kept = "".join(" " if char.isspace() else char for char in text)
    kept = "".join(
        char
        for char in kept
        if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    )
    kept = " ".join(kept.replace("[", "(").replace("]", ")").split())
    return (kept if len(kept) <= most else kept[: most - 3].rstrip() + "...") or "unnamed"
