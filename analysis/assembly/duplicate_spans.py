"""Which spans record the same model call? Pairs from two instrumentations, nested, so that the call counts once.

LangChain and the OpenAI client instrumented together report every call twice, the second time in a trace of its own; a gateway's call and its
client's may share the model's response id. The shorter span goes under the longer one, as if it had been sent that way: the rule for nested
calls (the deepest that has an output-token count is the call) then applies, and a trace that held nothing else is no request of its own.
Two calls of one scope are two calls, however alike: parallel judges and best-of-n are real. What a gateway did for a call, in a trace of its own,
goes under its client's call as a whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.nesting import Nesting, is_below
from overrun.analysis.words.arrays import BoolArray, IntArray

# Measured on LangGraph with both instrumentations, 4 pairs: overlap 100 %, starts 2 to 15 ms apart.
MIN_OVERLAP = 0.95
MAX_APART_NS = 1_000_000_000
# What an instrumentation takes before and after the one that it is around. LangChain, LiteLLM and Langfuse around OpenAI's client on two busy cores, 210 pairs:
# P50 10 ms, P95 43 ms, P99 190 ms (2026-11-23). Half of the calls lasted less than 62 ms: shares of their time show little.
MAX_AROUND_NS = 100_000_000
# Starts and ends of JavaScript's spans are of whole milliseconds.
CLOCK_STEP_NS = 2_000_000
MOMENT_NS = 1_000_000
# Of two processes' clocks: 5 % of what is compared, and this.
CLOCK_SLACK_NS = 5_000_000
_SERVER, _CLIENT, _ERROR = 2, 3, 2
_BETWEEN = 6  # spans between a client's call and its gateway's span of it: HTTP's and the server's, from up to two instrumentations
_MAX_DEPTH = 10_000  # chains of parents are cut here, against cycles
# Most calls that begin after one with equal token counts and are searched for its duplicate: among more at once it is not known.
_MOST_ALIKE = 256
# Of calls with one response id: a stored answer that is given again later is another call.
MIN_OVERLAP_BY_ID = 0.5
# Largest difference of the clocks of two processes if an id shows that they record one call; own default.
MAX_SKEW_NS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Told:
    """The recorded values of a batch's spans, a row each: process and scope they come from (codes), tokens (input, output; -1 untold), input tokens without those that
    came from a cache, response id and model (codes, -1 untold), the trace, the row of the parent (-1 if it is not here), its id, start and end."""

    process: IntArray
    scope: IntArray
    tokens: tuple[IntArray, IntArray]
    uncached: IntArray
    response: IntArray
    model: IntArray
    trace: IntArray
    parent: IntArray
    parent_id: Any
    start: IntArray
    end: IntArray


def models(names: pa.ChunkedArray) -> IntArray:
    """A code per name of a model (-1 where there is none), one for all that differ in whose it is and in the version of its interface alone: instrumentations
    of Bedrock's client call one model `us.anthropic.claude-3-haiku-20240307-v1:0` and `claude-3-haiku-20240307`."""
    told = names.combine_chunks().dictionary_encode()
    plain = pc.replace_substring_regex(
        told.dictionary, r"^(?:.*/)?(?:[a-z]+\.)*|-v\d+(?::\d+)?$", ""
    ).dictionary_encode()
    codes: IntArray = (
        plain.indices.take(told.indices)
        .fill_null(-1)
        .to_numpy(zero_copy_only=False)
        .astype(np.int64)
    )
    return codes


# Two rows that may report one call. What is nested already comes first, then what counts the same, what is in one trace, what began and ended nearer (ns).
Pair: TypeAlias = tuple[int, bool, int, int, int]


def pairs_by_tokens(rows: IntArray, told: Told) -> list[Pair]:
    """Rows that may be one call: same process, two scopes, equal token counts, the shorter in the longer or near to it. Rows count their tokens or failed.
    Some leave cached tokens out and show nothing of them (Bedrock in JavaScript): then the others' without them are equal."""
    rows = _of_several_scopes(rows, told)
    found = _by_counts(rows, told, told.tokens)
    if (told.uncached[rows] != told.tokens[0][rows]).any():
        found += _by_counts(rows, told, (told.uncached, told.tokens[1]))
    return found


