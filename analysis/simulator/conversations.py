"""Which calls continue which, and what does a prefix cache keep of it between two turns? The simulator needs this to predict hits under another load.

A turn finds the head that all conversations share, and behind it what the turn before left on its replica, as far as nothing else has needed the room since.
How much room there is, is reported by the engine or fitted so that conversations find as much as they did; what a cache really keeps (whole blocks, its own order)
stays in the recorded hits, on which only the difference between two simulations is put.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.simulator.engine import Calls, Costs, Setup, simulate
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.finding import SEED

# A turn that begins so soon after the answer before it was not thought of meanwhile, in seconds; own default, far below what people take.
NO_THOUGHT_S: Final = 0.05
# As many turns as this part of all of them may behave like no recorded one; own default.
_FEW: Final = 0.02
# Draws of when they were meant to come.
DRAWS: Final = 8
# Turns that took no longer than this part of them show when the next ones are meant to come; own default.
_SHORT: Final = 0.25
# Fewest calls that follow another one of their conversation: what fewer find is chance; own default, as for means of either side.
MIN_TURNS: Final = 30
# The hits of a cache of the right size may differ from the recorded ones by this part of what a guess that knows only their share would; own default.
_AGREES: Final = 0.5
# A prompt carries the answer before it where it grows by this part of that one's tokens; own default, half.
_CARRIED: Final = 0.5
# ...and that slope is this many times its standard error or more: 99 % of chance.
_SURE: Final = 2.33
# Turns that would have found something, had they found it as often as others do, from which on it says something that they did not (95 % of chance), and the
# part of these that may have; own default.
_TOLD, _RARELY = 3.0, 0.1
# Steps of the search for the room, between which parts of what the engine tells, and how near to the recorded hits it need not go on; own defaults.
_STEPS: Final = 9
_LEAST_ROOM, _MOST_ROOM = 0.1, 4.0
_NEAR: Final = 0.02


def before(conversation: IntArray, arrived_s: FloatArray, ended_s: FloatArray) -> IntArray:
    """Return the row of the latest call of the same conversation (-1: none) that had ended when each call came, -1 without one."""
    out, last = np.full(len(conversation), -1, dtype=np.int64), dict[int, int]()
    for i in np.argsort(arrived_s, kind="stable"):
        key = int(conversation[i])
        if key < 0:
            continue
        known = last.get(key)
        if known is not None and ended_s[known] <= arrived_s[i]:
            out[i] = known
        last[key] = int(i)
    return out


def linked(
    calls: Calls,
    conversation: IntArray,
    start_s: FloatArray,
    arrived_s: FloatArray,
    ended_s: FloatArray,
) -> Calls:
    """Return the calls with what they follow, the head of their prompts and what they can find of the turn before.

    `start_s` is when each one's request began, `conversation` its number (-1: none); arrays of shape (calls,), seconds.
    """
    follows = before(conversation, arrived_s, ended_s)
    own = conversation >= 0
    first = own & (follows < 0)
    heads = calls.cached_tokens[first]
    shared = int(np.median(heads[heads > 0])) if (heads > 0).any() else 0
    head = np.where(own, np.minimum(shared, calls.prompt_tokens - 1), -1)
    whole = np.maximum(calls.prompt_tokens + calls.output_tokens - head, 0)
    left = np.where(
        follows >= 0, np.minimum(whole[follows], calls.prompt_tokens - 1 - head), 0
    ).astype(np.float64)
    left *= _part_found(calls, left, head)
    left[_cut(calls, follows, head, left, arrived_s)] = 0.0
    lag_s = np.maximum(arrived_s - start_s, 0.0)
    return replace(
        calls,
        follows=follows,
        lag_s=lag_s,
        head=head,
        reach=np.maximum(left, 0.0).astype(np.int64),
        usual=np.full(len(calls), -1, dtype=np.int64),
    )


class Meant(NamedTuple):
    """When calls would come did they not wait for an answer, shape (draws, calls), and how long after it those that do wait come, shape (calls,); seconds."""

    at_s: FloatArray
    lag_s: FloatArray

    def take(self, rows: IntArray) -> Meant:
        """Those of some calls."""
        return Meant(self.at_s[:, rows], self.lag_s[rows])


def meant(
    calls: Calls,
    conversation: IntArray,
    start_s: FloatArray,
    end_s: FloatArray,
    arrived_s: FloatArray,
    ended_s: FloatArray,
) -> Meant:
    """Return when calls would come; `start_s` and `end_s` are those of their requests, arrays of shape (calls,), seconds.

    A turn that begins as the request before it ends had been waiting for that. Its own time is drawn from the times between two turns where the first one was
    short, which hid fewest, among those that fit. Where no turn waits and long answers put the next one off, people read before they ask: then it comes as long
    after the answer as it did.
    """
    behind = np.flatnonzero((calls.follows >= 0) & (calls.after < 0))
    gap = start_s[behind] - end_s[calls.follows[behind]]
    waited = behind[gap < NO_THOUGHT_S]
    took = (end_s - start_s)[calls.follows[behind]]
    if (
        len(waited) <= _FEW * len(behind)
        and _overlapping(conversation, start_s, arrived_s, ended_s) <= _FEW * len(behind)
        and _puts_off(gap, took)
    ):
        return _after_thought(calls, behind, arrived_s, ended_s)
    if not len(waited):
        return Meant(arrived_s[None, :], calls.lag_s)
    # From one that came in its own time, as far as there are some.
    own = behind[~np.isin(calls.follows[behind], waited)]
    own = own if len(own) >= MIN_TURNS else behind
    took = (end_s - start_s)[calls.follows[own]]
    short = own[took <= np.quantile(took, _SHORT)]
    between = np.sort(start_s[short] - start_s[calls.follows[short]])
    rng, drawn = np.random.default_rng(SEED), np.repeat(arrived_s[None, :], DRAWS, axis=0)
    for i in waited[np.argsort(arrived_s[waited], kind="stable")]:
        since = drawn[:, calls.follows[i]]
        fits = np.searchsorted(between, arrived_s[i] - since)
        drawn[:, i] = np.where(
            fits > 0, since + between[rng.integers(np.maximum(fits, 1))], arrived_s[i]
        )
    return Meant(drawn, calls.lag_s)


def _overlapping(
    conversation: IntArray, start_s: FloatArray, arrived_s: FloatArray, ended_s: FloatArray
) -> int:
    """How many turns begin while another request of their conversation is not answered."""
    order = np.lexsort((arrived_s, conversation))
    one, other = order[:-1], order[1:]
    same = (
        (conversation[one] == conversation[other])
        & (conversation[one] >= 0)
        & (start_s[one] != start_s[other])
    )
    return int((same & (arrived_s[other] < ended_s[one])).sum())


def _puts_off(gap: FloatArray, took: FloatArray) -> bool:
    """Whether the time between two turns grows with the first one's, and more surely than the pause between them shrinks with it; by ranks."""
    if len(gap) < MIN_TURNS:
        return False
    ranks = [
        np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)
        for values in (gap, gap + took, took)
    ]
    pause, between = (float(np.corrcoef(values, ranks[2])[0, 1]) for values in ranks[:2])
    return between > _SURE / np.sqrt(len(gap)) and between > abs(pause)


