"""What happens in each step of a continuous-batching server? The compiled event loop of `engine.simulate`, which says what is simulated.

Rows of all arrays per call are those of the calls; `r` is a replica, `i` a call, `t` seconds. A step costs O(1): a running sequence is known by the
step in which it ends, so only ends touch the list; steps in which nobody comes or goes follow each other in a short loop (`_coast`). The parts are compiled
into the loop: handing so many arrays on takes 4.5 times as long as the work (numba 0.68, 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from overrun.collector.process.compiled import inlined, lean

Array = Any

RECORDED, ROUND_ROBIN, LEAST_LOAD = range(3)
# What KV a call must find free to be admitted, and what it holds then: its whole prompt's; its whole prompt's, but it holds what is read; its first chunk's.
WHOLE, FITTING, CHUNK = range(3)

# Places in `State.counts`.
INSIDE, LATER, HELD_HEAD, HELD_TAIL, ADMITTED = range(5)
# Where a call is: not there yet, waiting for the answer before it, at the engine or its gate, ended or turned away.
NOWHERE, HELD_UP, PRESENT, DONE = range(4)
_NO_END: Final = 1 << 60
# Earlier calls of a conversation among which the last one on a replica is looked for.
_GENERATIONS: Final = 64


class Asked(NamedTuple):
    """What arrives, as in `engine.Calls`; `order` has the rows of the calls that wait for no other of their request, by time."""

    order: Array
    arrival: Array
    after: Array
    prompt: Array
    cached: Array
    outputs: Array
    recorded: Array
    pool_from: Array
    pool_to: Array
    weight: Array
    gated: Array
    follows: Array
    lag: Array
    head: Array
    reach: Array
    usual: Array
    rank: Array


class Law(NamedTuple):
    """Settings and seconds, as in `engine.Setup` and `engine.Costs`."""

    prefill_first: bool
    token_budget: int
    seats: int
    kv_tokens: int
    cache_tokens: int
    block: int
    reserve: int
    resumes: bool
    router: int
    gate_limit: int
    gate_rejects: bool
    tokens_per_step: float
    checked: float
    draft_share: float
    prefill_token: float
    attention: float
    step: float
    kv_token: float
    sequence: float
    overlap: float
    knee: int
    knee_s: float
    speed: Array
    born: Array
    cold: float
    warm_s: float


class State(NamedTuple):
    """What the engine holds, by call, by replica, and before its gate."""

    child: Array  # first of the calls that wait for this one's end, and the next of those
    sibling: Array
    behind: Array  # which requests wait behind this call
    left: Array  # prompt tokens still to read
    to_come: Array  # output tokens still to come
    hit: Array  # prompt tokens that it found
    need: Array  # KV tokens held when the prompt is read (shared ones not counted)
    context: Array  # context length when the prompt is read
    joined: Array  # the step in which it began to decode, and that of its end
    end_step: Array
    number: Array  # its place in the order of admission
    dropped: Array  # KV tokens that its replica had written when it was preempted
    status: Array  # one of NOWHERE, HELD_UP, PRESENT, DONE
    kept: Array  # tokens of its conversation that its replica holds after its end, and its neighbours in the order of their last use
    older: Array
    newer: Array

    head: Array  # the waiting line
    tail: Array
    reading: Array  # prompts being read, and how many
    reading_n: Array
    decoding: Array
    decoding_n: Array
    steps: Array  # decoding steps so far, and the one in which the next sequence ends
    next_end: Array
    kv_mem: Array  # KV tokens held, and read in a step
    kv_read: Array
    written: Array  # KV tokens written so far
    kv_kept: Array  # KV tokens kept for conversations that nobody runs, and the one used longest ago and last
    oldest: Array
    newest: Array
    busy_until: Array
    decodes: Array  # whether the running step decodes
    load: Array
    turn: Array

    later: Array  # heap of arrivals to come: after another call's end, or let in by the gate
    later_row: Array
    held: Array  # line before the gate
    counts: Array


class Fate(NamedTuple):
    """What became of each call, as in `engine.Run`."""

    arrived: Array
    scheduled: Array
    first: Array
    ended: Array
    replica: Array
    preempted: Array
    found: Array


def _rows(count: int, length: int, value: int) -> Iterator[Array]:
    """So many arrays of one length that hold one value."""
    return iter(np.full((count, length), value, dtype=np.int64))


def at_rest(asked: Asked, law: Law) -> State:
    """Return an engine in which nothing has arrived yet."""
    n, replicas = len(asked.arrival), len(law.speed)

    # Rows of a few tables: as arrays of their own they took a quarter of a short simulation, and calibration runs thousands.
    call_zeros, call_nones = _rows(10, n, 0), _rows(5, n, -1)
    replica_zeros, replica_nones = _rows(4, replicas, 0), _rows(4, replicas, -1)
    places = (replicas, law.seats)
    return State(
        child=next(call_nones),
        sibling=next(call_nones),
        behind=next(call_nones),
        left=next(call_zeros),
        hit=next(call_zeros),
        to_come=asked.outputs.copy(),
        need=next(call_zeros),
        context=next(call_zeros),
        joined=next(call_zeros),
        end_step=next(call_zeros),
        number=next(call_zeros),
        dropped=np.zeros(n),
        status=next(call_zeros),
        kept=np.zeros(n),
        older=next(call_nones),
        newer=next(call_nones),
        head=next(replica_nones),
        tail=next(replica_nones),
        reading=np.empty(places, dtype=np.int64),
        reading_n=next(replica_zeros),
        decoding=np.empty(places, dtype=np.int64),
        decoding_n=next(replica_zeros),
        steps=next(replica_zeros),
        next_end=np.full(replicas, _NO_END, dtype=np.int64),
        kv_mem=np.zeros(replicas),
        kv_read=np.zeros(replicas),
        written=np.zeros(replicas),
        kv_kept=np.zeros(replicas),
        oldest=next(replica_nones),
        newest=next(replica_nones),
        busy_until=np.full(replicas, np.inf),
        decodes=np.zeros(replicas, dtype=np.bool_),
        load=np.zeros(replicas),
        turn=next(replica_zeros),
        later=np.empty(n),
        later_row=next(call_zeros),
        held=next(call_zeros),
        counts=np.zeros(5, dtype=np.int64),
    )


@lean
def run(asked, law, s, fate):
    """The event loop: the next arrival or the next end of a step, whichever is first."""
    _link(asked.after, s)
    order, at, apart = asked.order, 0, len(s.load) == 1 or _apart(asked, law)
    while True:
        t_order = asked.arrival[order[at]] if at < len(order) else np.inf
        t_later = s.later[0] if s.counts[LATER] > 0 else np.inf
        t = min(t_order, t_later)
        r, step_end = _first_to_end(s.busy_until)
        if t <= step_end:
            if t == np.inf:
                return
            if t_later < t_order:
                i = s.later_row[0]
                s.counts[LATER] = _pop(s.later, s.later_row, s.counts[LATER])
            else:
                i = order[at]
                at += 1
            r = _arrive(i, t, asked, law, s, fate)
            if r < 0 or s.busy_until[r] < np.inf:
                continue
        else:
            t = step_end
            if s.decodes[r]:
                _decoded(r, t, asked, law, s, fate)
            _read(r, t, asked, law, s, fate)
            s.busy_until[r] = np.inf
        preempted = _preempt(r, law, s, fate)
        _start(r, t, preempted, asked, law, s, fate)
        t_order = asked.arrival[order[at]] if at < len(order) else np.inf
        t_later = s.later[0] if s.counts[LATER] > 0 else np.inf
        _coast(
            r,
            min(t_order, t_later, np.inf if apart else _others_end(r, s.busy_until)),
            preempted,
            law,
            s,
        )


@inlined
def _apart(asked, law):
    """Whether no call's end brings another call."""
    for i in range(len(asked.after)):
        if asked.after[i] >= 0 or asked.follows[i] >= 0:
            return False
    return law.gate_limit <= 0


