"""What came of the fixes that were applied here? A file of one answer a line, and the hit rate of each fix and each rule."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from overrun.analysis.front import text_layout
from overrun.analysis.front.document import Cell, Document, Figure, Table
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.finding import Finding, Record

Outcome = Literal["as_predicted", "gained_more", "gained_less", "not_known"]
# Fewer answers say little of a rate: its row is printed without one.
LEAST_ANSWERS: Final = 5
_MOST_LINES: Final = 10_000
By = Literal["fix", "rule"]
_BY: Final[tuple[By, By]] = ("rule", "fix")


class Applied(msgspec.Struct, kw_only=True):
    """One fix that was applied at `at` (RFC 3339), predicted and observed at one quantile of one metric, in ms.

    `predicted_ms` and its 90 % interval come from the requests before `at` alone. `adjusted_ms` is `before_ms` with the change that other traffic does not
    explain, `adjusted_interval` its 95 % interval; `adjusted_for` names what was evened out. `rule` is the finding that advised the fix, `confidence` what
    it gave itself; null where no finding of that window did. What is null has its reason.
    """

    schema: Literal["overrun.applied/1"] = "overrun.applied/1"
    fix: str
    parameters: dict[str, str] = {}
    at: str
    rule: str | None = None
    confidence: float | None = None
    metric: str | None = None
    quantile: float | None = None
    requests_before: int = 0
    requests_after: int = 0
    before_ms: float | None = None
    predicted_ms: float | None = None
    predicted_interval: tuple[float, float] | None = None
    observed_ms: float | None = None
    adjusted_ms: float | None = None
    adjusted_interval: tuple[float, float] | None = None
    adjusted_for: list[str] = []
    outcome: Outcome = "not_known"
    reasons: dict[str, str] = {}


def append(ledger: Path, made: Applied) -> None:
    """Add a line to a ledger; the same fix at the same moment replaces its former line."""
    kept = [one for one in entries(ledger) if (one.fix, one.at) != (made.fix, made.at)]
    beside = ledger.with_name(f"{ledger.name}.tmp")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as out:
        for one in [*kept, made][-_MOST_LINES:]:
            out.write(msgspec.json.encode(one) + b"\n")
    beside.replace(ledger)


def entries(ledger: Path) -> list[Applied]:
    """The lines of a ledger; none where there is none.

    Raises:
        AnalysisError: a line is not one of this program's.
    """
    if not ledger.exists():
        return []
    try:
        return [
            msgspec.json.decode(line, type=Applied)
            for line in ledger.read_bytes().splitlines()
            if line.strip()
        ]
    except msgspec.MsgspecError as error:
        raise AnalysisError(f"{ledger} is not a ledger of `overrun fix apply`: {error}") from error


def path_of(store: Path | str) -> Path:
    """Where the ledger of a store is kept, unless it is named."""
    return Path(f"{store}.ledger.jsonl")


def with_records(findings: Sequence[Finding], ledger: Path) -> list[Finding]:
    """Return the findings with what came of their rules' advice and of their fixes; as they are where the ledger is empty or cannot be read."""
    try:
        found = entries(ledger)
    except (AnalysisError, OSError):
        return list(findings)
    rules, fixes = ({rate.name: _record(rate) for rate in rates(found, by)} for by in _BY)
    return [
        msgspec.structs.replace(
            finding,
            record=rules.get(finding.rule),
            fix=finding.fix
            and msgspec.structs.replace(finding.fix, record=fixes.get(finding.fix.whatif or "")),
        )
        for finding in findings
    ]


def _record(rate: Rate) -> Record:
    return Record(answers=rate.answers, hits=rate.hits, error_ratio=rate.error_ratio)


class Rate(msgspec.Struct, kw_only=True):
    """How the predictions of one fix or rule did: `hits` of `answers` were as predicted, by a median error of `error_ratio` of the observed value.

    `confidence` is the mean of what the rule gave itself.
    """

    name: str
    answers: int
    hits: int
    error_ratio: float | None
    confidence: float | None


def rates(found: Sequence[Applied], by: By) -> list[Rate]:
    """A row for each fix or rule with a known outcome, most answers first."""
    groups: dict[str, list[Applied]] = {}
    for one in found:
        name = one.fix if by == "fix" else one.rule
        if name is not None and one.outcome != "not_known":
            groups.setdefault(name, []).append(one)
    return sorted(
        (_rate(name, mine) for name, mine in groups.items()), key=lambda r: (-r.answers, r.name)
    )


def _rate(name: str, mine: Iterable[Applied]) -> Rate:
    mine = list(mine)
    errors = [
        abs(one.predicted_ms - one.adjusted_ms) / one.adjusted_ms
        for one in mine
        if one.predicted_ms is not None and one.adjusted_ms
    ]
    sure = [one.confidence for one in mine if one.confidence is not None]
    return Rate(
        name=name,
        answers=len(mine),
        hits=sum(one.outcome == "as_predicted" for one in mine),
        error_ratio=statistics.median(errors) if errors else None,
        confidence=statistics.mean(sure) if sure else None,
    )


def render_ledger(found: Sequence[Applied], width: int = 110) -> str:
    """The ledger as text: every answer, then the hit rates beside the confidence."""
    if not found:
        return "The ledger is empty: `overrun fix apply FIX --at TIME` adds a line"
    head = ("FIX", "APPLIED", "METRIC", "BEFORE", "PREDICTED", "OBSERVED", "OUTCOME")
    rows: list[tuple[Cell, ...]] = [
        (
            one.fix[:24],
            one.at,
            f"{one.metric} P{one.quantile * 100:g}" if one.metric and one.quantile else "-",
            *map(Figure, (one.before_ms, one.predicted_ms, one.adjusted_ms)),
            one.outcome.replace("_", " "),
        )
        for one in found
    ]
    groups = [[Table(head, rows, "<<<>>><")], *([_rates(found, by)] for by in reversed(_BY))]
    return text_layout.render(Document(groups), width)


def _rates(found: Sequence[Applied], by: By) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            one.name[:24],
            f"{one.hits} of {one.answers}"
            + (f" ({one.hits / one.answers:.0%})" if one.answers >= LEAST_ANSWERS else ""),
            "-" if one.error_ratio is None else f"{one.error_ratio:.0%}",
            "-" if one.confidence is None else f"{one.confidence:.0%}",
        )
        for one in rates(found, by)
    ]
    return Table((by.upper(), "as predicted", "median error", "confidence"), rows, "<>>>")
