"""What if speculative decoding were switched on or off? Simulated with several tokens per step; each step is longer by the draft's cost.

The mean accepted length against the draft's cost decides, not an acceptance of 50 %: a cheap draft gains at 30 %. At full batches the engine is
compute-bound, and checking drafts costs as much as it saves, because a step computes all drafted tokens of every sequence. The recording is replayed with
the tokens per step of the engine's counters; without drafts, a step checks one token per sequence. The other time of a step per sequence has grown with
the drafts too, except the usual host overhead. The cost of proposing drafts is not recorded: the interval covers free drafts and twice the usual cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

from msgspec import Meta

from overrun.analysis.evidence.speculative_drafts import (
    COST_A_TOKEN,
    recorded_draft,
    recorded_length,
    share_of,
)
from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.engine import Costs
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction, refuse
from overrun.analysis.whatif.scaled_model_time import multiplied

# Log units of extra width beside what other costs of drafts make of it; as measured (docs/results/whatif.json, "speculation off").
COST_UNKNOWN: Final[Mapping[str, float]] = {"e2e": 0.04, "tpot": 0.04, "ttft": 0.1}
# Tokens that are taken to be drafted where that is not told; own default.
USUAL_DRAFT: Final = 3.0
# Seconds that a step takes of each sequence where nothing is drafted: 50 and 71 us in the two runs of vLLM 0.19 of `make bench-whatif`.
HOST_S: Final = 6e-5


def predict(
    facts: Facts,
    *,
    enabled: Annotated[bool, Meta(description="true: switch it on; false: switch it off")] = True,
    accepted_length: Annotated[
        float,
        Meta(
            ge=0,
            le=64,
            description="tokens per step with it; 0: as in the engine's metrics (to switch it off)",
        ),
    ] = 0.0,
    draft_cost_ratio: Annotated[
        float,
        Meta(
            ge=-1,
            le=10,
            description="time that drafting adds to a step, as a part of it; -1: 0.05 per drafted token, including its check",
        ),
    ] = -1.0,
) -> Prediction:
    """Return the answer: an estimate from the given length and cost."""
    length, drafted = accepted_length or recorded_length(facts.points), recorded_draft(facts.points)
    given = draft_cost_ratio >= 0.0
    proposed = drafted or max(USUAL_DRAFT, length - 1.0)
    if not given:
        draft_cost_ratio = COST_A_TOKEN * proposed
    fix = Fix(
        "speculation",
        f"Speculative decoding {'on' if enabled else 'off'}",
        f"a step with it yields {length:.2f} tokens and takes {1 + draft_cost_ratio:.2f} times as long, at any batch size",
        {"enabled": enabled, "accepted_length": length, "draft_cost_ratio": draft_cost_ratio},
    )
    if length < 1.0:
        return refuse(
            facts,
            fix,
            "estimate",
            "the accepted length is not known: give accepted_length (1 or more), or scrape the engine's metrics",
        )
    dearer = 1.0 + draft_cost_ratio if enabled else 1.0 / (1.0 + draft_cost_ratio)

    def change(engine: Engine, cost: float = draft_cost_ratio, host_s: float = HOST_S) -> Change:
        setup = engine.setup
        if enabled:
            # Whoever says what a step costs more says it with the checks.
            now = replace(
                setup,
                tokens_per_step=length,
                drafted=setup.drafted if given else proposed,
                draft_share=share_of(cost),
            )
            return Change(
                engine.pool.calls,
                now,
                costs=lambda costs: (
                    costs if setup.drafted else _read(costs, 1.0 + cost, 1.0 + cost / proposed)
                ),
            )
        # Every token takes a step of its own then, which computes that one alone. Where nothing tells of drafts, the steps of the fit yield one token.
        now = replace(
            setup, tokens_per_step=setup.tokens_per_step / length, drafted=0.0, draft_share=0.0
        )
        return Change(
            engine.pool.calls,
            now,
            costs=lambda costs: _undrafted(
                _read(costs, 1.0 / (1.0 + cost), 1.0 / (1.0 + cost / proposed)),
                setup.checked,
                host_s,
            ),
        )

    # Dear steps and cheap ones without drafts.
    other = [
        (draft_cost_ratio if given else 0.0, 2.0 * HOST_S),
        (draft_cost_ratio if given else 2.0 * draft_cost_ratio, 0.0),
    ]
    answer = predict_simulated(
        facts,
        fix,
        change,
        bound=lambda: multiplied(facts, fix, 1.0, dearer / length if enabled else dearer * length),
        worse=COST_UNKNOWN,
        also=[partial(change, cost=cost, host_s=host_s) for cost, host_s in other],
    )
    answer.method = "estimate"
    return answer


def _read(costs: Costs, step: float, prompt: float) -> Costs:
    """With drafts or without: the draft's weights and its context are read in each step, whatever the batch, and it reads each prompt once."""
    return replace(
        costs,
        step=costs.step * step,
        kv_token=costs.kv_token * step,
        prefill_token=costs.prefill_token * prompt,
        attention=costs.attention * prompt,
    )


def _undrafted(costs: Costs, checked: float, host_s: float) -> Costs:
    """What a step takes of a sequence of which it checks one token instead of so many: all that is beyond the host's part grew with them."""
    host = min(costs.sequence, host_s)
    return replace(costs, sequence=host + (costs.sequence - host) / checked)