@inlined
def _others_end(r, busy_until):
    """When the first of the other replicas' steps ends."""
    t = np.inf
    for k in range(len(busy_until)):
        if k != r:
            t = min(t, busy_until[k])
    return t


@inlined
def _link(after, s):
    """Note which calls wait for the end of which."""
    for i in range(len(after)):
        if after[i] >= 0:
            s.sibling[i] = s.child[after[i]]
            s.child[after[i]] = i


@inlined
def _first_to_end(busy_until):
    r, t = 0, busy_until[0]
    for k in range(1, len(busy_until)):
        if busy_until[k] < t:
            r, t = k, busy_until[k]
    return r, t


@lean
def _push(keys, rows, size, key, row):
    """Put into a binary heap (least key first) that holds `size` entries; returns the new size."""
    i = size
    while i > 0:
        up = (i - 1) // 2
        if keys[up] <= key:
            break
        keys[i], rows[i] = keys[up], rows[up]
        i = up
    keys[i], rows[i] = key, row
    return size + 1


@lean
def _pop(keys, rows, size):
    """Take the least out of the heap; returns the new size."""
    size -= 1
    key, row = keys[size], rows[size]
    i = 0
    while True:
        down = 2 * i + 1
        if down >= size:
            break
        if down + 1 < size and keys[down + 1] < keys[down]:
            down += 1
        if keys[down] >= key:
            break
        keys[i], rows[i] = keys[down], rows[down]
        i = down
    keys[i], rows[i] = key, row
    return size


