"""unattributed_time: most of the added time has no span, so the next step is to instrument.

Detects
    More than 30 % of the excess is time of a service during which none of its recorded calls ran.

Why it hurts
    Time without a span has no owner, so every explanation is a guess.

Evidence
    The part of the excess without a span, the service whose own time it is, and between which recorded operations the longest
    pause lies.

Fix
    Add spans around the service's work there (overrun.stage names the stage), or switch on the instrumentation
    of its client library. The result cannot be predicted.

False alarms
    Lost or sampled spans leave holes as well: see the data quality checks. A wrong clock moves time between
    services.

Source
    Above 30 % of the tail excess the answer is "instrument X": own default, from critical-path practice, which never spreads
    unattributed time over other stages.
"""

from typing import Final

from overrun.analysis.diagnosis.rule_answer import Action, named, open_fix
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.span_tree import longest_hole
from overrun.analysis.incident.breach import MOST_UNATTRIBUTED
from overrun.analysis.numbers.stages.budget import OTHER
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, printable, say_ms, say_ratio

RULE: Final = "unattributed_time"
MOST_OF_IT: Final = 0.5  # as for any cause named alone


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return where to instrument, None when spans explain most of the excess."""
    own_ms = case.excess_ms(OTHER) - case.front_excess_ms
    if _share(case, own_ms) > MOST_UNATTRIBUTED:
        own_ms -= case.operations.named_excess_ms(OTHER)  # spans that no vocabulary knows
    share = _share(case, own_ms)
    if share <= MOST_UNATTRIBUTED:
        return None
    service, hole = printable(_root_service(case)), longest_hole(case.slow_tree)
    where = f" between {printable(hole[0])} and {printable(hole[1])}" if hole else ""
    # Where most of it passes within a span of another service, that one is to be looked at.
    inner = case.operations.most(OTHER)
    apart = inner is not None and inner.service != _root_service(case)
    if inner is not None and apart and inner.excess_ms > MOST_OF_IT * own_ms:
        service, where = printable(inner.service), f" within {inner.label}"
    now, usual = case.tail.tail_ms.get(OTHER, 0.0), case.tail.reference_ms.get(OTHER, 0.0)
    fix = open_fix(
        "instrument",
        f"Instrument {service}",
        f"Add spans around what {service} does{where}: start there, then run the report again.",
        "the new spans cover the time without spans",
        "the missing spans may show any cause",
    )
    return named(
        case,
        RULE,
        OTHER,
        {OTHER: own_ms},
        Action(
            "app",
            f"Start another instance of {service}, or refuse a part of its requests, which get no answer, and profile a slow request: CPU, locks, pools.",
            "Stop the extra instance. Admit all requests again.",
            fix,
        ),
        headline=f"{say_ms(now)} of a slow request has no span{where}, {say_ms(usual)} of a {case.tail.reference} one",
        because=f"{say_ratio(share)} of the excess has no span{where}",
        evidence={
            "unattributed_ms_slow": now,
            "unattributed_ms_reference": usual,
            "after": hole[0] if hole else None,
            "before": hole[1] if hole else None,
        },
        # It is what remains where no rule knows better.
        service=service,
    )


def _root_service(case: Case) -> str:
    """The service that most slow requests come in at."""
    return str(case.slow["service"].value_counts(sort=True)["service"][0])


def _share(case: Case, own_ms: float) -> float:
    return min(case.tail.share(OTHER), own_ms / max(case.tail.excess_total_ms, 1e-9))