def _by_counts(rows: IntArray, told: Told, counts: tuple[IntArray, IntArray]) -> list[Pair]:
    order = _in_order(rows, told, *counts)

    def fit(one: IntArray, other: IntArray) -> BoolArray:
        shared: BoolArray = (
            (_overlap(one, other, told) >= MIN_OVERLAP)
            | _within(one, other, told)
            | _near(one, other, told)
        )
        # Of two in a request each, none could come to the other.
        shared &= (
            (told.trace[one] == told.trace[other])
            | (told.parent[one] < 0)
            | (told.parent[other] < 0)
        )
        return shared

    return [
        pair
        for one, other in _close(order, told.start[order] + MAX_APART_NS, told, fit, *counts)
        for pair in _pairs(0, one, other, told)
    ]


def pairs_by_time(rows: IntArray, told: Told) -> list[Pair]:
    """Rows of one process and two scopes that may be one call of which one does not count the tokens (a stream without requested usage): they began and
    ended together, or one is just around the other; and one is a trace's root, or what is above one is above both (LangChain's graphs leave a client their
    own parent)."""
    order, untold = _in_order(_of_several_scopes(rows, told), told), told.tokens[1] < 0
    if not untold[order].any():
        return []

    def fit(one: IntArray, other: IntArray) -> BoolArray:
        common = np.minimum(told.end[one], told.end[other]) - told.start[other]
        together = common >= MIN_OVERLAP * (
            np.maximum(told.end[one], told.end[other]) - told.start[one]
        )
        around = _near(one, other, told) & (
            (told.trace[one] == told.trace[other]) | _within(one, other, told)
        )
        fits: BoolArray = (untold[one] | untold[other]) & (together | around)
        return fits

    latest = told.start[order] + np.maximum(
        MAX_AROUND_NS, (told.end - told.start)[order] * (1.0 - MIN_OVERLAP)
    )
    found = [
        pair
        for one, other in _close(order, latest, told, fit)
        for pair in _pairs(1, one, other, told)
    ]
    return [
        pair
        for pair in found
        if told.parent_id[pair[-2]] == 0
        or told.parent_id[pair[-1]] == 0
        or _beside(pair[-2], pair[-1], told)
    ]


def nested_pairs(rows: IntArray, role: IntArray, told: Told) -> list[Pair]:
    """Calls that hold one other call, of another scope of their process, just inside them: before all other pairs, so that a parallel call with equal counts
    does not take the inner one's place (Google's ADK around its client, agents side by side)."""
    outer = told.parent[rows]
    for _ in range(_BETWEEN):
        outer = np.where((outer >= 0) & (role[outer] != cp.LLM), told.parent[outer], outer)
    inside = (outer >= 0) & (role[outer] == cp.LLM)
    inner, outer = rows[inside], outer[inside]
    fits = np.bincount(outer, minlength=1)[outer] == 1
    fits &= (told.process[inner] == told.process[outer]) & (told.scope[inner] != told.scope[outer])
    return list(_pairs(-1, outer[fits], inner[fits], told))