@inlined
def _route(i, t, asked, law, s):
    """The replica for a call: where it ran, the next in turn, or the one with the least load among those that are there and may serve it.

    A call that now comes before the replica where it ran is there goes to another one."""
    ran = asked.recorded[i]
    if law.router == RECORDED and ran >= 0 and ran < len(s.load) and law.born[ran] <= t:
        return ran
    a, b = max(0, asked.pool_from[i]), min(len(s.load), asked.pool_to[i])
    if b <= a:
        a, b = 0, len(s.load)
    width = b - a
    first = a + s.turn[a] % width
    s.turn[a] += 1
    best = -1
    for k in range(width):
        r = a + (first - a + k) % width
        if law.born[r] > t:
            continue
        if law.router == ROUND_ROBIN:
            s.turn[a] += (
                k  # who is not there yet is passed over, and its turns go to all of the others
            )
            return r
        if best < 0 or s.load[r] < s.load[best]:
            best = r
    return best if best >= 0 else first


@inlined
def _arrive(i, t, asked, law, s, fate):
    """Put a call into the line of a replica; returns that one, or -1 where the answer before it is not there yet, or the gate holds it or turns it away."""
    before = asked.follows[i]
    if (
        s.status[i] == NOWHERE
        and asked.after[i] < 0
        and before >= 0
        and _to_answer(before, asked, s, fate)
    ):
        s.status[i] = HELD_UP
        s.sibling[i] = s.child[before]
        s.child[before] = i
        return -1
    s.status[i] = PRESENT
    if np.isnan(fate.arrived[i]):
        fate.arrived[i] = t
    if asked.gated[i] and law.gate_limit > 0:
        if s.counts[INSIDE] >= law.gate_limit:
            if not law.gate_rejects:
                s.held[s.counts[HELD_TAIL]] = i
                s.counts[HELD_TAIL] += 1
            else:
                s.status[i] = DONE
                _release(i, t, False, asked, s)
            return -1
        s.counts[INSIDE] += 1
    r = _route(i, t, asked, law, s)
    fate.replica[i] = r
    s.load[r] += asked.weight[i]
    s.context[i] = asked.prompt[i]
    _place(i, asked.cached[i], asked, s)
    _line_up(i, r, asked.rank, s, fate)
    return r


@inlined
def _line_up(i, r, rank, s, fate):
    """Put a call into the line of a replica, behind all of its rank and below; one that was preempted keeps its place before those that never ran."""
    last = s.tail[r]
    s.behind[i] = -1
    if s.head[r] < 0:
        s.head[r] = s.tail[r] = i
    elif rank[i] >= rank[last]:
        s.behind[last] = i
        s.tail[r] = i
    else:
        before, j = -1, s.head[r]
        while j >= 0 and (fate.preempted[j] > 0 or rank[j] <= rank[i]):
            before, j = j, s.behind[j]
        s.behind[i] = j
        if before < 0:
            s.head[r] = i
        else:
            s.behind[before] = i
        if j < 0:
            s.tail[r] = i


