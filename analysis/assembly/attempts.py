"""How many attempts did each model call have, and what did the unused ones cost? Read from every record of attempts.

Most clients hide their retries in one span; `attempts` is then unknown. Records are: spans of one attempt each (Vercel AI SDK), HTTP spans inside the
call, counts by the sender (LiteLLM's proxy, resend counts), several engine spans under one client call. If only the client records the call
waited far longer for its first token than the engine worked on it, retries (or a queue in front of the engine) are hidden in the difference.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.critical_path import Paths
from overrun.analysis.assembly.nesting import calls_inside
from overrun.analysis.words.arrays import BoolArray, IntArray
from overrun.collector.process.compiled import read_only

SOURCES = ("", "span", "http", "event", "engine", "hidden")
SPAN, HTTP, EVENT, ENGINE, HIDDEN = range(1, 6)
CAUSES = ("", "error", "slow")
# Two refusals hidden in a call made a first token of 100 to 151 ms look like 364 to 420 ms (three instrumentations): 2.8 to 3.6 times, 264 ms more.
HIDDEN_RATIO, HIDDEN_NS = 2.0, 200_000_000
_CLIENT, _SERVER, _ERROR = 3, 2, 2
_MOST_WAITING = 32  # most failed calls that are searched for the one that was retried: among more at once it is not known which it was
_REFUSED = 400  # HTTP statuses from here on
_SLOW = re.compile(r"time.?out|deadline|cancel|abort|disconnect|\b(?:408|499|504)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Retried:
    """Failed attempts that are calls in spans of their own: `later[row]` is the row of the attempt that followed, -1 for any other row; `single`
    are the rows of calls of which every attempt would be a span; `outermost[row]` is the outermost of the spans that report this call alone."""

    later: IntArray
    single: BoolArray
    outermost: IntArray


@dataclass(frozen=True, slots=True)
class Attempts:
    """Per call: number of attempts (-1 unknown), code of SOURCES, wasted time and tokens (-1 unknown), code of CAUSES."""

    number: IntArray
    source: IntArray
    wasted_ns: IntArray
    wasted_tokens: IntArray
    cause: IntArray


class Sent(NamedTuple):
    """Spans as they were sent, a row each: `asked` are codes of the ids that calls were asked for under (-1: none), `counts` attempts (-1: unknown)."""

    operation: pa.Array
    role: IntArray
    parent: IntArray
    start: IntArray
    end: IntArray
    asked: IntArray
    counts: IntArray
    failed: BoolArray


def follow(sent: Sent, calls: IntArray) -> Retried:
    """Find attempts that are spans of their own: calls whose operation is a step of their parent's (`ai.streamText.doStream` under `ai.streamText`),
    or whose parent is a model call too, by its `role` as it was sent (a router's call around those to its deployments), or of several attempts,
    by its number in `counts` (LiteLLM's proxy), or that were `asked` for under one id (LiteLLM's; -1 for none).

    A failed one that is followed by another of the same operation (or id) under the same parent was tried again: within one such parent, a failed step
    ends everything else. So was one that is followed by a call that is marked as a further attempt. A call that several instrumentations record in
    spans within each other stands where the outermost of them does.
    """
    outermost = _outermost(calls, sent.role, sent.parent)
    if (outermost[calls] == calls).all():
        return Retried(*_follow(sent, calls), outermost)
    stands, of = outermost[calls], np.full(len(sent.parent), -1, dtype=np.int64)
    of[stands] = calls
    asked, counts, failed = sent.asked.copy(), sent.counts.copy(), sent.failed.copy()
    asked[stands], counts[stands], failed[stands] = asked[calls], counts[calls], failed[calls]
    moved = sent._replace(asked=asked, counts=counts, failed=failed)
    later, single = _follow(moved, stands)
    mine = Retried(np.full_like(later, -1), np.zeros_like(single), outermost)
    mine.later[calls], mine.single[calls] = (
        np.where(later[stands] >= 0, of[later[stands]], -1),
        single[stands],
    )
    return mine


def _outermost(calls: IntArray, role: IntArray, parent: IntArray) -> IntArray:
    """Per row itself; per call the outermost of the spans around it, one in the other, that report a model call and of no other one."""
    out = np.arange(len(parent))
    above = np.where((parent >= 0) & (role[parent] == cp.LLM), parent, -1)
    if not (above[calls] >= 0).any():
        return out
    inside = calls_inside(read_only(above), read_only(calls))
    at = above[calls]
    while len(calls := calls[alone := (at >= 0) & (inside[at] == 1)]):
        out[calls] = at = at[alone]
        at = above[at]
    return out


def _follow(sent: Sent, calls: IntArray) -> tuple[IntArray, BoolArray]:
    operation, role, parent, start, end, asked, counts, failed = sent
    later = np.full(len(parent), -1, dtype=np.int64)
    single = np.zeros(len(parent), dtype=bool)
    inner = calls[parent[calls] >= 0]
    encoded = operation.dictionary_encode()
    words = encoded.dictionary.to_pylist()
    code = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    known = len(words) + 1
    pair = pa.array((code[inner] + 1) * known + code[parent[inner]] + 1).dictionary_encode()
    distinct = [divmod(both, known) for both in pair.dictionary.to_pylist()]
    steps = np.array(
        [a > 0 and b > 0 and words[a - 1].startswith(words[b - 1] + ".") for a, b in distinct],
        dtype=bool,
    )
    step: BoolArray = steps[pair.indices.to_numpy()]
    single[inner[step]] = True
    stepwise = np.zeros(len(parent), dtype=bool)
    stepwise[inner[step | (role[parent[inner]] == cp.LLM) | (counts[parent[inner]] > 1)]] = True
    _without_id(later, single, code, sent, inner[~stepwise[inner] & (asked[inner] < 0)])
    inner = inner[stepwise[inner] | (asked[inner] >= 0)]
    if len(inner) < 2:
        return later, single
    same = np.where((asked >= 0) & ~stepwise, len(words) + asked, code)
    order = inner[np.lexsort((start[inner], same[inner], parent[inner]))]
    one, other = order[:-1], order[1:]
    again = (
        (parent[one] == parent[other])
        & (same[one] == same[other])
        & failed[one]
        & (start[other] >= end[one])
    )
    later[one[again]] = other[again]
    single[other[again]] = True
    return later, single


def _without_id(
    later: IntArray, single: BoolArray, code: IntArray, sent: Sent, calls: IntArray
) -> None:
    """Give calls that are marked as further attempts (LiteLLM's Router) the last failed one of the same operation under the same parent, each its own."""
    _, _, parent, start, end, _, counts, failed = sent
    retried = calls[counts[calls] > 1]
    calls = calls[np.isin(parent[calls], parent[retried]) & (failed[calls] | (counts[calls] > 1))]
    waiting: dict[tuple[int, int], list[int]] = {}
    for row in calls[np.argsort(start[calls], kind="stable")].tolist():
        before = waiting.setdefault((int(parent[row]), int(code[row])), [])
        ended = [at for at in before[-_MOST_WAITING:] if end[at] <= start[row]]
        if counts[row] > 1 and ended:
            before.remove(ended[-1])
            later[ended[-1]], single[row] = row, True
        elif failed[row]:
            before.append(row)


def waits(
    retried: Retried, parent: IntArray, start: IntArray, end: IntArray
) -> list[tuple[int, int, int]]:
    """(parent row, from, to): the pauses between an attempt and the next one, without any work in them."""
    rows = np.flatnonzero(retried.later >= 0)
    last, next_ = retried.outermost[rows], retried.outermost[retried.later[rows]]
    return list(zip(parent[last].tolist(), end[last].tolist(), start[next_].tolist(), strict=True))


def count(
    spans: pa.Table,
    paths: Paths,
    retried: Retried,
    rows: IntArray,
    engine: IntArray,
    first: tuple[IntArray, IntArray],
    last: dict[int, int],
) -> Attempts:
    """The attempts of each call; `rows` are the calls' rows, `engine` their engine spans (-1), `first` client's and engine's TTFT (-1); `last` is when the
    last attempt of a call began that is not a span, from the call's start on, by the call's span id."""
    made = Attempts(*(np.full(len(rows), fill, dtype=np.int64) for fill in (-1, 0, -1, -1, 0)))
    at = np.full(len(paths.call), -1, dtype=np.int64)
    at[rows] = np.arange(len(rows))
    _hidden(made, engine, *first)
    _engines(made, spans, paths, at)
    began = np.zeros(len(paths.call), dtype=np.int64)
    if last:
        ids = spans.column("span_id").to_numpy()[rows].tolist()
        began[rows] = [last.get(span, 0) for span in ids]
    _counted(made, spans, paths, rows, at, began)
    _over_http(made, spans, paths, at)
    _spans(made, spans, paths, retried, at, began)
    return made


def _put(made: Attempts, call: int, values: tuple[int, int, int, int, int]) -> None:
    (
        made.number[call],
        made.source[call],
        made.wasted_ns[call],
        made.wasted_tokens[call],
        made.cause[call],
    ) = values


def _hidden(made: Attempts, engine: IntArray, client: IntArray, served: IntArray) -> None:
    """The client's first token came far later than the engine's: the difference is spent in a place without a span."""
    gap = client - served
    far = (
        (engine >= 0)
        & (client >= 0)
        & (served >= 0)
        & (gap >= HIDDEN_NS)
        & (client >= HIDDEN_RATIO * served)
    )
    made.source[far], made.wasted_ns[far] = HIDDEN, gap[far]


def _engines(made: Attempts, spans: pa.Table, paths: Paths, at: IntArray) -> None:
    """Several engine requests of one client call, one after the other: what the client gave up was worked on all the same.

    Requests at the same time are one call's choices; one of a single token prepares another engine's cache.
    """
    rows = np.flatnonzero(
        (paths.role == cp.ENGINE) & (paths.call >= 0) & (paths.call != np.arange(len(paths.call)))
    )
    rows = rows[at[paths.call[rows]] >= 0]
    calls = np.flatnonzero(np.bincount(paths.call[rows], minlength=1) > 1)
    if not len(calls):
        return
    tokens = spans.column("output_tokens").fill_null(-1).to_numpy()
    for call in calls.tolist():
        mine = sorted(
            rows[paths.call[rows] == call].tolist(), key=lambda r: (paths.start[r], paths.end[r])
        )
        mine = [r for r in mine if tokens[r] != 1] if any(tokens[r] > 1 for r in mine) else mine
        if len(mine) > 1 and all(
            paths.end[a] <= paths.start[b] for a, b in itertools.pairwise(mine)
        ):
            lost = [int(tokens[r]) for r in mine[:-1]]
            wasted = int(paths.start[mine[-1]] - paths.start[mine[0]])
            _put(
                made,
                int(at[call]),
                (
                    len(mine),
                    ENGINE,
                    wasted,
                    sum(lost) if min(lost) >= 0 else -1,
                    CAUSES.index("slow"),
                ),
            )


def _counted(
    made: Attempts, spans: pa.Table, paths: Paths, rows: IntArray, at: IntArray, began: IntArray
) -> None:
    """What a sender counted: on the call, on a span inside it, or on the server span that it is the work of. What came before the last attempt is lost, where
    its beginning is known."""
    counts = spans.column("attempts").fill_null(-1).to_numpy()
    if not (counts > 0).any():
        return
    told = np.full(len(rows), -1, dtype=np.int64)
    inside = np.flatnonzero((counts > 0) & (paths.call >= 0))
    inside = inside[at[paths.call[inside]] >= 0]
    np.maximum.at(told, at[paths.call[inside]], counts[inside])
    above = paths.parent[rows]
    kind = spans.column("kind").to_numpy()
    for _ in range(3):
        safe = np.maximum(above, 0)
        served = (above >= 0) & (kind[safe] == _SERVER)
        # If one server made several calls, its count does not show which of them was retried.
        only = np.bincount(safe[served], minlength=len(kind))[safe] == 1
        told = np.where((told < 0) & served & only, counts[safe], told)
        above = np.where(above >= 0, paths.parent[safe], -1)
    known = told > 0
    made.number[known], made.source[known] = told[known], EVENT
    made.wasted_tokens[known] = np.where(told[known] == 1, 0, -1)
    made.wasted_ns[known] = np.where(began[rows] > 0, began[rows], made.wasted_tokens)[known]
    # The reason comes from the attempts within the call that are spans.
    tried = np.flatnonzero(
        (spans.column("role").to_numpy() == cp.LLM)
        & (paths.call >= 0)
        & (spans.column("status").to_numpy() == _ERROR)
    )
    tried = tried[(paths.call[tried] != tried) & (at[paths.call[tried]] >= 0)]
    types, status = spans.column("error_type"), spans.column("http_status").fill_null(0).to_numpy()
    for row in tried[made.number[at[paths.call[tried]]] > 1].tolist():
        call = at[paths.call[row]]
        made.cause[call] = max(int(made.cause[call]), _cause(types[row].as_py(), int(status[row])))


def _over_http(made: Attempts, spans: pa.Table, paths: Paths, at: IntArray) -> None:
    """HTTP requests inside a call: one that failed and was followed by another was tried again."""
    stage, kind = spans.column("stage").to_numpy(), spans.column("kind").to_numpy()
    rows = np.flatnonzero(
        (paths.call >= 0)
        & (stage == cp.NETWORK)
        & (kind == _CLIENT)
        & (paths.call != np.arange(len(paths.call)))
    )
    rows = rows[at[paths.call[rows]] >= 0]
    rows = rows[paths.role[paths.call[rows]] == cp.LLM]
    if not len(rows):
        return
    status = spans.column("http_status").fill_null(0).to_numpy()
    failed = (status[rows] >= _REFUSED) | (spans.column("status").to_numpy()[rows] == _ERROR)
    order = np.lexsort((paths.start[rows], paths.call[rows]))
    rows, failed = rows[order], failed[order]
    last = np.append(paths.call[rows][1:] != paths.call[rows][:-1], True)
    first = np.append(True, last[:-1])
    replaced = failed & ~last
    group = np.cumsum(first) - 1
    calls = at[paths.call[rows[first]]]
    again = np.bincount(group[replaced], minlength=len(calls))
    begun = np.full(len(calls), np.iinfo(np.int64).max)
    np.minimum.at(begun, group[replaced], paths.start[rows[replaced]])
    made.number[calls], made.source[calls] = again + 1, HTTP
    made.wasted_ns[calls] = np.where(
        again > 0, paths.start[rows[last]] - np.where(again > 0, begun, 0), 0
    )
    # A refusal carries no tokens.
    made.wasted_tokens[calls] = 0
    types = spans.column("error_type")
    for row in rows[replaced].tolist():
        call = at[paths.call[row]]
        made.cause[call] = max(int(made.cause[call]), _cause(types[row].as_py(), int(status[row])))


def _spans(
    made: Attempts, spans: pa.Table, paths: Paths, retried: Retried, at: IntArray, began: IntArray
) -> None:
    """Attempts that are spans of their own; what a failed one did before its end is lost."""
    one = at[np.flatnonzero(retried.single)]
    one = one[one >= 0]
    counted = np.where(made.source == EVENT, made.number, -1)
    (
        made.number[one],
        made.source[one],
        made.wasted_ns[one],
        made.wasted_tokens[one],
        made.cause[one],
    ) = 1, SPAN, 0, 0, 0
    types, status = spans.column("error_type"), spans.column("http_status").fill_null(0).to_numpy()
    tokens = spans.column("output_tokens").fill_null(0).to_numpy()
    for row in np.flatnonzero(retried.later >= 0).tolist():
        end = row
        while retried.later[end] >= 0:
            end = int(retried.later[end])
        call = int(at[end])
        if call < 0:
            continue
        made.number[call] += 1
        made.wasted_ns[call] = max(
            int(made.wasted_ns[call]), int(paths.start[end] + began[end] - paths.start[row])
        )
        made.wasted_tokens[call] += int(tokens[row])
        made.cause[call] = max(int(made.cause[call]), _cause(types[row].as_py(), int(status[row])))
    # A sender may have counted attempts that it shows no spans of.
    made.number[one] = np.maximum(made.number[one], counted[one])


def _cause(error_type: Any, status: int) -> int:
    """Why an attempt was given up: it took too long, or it failed."""
    return CAUSES.index("slow" if _SLOW.search(f"{error_type or ''} {status}") else "error")
