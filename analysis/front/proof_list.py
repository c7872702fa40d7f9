"""What shows each finding at a glance? One chart of the deciding fact and three to five plain facts, for the findings of a report."""

from __future__ import annotations

from typing import Final

import duckdb
import msgspec

from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.decisive_chart import MOST_FACTS, OF_RULE, USUAL, Chart, chart_of
from overrun.analysis.evidence.fact import Fact
from overrun.analysis.front.fact_list import case_in
from overrun.analysis.numbers.stages.budget import Configured
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.errors import AnalysisError, nearest
from overrun.analysis.words.slo import Slo

# Findings of one question: more than a report lists.
MOST_ASKED: Final = 12


class Proof(msgspec.Struct, kw_only=True):
    """What shows one finding: its chart and its facts, the deciding one first. A null chart has its reason in `reasons`."""

    rule: str
    chart: Chart | None
    facts: list[Fact]
    reasons: dict[str, str] = {}


class ProofList(msgspec.Struct, kw_only=True):
    """The proofs in the order in which they were asked for; none where latency cannot be judged, for the reason in `reasons`."""

    proofs: list[Proof] = []
    reasons: dict[str, str] = {}


def proofs(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    slo: Slo,
    budgets: Configured | None,
    findings: str,
) -> ProofList:
    """Return the proofs of findings, given as `RULE:STAGE` separated by `;`, as the report names both.

    Raises:
        AnalysisError: an unknown rule. Others as `fact_list.facts`.
    """
    asked = read_findings(findings)
    case = case_in(con, window, slo, budgets)
    if isinstance(case, str):
        return ProofList(reasons={"proofs": case})
    return ProofList(proofs=[_proof(case, rule, stage) for rule, stage in asked])


def read_findings(text: str) -> list[tuple[str, str]]:
    """Read pairs of rule and stage.

    Raises:
        AnalysisError: an unknown rule, or too many pairs.
    """
    found = []
    for part in text.split(";"):
        rule, _, stage = part.strip().partition(":")
        if rule not in rules():
            raise AnalysisError(f"rule {rule[:64]!r} is unknown: {nearest(rule, list(rules()))}")
        found.append((rule, stage))
    if len(found) > MOST_ASKED:
        raise AnalysisError(f"{len(found)} findings, at most {MOST_ASKED} can be asked for")
    return found


def _proof(case: Case, rule: str, stage: str) -> Proof:
    chart = chart_of(case, rule, stage)
    own = OF_RULE[rule].facts if rule in OF_RULE else ()
    names = [*own, *(name for name in USUAL if name not in own)]
    known = [fact for name in names if (fact := case.facts[name]).now is not None]
    return Proof(
        rule=rule,
        chart=chart,
        facts=known[:MOST_FACTS],
        reasons={}
        if chart is not None
        else {"chart": f"too few requests to draw {stage} over time"},
    )
