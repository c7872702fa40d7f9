"""Where did the time of a request go? The critical path of span trees, compiled: every nanosecond of the root belongs to one span and stage.

Walk back from the end of the root: the child that finished last is on the path, its parent owns what lies between that child's end and the
cursor, the walk goes on inside the child and then before its start (the method of Jaeger's and Uber's CRISP's critical path). A child that
overlaps a later-finishing sibling counts up to that sibling's start. Children are clipped to their parent, but a child that outlives one
that stood last in its own parent is the next one's. The pieces of a trace sum to its root's duration exactly, in integer nanoseconds.

Pure functions on arrays. "Row" is an index into the span arrays; the rows of one trace stand together, `bounds` says where.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from overrun.analysis.words.arrays import BoolArray, IntArray
from overrun.collector.process.compiled import njit, read_only

# Codes of collector/normalise/stages.py (a test holds them together).
PLAIN, CONTAINER, LLM, ENGINE, PHASE, FOLDED, WRITE, MODEL_REQUEST, TURN = range(9)
NETWORK, GATEWAY, RETRIEVAL, PROMPT, GUARDRAIL, QUEUE, KV_TRANSFER, PREFILL = range(8)
DECODE, TOOL, POST, WAIT_USER, OTHER, FIRST_TOKEN, GENERATION = range(8, 15)
STAGES = 15
_SERVER, _CLIENT, _PRODUCER, _CONSUMER = 2, 3, 4, 5
# A descendant that outlives the root by more than this share of it (and 1 ms) was not waited for: it is off the path.
ASYNC_SHARE = 0.01
ASYNC_NS = 1_000_000
# Finding the tightest enclosing span of an orphan is quadratic; a trace with more orphans x spans than this attaches them to the root. Spans that outlive long
# chains of parents climb no more steps than this, all together.
MAX_ORPHAN_WORK = 4_000_000
_FEW = 16  # children that are put into order one by one


class Forest(NamedTuple):
    """Span trees as columns (n rows, t traces). Times in ns; -1 is "absent" in parent, ttft, queue, prefill and decode.

    `bounds` (t + 1): trace k is rows bounds[k]:bounds[k+1]. `true_root`: the span says that it has no parent. `domain`: which clock
    (resource) the span was taken with. `has_tokens`: the span knows its output tokens. `left`: the span's parent stopped waiting for it;
    `cancelled`: the span is a call that its own program gave up.
    """

    bounds: IntArray
    parent: IntArray
    true_root: BoolArray
    start: IntArray
    end: IntArray
    role: IntArray
    stage: IntArray
    kind: IntArray
    domain: IntArray
    has_tokens: BoolArray
    left: BoolArray
    cancelled: BoolArray
    ttft: IntArray
    queue: IntArray
    prefill: IntArray
    decode: IntArray


@dataclass(frozen=True, slots=True)
class Paths:
    """What the walk found. Per row: `parent`, `start` and `end` after repair, `role` and `stage` as used, `inferred`, `shifted`, `clipped`,
    `skipped` (off the tree), `call` (row of the model call that a row belongs to, or -1), `engine` (row of a call's engine span, or -1).
    Per trace: `root`. Per piece of a path: `piece_row`, `piece_stage`, `piece_from`, `piece_to`.
    """

    parent: IntArray
    start: IntArray
    end: IntArray
    role: IntArray
    stage: IntArray
    inferred: BoolArray
    shifted: BoolArray
    clipped: BoolArray
    skipped: BoolArray
    call: IntArray
    engine: IntArray
    root: IntArray
    piece_row: IntArray
    piece_stage: IntArray
    piece_from: IntArray
    piece_to: IntArray


def critical_paths(forest: Forest) -> Paths:
    """The critical path of every trace of the forest; sum of (piece_to - piece_from) per trace == end - start of its root."""
    forest = Forest(*map(read_only, forest))
    parent = forest.parent.copy()
    n = len(parent)
    shifted, clipped, skipped, inferred = (np.zeros(n, dtype=np.bool_) for _ in range(4))
    root, depth = _resolve_parents(forest, parent, inferred)
    topological, _ = _grouped_by(depth, np.arange(n))
    start, end = forest.start.copy(), forest.end.copy()
    role, stage = forest.role.copy(), forest.stage.copy()
    tree = (topological, root, forest, parent, start, end, role)
    _repair_times(*tree, inferred, shifted, clipped)
    _hand_over(*tree, clipped)
    call, engine, phases = _settle_roles(*tree, stage, skipped)
    until = _hand_on(forest, parent, start, end, role, stage, call, engine, skipped)
    _drop_unwaited(*tree, skipped)
    _drop_cancelled(forest.bounds, parent, start, end, role, forest.cancelled, skipped)
    walked = np.flatnonzero((parent >= 0) & ~skipped)
    children, first_child = _grouped_by(parent, walked)
    _last_first(children, first_child, start, until, forest.has_tokens)
    capacity = int((np.diff(first_child) + 1).sum() * 6 + 16)
    nested = (root, children, first_child)
    pieces = _walk(*nested, forest, start, until, role, stage, engine, phases, capacity)
    marks = (inferred, shifted, clipped, skipped)
    return Paths(parent, start, end, role, stage, *marks, call, engine, root, *pieces)


@njit(cache=True, nogil=True)
def _grouped_by(keys, rows):
    """The rows by their keys (not negative, below their number), else in their order, and where each key's begin: one more than there are keys."""
    first = np.zeros(len(keys) + 1, dtype=np.int64)
    for row in rows:
        first[keys[row] + 1] += 1
    first = np.cumsum(first)
    free = first.copy()
    order = np.empty(len(rows), dtype=np.int64)
    for row in rows:
        order[free[keys[row]]] = row
        free[keys[row]] += 1
    return order, first


@njit(cache=True, nogil=True)
def _last_first(children, first_child, start, end, has_tokens):
    """Order the children of each parent, in place: the last-finishing one first. Of equal ends the call that answered (a loser of a race is cancelled as the
    winner ends), then the one that started later, which is nearer to the parent's continuation."""
    for parent in range(len(first_child) - 1):
        a, b = first_child[parent], first_child[parent + 1]
        if b - a > _FEW:
            rows = children[a:b].copy()
            rows = rows[np.argsort(-start[rows], kind="mergesort")]
            rows = rows[np.argsort(~has_tokens[rows], kind="mergesort")]
            children[a:b] = rows[np.argsort(-end[rows], kind="mergesort")]
            continue
        for at in range(a + 1, b):
            row = children[at]
            to = at
            while to > a and _goes_before(row, children[to - 1], start, end, has_tokens):
                children[to] = children[to - 1]
                to -= 1
            children[to] = row


@njit(cache=True, nogil=True)
def _goes_before(row, other, start, end, has_tokens):
    """See `_last_first`."""
    if end[row] != end[other]:
        return end[row] > end[other]
    if has_tokens[row] != has_tokens[other]:
        return has_tokens[row]
    return start[row] > start[other]


@njit(cache=True, nogil=True)
def _patience(start, end):
    """Until when a request waits for what goes on in it."""
    return end + max(ASYNC_NS, np.int64((end - start) * ASYNC_SHARE))


@njit(cache=True, nogil=True)
def _resolve_parents(forest, parent, inferred):
    """Break cycles, choose each trace's root, attach what has no parent. Changes `parent` and `inferred`; returns (root, depth)."""
    bounds, start, end = forest.bounds, forest.start, forest.end
    _break_cycles(parent)
    root = np.empty(len(bounds) - 1, dtype=np.int64)
    for t in range(len(bounds) - 1):
        a, b = bounds[t], bounds[t + 1]
        root[t], orphans = _root_of(a, b, forest, parent)
        search = orphans * (b - a) <= MAX_ORPHAN_WORK
        for i in range(a, b):
            if parent[i] < 0 and i != root[t]:
                parent[i] = (
                    _tightest_around(i, a, b, root[t], parent, start, end) if search else root[t]
                )
                inferred[i] = True
    return root, _depths(parent)


@njit(cache=True, nogil=True)
def _break_cycles(parent):
    """Make the first seen member of each cycle an orphan, in place."""
    state = np.zeros(len(parent), dtype=np.int8)
    for i in range(len(parent)):
        j = i
        while j >= 0 and state[j] == 0:
            state[j] = 1
            j = parent[j]
        met = j if j >= 0 and state[j] == 1 else -1
        j = i
        while j >= 0 and state[j] == 1:
            state[j] = 2
            j = parent[j]
        if met >= 0:
            parent[met] = -1


@njit(cache=True, nogil=True)
def _root_of(a, b, forest, parent):
    """Return the root of the trace in rows [a, b), and how many of its spans have no parent.

    A span that says it is a root goes before others, then one that is no mere part of a request, then the earliest, then the longest.
    """
    true_root, start, end, role = forest.true_root, forest.start, forest.end, forest.role
    best = -1
    orphans = 0
    for i in range(a, b):
        if parent[i] >= 0:
            continue
        orphans += 1
        if best < 0:
            best = i
            continue
        x = 2 * true_root[i] + (role[i] < PHASE)
        y = 2 * true_root[best] + (role[best] < PHASE)
        if x != y:
            if x > y:
                best = i
        elif start[i] < start[best] or (start[i] == start[best] and end[i] > end[best]):
            best = i
    return best, orphans


@njit(cache=True, nogil=True)
def _tightest_around(i, a, b, root, parent, start, end):
    """Return the shortest span of rows [a, b) that lasts through span i and does not hang below it; the root where there is none."""
    tight = root
    for j in range(a, b):
        if (
            j != i
            and start[j] <= start[i]
            and end[j] >= end[i]
            and end[j] - start[j] < end[tight] - start[tight]
        ):
            k = j
            while k >= 0 and k != i:
                k = parent[k]
            if k < 0:
                tight = j
    return tight


@njit(cache=True, nogil=True)
def _depths(parent):
    """Return how many spans stand above each."""
    depth = np.full(len(parent), -1, dtype=np.int64)
    chain = np.empty(len(parent), dtype=np.int64)
    for i in range(len(parent)):
        m = 0
        j = i
        while j >= 0 and depth[j] < 0:
            chain[m] = j
            m += 1
            j = parent[j]
        d = depth[j] if j >= 0 else -1
        for k in range(m - 1, -1, -1):
            d += 1
            depth[chain[k]] = d
    return depth


@njit(cache=True, nogil=True)
def _repair_times(topological, root, forest, parent, start, end, role, inferred, shifted, clipped):
    """Lift children of folded spans, undo clock skew between resources, mark spans that reach over their parent. In place."""
    kind, domain, left, ttft = forest.kind, forest.domain, forest.left, forest.ttft
    n = len(parent)
    is_root = np.zeros(n, dtype=np.bool_)
    for t in range(len(root)):
        if root[t] >= 0:
            is_root[root[t]] = True
    shift = np.zeros(n, dtype=np.int64)
    for x in range(n):
        i = topological[x]
        if is_root[i]:
            continue
        p = parent[i]
        if role[p] == FOLDED and not is_root[p]:
            p = parent[p]  # parents come first, so p's own parent is already lifted
            parent[i] = p
        if inferred[p]:
            inferred[i] = True
        if domain[i] == domain[p]:
            shift[i] = shift[p]
            start[i] += shift[i]
            end[i] += shift[i]
        elif (
            kind[i] != _CONSUMER
            and kind[p] != _PRODUCER
            and (start[i] < start[p] or end[i] > end[p])
        ):
            # Another clock: the smallest offset that puts the child inside its parent. One that is longer or whose parent left went on after it: it is cut.
            longer = end[i] - start[i] > end[p] - start[p]
            offset = (
                start[p] - start[i]
                if start[i] < start[p]
                else 0
                if longer or (left[i] and start[i] < end[p])
                else end[p] - end[i]
            )
            if (
                not longer
                and not left[i]
                and role[i] == ENGINE
                and role[p] == LLM
                and ttft[i] >= 0
                and ttft[p] >= 0
            ):
                # Both saw the first token: as near to the client's as the call has room for.
                at = start[p] + min(
                    max(ttft[p] - ttft[i], 0), end[p] - start[p] - (end[i] - start[i])
                )
                offset = at - start[i]
            shift[i] = offset
            start[i] += offset
            end[i] += offset
        shifted[i] = shift[i] != 0
        clipped[i] = start[i] < start[p] or end[i] > end[p]


@njit(cache=True, nogil=True)
def _hand_over(topological, root, forest, parent, start, end, role, clipped):
    """Put a span that outlives its parent under the next one above that did nothing else after that parent. In place.

    Spans of asynchronous frameworks end when they have handed a stream or a task on (LlamaIndex's workflows); what came of it is no less waited for.
    """
    bounds, kind, domain = forest.bounds, forest.kind, forest.domain
    n = len(parent)
    is_root = np.zeros(n, dtype=np.bool_)
    limit = np.empty(n, dtype=np.int64)  # what lasts longer was not waited for
    for t in range(len(root)):
        if root[t] < 0:
            continue
        is_root[root[t]] = True
        limit[bounds[t] : bounds[t + 1]] = _patience(start[root[t]], end[root[t]])
    last = np.full(
        n, -1, dtype=np.int64
    )  # each span's child that ended last, and when the one before it did
    before = np.full(n, np.iinfo(np.int64).min, dtype=np.int64)
    for x in range(n):
        i = topological[x]
        p = parent[i]
        if p < 0 or end[i] > limit[i] or end[i] == start[i]:
            continue
        if last[p] < 0:
            last[p] = i
        elif end[i] > end[last[p]]:
            before[p] = end[last[p]]
            last[p] = i
        else:
            before[p] = max(before[p], end[i])
    above = parent.copy()
    steps = 0
    for x in range(n):
        i = topological[x]
        p = above[i]
        if p < 0 or role[i] == PHASE or role[i] == FOLDED or domain[i] != domain[p]:
            continue
        while (
            not is_root[p]
            and end[i] > end[p]
            and role[p] < LLM
            and kind[p] != _SERVER
            and kind[p] != _CONSUMER
        ):
            g = above[p]
            others = before[g] if last[g] == p or last[g] < 0 else end[last[g]]
            if domain[g] != domain[p] or others > end[p]:
                break
            p = g
            steps += 1
            if steps > MAX_ORPHAN_WORK:
                break
        parent[i] = p
        clipped[i] = start[i] < start[p] or end[i] > end[p]


@njit(cache=True, nogil=True)
def _settle_roles(topological, root, forest, parent, start, end, role, stage, skipped):
    """Decide which spans are model calls, which engine span belongs to which, and whose stage nested spans carry.

    Changes role, stage, parent and skipped in place; returns (call, engine, phases): per row the call it belongs to, per call its engine
    span, and whether an engine span has phase spans of its own.
    """
    kind = forest.kind
    n = len(parent)
    call = np.full(n, -1, dtype=np.int64)
    engine = np.full(n, -1, dtype=np.int64)
    bearing = np.full(n, -1, dtype=np.int64)
    tokens_below, engine_below, served, phases = _what_is_below(
        topological, parent, role, kind, forest.has_tokens
    )
    for x in range(n):
        i = topological[x]
        p = parent[i]
        if p < 0:
            # The root's own time is nobody's stage, unless the root is the model call itself or waits for who makes it.
            if (role[i] == LLM and not tokens_below[i]) or role[i] == ENGINE:
                call[i] = i
            else:
                stage[i] = NETWORK if role[i] == LLM and served[i] else OTHER
                role[i] = CONTAINER
            continue
        if role[p] == FOLDED and parent[p] >= 0:
            p = parent[p]
            parent[i] = p
        above = call[p]
        bearing[i] = (
            -1 if kind[i] == _CONSUMER else bearing[p]
        )  # what is done for a job is not what it waited for
        if role[i] == WRITE:
            role[i], stage[i] = PLAIN, POST
        if role[i] == FOLDED:
            skipped[i] = True
            call[i] = above
        elif role[i] == LLM:
            _settle_call(i, above, tokens_below[i], served[i], role, stage, call, bearing, skipped)
        elif role[i] == ENGINE:
            call[i] = above if above >= 0 else i
            # Of several engine spans (hidden attempts) the one that ended last gave the answer.
            if (
                above >= 0
                and role[above] == LLM
                and (engine[above] < 0 or end[i] > end[engine[above]])
            ):
                engine[above] = i
        elif role[i] == PHASE:
            call[i] = above
            if stage[i] == NETWORK and above < 0 and bearing[i] >= 0:
                stage[i] = bearing[i]  # a step to a connection belongs to what is asked over it
        elif above >= 0:
            call[i] = above
            if engine_below[i]:
                role[i], stage[i] = PLAIN, NETWORK
            elif stage[i] == NETWORK or stage[i] == OTHER:
                skipped[i] = True  # the call accounts for its own transport
                role[i] = FOLDED
        else:
            if (
                (stage[i] == OTHER or stage[i] == NETWORK)
                and bearing[i] >= 0
                and kind[i] != _CONSUMER
            ):
                stage[i] = bearing[i]
            if (
                role[i] == PLAIN
                and stage[i] != OTHER
                and stage[i] != NETWORK
                and stage[i] != WAIT_USER
            ):
                bearing[i] = stage[i]
    return call, engine, phases


@njit(cache=True, nogil=True)
def _what_is_below(topological, parent, role, kind, has_tokens):
    """Return per span whether below it are a call with tokens, an engine span, a server's span as a child, and phases of the engine span that it is."""
    n = len(parent)
    tokens_below = np.zeros(n, dtype=np.bool_)
    engine_below = np.zeros(n, dtype=np.bool_)
    served = np.zeros(n, dtype=np.bool_)
    phases = np.zeros(n, dtype=np.bool_)
    for x in range(n - 1, -1, -1):
        i = topological[x]
        p = parent[i]
        if p < 0:
            continue
        tokens_below[p] = tokens_below[p] or tokens_below[i] or (role[i] == LLM and has_tokens[i])
        engine_below[p] = engine_below[p] or engine_below[i] or role[i] == ENGINE
        served[p] = served[p] or kind[i] == _SERVER
        if role[i] == PHASE:
            e = p
            while e >= 0 and role[e] != ENGINE:
                e = parent[e]
            if e >= 0:
                phases[e] = True
    return tokens_below, engine_below, served, phases


@njit(cache=True, nogil=True)
def _settle_call(i, above, tokens_below, served, role, stage, call, bearing, skipped):
    """Decide in place whether span i is the model call, the way to the gateway that makes it, or a part of the call above it (-1: none)."""
    if tokens_below:
        role[i], stage[i] = CONTAINER, NETWORK if served else OTHER
        call[i] = above
    elif above >= 0:
        role[i] = FOLDED
        skipped[i] = True
        call[i] = above
    else:
        call[i] = i
        if bearing[i] == GUARDRAIL:
            stage[i] = GUARDRAIL


@njit(cache=True, nogil=True)
def _hand_on(forest, parent, start, end, role, stage, call, engine, skipped):
    """Let a proxy hold a model call from its arrival there until it is sent on. Returns the ends to walk with; role, stage, parent and skipped in place.

    A proxy is a server's span within a call without engine telemetry, within which the longest client's span takes most of what is left up to the first
    token (HTTP clients end theirs with the headers) or the end: the answer passes through. A server that asks for something small first is none.
    """
    bounds, kind, ttft = forest.bounds, forest.kind, forest.ttft
    until = end.copy()
    for t in range(len(bounds) - 1):
        a, b = bounds[t], bounds[t + 1]
        servers = 0
        for i in range(a, b):
            servers += role[i] == FOLDED and kind[i] == _SERVER
        if servers * (b - a) > MAX_ORPHAN_WORK:
            continue
        for i in range(a, b):
            c = call[i]
            if (
                role[i] != FOLDED
                or kind[i] != _SERVER
                or c < 0
                or role[c] != LLM
                or engine[c] >= 0
                or stage[i] == GUARDRAIL
            ):
                continue
            on = -1
            for j in range(a, b):
                longest = on < 0 or end[j] - start[j] > end[on] - start[on]
                if (
                    kind[j] == _CLIENT
                    and role[j] == FOLDED
                    and call[j] == c
                    and start[i] < start[j]
                    and end[j] <= end[i]
                    and longest
                ):
                    on = j
            if on < 0:
                continue
            answered = end[i] if ttft[c] < 0 else max(start[on], min(end[i], start[c] + ttft[c]))
            if 2 * (end[on] - start[on]) >= answered - start[on]:
                role[i], stage[i], parent[i], skipped[i], until[i] = (
                    PLAIN,
                    GATEWAY,
                    c,
                    False,
                    start[on],
                )
    return until


@njit(cache=True, nogil=True)
def _drop_unwaited(topological, root, forest, parent, start, end, role, skipped):
    """Skip subtrees without a model call that end after their root did: no client waited for them. In place."""
    n = len(parent)
    calls = np.zeros(n, dtype=np.bool_)
    for x in range(n - 1, -1, -1):
        i = topological[x]
        if role[i] == LLM or role[i] == ENGINE:
            calls[i] = True
        if parent[i] >= 0 and calls[i]:
            calls[parent[i]] = True
    for t in range(len(root)):
        limit = _patience(start[root[t]], end[root[t]])
        for i in range(forest.bounds[t], forest.bounds[t + 1]):
            if i != root[t] and not calls[i] and end[i] > limit:
                skipped[i] = True


@njit(cache=True, nogil=True)
def _drop_cancelled(bounds, parent, start, end, role, cancelled, skipped):
    """Skip calls that were given up once another call of the same parent had answered: the loser of a race, or what only that answer had use for. In place."""
    for t in range(len(bounds) - 1):
        a, b = bounds[t], bounds[t + 1]
        given_up = 0
        for i in range(a, b):
            given_up += cancelled[i]
        if given_up * (b - a) > MAX_ORPHAN_WORK:
            continue
        for i in range(a, b):
            if not cancelled[i] or role[i] != LLM:
                continue
            for j in range(a, b):
                if (
                    parent[j] == parent[i]
                    and role[j] == LLM
                    and not cancelled[j]
                    and start[j] < end[i]
                    and start[i] < end[j] <= end[i]
                ):
                    skipped[i] = True


@njit(cache=True, nogil=True)
def _walk(root, children, first_child, forest, start, end, role, stage, engine, phases, capacity):
    """The backward walk of every trace. Returns piece arrays (row, stage, from, to)."""
    rows = np.empty(capacity, dtype=np.int64)
    stages = np.empty(capacity, dtype=np.int64)
    begins = np.empty(capacity, dtype=np.int64)
    finishes = np.empty(capacity, dtype=np.int64)
    m = 0
    n = len(start)
    node = np.empty(n + 1, dtype=np.int64)
    low = np.empty(n + 1, dtype=np.int64)
    cursor = np.empty(n + 1, dtype=np.int64)
    position = np.empty(n + 1, dtype=np.int64)
    edge = np.empty(6, dtype=np.int64)
    kind = np.empty(6, dtype=np.int64)
    for t in range(len(root)):
        if root[t] < 0:
            continue
        top = 0
        node[0], low[0], cursor[0], position[0] = (
            root[t],
            start[root[t]],
            end[root[t]],
            first_child[root[t]],
        )
        while top >= 0:
            v = node[top]
            upper = cursor[top]
            descend = -1
            lower = low[top]
            while position[top] < first_child[v + 1]:
                c = children[position[top]]
                position[top] += 1
                c_end = min(end[c], cursor[top])
                c_start = max(start[c], low[top])
                if c_end > c_start:
                    descend = c
                    lower = c_end
                    cursor[top] = c_start
                    break
            if upper > lower:
                k = _profile(
                    v, forest, start[v], end[v], role[v], stage[v], engine[v], phases[v], edge, kind
                )
                at = lower
                for q in range(k):
                    stop = upper if q == k - 1 else min(upper, edge[q])
                    if stop > at:
                        rows[m], stages[m], begins[m], finishes[m] = v, kind[q], at, stop
                        m += 1
                        at = stop
            if descend >= 0:
                inner = cursor[top]
                top += 1
                node[top], low[top], cursor[top], position[top] = (
                    descend,
                    inner,
                    lower,
                    first_child[descend],
                )
            else:
                top -= 1
    return rows[:m], stages[:m], begins[:m], finishes[:m]


@njit(cache=True, nogil=True)
def _profile(v, forest, start, end, role, stage, engine, phases, edge, kind):
    """How a span's own time divides: stage kind[q] up to edge[q], q < the returned count; the last one runs to the end.

    Engine: front end, queue, prefill, decode, front end. With queue or prefill unknown, what precedes the first token stays unsplit.
    Client call: first_token up to its TTFT, then decode; `generation` without a TTFT; `network` around an engine span of its own.
    """
    ttft, queue = forest.ttft[v], forest.queue[v]
    prefill, decode = forest.prefill[v], forest.decode[v]
    if role == LLM and stage != GUARDRAIL:
        if engine >= 0:
            kind[0] = NETWORK
            return 1
        if ttft < 0:
            kind[0] = GENERATION
            return 1
        edge[0], kind[0] = start + ttft, FIRST_TOKEN
        kind[1] = DECODE
        return 2
    if role == ENGINE and not phases:
        if queue < 0 and prefill < 0 and ttft < 0 and decode < 0:
            kind[0] = GENERATION
            return 1
        if prefill < 0 and ttft < 0 and decode < 0:
            edge[0], kind[0] = start + queue, QUEUE
            kind[1] = (
                GENERATION  # TGI: prefill and decode are one number, and no first token is said
            )
            return 2
        q, p = max(queue, 0), max(prefill, 0)
        front = max(ttft - q - p, 0) if (ttft >= 0 and prefill >= 0) else 0
        edge[0], kind[0] = start + front, OTHER
        edge[1], kind[1] = edge[0] + q, QUEUE
        if prefill >= 0:
            edge[2], kind[2] = edge[1] + p, PREFILL
        else:
            edge[2], kind[2] = max(edge[1], start + max(ttft, 0)), FIRST_TOKEN
        edge[3], kind[3] = (edge[2] + decode if decode >= 0 else end), DECODE
        kind[4] = OTHER
        return 5
    kind[0] = OTHER if role == ENGINE else stage
    return 1


@njit(cache=True, nogil=True)
def find_parents(bounds, span_id, parent_id):
    """Row of each span's parent within its trace, or -1. `span_id` is sorted within each trace; 0 as parent_id means none."""
    out = np.full(len(span_id), -1, dtype=np.int64)
    for t in range(len(bounds) - 1):
        a, b = bounds[t], bounds[t + 1]
        for i in range(a, b):
            wanted = parent_id[i]
            if wanted == 0:
                continue
            low, high = a, b
            while low < high:
                middle = (low + high) // 2
                if span_id[middle] < wanted:
                    low = middle + 1
                else:
                    high = middle
            if low < b and span_id[low] == wanted and low != i:
                out[i] = low
    return out