@inlined
def _to_answer(j, asked, s, fate):
    """Whether a call's answer is still to come."""
    while s.status[j] == NOWHERE and asked.after[j] >= 0:
        j = asked.after[j]
        if s.status[j] == DONE:
            return not np.isnan(fate.ended[j])
    return (
        s.status[j] == HELD_UP
        or s.status[j] == PRESENT
        or (s.status[j] == NOWHERE and asked.arrival[j] < np.inf)
    )


@inlined
def _decoded(r, t, asked, law, s, fate):
    """One more token for each decoding sequence."""
    grown = s.decoding_n[r] * law.tokens_per_step
    s.steps[r] += 1
    s.kv_mem[r] += grown
    s.kv_read[r] += grown
    s.written[r] += grown
    if law.cache_tokens > 0 and s.kv_kept[r] + s.kv_mem[r] > law.cache_tokens:
        _evict(
            r,
            law.cache_tokens - s.kv_mem[r],
            s.kept,
            s.older,
            s.newer,
            s.oldest,
            s.newest,
            s.kv_kept,
        )
    if s.steps[r] < s.next_end[r]:
        return
    kept, soonest = 0, _NO_END
    for k in range(s.decoding_n[r]):
        i = s.decoding[r, k]
        if s.end_step[i] <= s.steps[r]:
            written = (s.steps[r] - s.joined[i]) * law.tokens_per_step
            s.kv_mem[r] -= s.need[i] + written
            s.kv_read[r] -= s.context[i] + written
            s.to_come[i] = 0
            _leave(i, r, t, asked, law, s, fate)
        else:
            s.decoding[r, kept] = i
            kept += 1
            soonest = min(soonest, s.end_step[i])
    s.decoding_n[r], s.next_end[r] = kept, soonest


@inlined
def _read(r, t, asked, law, s, fate):
    """A first token for each prompt that was read to its end."""
    kept = 0
    for k in range(s.reading_n[r]):
        i = s.reading[r, k]
        if s.left[i] > 0:
            s.reading[r, kept] = i
            kept += 1
            continue
        if np.isnan(fate.first[i]):
            fate.first[i] = t
        s.to_come[i] -= 1
        if s.to_come[i] <= 0:
            s.kv_mem[r] -= s.need[i]
            _leave(i, r, t, asked, law, s, fate)
        else:
            s.decoding[r, s.decoding_n[r]] = i
            s.decoding_n[r] += 1
            s.joined[i] = s.steps[r]
            s.end_step[i] = s.steps[r] + int(np.ceil(s.to_come[i] / law.tokens_per_step))
            s.next_end[r] = min(s.next_end[r], s.end_step[i])
            s.kv_read[r] += s.context[i]
    s.reading_n[r] = kept


@inlined
def _leave(i, r, t, asked, law, s, fate):
    """A call has its last token: the next one may pass the gate, and those that wait for its end are on their way."""
    fate.ended[i] = t
    s.load[r] -= asked.weight[i]
    s.status[i] = DONE
    if law.cache_tokens > 0 and asked.head[i] >= 0:
        _keep(
            i,
            r,
            max(0.0, float(asked.prompt[i] + asked.outputs[i] - asked.head[i])),
            s.kept,
            s.older,
            s.newer,
            s.oldest,
            s.newest,
            s.kv_kept,
        )
        if s.kv_kept[r] + s.kv_mem[r] > law.cache_tokens:
            _evict(
                r,
                law.cache_tokens - s.kv_mem[r],
                s.kept,
                s.older,
                s.newer,
                s.oldest,
                s.newest,
                s.kv_kept,
            )
    if asked.gated[i] and law.gate_limit > 0:
        s.counts[INSIDE] -= 1
        if s.counts[HELD_HEAD] < s.counts[HELD_TAIL]:
            s.counts[LATER] = _push(
                s.later, s.later_row, s.counts[LATER], t, s.held[s.counts[HELD_HEAD]]
            )
            s.counts[HELD_HEAD] += 1
    _release(i, t, True, asked, s)