def _after_thought(
    calls: Calls, behind: IntArray, arrived_s: FloatArray, ended_s: FloatArray
) -> Meant:
    """Turns that come as soon as the one before them, were it not for its answer and what they came after that."""
    at, lag = arrived_s.copy(), calls.lag_s.copy()
    for i in behind[np.argsort(arrived_s[behind], kind="stable")]:
        before = calls.follows[i]
        at[i] = np.nextafter(at[before], np.inf)
        lag[i] = max(0.0, arrived_s[i] - ended_s[before])
    return Meant(at[None, :], lag)


def _cut(
    calls: Calls, follows: IntArray, head: IntArray, left: FloatArray, arrived_s: FloatArray
) -> BoolArray:
    """Turns whose history was cut at its head, so that they find nothing behind what all share: those shorter than one before them, and all that follow.

    Only where the recording agrees: a return to an earlier turn is shorter too, and hits all of it.
    """
    longest, shorter = calls.prompt_tokens.copy(), np.zeros(len(calls), np.bool_)
    for i in np.argsort(arrived_s, kind="stable"):
        j = follows[i]
        if j >= 0:
            shorter[i] = shorter[j] or calls.prompt_tokens[i] < longest[j]
            longest[i] = max(longest[i], longest[j])
    found, turns = calls.cached_tokens > np.maximum(head, 0), left > 0.0
    grown = turns & ~shorter
    wanted = float((turns & shorter).sum()) * float(found[grown].mean()) if grown.any() else 0.0
    told = wanted >= _TOLD and float((found & turns & shorter).sum()) <= _RARELY * wanted
    return shorter if told else np.zeros(len(calls), np.bool_)


