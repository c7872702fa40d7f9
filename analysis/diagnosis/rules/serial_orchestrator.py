"""serial_orchestrator: the application does its own work one request at a time, so requests wait for each other inside it.

Detects
    Time without a span, or prompt work such as tokenising, that grew and grows with the requests in flight in the same
    application process, or with those that came just before, while the calls it makes are no slower.

Why it hurts
    One event loop or one interpreter lock serves one request at a time: work of 50 ms limits a process to 20
    requests a second, and no metric shows the wait before it.

Evidence
    The time in slow and reference requests; its rank correlation with the requests in flight of the same
    instance, or with those that arrived within half of that time before (most requests in flight only wait for
    their answers); its correlation with the input tokens; and its position in the request.

Fix
    More worker processes, CPU work (tokenising, JSON, embeddings) in a process pool or on another thread that releases the
    lock, no blocking calls in async code. The gain gives back the former time: exact.

False alarms
    Missing spans for a call that became slow look alike, but do not depend on the requests in flight
    (`unattributed_time`). Own limits on calls wait as well, but their calls begin as others end (`client_throttled`).

Source
    Slope of the parent's own time over requests in flight: published signature; rank correlation above 0.25: own default.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.calls import MIN_CALLS
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.handed_over import handed_over
from overrun.analysis.evidence.process_load import came_before, in_flight, in_process
from overrun.analysis.evidence.span_tree import longest_hole
from overrun.analysis.evidence.thresholds import FOLLOWS
from overrun.analysis.numbers.statistics.effect_size import rank_correlation
from overrun.analysis.words.finding import (
    Diagnosis,
    NotEnoughData,
    RuledOut,
    printable,
    say_ms,
    say_ratio,
)

RULE: Final = "serial_orchestrator"
STAGES: Final = ("other", "prompt")


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the serial application with its gain, None when its own time did not grow or not with its load."""
    stage = case.worst(*STAGES)
    claims = {name: case.excess_ms(name) for name in STAGES}
    claims["other"] -= case.front_excess_ms
    if not enough(case, claims):
        return None
    since = case.rows.with_columns(
        own=pl.Series(case.spent("other") + case.spent("prompt"))
    ).filter(pl.col("start_us") >= int(case.period.start.timestamp() * 1e6))
    own, now = since["own"].to_numpy(), sum(case.tail.tail_ms.get(name, 0.0) for name in STAGES)
    if len(own) < MIN_CALLS:
        return NotEnoughData(
            f"{len(own)} requests since the onset, {MIN_CALLS} are needed to compare own time with load"
        )
    behind = came_before(in_process(since, case.calls), now / 2_000.0)
    by_load = max(rank_correlation(own, in_flight(since)), rank_correlation(own, behind))
    by_input = rank_correlation(
        own, since["input_tokens"].fill_null(0).to_numpy().astype(np.float64)
    )
    if by_load < FOLLOWS:
        return RuledOut(
            what=RULE,
            figure=f"own time follows the requests in flight (rank correlation {by_load:.2f})",
        )
    if handed_over(case):
        return RuledOut(
            what=RULE,
            figure="calls begin at the moment when others end: they wait for a free connection or slot, not for the application's own work",
        )
    if case.thinned:
        return NotEnoughData(
            f"{say_ratio(case.kept)} of the requests are stored: own time may follow the requests in flight, or calls may wait for a free slot. "
            "Keep every trace for some minutes to see which"
        )
    hole = longest_hole(case.slow_tree)
    where = f" before {printable(hole[1])}" if hole else ""
    usual = sum(case.tail.reference_ms.get(name, 0.0) for name in STAGES)
    service = printable(case.slow["service"].value_counts(sort=True)["service"][0])
    fix = bound_fix(
        case,
        "workers",
        f"Let {service} work on several requests at a time",
        f"Run one worker process per core (uvicorn --workers, gunicorn -w), and move the CPU work{where} off the event loop (run_in_executor with a process "
        "pool; fast tokenisers release the lock).",
        "the service's own work no longer waits for other requests",
        np.maximum(sum(case.spent(name) for name in STAGES) - usual, 0.0),
    )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "app",
            f"Start more instances of {service}, so that fewer requests share a process.",
            "Stop the extra instances.",
            fix,
        ),
        headline=(
            f"{service} itself takes {say_ms(now)} of a slow request{where}, {say_ms(usual)} of a {case.tail.reference} one, and it grows with "
            f"the requests in flight (rank correlation {by_load:.2f})"
        ),
        because=f"{service} does its own work one request at a time{where}: {say_ms(now)} instead of {say_ms(usual)}",
        evidence={
            "own_ms_slow": now,
            "own_ms_reference": usual,
            "load_correlation": by_load,
            "input_correlation": by_input,
            "before": hole[1] if hole else None,
        },
        service=service,
    )
