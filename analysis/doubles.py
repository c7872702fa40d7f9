"""Which spans tell of one and the same model call? Pairs from two instrumentations, put one under the other, so that the call counts once.

LangChain and the OpenAI client instrumented together report every call twice, the second time in a trace of its own; a gateway's call and its
client's may share the model's response id. The shorter span goes under the longer one, as if it had been sent that way: the rule for nested
calls (the deepest that has an output-token count is the call) then applies, and a trace that held nothing else is no request of its own.
Two calls of one scope are two calls, however alike: parallel judges and best-of-n are real. What a gateway did for a call, in a trace of its own,
goes under its client's call as a whole.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis import critical_path as cp
from analysis.critical_path import Bools, Ints

# Measured on LangGraph with both instrumentations, 4 pairs: overlap 100 %, starts 2 to 15 ms apart.
MIN_OVERLAP = 0.95
MAX_APART_NS = 1_000_000_000
# Of two processes' clocks: 5 % of what is compared, and this.
CLOCK_SLACK_NS = 5_000_000
_MAX_DEPTH = 10_000  # chains of parents are cut here, against cycles
# Calls that begin after one with equal token counts, among which its double is looked for: of more at once nothing tells whose it is.
_MOST_ALIKE = 256
# Of calls with one response id: a stored answer that is given again later is another call.
MIN_OVERLAP_BY_ID = 0.5


def pairs_by_tokens(rows: Ints, process: Ints, scope: Ints, tokens: tuple[Ints, Ints], response: Ints, start: Ints, end: Ints) -> list[list[int]]:
    """Groups of rows (indices into the columns) that are one call: same process, scopes that all differ, equal token counts, nearly equal times.

    `rows` either count their tokens or failed; response ids (codes, -1 unknown) may be unknown, but not differ.
    """
    many = _several_scopes(rows, process, scope)
    order = many[np.lexsort((start[many], tokens[1][many], tokens[0][many], process[many]))]
    keys = list(zip(process[order].tolist(), tokens[0][order].tolist(), tokens[1][order].tolist(), strict=True))
    begin, finish, scopes, ids = start[order].tolist(), end[order].tolist(), scope[order].tolist(), response[order].tolist()
    taken: set[int] = set()
    groups = []
    for i in range(len(order)):
        if i in taken:
            continue
        group, told_by, known = [i], {scopes[i]}, ids[i]
        for j in range(i + 1, min(i + 1 + _MOST_ALIKE, len(order))):
            if keys[j] != keys[i] or begin[j] - begin[i] >= MAX_APART_NS:
                break
            if j in taken or scopes[j] in told_by or (ids[j] != -1 and known not in (-1, ids[j])):
                continue
            if _overlap(begin[i], finish[i], begin[j], finish[j]) >= MIN_OVERLAP:
                group.append(j)
                taken.add(j)
                told_by.add(scopes[j])
                known = ids[j] if known == -1 else known
        if len(group) > 1:
            groups.append([int(order[k]) for k in group])
    return groups


def pairs_by_time(rows: Ints, process: Ints, scope: Ints, untold: Bools, root: Bools, response: Ints, parent: Ints, model: Ints, start: Ints,
                  end: Ints) -> list[list[int]]:
    """Pairs of rows of one process and two scopes that began and ended together, of which one does not count its tokens; the one that fits best.

    Either one is a trace's root, or the later one lies within the earlier one and what is above it is above both: a client whose framework left it its own
    parent (LangChain's graphs). A stream whose usage nobody asked for has no count; `untold` and `root` are per row of the columns, response ids and models
    (codes, -1 unknown) as for `pairs_by_tokens`.
    """
    many = _several_scopes(rows, process, scope)
    if not untold[many].any():
        return []
    order = many[np.lexsort((start[many], process[many]))].tolist()
    taken: set[int] = set()
    pairs = []
    for k, one in enumerate(order):
        latest = start[one] + (end[one] - start[one]) * (1.0 - MIN_OVERLAP)
        fits: list[tuple[int, int]] = []
        for other in order[k + 1 :] if one not in taken else ():
            if process[other] != process[one] or start[other] > latest:
                break
            alike = scope[other] != scope[one] and (untold[one] or untold[other])
            known = any(-1 not in (told[one], told[other]) and told[one] != told[other] for told in (response, model))
            together = min(end[one], end[other]) - start[other] >= MIN_OVERLAP * (max(end[one], end[other]) - start[one])
            if alike and not known and together and other not in taken and (root[one] or root[other] or _beside(one, other, parent, end)):
                fits.append((int(start[other] - start[one] + abs(end[other] - end[one])), other))
        if fits:
            other = min(fits)[1]
            taken |= {one, other}
            pairs.append([one, other])
    return pairs


def _beside(one: int, other: int, parent: Ints, end: Ints) -> bool:
    """Whether the later of two rows lies within the earlier one, below what is above that one too."""
    return bool(end[other] <= end[one] and parent[other] >= 0) and is_below(int(parent[one]), int(parent[other]), parent)


def pairs_by_id(rows: Ints, response: Ints, start: Ints, end: Ints) -> list[list[int]]:
    """Groups of rows that share a response id (codes) at the same time."""
    order = rows[np.lexsort((start[rows], response[rows]))]
    same = np.flatnonzero(response[order][1:] == response[order][:-1])
    groups: list[list[int]] = []
    for k in same.tolist():
        one, other = int(order[k]), int(order[k + 1])
        if _overlap(int(start[one]), int(end[one]), int(start[other]), int(end[other])) < MIN_OVERLAP_BY_ID:
            continue
        if groups and groups[-1][-1] == one:
            groups[-1].append(other)
        else:
            groups.append([one, other])
    return groups


def _several_scopes(rows: Ints, process: Ints, scope: Ints) -> Ints:
    """The rows of processes whose calls come from more than one scope: seldom any, and nothing else is looked at."""
    pair = np.unique(np.stack([process[rows], scope[rows]], axis=1), axis=0)
    places, scopes = np.unique(pair[:, 0], return_counts=True)
    return rows[np.isin(process[rows], places[scopes > 1])]


def _overlap(start: int, end: int, other_start: int, other_end: int) -> float:
    """Common time over the shorter one's; 1 if that one lasted no time but lies within the other."""
    common = min(end, other_end) - max(start, other_start)
    shorter = min(end - start, other_end - other_start)
    return float(common >= 0) if shorter <= 0 else common / shorter


def nest(groups: list[list[int]], parent: Ints, trace: Ints, process: Ints, start: Ints, end: Ints) -> None:
    """Put the spans of each group under one another, the longest outermost, across traces if need be. In place."""
    for group in groups:
        ordered = sorted(group, key=lambda row: (start[row] - end[row], start[row], row))
        for outer, inner in itertools.pairwise(ordered):
            _under(outer, inner, parent, trace, process, start, end)


def _under(outer: int, inner: int, parent: Ints, trace: Ints, process: Ints, start: Ints, end: Ints) -> None:
    if is_below(inner, outer, parent) or is_below(outer, inner, parent):
        return
    if trace[inner] != trace[outer]:
        if parent[inner] < 0:
            trace[trace == trace[inner]] = trace[outer]
        elif process[inner] != process[outer] and (top := _served(outer, inner, parent, start, end)) >= 0:
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


def _served(outer: int, inner: int, parent: Ints, start: Ints, end: Ints) -> int:
    """The root above a gateway's call, if all that the gateway did fits into its client's call; -1 if not."""
    top = inner
    for _ in range(_MAX_DEPTH):
        if parent[top] < 0:
            break
        top = int(parent[top])
    longest = end[outer] - start[outer]
    return top if parent[top] < 0 and end[top] - start[top] <= longest + longest // 20 + CLOCK_SLACK_NS else -1


# What one instrumentation knows of a call and another leaves out. Output tokens are not among it: they decide which span is the call.
SHARED = ("response_id", "finish_reason", "model", "provider", "input_tokens", "cached_tokens", "reasoning_tokens", "max_tokens", "temperature", "streaming",
          "error_type")


def share(spans: pa.Table, parent: Ints, role: Ints, start: Ints, end: Ints) -> pa.Table:
    """The spans, where a model call and the only one inside it, which takes at least half of its time, each have what only the other one told.

    A gateway's span counts the tokens and its client's saw the first one; or the other way round.
    """
    inner = np.flatnonzero((role == cp.LLM) & (parent >= 0))
    inner = inner[role[parent[inner]] == cp.LLM]
    outer, counts = np.unique(parent[inner], return_counts=True)
    inner = inner[np.isin(parent[inner], outer[counts == 1])]
    inner = inner[2 * (end - start)[inner] >= (end - start)[parent[inner]]]
    if not len(inner):
        return spans
    # From the longest inwards and back: through all the spans that tell of one call.
    inwards = sorted(inner.tolist(), key=lambda row: (start[row] - end[row], start[row]))
    pairs = [(int(parent[row]), row) for row in inwards]
    both = [*pairs, *((row, above) for above, row in reversed(pairs))]
    return _first_tokens(handed_on(spans, both), both, start, end)


def handed_on(spans: pa.Table, pairs: list[tuple[int, int]], names: tuple[str, ...] = SHARED) -> pa.Table:
    """The spans, where the second row of each pair has what only the first one told of a call."""
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


def _first_tokens(spans: pa.Table, pairs: list[tuple[int, int]], start: Ints, end: Ints) -> pa.Table:
    """As `_filled`, for the moment of the first token: it runs from each span's own start, and lies within both."""
    ttft, source = spans.column("ttft_ns"), spans.column("ttft_source")
    told: dict[int, int] = {}
    sources: dict[int, int] = {}
    for giver, taker in pairs:
        value = told.get(giver, ttft[giver].as_py())
        if value is None or taker in told or ttft[taker].is_valid:
            continue
        own = int(start[giver] + value - start[taker])
        if 0 <= own <= end[taker] - start[taker]:
            told[taker], sources[taker] = own, sources.get(giver, source[giver].as_py())
    return replaced(replaced(spans, "ttft_ns", told), "ttft_source", sources)


def replaced(spans: pa.Table, name: str, values: dict[int, Any]) -> pa.Table:
    """The spans, with these values (by row) in a column."""
    if not values:
        return spans
    column = spans.column(name).combine_chunks()
    rows = sorted(values)
    mask = np.zeros(len(column), dtype=bool)
    mask[rows] = True
    new = pc.replace_with_mask(column, pa.array(mask), pa.array([values[row] for row in rows], column.type))
    return spans.set_column(spans.column_names.index(name), name, new)


def is_below(row: int, ancestor: int, parent: Any) -> bool:
    """Whether `ancestor` is above `row` (or `row` itself)."""
    for _ in range(_MAX_DEPTH):
        if row < 0:
            return False
        if row == ancestor:
            return True
        row = int(parent[row])
    return False