@inlined
def _release(i, t, answered, asked, s):
    """Send on their way those that waited for the end of a call; the others of its own request only where it was answered."""
    c = s.child[i]
    while c >= 0:
        if answered or asked.after[c] < 0:
            s.counts[LATER] = _push(
                s.later,
                s.later_row,
                s.counts[LATER],
                t + (asked.arrival[c] if asked.after[c] >= 0 else asked.lag[c]),
                c,
            )
        c = s.sibling[c]


@inlined
def _place(i, cached, asked, s):
    """What a call has to read, and the KV that it takes for itself: all but the head of its prompt, which others hold as well."""
    s.hit[i] = cached
    s.left[i] = max(1, asked.prompt[i] - cached)
    s.need[i] = max(
        1, asked.prompt[i] - (cached if asked.head[i] < 0 else min(cached, asked.head[i]))
    )


@inlined
def _look_up(i, r, asked, s, fate):
    """How much of its prompt a call finds on its replica: what the last call of its conversation there left, as far as it is still kept. Returns that one."""
    j = asked.follows[i]
    for _ in range(_GENERATIONS):
        if j < 0 or (fate.replica[j] == r and s.kept[j] > 0.0):
            break
        j = asked.follows[j]
    if j >= 0 and (fate.replica[j] != r or s.kept[j] <= 0.0):
        j = -1
    fate.found[i] = 0 if j < 0 else min(asked.reach[i], int(s.kept[j]))
    if asked.usual[i] >= 0:
        least = min(asked.cached[i], asked.head[i])
        _place(
            i,
            min(max(asked.cached[i] + fate.found[i] - asked.usual[i], least), asked.prompt[i] - 1),
            asked,
            s,
        )
    return j if fate.found[i] > 0 else -1


@lean
def _keep(i, r, tokens, kept, older, newer, oldest, newest, kv_kept):
    """Put what a call leaves of its conversation behind all that its replica keeps."""
    if tokens <= 0.0:
        return
    kept[i] = tokens
    kv_kept[r] += tokens
    older[i], newer[i] = newest[r], -1
    if newest[r] >= 0:
        newer[newest[r]] = i
    else:
        oldest[r] = i
    newest[r] = i


@lean
def _forget(j, r, kept, older, newer, oldest, newest, kv_kept):
    """Take what a call left out of what its replica keeps."""
    kv_kept[r] -= kept[j]
    kept[j] = 0.0
    if older[j] >= 0:
        newer[older[j]] = newer[j]
    else:
        oldest[r] = newer[j]
    if newer[j] >= 0:
        older[newer[j]] = older[j]
    else:
        newest[r] = older[j]


@lean
def _evict(r, room, kept, older, newer, oldest, newest, kv_kept):
    """Let go of what was used longest ago, its end first, until the rest fits into `room` tokens."""
    while kv_kept[r] > room and oldest[r] >= 0:
        j = oldest[r]
        over = kv_kept[r] - room
        if over < kept[j]:
            kept[j] -= over
            kv_kept[r] -= over
        else:
            _forget(j, r, kept, older, newer, oldest, newest, kv_kept)


@inlined
def _preempt(r, law, s, fate):
    """While the next tokens find no block, put the newest sequence back to the head of the line, to be computed again. Returns whether there was one."""
    any_one = False
    while True:
        batch, taken = s.decoding_n[r], s.decoding_n[r] + s.reading_n[r]
        wanted = batch * law.tokens_per_step + (
            0 if law.reserve == WHOLE else _next_chunks(r, law, s)
        )
        if s.kv_mem[r] + wanted + taken * law.block * 0.5 <= law.kv_tokens or taken <= 1:
            return any_one
        any_one = True
        decoding, reading = (
            _newest(s.decoding, batch, r, s.number),
            _newest(s.reading, s.reading_n[r], r, s.number),
        )
        if reading >= 0 and (
            decoding < 0 or s.number[s.reading[r, reading]] > s.number[s.decoding[r, decoding]]
        ):
            i = _drop_reading(r, reading, law, s)
        else:
            i = _drop_decoding(r, decoding, law, s)
        if not law.resumes:
            s.left[i] = max(1, s.context[i] - s.hit[i])
        s.dropped[i] = s.written[r]
        fate.preempted[i] += 1
        s.behind[i] = s.head[r]
        s.head[r] = i
        if s.tail[r] < 0 or s.behind[i] < 0:
            s.tail[r] = i


