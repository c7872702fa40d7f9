"""How long would these calls have taken on such an engine? A continuous-batching inference server, simulated step by step and compiled.

One step of a replica: every running sequence decodes one token, unfinished prompts take what is left of the token budget, then waiting
calls are admitted first come first served while seats and KV blocks last; a decode that finds no block preempts the newest sequence, which is
computed again later, and none is admitted in that step (the scheduler of vLLM V1, which admits a call that finds blocks for its first chunk, later versions
one whose whole prompt fits; SGLang keeps room for answers as well, which is told nowhere; `prefill_first` is that of V0: whole prompts first, decoding
stands still meanwhile).
A step takes

    max(compute, memory) + overlap x min(compute, memory) + sequence x batch,
    compute = prefill_token x (prompt tokens + checked x batch) + attention x sum(chunk x context), memory = step + kv_token x KV tokens

seconds: the compute bound and the memory bound of a roofline, the part of the lesser one that does not hide behind the other (0: a perfect roofline, 1: one
after the other), and what the host spends per sequence; `checked` is 1, and one more for each token that is drafted and checked beside it. Above `knee`
sequences it spends `knee_s` more (recorded graphs end at a largest batch), and a new replica takes longer until it is warm. What a call leaves of its
conversation stays in its replica's cache until the room is needed, what was used longest ago and its end first; the next turn there need not read it again,
and waits for its answer.
Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from overrun.analysis.simulator.batching import RECORDED, WHOLE, Asked, Fate, Law, at_rest, run
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.collector.process.compiled import read_only

# A batch size that no engine reaches.
NO_KNEE: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Calls:
    """What arrives, one entry per call in any order.

    `arrival_s`: when it reaches the engine; for a call with `after` >= 0 (row of the call it waits for) it is instead the gap between that
    call's end and its own arrival. `prompt_tokens` holds `cached_tokens`. `replica` is where it ran (-1: unknown), `pool_from`/`pool_to` the
    replicas that may serve it, `weight` its share of a replica's load as the router sees it, `gated` whether it stands under the gate.

    `follows` is the row of the call before it in its conversation (-1: none), which it does not overtake: it comes `lag_s` after that one's end at the
    earliest. `head` are the tokens of its prompt that other conversations share (-1: it belongs to none, and all that it finds is shared), `reach` those behind
    them that it finds where its replica still holds what that call left. `usual` is how many of these a cache like the recording's holds: what is found
    changes from `cached_tokens` by as much as that changes (-1: not). Of the calls that wait at a replica the one of least `rank` is admitted first, of equal
    ranks the one that came first.
    """

    arrival_s: FloatArray
    after: IntArray
    prompt_tokens: IntArray
    cached_tokens: IntArray
    output_tokens: IntArray
    replica: IntArray
    pool_from: IntArray
    pool_to: IntArray
    weight: FloatArray
    gated: BoolArray
    follows: IntArray
    lag_s: FloatArray
    head: IntArray
    reach: IntArray
    usual: IntArray
    rank: FloatArray

    def __len__(self) -> int:
        return len(self.arrival_s)


def apart(n: int) -> dict[str, Any]:
    """Return the fields of `n` calls that belong to no conversation and are served in the order in which they come."""
    none = np.full(n, -1, dtype=np.int64)
    return {
        "follows": none,
        "lag_s": np.zeros(n),
        "head": none,
        "reach": np.zeros(n, dtype=np.int64),
        "usual": none,
        "rank": np.zeros(n),
    }


@dataclass(frozen=True, slots=True)
class Setup:
    """The engine's settings. `kv_tokens` is per replica, and so are `shared_tokens` of it, which several calls hold together, and `cache_tokens`, what running
    calls and conversations that come back may hold together (0: calls find in the cache what they found). To be admitted a call must find KV free
    as `reserve` says; one that was preempted and `resumes` finds what it had computed but for what others have written since. `tokens_per_step` > 1
    with speculative decoding, `drafted` are the tokens of a sequence that a step checks for that, and `draft_share` is the part of `Costs.step` that
    proposing them takes, beside all else; `gate_limit` calls in flight at most (0: no gate), others wait before the engine or, with `gate_rejects`, are
    turned away. `speed` multiplies a replica's step times. A decoding step of more than `knee` sequences takes `knee_s` longer. A replica born at `born_s`
    (-inf: long ago) takes 1 + `cold` times as long then; `cold` halves every `warm_s`.
    """

    replicas: int = 1
    prefill_first: bool = False
    token_budget: int = 2048
    max_sequences: int = 256
    kv_tokens: int = 1 << 40
    cache_tokens: int = 0
    shared_tokens: int = 0
    block: int = 16
    reserve: int = WHOLE
    resumes: bool = False
    router: int = RECORDED
    gate_limit: int = 0
    gate_rejects: bool = False
    tokens_per_step: float = 1.0
    drafted: float = 0.0
    draft_share: float = 0.0
    speed: tuple[float, ...] = (1.0,)
    knee: int = NO_KNEE
    knee_s: float = 0.0
    born_s: tuple[float, ...] = ()
    cold: float = 0.0
    warm_s: float = 60.0

    @property
    def checked(self) -> float:
        """Tokens of a decoding sequence that a step computes: those drafted and one more, as many as it yields at the least."""
        return max(self.tokens_per_step, 1.0 + self.drafted)


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: per prompt token (compute), per prompt token x token of context, per step, per KV token read, per sequence in the batch, and per
    call before the first token (what the server's front end takes, which no step shows). `overlap` (0..1) is the part of the lesser of compute and memory that
    a step takes beside the greater."""

    prefill_token: float
    attention: float
    step: float
    kv_token: float
    sequence: float
    call: float = 0.0
    overlap: float = 0.0

    def scaled(self, factor: float) -> Costs:
        """The same engine with every step taking `factor` times as long."""
        return replace(
            self,
            prefill_token=self.prefill_token * factor,
            attention=self.attention * factor,
            step=self.step * factor,
            kv_token=self.kv_token * factor,
            sequence=self.sequence * factor,
        )


