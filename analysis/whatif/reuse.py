"""How much of each prompt would a prefix cache of another size hold? The conversations of the recording, through a cache that evicts what was used longest ago.

A turn finds what the turn before it left on its replica: all that came to be held since then has to fit beside it. What the engine really keeps (whole
blocks, the head that all prompts share, its own order of eviction) is taken from the recording: the capacity is scaled so that today's size gives
today's hits, and only the difference between two sizes is put on the recorded ones. Sizes are tokens, times seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from analysis.latency import FloatArray
from analysis.whatif.engine import Calls, Ints
from analysis.whatif.pool import UNLIMITED_KV, Pool

# Fewest turns that follow another one on their replica: a curve of fewer is chance; own default, as for means of either side.
MIN_TURNS: Final = 30
_STEPS: Final = 30


@dataclass(frozen=True)
class Reuse:
    """Per call: the hits that all prompts have, what the turn before it left beyond them at the most, and what a cache must hold to still have it."""

    head: int
    left: FloatArray
    needed: FloatArray

    def hits(self, capacity: float) -> FloatArray:
        """Tokens beyond the head that a cache of this size gives: the end of what was left goes first."""
        found: FloatArray = np.clip(capacity - (self.needed - self.left), 0.0, self.left)
        return found


def resized(pool: Pool, kv_tokens: int, factor: float) -> Ints | None:
    """Return the cached tokens of each call were the KV cache `factor` times as large; None where the recording does not show what turns leave behind."""
    reuse = reuses(pool)
    if reuse is None or kv_tokens >= UNLIMITED_KV:
        return None
    recorded = np.maximum(pool.calls.cached_tokens - reuse.head, 0)[reuse.left > 0.0].sum()
    effective = _fitted(reuse, float(recorded), float(kv_tokens))
    more = reuse.hits(factor * effective) - reuse.hits(effective)
    return np.clip(np.round(pool.calls.cached_tokens + more), 0, pool.calls.prompt_tokens - 1).astype(np.int64)


def trimmed(pool: Pool, kv_tokens: int, prompt_tokens: Ints) -> Ints | None:
    """Return the cached tokens of each call were prompts cut to `prompt_tokens` behind what the cache holds of them: shorter ones push out less.

    None as in `resized`.
    """
    calls = pool.calls
    shorter = replace(calls, prompt_tokens=prompt_tokens, cached_tokens=np.minimum(calls.cached_tokens, prompt_tokens - 1))
    before, after = reuses(pool), reuses(replace(pool, calls=shorter))
    if before is None or after is None or kv_tokens >= UNLIMITED_KV:
        return None
    recorded = np.maximum(calls.cached_tokens - before.head, 0)[before.left > 0.0].sum()
    effective = _fitted(before, float(recorded), float(kv_tokens))
    more = after.hits(effective) - np.minimum(before.hits(effective), after.left)
    return np.clip(np.round(shorter.cached_tokens + np.maximum(more, 0.0)), 0, prompt_tokens - 1).astype(np.int64)


def reuses(pool: Pool) -> Reuse | None:
    """What each turn could find, None where fewer than `MIN_TURNS` calls follow another one of their conversation on their replica."""
    calls, session = pool.calls, pool.session
    before = _before(session, calls.replica, pool.arrived_s, pool.ended_s)
    follows = before >= 0
    if int(follows.sum()) < MIN_TURNS:
        return None
    first = (session >= 0) & ~follows
    head = int(np.median(calls.cached_tokens[first])) if first.any() else int(calls.cached_tokens.min())
    whole = np.maximum(calls.prompt_tokens + calls.output_tokens - head, 0).astype(np.float64)
    left = np.where(follows, np.minimum(whole[before], calls.prompt_tokens - 1 - head), 0.0)
    left = np.maximum(left, 0.0) * _kept(calls, left, head)
    return Reuse(head, left, np.where(follows, left + _since(pool, before, whole), 0.0))


def _kept(calls: Calls, left: FloatArray, head: int) -> float:
    """Part of what a turn leaves that the next one finds where it finds anything (a template changes, blocks are whole); 1 where that is not seen."""
    seen = (left > 0.0) & (calls.cached_tokens > head)
    return min(1.0, float(np.median((calls.cached_tokens[seen] - head) / left[seen]))) if int(seen.sum()) >= MIN_TURNS else 1.0


def _before(session: Ints, replica: Ints, arrived_s: FloatArray, ended_s: FloatArray) -> Ints:
    """Row of the latest call of the same conversation on the same replica that had ended, -1 for none."""
    out, last = np.full(len(session), -1, dtype=np.int64), dict[tuple[int, int], int]()
    for i in np.argsort(arrived_s, kind="stable"):
        key = (int(session[i]), int(replica[i]))
        if key[0] < 0:
            continue
        known = last.get(key)
        if known is not None and ended_s[known] <= arrived_s[i]:
            out[i] = known
        last[key] = int(i)
    return out


def _since(pool: Pool, before: Ints, whole: FloatArray) -> FloatArray:
    """Tokens of other conversations that the replica has used since the turn before, each counted once (LRU stack distance; Mattson et al., 1970)."""
    out, replica = np.zeros(len(pool)), pool.calls.replica
    for r in np.unique(replica):
        mine = np.flatnonzero(replica == r)
        mine = mine[np.argsort(pool.arrived_s[mine], kind="stable")]
        place = np.full(len(pool), -1, dtype=np.int64)
        place[mine] = np.arange(len(mine))
        # Sizes at the place of their last use: a conversation that comes back moves to the front.
        held = np.zeros(len(mine))
        for at, i in enumerate(mine):
            if before[i] >= 0:
                out[i] = held[place[before[i]] + 1 : at].sum()
                held[place[before[i]]] = 0.0
            held[at] = whole[i]
    return out


def _fitted(reuse: Reuse, recorded: float, kv_tokens: float) -> float:
    """The capacity at which the conversations find as much as they did; hits grow with it, so by bisection."""
    low, high = 0.0, 4.0 * kv_tokens
    if reuse.hits(high).sum() <= recorded:
        return high
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if reuse.hits(middle).sum() <= recorded else (low, middle)
    return low