def _part_found(calls: Calls, left: FloatArray, head: IntArray) -> float:
    """Part of what a turn leaves that the next one finds where it finds anything (a template changes, blocks are whole); 1 where that is not seen."""
    seen = (left > 0.0) & (calls.cached_tokens > head)
    return (
        min(1.0, float(np.median((calls.cached_tokens[seen] - head[seen]) / left[seen])))
        if int(seen.sum()) >= MIN_TURNS
        else 1.0
    )


def shortened(calls: Calls, prompt: IntArray) -> Calls:
    """Return the calls with prompts cut to `prompt` tokens behind what the cache holds of them."""
    head = np.where(calls.head >= 0, np.minimum(calls.head, prompt - 1), -1)
    left = np.maximum((prompt + calls.output_tokens)[calls.follows] - head, 0)
    reach = np.minimum(
        calls.reach, np.where(calls.follows >= 0, np.minimum(left, prompt - 1 - head), 0)
    )
    return replace(
        calls,
        prompt_tokens=prompt,
        cached_tokens=np.minimum(calls.cached_tokens, prompt - 1),
        head=head,
        reach=reach,
        usual=np.minimum(calls.usual, reach),
    )


def answered(calls: Calls, output: IntArray) -> Calls:
    """Return the calls with other answers (`output` tokens, none longer) and, where prompts carry the answers before them, without what those lack."""
    calls, cut = replace(calls, output_tokens=output), calls.output_tokens - output
    follows = calls.follows >= 0
    grown = (calls.prompt_tokens - calls.prompt_tokens[calls.follows])[follows]
    before = (cut + output)[calls.follows][follows]
    if not _carried(grown[grown > 0].astype(np.float64), before[grown > 0].astype(np.float64)):
        return calls
    lacks = np.zeros(len(calls), dtype=np.int64)
    for i in np.argsort(calls.prompt_tokens, kind="stable"):
        j = calls.follows[i]
        if j >= 0 and calls.prompt_tokens[i] > calls.prompt_tokens[j]:
            lacks[i] = lacks[j] + cut[j]
    lacks = np.minimum(lacks, np.maximum(calls.prompt_tokens - calls.head - 1, 0))
    found = np.maximum(calls.cached_tokens - np.maximum(calls.head, 0), 0)
    reach = np.maximum(calls.reach - lacks, 0)
    return replace(
        calls,
        prompt_tokens=calls.prompt_tokens - lacks,
        cached_tokens=calls.cached_tokens - np.minimum(lacks, found),
        reach=reach,
        usual=np.minimum(calls.usual, reach),
    )


def _carried(grown: FloatArray, before: FloatArray) -> bool:
    """Whether prompts grow by the answer before them: by the slope over its tokens, which chance must not explain."""
    if len(grown) < MIN_TURNS or float(np.ptp(before)) == 0.0:
        return False
    away = before - before.mean()
    slope = float((away * grown).sum() / (away**2).sum())
    rest = grown - grown.mean() - slope * away
    return slope >= _CARRIED and slope > _SURE * float(rest.std() / np.sqrt((away**2).sum()))


