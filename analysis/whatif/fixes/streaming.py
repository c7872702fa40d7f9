"""What if answers were streamed to the user end to end? Exact: the user sees the first token when the engine writes it; the end does not change.

For requests that are not streamed today, the first token reaches the user at the end: that is the TTFT before. Requests without their engine span are left
out of the figures after the fix: the late ones among them would stay late and form the tail that the fix has emptied.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import (
    Fix,
    Prediction,
    Times,
    predict_times,
    recorded,
    refuse,
)


def predict(facts: Facts) -> Prediction:
    """Return the answer; perceived latency changes, E2E does not."""
    fix = Fix("streaming", "Stream answers end to end", "no proxy or middleware buffers chunks", {})
    old = recorded(facts)
    engine, client, way = (
        facts.call("ttft_engine_ms"),
        facts.call("ttft_client_ms"),
        facts.call("e2e_ms") - facts.call("engine_e2e_ms"),
    )
    answers = np.full(len(facts), -1, dtype=np.int64)
    rows = np.flatnonzero((facts.request_of >= 0) & facts.on_path)
    answers[facts.request_of[rows]] = rows  # oldest first: the last call stays
    has = answers >= 0
    seen = np.where(np.isnan(old.ttft), old.e2e, old.ttft)
    after = seen.copy()
    start_ms = (
        facts.calls["start_us"].to_numpy()[answers] - facts.requests["start_us"].to_numpy()
    ) / 1000.0
    first = start_ms + engine[answers] + np.maximum(np.nan_to_num(way[answers]), 0.0) / 2.0
    buffered = (
        has
        & ~np.isnan(engine[answers])
        & (np.isnan(client[answers]) | (client[answers] > engine[answers] * 1.05))
    )
    after[buffered] = np.minimum(seen[buffered], np.maximum(first[buffered], 0.0))
    traced = facts.calls["model"].filter(pl.Series(~np.isnan(engine))).unique()
    theirs = (
        facts.calls["model"]
        .is_in(traced.drop_nulls().to_list())
        .fill_null(traced.null_count() > 0)
        .to_numpy()
    )
    unseen = has & np.isnan(engine[answers]) & theirs[answers]
    if not (after < seen - 1e-6).any():
        return refuse(
            facts,
            fix,
            "exact",
            "no answer is held back until its end: either all are streamed, or no engine span has a TTFT",
        )
    after[unseen] = np.nan
    left_out = {
        "unseen": f"{int(unseen.sum())} of {len(facts)} requests have an answer without its engine span. The TTFT after the fix leaves them out"
    }
    return predict_times(
        facts,
        fix,
        Times(after, old.e2e, old.tpot),
        before=Times(seen, old.e2e, old.tpot),
        method="exact",
        reasons=left_out if unseen.any() else {},
    )