@dataclass(frozen=True, slots=True)
class Run:
    """What became of each call, seconds on the clock of the arrivals; NaN where it never came to that (turned away, or waiting for such a call).

    `arrived_s` at the engine, `scheduled_s` first admitted, `first_s` first token, `end_s` last token. `found` are the tokens of its conversation that a call
    would find in a cache of `cache_tokens`.
    """

    arrived_s: FloatArray
    scheduled_s: FloatArray
    first_s: FloatArray
    end_s: FloatArray
    replica: IntArray
    preempted: IntArray
    found: IntArray

    @property
    def ttft_s(self) -> FloatArray:
        """From arrival to the first token."""
        wait: FloatArray = self.first_s - self.arrived_s
        return wait

    @property
    def e2e_s(self) -> FloatArray:
        """From arrival to the last token."""
        whole: FloatArray = self.end_s - self.arrived_s
        return whole


def simulate(calls: Calls, setup: Setup, costs: Costs) -> Run:
    """Run the calls through the engine. Deterministic; about 0.02 s for 10,000 calls of 300 output tokens on one core of 2026."""
    return simulate_asked(asked_of(calls), setup, costs)


def asked_of(calls: Calls) -> Asked:
    """Return what the loop reads of calls: the same for every run of them, and a fourth of the time of a short one."""
    free = np.flatnonzero(calls.after < 0)
    order = free[np.argsort(calls.arrival_s[free], kind="stable")]
    parts = (
        order,
        calls.arrival_s,
        calls.after,
        calls.prompt_tokens,
        calls.cached_tokens,
        calls.output_tokens,
        calls.replica,
        calls.pool_from,
        calls.pool_to,
        calls.weight,
        calls.gated,
        calls.follows,
        calls.lag_s,
        calls.head,
        calls.reach,
        calls.usual,
        calls.rank,
    )
    return Asked(*map(read_only, parts))


def simulate_asked(asked: Asked, setup: Setup, costs: Costs) -> Run:
    """Run calls, as `asked_of` returns them, through the engine."""
    n = len(asked.arrival)
    speed = np.ones(setup.replicas)
    given = setup.speed[: setup.replicas]
    speed[: len(given)] = given
    born = np.full(setup.replicas, -np.inf)
    born[: len(setup.born_s)] = setup.born_s[: setup.replicas]
    kv_tokens = setup.kv_tokens - setup.shared_tokens
    law = Law(
        setup.prefill_first,
        max(1, setup.token_budget),
        min(max(1, setup.max_sequences), n),
        kv_tokens,
        setup.cache_tokens,
        setup.block,
        setup.reserve,
        setup.resumes,
        setup.router,
        setup.gate_limit,
        setup.gate_rejects,
        float(setup.tokens_per_step),
        setup.checked,
        float(setup.draft_share),
        costs.prefill_token,
        costs.attention,
        costs.step,
        costs.kv_token,
        costs.sequence,
        float(costs.overlap),
        setup.knee,
        setup.knee_s,
        speed,
        born,
        setup.cold,
        setup.warm_s,
    )
    times = np.full((4, n), np.nan)
    fate = Fate(
        times[0],
        times[1],
        times[2],
        times[3],
        np.full(n, -1, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
    )
    run(asked, law, at_rest(asked, law), fate)
    return Run(
        fate.arrived,
        fate.scheduled,
        fate.first + costs.call,
        fate.ended + costs.call,
        fate.replica,
        fate.preempted,
        fate.found,
    )


def warm() -> None:
    """Compile the kernels (some seconds, once per machine and version; then they come from the cache)."""
    one, zero = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    simulate(
        Calls(
            np.zeros(1),
            -one,
            one,
            zero,
            one,
            -one,
            zero,
            one,
            np.ones(1),
            np.zeros(1, np.bool_),
            **apart(1),
        ),
        Setup(),
        Costs(1.0, 1.0, 1.0, 1.0, 1.0),
    )
