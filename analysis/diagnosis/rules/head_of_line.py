"""head_of_line: requests wait behind a long one while requests that came later are served.

Detects
    A queue in front of a pool of workers in which most of the requests that came while a slow one waited were
    served before it, and hardly waited. Requests that wait for one pool are served in the order in which they
    came, so the pool was free: a worker holds back what was given to it.

Why it hurts
    A worker that reserves several tasks, or connections that are tied to one process, put short requests behind
    a long one. More workers do not help those that were given out already.

Evidence
    The part of later requests that were served before slow ones, their wait, and the wait of slow requests.

Fix
    Give out one task at a time, when a worker is free, and give long tasks a queue of their own. The gain gives
    slow requests the usual wait: exact.

False alarms
    Priorities let later requests pass on purpose. Two full queues in turn let some pass: fewer than half.
    Engines that record their own queue are compared as replicas (`hot_replica`, `straggler_replica`).

Source
    Order of service in one queue; above half served first: own default. RolnickLab/antenna#1323 and
    saleor/saleor#16507 (tasks that Celery reserves behind a long one).
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.overtaken import MOSTLY_SERVED
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms, say_ratio

RULE: Final = "head_of_line"
STAGE: Final = "queue"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return that later requests pass those that wait, with the gain of the usual wait; None without a queue outside of engines."""
    claims = {STAGE: case.excess_ms(STAGE)}
    passed = case.overtaken
    if passed is None or not enough(case, claims):
        return None
    said = f"{say_ratio(passed)} of the requests that came while slow ones waited were served before them"
    if passed <= MOSTLY_SERVED:
        return RuledOut(what=RULE, figure=said)
    now, usual = case.tail.tail_ms.get(STAGE, 0.0), case.tail.usual_ms(STAGE)
    return named(
        case,
        RULE,
        STAGE,
        claims,
        Action(
            "platform",
            "Give long tasks a queue and workers of their own, which costs a worker that idles at times.",
            "Put them back into the shared queue.",
            bound_fix(
                case,
                "one_at_a_time",
                "Give a task out when a worker is free",
                "Reserve one task at a time (Celery: worker_prefetch_multiplier = 1 with acks_late, or -O fair; one unacknowledged message a consumer elsewhere), "
                "do not tie connections to one process, and give long tasks a queue of their own.",
                "slow requests wait no longer than usual",
                np.maximum(case.spent(STAGE) - usual, 0.0),
            ),
        ),
        headline=f"slow requests wait {say_ms(now)} ({say_ms(usual)} {case.when}), and {said}",
        because=f"they wait behind a long one while other workers are free: {said}",
        evidence={"served_first_ratio": passed, "wait_ms_slow": now, "wait_ms_usual": usual},
        why_no_service="the queue is in front of all workers",
    )
