"""Which spans tell of one and the same model call? Pairs from two instrumentations, put one under the other, so that the call counts once.

LangChain and the OpenAI client instrumented together report every call twice, the second time in a trace of its own; a gateway's call and its
client's may share the model's response id. The shorter span goes under the longer one, as if it had been sent that way: the rule for nested
calls (the deepest that has an output-token count is the call) then applies, and a trace that held nothing else is no request of its own.
Two calls of one scope are two calls, however alike: parallel judges and best-of-n are real.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from analysis.critical_path import Ints

# Measured on LangGraph with both instrumentations, 4 pairs: overlap 100 %, starts 2 to 15 ms apart.
MIN_OVERLAP = 0.95
MAX_APART_NS = 1_000_000_000
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
        group = [i]
        for j in range(i + 1, len(order)):
            if keys[j] != keys[i] or begin[j] - begin[i] >= MAX_APART_NS:
                break
            fresh = j not in taken and scopes[j] not in {scopes[k] for k in group} and len({ids[k] for k in (*group, j)} - {-1}) < 2
            if fresh and _overlap(begin[i], finish[i], begin[j], finish[j]) >= MIN_OVERLAP:
                group.append(j)
                taken.add(j)
        if len(group) > 1:
            groups.append([int(order[k]) for k in group])
    return groups


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


def nest(groups: list[list[int]], parent: Ints, trace: Ints, start: Ints, end: Ints) -> None:
    """Put the spans of each group under one another, the longest outermost, across traces if need be. In place."""
    for group in groups:
        ordered = sorted(group, key=lambda row: (start[row] - end[row], start[row], row))
        for outer, inner in itertools.pairwise(ordered):
            _under(outer, inner, parent, trace)


def _under(outer: int, inner: int, parent: Ints, trace: Ints) -> None:
    if is_below(inner, outer, parent) or is_below(outer, inner, parent):
        return
    if trace[inner] != trace[outer]:
        if parent[inner] < 0:
            trace[trace == trace[inner]] = trace[outer]
        elif parent[outer] < 0:
            # The longer one stands alone and the shorter in a request: it takes the shorter one's place there.
            trace[trace == trace[outer]] = trace[inner]
            parent[outer] = parent[inner]
        else:
            return  # each is a part of a request of its own
    parent[inner] = outer


def is_below(row: int, ancestor: int, parent: Any) -> bool:
    """Whether `ancestor` is above `row` (or `row` itself); chains are cut at 10,000 against cycles."""
    for _ in range(10_000):
        if row < 0:
            return False
        if row == ancestor:
            return True
        row = int(parent[row])
    return False