def remembered(calls: Calls, setup: Setup, costs: Costs, rows: IntArray) -> tuple[Calls, Setup]:
    """Return the calls and the setup with a cache of the size at which conversations find as much as they did, or as they are where none explains that.

    The size is that which the calls `rows` met: others came before the window, where the cache may have been another one.
    """
    met = np.zeros(len(calls), np.bool_)
    met[rows] = True
    every_found = np.clip(calls.cached_tokens - calls.head, 0, calls.reach)
    turns = met & (calls.reach > 0)
    found, reach = every_found[turns].astype(np.float64), float(calls.reach[turns].sum())
    # A cache in which no conversation finds anything was not too small: it was not asked for them.
    if int(turns.sum()) < MIN_TURNS or float(every_found.sum()) < _NEAR * float(calls.reach.sum()):
        return calls, setup

    def kept(room: float) -> IntArray:
        return simulate(calls, replace(setup, cache_tokens=max(1, int(room))), costs).found

    def lacking(hits: IntArray) -> float:
        return float(found.sum() - hits[turns].sum()) / reach

    every = float((calls.prompt_tokens + calls.output_tokens).sum())
    room = min(float(setup.kv_tokens), every)
    hits = kept(room)
    if abs(lacking(hits)) > _NEAR:
        low, high = (
            (_LEAST_ROOM * room, room)
            if lacking(hits) < 0.0
            else (room, min(every, _MOST_ROOM * room))
        )
        for _ in range(_STEPS):
            middle = float(np.sqrt(low * high))
            tried = kept(middle)
            if abs(lacking(tried)) < abs(lacking(hits)):
                room, hits = middle, tried
            low, high = (middle, high) if lacking(tried) > 0.0 else (low, middle)
    if _agree(hits[turns], found, reach):
        return _with_cache(calls, setup, room, hits)
    if setup.kv_tokens >= every:
        return calls, setup
    # Of what is kept in the reported cache size, some is not found for reasons of its own: a conversation started again, a history that was cut.
    room = float(setup.kv_tokens)
    anew = _begun_anew(calls, kept(room))
    kept_on = replace(calls, reach=np.where(anew, 0, calls.reach))
    hits = simulate(kept_on, replace(setup, cache_tokens=int(room)), costs).found
    turns = met & (kept_on.reach > 0)
    found = every_found[turns].astype(np.float64)
    if int(turns.sum()) < MIN_TURNS or not _agree(
        hits[turns], found, float(kept_on.reach[turns].sum())
    ):
        return calls, setup
    return _with_cache(kept_on, setup, room, hits)


def _begun_anew(calls: Calls, hits: IntArray) -> BoolArray:
    """Turns that find nothing of the one before wherever they go: those that did not where it was kept, and as large a part, drawn, of those that met no such
    place."""
    turns = calls.reach > 0
    found, held = calls.cached_tokens > np.maximum(calls.head, 0), hits > 0
    part = float((turns & held & ~found).sum()) / max(1, int((turns & held).sum()))
    drawn = np.random.default_rng(SEED).random(len(calls)) < part
    anew: BoolArray = turns & ~found & (held | drawn)
    return anew


def _agree(hits: IntArray, found: FloatArray, reach: float) -> bool:
    """Whether a cache finds about what was found, turn by turn, and not only as much of all that there was (`reach`)."""
    share = float(found.sum()) / reach
    return (
        float(np.abs(hits - found).sum()) / reach <= _AGREES * 2.0 * share * (1.0 - share) + _NEAR
    )


def _with_cache(calls: Calls, setup: Setup, room: float, hits: IntArray) -> tuple[Calls, Setup]:
    return replace(
        calls, usual=np.where(calls.reach > 0, np.minimum(hits, calls.reach), -1)
    ), replace(setup, cache_tokens=int(room))
