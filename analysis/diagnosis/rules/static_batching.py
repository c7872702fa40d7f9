"""static_batching: requests are computed in fixed batches, and each waits for the longest of its batch.

Detects
    Engine calls of one engine that end within 10 ms of each other although their answers differ in length, and no other call
    of that engine goes on over their end, for most calls. An opportunity: never the cause.

Why it hurts
    In a padded batch a short answer ends with the longest one, and no request joins before the end. Continuous
    batching lets a finished sequence leave at once.

Evidence
    Share of calls that end together with others, size of the groups, spread of their output tokens, time lost to the longest.

Fix
    An engine with continuous batching (vLLM, SGLang, TensorRT-LLM in-flight batching). Its gain cannot be
    computed from these spans, because the batches would differ.

False alarms
    Many calls end at one step of a busy engine with continuous batching too, but there others continue. Spans
    that are exported in batches may carry the export time: check with durations that the engine measured
    itself.

Source
    Batch spans of equal end: published signature. "All wait for the longest" is true of static batches only.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, named, open_fix
from overrun.analysis.evidence.calls import MIN_CALLS, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.thresholds import LONGER, MOST
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, say_ratio

RULE: Final = "static_batching"
# Ends are summed up from the caller's start and the engine's durations: what lies between the two differs by some ms from call to call; own default.
TOGETHER_S: Final = 0.010


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return the fixed batches, None when calls end on their own."""
    calls = case.calls
    chosen = calls.has_engine & known(calls.last_s, calls.of("output_tokens"))
    if case.calls.has_engine.any() and int(chosen.sum()) < MIN_CALLS:
        return NotEnoughData(
            f"{int(chosen.sum())} calls of engines report their last token and their length, at least {MIN_CALLS} are needed: widen the window"
        )
    if not chosen.any():
        return None  # no engine reports its batches: a provider's are its own
    together, sizes = 0, []
    for engine in np.unique(calls.engine[chosen]):
        mine = np.flatnonzero(chosen & (calls.engine == engine))
        mine = mine[np.argsort(calls.last_s[mine], kind="stable")]
        first = np.append(0, np.flatnonzero(np.diff(calls.last_s[mine]) > TOGETHER_S) + 1)
        n, tokens = np.diff(first, append=len(mine)), calls.of("output_tokens")[mine]
        shortest, longest = np.minimum.reduceat(tokens, first), np.maximum.reduceat(tokens, first)
        ended = np.cumsum(n)
        go_on = (
            np.searchsorted(
                np.sort(calls.first_s[mine]), calls.last_s[mine][ended - 1], side="right"
            )
            > ended
        )
        fixed = n[(n >= 2) & ~go_on & (longest >= LONGER * np.maximum(shortest, 1.0))]
        together += int(fixed.sum())
        sizes += fixed.tolist()
    share = together / int(chosen.sum())
    if share < MOST:
        return None
    size = float(np.mean(sizes))
    fix = open_fix(
        "continuous_batching",
        "Serve with continuous batching",
        "Use an engine that adds and removes sequences at every step (vLLM, SGLang, TensorRT-LLM in-flight batching); batch size and "
        "timeout of a static server are not needed there.",
        "the engine supports the model",
        "the batches would differ from the recorded ones",
    )
    return named(
        case,
        RULE,
        "decode",
        {},
        Action(
            "platform",
            "Lower the batch size. Fewer answers then wait for the longest.",
            "Restore the batch size.",
            fix,
        ),
        headline=f"{say_ratio(share)} of the engine's calls end together in groups of {size:.1f} although their answers differ in length",
        because="answers wait for the longest answer of their batch",
        evidence={"together_ratio": share, "group_size": size, "groups": len(sizes)},
        opportunity=True,
    )