@inlined
def _next_chunks(r, law, s):
    """Tokens of the prompts being read that the next step takes."""
    room = (
        law.token_budget
        if law.prefill_first
        else law.token_budget - int(s.decoding_n[r] * law.checked)
    )
    tokens = 0
    for k in range(s.reading_n[r]):
        tokens += s.left[s.reading[r, k]]
    return max(0, min(tokens, room))


@inlined
def _resume(i, r, s):
    """Leave to a sequence that was preempted what it had computed, but for what others have written over it since, its end first."""
    lost = int(s.written[r] - s.dropped[i])
    s.dropped[i] += lost
    s.left[i] = max(1, min(s.context[i] - s.hit[i], s.left[i] + lost))


@inlined
def _newest(rows, n, r, number):
    """Where the sequence admitted last stands among the first `n` of a replica; -1 where there is none."""
    where = -1
    for k in range(n):
        if where < 0 or number[rows[r, k]] > number[rows[r, where]]:
            where = k
    return where


@inlined
def _drop_reading(r, where, law, s):
    i = s.reading[r, where]
    for k in range(where, s.reading_n[r] - 1):
        s.reading[r, k] = s.reading[r, k + 1]
    s.reading_n[r] -= 1
    s.kv_mem[r] -= s.need[i] - (0 if law.reserve == WHOLE else s.left[i])
    return i


@inlined
def _drop_decoding(r, where, law, s):
    i = s.decoding[r, where]
    s.decoding_n[r] -= 1
    s.decoding[r, where] = s.decoding[r, s.decoding_n[r]]
    written = (s.steps[r] - s.joined[i]) * law.tokens_per_step
    s.kv_mem[r] -= s.need[i] + written
    s.kv_read[r] -= s.context[i] + written
    s.to_come[i] = max(1, s.to_come[i] - int(written))
    s.context[i] += int(written)
    s.need[i] += int(written)
    soonest = _NO_END
    for k in range(s.decoding_n[r]):
        soonest = min(soonest, s.end_step[s.decoding[r, k]])
    s.next_end[r] = soonest
    return i


@inlined
def _start(r, t, preempted, asked, law, s, fate):
    """Begin the next step of a replica, if there is anything to do: prompts go on, calls are admitted unless one was preempted for want of room, and the
    costs say when it ends."""
    batch = s.decoding_n[r]
    budget = law.token_budget if law.prefill_first else law.token_budget - int(batch * law.checked)
    tokens, work = 0, 0.0
    for k in range(s.reading_n[r]):
        i = s.reading[r, k]
        chunk = min(s.left[i], budget)
        if chunk <= 0:
            break
        work += _attended(i, chunk, s)
        s.left[i] -= chunk
        s.kv_mem[r] += 0 if law.reserve == WHOLE else chunk
        tokens += chunk
        budget -= chunk
    while (
        not preempted
        and s.head[r] >= 0
        and budget > 0
        and s.decoding_n[r] + s.reading_n[r] < law.seats
    ):
        i = s.head[r]
        taken = s.decoding_n[r] + s.reading_n[r]
        source = (
            _look_up(i, r, asked, s, fate)
            if law.cache_tokens > 0 and fate.preempted[i] == 0
            else -1
        )
        if law.resumes and fate.preempted[i] > 0:
            _resume(i, r, s)
        chunk = s.left[i] if law.prefill_first else min(s.left[i], budget)
        held = s.need[i] if law.reserve == WHOLE else s.need[i] - s.left[i] + chunk
        if (
            s.kv_mem[r]
            + (held if law.reserve == CHUNK else s.need[i])
            + (taken + 1) * law.block * 0.5
            > law.kv_tokens
            and taken > 0
        ):
            break
        if law.prefill_first and tokens > 0 and s.left[i] > budget:
            break
        if source >= 0:
            _forget(source, r, s.kept, s.older, s.newer, s.oldest, s.newest, s.kv_kept)
        _admit(i, r, t, held, s, fate)
        if law.cache_tokens > 0 and s.kv_kept[r] + s.kv_mem[r] > law.cache_tokens:
            _evict(
                r,
                law.cache_tokens - s.kv_mem[r],
                s.kept,
                s.older,
                s.newer,
                s.oldest,
                s.newest,
                s.kv_kept,
            )
        work += _attended(i, chunk, s)
        s.left[i] -= chunk
        tokens += chunk
        budget -= chunk
    s.written[r] += tokens
    if law.prefill_first and tokens > 0:
        batch = 0
    s.decodes[r] = batch > 0
    if tokens == 0 and batch == 0:
        return
    compute = law.prefill_token * (tokens + batch * law.checked) + law.attention * work
    memory = _memory(s.kv_read[r] if batch > 0 else 0.0, law)
    host = _host(batch, s.reading_n[r], law)
    pace = law.speed[r]
    if law.cold > 0.0:
        pace *= 1.0 + law.cold * 2.0 ** (-(t - law.born[r]) / law.warm_s)
    s.busy_until[r] = t + pace * (max(compute, memory) + law.overlap * min(compute, memory) + host)


