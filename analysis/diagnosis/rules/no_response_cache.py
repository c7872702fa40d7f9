"""no_response_cache: the model answers equal questions again and again.

Detects
    Model calls whose prompt hash was seen before in the window, in at least 10 % of the calls that carry one. An opportunity:
    never the cause.

Why it hurts
    A repeated question costs a whole answer, in time, tokens and engine capacity.

Evidence
    Share of repeated prompts among the calls with a hash, number of distinct prompts, time of the repeats.

Fix
    An exact cache in front of the model (key: model, prompt, parameters), then a semantic one at a similarity above 0.95. The
    gain answers each exact repeat in 50 ms: exact for what was repeated, without near-duplicates.

False alarms
    Answers that must differ (sampling, fresh data) cannot be cached; retries repeat a prompt too (`retry_storm`).

Source
    25 to 40 % near-duplicates, similarity 0.95, 50 ms: published case. 10 %: own default.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.span_tree import sum_per_request
from overrun.analysis.evidence.thresholds import LEAST_PART
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, say_ratio

RULE: Final = "no_response_cache"
MIN_REQUESTS: Final = 50
HIT_MS: Final = 50.0


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return what an exact cache would buy, None when few prompts repeat."""
    hashed = case.prompts
    if hashed.is_empty():
        return NotEnoughData(
            "whether prompts repeat is not known: record overrun.prompt_hash (a hash, not the text) on model calls"
        )
    if hashed.height < MIN_REQUESTS:
        return NotEnoughData(
            f"{hashed.height} model calls carry overrun.prompt_hash, at least {MIN_REQUESTS} are needed: widen the window"
        )
    repeats = hashed.filter(
        pl.col("prompt_hash").is_duplicated() & ~pl.col("prompt_hash").is_first_distinct()
    )
    share = repeats.height / hashed.height
    if share < LEAST_PART:
        return None
    saved = sum_per_request(repeats, "duration_ms", case.rows["trace_key"])
    hit = saved > 0.0
    fix = bound_fix(
        case,
        "response_cache",
        "Cache answers to equal questions",
        "An exact cache keyed by model, prompt and parameters with a lifetime that fits the data; a semantic cache (similarity above 0.95) "
        "finds more but must be tested for wrong hits.",
        f"a hit takes {HIT_MS:.0f} ms and its answer is still right",
        np.where(hit, np.maximum(np.minimum(saved, case.values) - HIT_MS, 0.0), 0.0),
        whatif="response_cache",
        parameters={"hit_ratio": round(float(hit.mean()), 3), "hit_ms": HIT_MS},
    )
    return named(
        case,
        RULE,
        "post",
        {},
        Action("app", fix.title, "Empty the cache.", fix),
        headline=f"{say_ratio(share)} of the model calls repeat a prompt of this window",
        because="equal prompts are computed again",
        evidence={
            "repeated_ratio": share,
            "calls": hashed.height,
            "distinct": hashed["prompt_hash"].n_unique(),
            "touched_ratio": float(hit.mean()),
        },
        opportunity=True,
    )