def _of_several_scopes(rows: IntArray, told: Told) -> IntArray:
    """The rows of processes whose calls come from more than one scope (seldom any)."""
    scopes_of = int(told.scope[rows].max(initial=0)) + 1
    pair = pc.unique(pa.array(told.process[rows] * scopes_of + told.scope[rows])).to_numpy()
    places, scopes = np.unique(pair // scopes_of, return_counts=True)
    several: IntArray = rows[np.isin(told.process[rows], places[scopes > 1])]
    return several


def _in_order(rows: IntArray, told: Told, *keys: IntArray) -> IntArray:
    """The rows by process, `keys` and start."""
    order: IntArray = rows[
        np.lexsort((told.start[rows], *(key[rows] for key in keys), told.process[rows]))
    ]
    return order


def _close(
    order: IntArray,
    latest: Any,
    told: Told,
    fit: Callable[[IntArray, IntArray], BoolArray],
    *keys: IntArray,
) -> Iterator[tuple[IntArray, IntArray]]:
    """Pairs of rows, in this order, of one process, equal `keys` and two scopes, that fit; the other begins until `latest` (a moment for each in the order)."""
    for ahead in range(1, min(len(order), 1 + _MOST_ALIKE)):
        one, other = order[:-ahead], order[ahead:]
        near = (told.process[one] == told.process[other]) & (told.start[other] <= latest[:-ahead])
        for key in keys:
            near &= key[one] == key[other]
        if not near.any():  # nor is what begins still later
            return
        one, other = one[near], other[near]
        fits = (told.scope[one] != told.scope[other]) & fit(one, other)
        yield one[fits], other[fits]


def _pairs(kind: int, one: IntArray, other: IntArray, told: Told) -> Iterator[Pair]:
    columns = (told.trace[one] != told.trace[other], _apart(one, other, told), one, other)
    return zip(itertools.repeat(kind), *(column.tolist() for column in columns), strict=False)


def _apart(one: IntArray, other: IntArray, told: Told) -> IntArray:
    """How far from each other two rows began and ended."""
    apart: IntArray = np.abs(told.start[other] - told.start[one]) + np.abs(
        told.end[other] - told.end[one]
    )
    return apart


def _near(one: IntArray, other: IntArray, told: Told) -> BoolArray:
    """Whether two rows began and ended near to each other: a wrapper takes a moment, and may end before the stream that it read is closed (Langfuse)."""
    near: BoolArray = (_apart(one, other, told) <= MAX_AROUND_NS) & (
        _overlap(one, other, told) >= MIN_OVERLAP_BY_ID
    )
    return near


def _within(one: IntArray, other: IntArray, told: Told) -> BoolArray:
    """Whether the shorter of two rows lies within the longer one, but for what clocks of milliseconds make of it."""
    shorter = np.minimum(told.end[one] - told.start[one], told.end[other] - told.start[other])
    within: BoolArray = _common(one, other, told) >= np.maximum(
        shorter - CLOCK_STEP_NS, shorter // 2
    )
    return within


def _overlap(one: IntArray, other: IntArray, told: Told) -> Any:
    """Common time over the shorter one's; 1 if that one lasted no time but lies within the other."""
    common = _common(one, other, told)
    shorter = np.minimum(told.end[one] - told.start[one], told.end[other] - told.start[other])
    return np.where(shorter <= 0, common >= 0, common / np.maximum(shorter, 1))


def _common(one: IntArray, other: IntArray, told: Told) -> IntArray:
    common: IntArray = np.minimum(told.end[one], told.end[other]) - np.maximum(
        told.start[one], told.start[other]
    )
    return common


def _beside(one: int, other: int, told: Told) -> bool:
    """Whether what is above one of two rows of a trace, here or not, is above the other one too."""
    return bool(told.trace[one] == told.trace[other]) and (
        _shares_parent(one, other, told) or _shares_parent(other, one, told)
    )


def _shares_parent(row: int, other: int, told: Told) -> bool:
    """Whether `row`, or something that it is in, is `other` or has its parent."""
    for _ in range(_MAX_DEPTH):
        if row < 0:
            return False
        if row == other or told.parent_id[row] == told.parent_id[other]:
            return True
        row = int(told.parent[row])
    return False


def groups_of(by_id: list[list[int]], pairs: list[Pair], told: Told) -> list[list[int]]:
    """Groups of rows that are one call, from those that share a response id and from pairs, the best first: a scope reports a call once, and what is reported
    of it is the same everywhere."""
    group = {row: rows for rows in by_id for row in rows}
    for *_, one, other in sorted(pairs):
        mine, others = group.setdefault(one, [one]), group.setdefault(other, [other])
        if mine is not others and all(_agree(a, b, told) for a in mine for b in others):
            mine += others
            group |= dict.fromkeys(others, mine)
    return [rows for rows in {id(rows): rows for rows in group.values()}.values() if len(rows) > 1]


def _agree(one: int, other: int, told: Told) -> bool:
    """Whether two scopes' rows contradict each other nowhere. One may record the alias of the model that was asked for: if both count tokens, the counts decide."""
    inputs = told.uncached if told.tokens[0][one] != told.tokens[0][other] else told.tokens[0]
    told_apart = (
        (told.response, inputs, told.tokens[1])
        if min(told.tokens[1][one], told.tokens[1][other]) >= 0
        else (told.response, told.model, inputs, told.tokens[1])
    )
    return bool(told.scope[one] != told.scope[other]) and all(
        -1 in (of[one], of[other]) or of[one] == of[other] for of in told_apart
    )


def repeats(rows: IntArray, told: Told) -> IntArray:
    """Rows of calls that the same scope records twice, neither in the other: with one response id and one start, and for longer (LiteLLM 1.55 to 1.60, of
    streams: as the last chunk came, and when it had counted); or within a moment at both ends, with equal counts, and deeper in what the first is in as well
    (OpenInference's LangChain 0.1.12 in agents: its handler is there twice)."""
    named = _not_alone(rows[told.response[rows] >= 0], told.response)
    order = named[np.lexsort((told.end[named], told.start[named], told.response[named]))]
    one, other = order[:-1], order[1:]
    same = (told.response[one] == told.response[other]) & (told.start[one] == told.start[other])
    nested = Nesting(told.parent)
    shorter = [
        a
        for a, b in _of_one_scope(one[same], other[same], told)
        if not (nested.is_below(a, b) or nested.is_below(b, a))
    ]
    inside = _not_alone(rows[told.parent[rows] >= 0], told.trace)
    order = inside[np.lexsort((told.start[inside], told.trace[inside]))]
    one, other = order[:-1], order[1:]
    near = (
        (told.trace[one] == told.trace[other])
        & (told.start[other] - told.start[one] <= MOMENT_NS)
        & (np.abs(told.end[other] - told.end[one]) <= MOMENT_NS)
    )
    near &= told.parent[one] != told.parent[other]
    for of in (*told.tokens, told.model):
        near &= of[one] == of[other]
    beside: list[int] = []
    for a, b in _of_one_scope(one[near], other[near], told):
        if not (nested.is_below(a, b) or nested.is_below(b, a)):
            above, below = int(told.parent[a]), int(told.parent[b])
            beside += [a] * nested.is_below(below, above) or [b] * nested.is_below(above, below)
    return np.array(shorter + beside, dtype=np.int64)


def _not_alone(rows: IntArray, of: IntArray) -> IntArray:
    """The rows that have something (codes, not negative) in common with another one of them."""
    alike: IntArray = rows[np.bincount(of[rows], minlength=1)[of[rows]] > 1]
    return alike


def _of_one_scope(one: IntArray, other: IntArray, told: Told) -> list[tuple[int, int]]:
    same = (told.process[one] == told.process[other]) & (told.scope[one] == told.scope[other])
    return list(zip(one[same].tolist(), other[same].tolist(), strict=True))


def groups_by_id(rows: IntArray, told: Told) -> list[list[int]]:
    """Groups of rows that share a response id at the same time."""
    rows = _not_alone(rows, told.response)
    rows = rows[~np.isin(told.response[rows], _of_many(rows, told))]
    order = rows[np.lexsort((told.start[rows], told.response[rows]))]
    one, other = order[:-1], order[1:]
    same = (told.response[one] == told.response[other]) & (
        (_overlap(one, other, told) >= MIN_OVERLAP_BY_ID) | _off(one, other, told)
    )
    groups: list[list[int]] = []
    for first, second in zip(one[same].tolist(), other[same].tolist(), strict=True):
        if groups and groups[-1][-1] == first:
            groups[-1].append(second)
        else:
            groups.append([first, second])
    return groups


def _off(one: IntArray, other: IntArray, told: Told) -> BoolArray:
    """Whether two rows with one response id, which only two processes record, each once, last about as long: only their clocks differ."""
    took = [told.end[rows] - told.start[rows] for rows in (one, other)]
    two = (
        np.bincount(told.response[np.union1d(one, other)], minlength=1)[told.response[one]] == 2
        if len(one)
        else np.zeros(0, dtype=bool)
    )
    off: BoolArray = (
        two
        & (told.process[one] != told.process[other])
        & (np.abs(told.start[other] - told.start[one]) <= MAX_SKEW_NS)
    )
    off &= np.minimum(*took) >= MIN_OVERLAP_BY_ID * np.maximum(*took)
    return off


def _of_many(rows: IntArray, told: Told) -> IntArray:
    """The response ids that name no call: one scope has them for two at a time. A mock provider may give every answer the same one."""
    order = rows[
        np.lexsort((told.start[rows], told.scope[rows], told.process[rows], told.response[rows]))
    ]
    one, other = order[:-1], order[1:]
    alike = (
        (told.response[one] == told.response[other])
        & (told.process[one] == told.process[other])
        & (told.scope[one] == told.scope[other])
    )
    alike &= _overlap(one, other, told) >= MIN_OVERLAP_BY_ID
    beside = [
        first
        for first, second in zip(one[alike].tolist(), other[alike].tolist(), strict=True)
        if told.trace[first] != told.trace[second]
        or not (is_below(first, second, told.parent) or is_below(second, first, told.parent))
    ]
    return told.response[np.array(beside, dtype=np.int64)]


def nest(groups: list[list[int]], told: Told) -> None:
    """Put the spans of each group under one another, the longest outermost, across traces if need be. Changes `parent` and `trace`."""
    start, end = told.start, told.end
    for group in groups:
        ordered = sorted(group, key=lambda row: (start[row] - end[row], start[row], row))
        for outer, inner in itertools.pairwise(ordered):
            _under(outer, inner, told)


def _under(outer: int, inner: int, told: Told) -> None:
    parent, trace = told.parent, told.trace
    if is_below(inner, outer, parent) or is_below(outer, inner, parent):
        return
    if trace[inner] != trace[outer]:
        if parent[inner] < 0:
            trace[trace == trace[inner]] = trace[outer]
        elif (
            told.process[inner] != told.process[outer]
            and (top := _served(outer, inner, parent, told.start, told.end)) >= 0
        ):
            trace[trace == trace[inner]] = trace[outer]
            parent[top] = outer
            return
        elif parent[outer] < 0:
            # The longer one stands alone and the shorter in a request: it takes the shorter one's place there.
            trace[trace == trace[outer]] = trace[inner]
            parent[outer] = parent[inner]
        else:
            return  # each is a part of a request of its own
    parent[inner] = outer


def _served(outer: int, inner: int, parent: IntArray, start: IntArray, end: IntArray) -> int:
    """The root above a gateway's call, if all that the gateway did fits into its client's call; -1 if not."""
    top = inner
    for _ in range(_MAX_DEPTH):
        if parent[top] < 0:
            break
        top = int(parent[top])
    longest = end[outer] - start[outer]
    return (
        top
        if parent[top] < 0 and end[top] - start[top] <= longest + longest // 20 + CLOCK_SLACK_NS
        else -1
    )


# What one instrumentation knows of a call and another leaves out. Output tokens are not among it: they decide which span is the call.
SHARED = (
    *("response_id", "finish_reason", "model", "provider", "input_tokens", "cached_tokens"),
    *("reasoning_tokens", "max_tokens", "temperature", "streaming", "error_type"),
)


def share(
    spans: pa.Table,
    parent: IntArray,
    role: IntArray,
    start: IntArray,
    end: IntArray,
    clock: IntArray,
) -> pa.Table:
    """The spans, where a model call and the only one inside it (that did not fail, if one did not), which takes at least half of its time or has its
    response id, each have the other's values; also where a server is between them that was sent the call.

    A gateway's span counts the tokens and its client's saw the first one; or the other way round. `clock` is a code per process.
    """
    inner = np.flatnonzero((role == cp.LLM) & (parent >= 0))
    above = parent[inner]
    between = (role == cp.CONTAINER) & (spans.column("kind").to_numpy() == _SERVER)
    between |= (role == cp.FOLDED) | (role == cp.PLAIN) & (
        spans.column("stage").to_numpy() == cp.NETWORK
    )
    for _ in range(_BETWEEN):
        above = np.where((above >= 0) & between[above], parent[above], above)
    called = (above >= 0) & (role[above] == cp.LLM)
    inner, above = inner[called], above[called]
    failed = spans.column("status").to_numpy()[inner] == _ERROR
    kept = ~failed | ~np.isin(above, above[~failed])
    inner, above = inner[kept], above[kept]
    only = np.bincount(above, minlength=1)[above] == 1
    inner, above = inner[only], above[only]
    if not len(inner):
        return spans
    ids = spans.column("response_id")
    one = (2 * (end - start)[inner] >= (end - start)[above]) | pc.fill_null(
        pc.equal(ids.take(pa.array(inner)), ids.take(pa.array(above))), False
    ).to_numpy()
    inner, above = inner[one], above[one]
    spans = _failed_inside(spans, inner, above)
    # From the longest inwards and back: through all the spans that report one call.
    pairs = sorted(
        zip(above.tolist(), inner.tolist(), strict=True),
        key=lambda pair: (start[pair[1]] - end[pair[1]], start[pair[1]], pair[1]),
    )
    both = [*pairs, *((row, outer) for outer, row in reversed(pairs))]
    return _first_tokens(
        handed_on(_whole_inputs(spans, both), both),
        spans.column("streaming"),
        both,
        start,
        end,
        clock,
    )


def _whole_inputs(spans: pa.Table, pairs: list[tuple[int, int]]) -> pa.Table:
    """The spans, where the second row of a pair has the first one's input tokens if it leaves out the cached ones, which the first one reports."""
    giver, taker = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    tokens, cached = (
        spans.column(name).fill_null(-1).to_numpy() for name in ("input_tokens", "cached_tokens")
    )
    apart = (
        (cached[taker] < 0)
        & (cached[giver] > 0)
        & (tokens[taker] >= 0)
        & (tokens[taker] + cached[giver] == tokens[giver])
    )
    return replaced(
        spans,
        "input_tokens",
        dict(zip(taker[apart].tolist(), tokens[giver[apart]].tolist(), strict=True)),
    )


def _failed_inside(spans: pa.Table, inner: IntArray, above: IntArray) -> pa.Table:
    """The spans, where a call failed that reports no answer and whose only report inside failed: its stream was refused as it was handed over (LlamaIndex)."""
    status = spans.column("status").to_numpy()
    answered = np.zeros(len(status), dtype=bool)
    for name in ("output_tokens", "ttft_ns", "finish_reason"):
        answered |= spans.column(name).is_valid().to_numpy()
    failed = above[(status[inner] == _ERROR) & (status[above] != _ERROR) & ~answered[above]]
    return replaced(spans, "status", dict.fromkeys(failed.tolist(), _ERROR))


def handed_on(
    spans: pa.Table, pairs: list[tuple[int, int]], names: tuple[str, ...] = SHARED
) -> pa.Table:
    """The spans, where the second row of each pair has the values that only the first one recorded."""
    for name in names:
        if name in spans.column_names:
            spans = _filled(spans, name, pairs)
    return spans


def _filled(spans: pa.Table, name: str, pairs: list[tuple[int, int]]) -> pa.Table:
    """A column in which the second row of a pair has the first one's value where it has none."""
    column = spans.column(name)
    told: dict[int, Any] = {}
    for giver, taker in pairs:
        value = told.get(giver, column[giver].as_py())
        if value is not None and taker not in told and not column[taker].is_valid:
            told[taker] = value
    return replaced(spans, name, told)


def _first_tokens(
    spans: pa.Table,
    streaming: pa.ChunkedArray,
    pairs: list[tuple[int, int]],
    start: IntArray,
    end: IntArray,
    clock: IntArray,
) -> pa.Table:
    """As `_filled`, for the moment of the first token: it runs from each span's own start, and lies within both, or just after the taker. What its client
    says was not streamed has none, whatever an agent makes of the answer (Strands). Of two clocks, the shorter span is moved into the longer one."""
    ttft, source = spans.column("ttft_ns"), spans.column("ttft_source")
    whole = set(
        np.flatnonzero(
            pc.fill_null(pc.invert(streaming), False).to_numpy()
            & (spans.column("kind").to_numpy() == _CLIENT)
        ).tolist()
    )
    told: dict[int, int] = {}
    sources: dict[int, int] = {}
    for giver, taker in pairs:
        value = told.get(giver, ttft[giver].as_py())
        if value is None or taker in told or taker in whole or ttft[taker].is_valid:
            continue
        own, lasts = int(start[giver] + value - start[taker]), int(end[taker] - start[taker])
        if clock[giver] != clock[taker]:
            off = (
                into(giver, taker, start, end)
                if end[giver] - start[giver] <= lasts
                else -into(taker, giver, start, end)
            )
            own = min(max(own + off, 0), lasts) if off else own
        if (
            0 <= own <= lasts + CLOCK_SLACK_NS
        ):  # a tool's call comes as a whole, and may be read when its span has ended
            told[taker], sources[taker] = min(own, lasts), sources.get(giver, source[giver].as_py())
    return replaced(replaced(spans, "ttft_ns", told), "ttft_source", sources)


def into(row: int, outer: int, start: IntArray, end: IntArray) -> int:
    """The smallest offset (ns) that puts a row into another one, which lasts as long or longer; to its start if it does not."""
    return int(max(start[outer] - start[row], min(0, end[outer] - end[row])))


def replaced(spans: pa.Table, name: str, values: dict[int, Any]) -> pa.Table:
    """The spans, with these values (by row) in a column."""
    if not values:
        return spans
    column = spans.column(name).combine_chunks()
    rows = sorted(values)
    mask = np.zeros(len(column), dtype=bool)
    mask[rows] = True
    new = pc.replace_with_mask(
        column, pa.array(mask), pa.array([values[row] for row in rows], column.type)
    )
    return spans.set_column(spans.column_names.index(name), name, new)


def above(row: int, parent: Any) -> Iterator[int]:
    """The rows that `row` is in, from its parent outwards."""
    for _ in range(_MAX_DEPTH):
        if (row := int(parent[row])) < 0:
            return
        yield row