@inlined
def _coast(r, until, preempted, law, s):
    """Take the steps that end before `until`, the next arrival, and only add a token to each sequence: none ends, reads its prompt, or has to make room.
    Who waits goes on waiting, for a seat or for KV that only an end sets free; not so behind a preemption, or where what is left to read grows meanwhile."""
    t, batch, steps = s.busy_until[r], s.decoding_n[r], s.steps[r]
    if not t < until or not s.decodes[r] or s.reading_n[r] > 0 or law.cold > 0.0:
        return
    if s.head[r] >= 0 and batch < law.seats and (preempted or law.resumes):
        return
    grown, kv_mem, kv_read, written = (
        batch * law.tokens_per_step,
        s.kv_mem[r],
        s.kv_read[r],
        s.written[r],
    )
    most = law.kv_tokens - grown - batch * law.block * 0.5 if batch > 1 else np.inf
    if law.cache_tokens > 0:
        most = min(most, law.cache_tokens - s.kv_kept[r])
    compute, host, pace, ending = (
        law.prefill_token * (batch * law.checked),
        _host(batch, 0, law),
        law.speed[r],
        s.next_end[r],
    )
    while t < until and steps + 1 < ending and kv_mem + grown <= most:
        steps += 1
        kv_mem += grown
        kv_read += grown
        written += grown
        memory = _memory(kv_read, law)
        t += pace * (max(compute, memory) + law.overlap * min(compute, memory) + host)
    s.busy_until[r], s.steps[r], s.kv_mem[r], s.kv_read[r], s.written[r] = (
        t,
        steps,
        kv_mem,
        kv_read,
        written,
    )


@inlined
def _memory(kv_read, law):
    """Seconds that a step reads weights and KV."""
    return law.step * (1.0 - law.draft_share) + law.kv_token * kv_read


@inlined
def _host(batch, reading, law):
    """Seconds of a step that no other work hides."""
    return (
        law.step * law.draft_share
        + law.sequence * (batch + reading)
        + (law.knee_s if batch > law.knee else 0.0)
    )


@inlined
def _attended(i, chunk, s):
    """Pairs of a token of the chunk and a token of its context, half of its own."""
    return chunk * (s.context[i] - s.left[i] + 0.5 * chunk)


@inlined
def _admit(i, r, t, held, s, fate):
    """Take the first of the line in; it holds so many KV tokens at first."""
    s.head[r] = s.behind[i]
    if s.head[r] < 0:
        s.tail[r] = -1
    s.counts[ADMITTED] += 1
    s.number[i] = s.counts[ADMITTED]
    if np.isnan(fate.scheduled[i]):
        fate.scheduled[i] = t
    s.kv_mem[r] += held
    s.reading[r, s.reading_n[r]] = i
    s.reading_n[r] += 1
