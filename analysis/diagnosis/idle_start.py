"""How does `cold_start` answer where what serves a call was dropped for lack of calls, or for others? From the fact of `overrun.analysis.evidence.reuse`."""

from __future__ import annotations

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.reuse import Reuse
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, say_ms, say_s

# Ollama's OLLAMA_KEEP_ALIVE (docs/faq, 2026), and what llama-swap's examples set as ttl.
KEEP_ALIVE_S: Final = 300.0
_WHAT: Final = {
    "": "any call",
    "model": "a call of the same model",
    "engine_instance": "a call of the same engine",
    "tenant": "a call of the same tenant",
}


def idle_start(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return that calls wait until what they need is loaded again, with the gain of keeping it loaded; None where no silence or swap is clear."""
    found, constant = case.reuse, case.constant_added
    # A load takes another time each time; what takes a client's time-out is a connection that was closed while nobody called.
    if found is None or (constant is not None and constant.is_timeout):
        return None
    hit, part = case.share_of_slow(found.traces)
    claims = case.facts["silence"].excess_ms
    if not enough(case, claims):
        return None
    stage = max(claims, key=lambda name: claims[name])
    after, since = _after(found), _since(found)
    counted = f"{found.after_late:,} of {found.after:,} calls {after} are late, {found.other_late:,} of {found.other:,} others"
    usual = case.tail.usual_ms(stage)
    return named(
        case,
        "cold_start",
        stage,
        claims,
        Action(
            "platform",
            _keep(found),
            "Restore the former keep-alive.",
            bound_fix(
                case,
                "keep_loaded",
                "Keep the model loaded" if found.swaps is None else "Keep all models loaded",
                f"{_keep(found)} Or load it early: send an empty request when a user opens the page. "
                "A second call (hedging) would wait for the same load.",
                "calls after a silence take as long as the others",
                np.where(hit, np.maximum(case.spent(stage) - usual, 0.0), 0.0),
            ),
        ),
        headline=f"{counted}: {say_ms(found.late_ms)} instead of {say_ms(found.usual_ms)}{since}",
        because=f"the model starts cold: {counted} ({say_ms(found.late_ms)} instead of {say_ms(found.usual_ms)}{since})",
        evidence={
            "key": found.key or "any call",
            "silence_from_s": found.from_s if found.swaps is None else None,
            "quick_until_s": found.quick_until_s if found.swaps is None else None,
            "other_keys_from": found.swaps,
            "late_after": found.after_late,
            "calls_after": found.after,
            "late_others": found.other_late,
            "calls_others": found.other,
            "covers_late_interval": list(found.covers),
            "added_ms": found.added_ms,
            "late_before": found.before_late,
            "calls_before": found.before,
            "share_of_slow": part,
        },
        among=np.flatnonzero(case.breaching & hit),
        why_no_service="the model server loads it on demand",
    )


def _after(found: Reuse) -> str:
    if found.swaps is not None:
        return f"that follow {'calls' if found.swaps == 1 else f'calls of {found.swaps} and more'} of another {found.key.removesuffix('_instance')}"
    fits = found.key in ("", "model") and found.quick_until_s < KEEP_ALIVE_S <= found.from_s
    said = " (Ollama's keep-alive of 300 s fits)" if fits else ""
    return f"after {found.from_s:,.0f} s or more without {_WHAT.get(found.key, f'a call of the same {found.key}')}{said}"


def _since(found: Reuse) -> str:
    """What such calls did in the baseline, where enough of them are known."""
    if not found.before:
        return ""
    return f"; before, {found.before_late:,} of {found.before:,} such calls were late"


def _keep(found: Reuse) -> str:
    if found.swaps is not None:
        return "Keep all models or adapters in memory (OLLAMA_MAX_LOADED_MODELS, llama-swap groups, vLLM --max-loras and --max-cpu-loras), or use a separate server for each."
    return (
        f"Keep it loaded through pauses of {say_s(found.from_s)} and more (OLLAMA_KEEP_ALIVE=-1 or keep_alive in the request, llama-swap "
        "ttl, at least one replica on serverless platforms that scale to zero), or send a call before the pause is that long."
    )
