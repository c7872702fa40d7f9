"""Which requests and model calls do these spans tell of? Spans of quiet traces in, rows of `requests` and `llm_calls` out.

Pure: an Arrow table of spans (columns of collector/store/sql/quiet_spans.sql, sorted by trace and span id) becomes Arrow tables. Engine spans are
put under the client call that they served: by parent link, else by response id, also across traces; a trace that only held such an engine
span is then no request of its own. A call that two instrumentations report is one call (duplicate_spans.py), and so are its attempts (attempts.py).
Times are integer nanoseconds; the stage times of a request sum to its E2E exactly.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly import attempts, duplicate_spans
from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.critical_path import Forest, Paths
from overrun.analysis.assembly.nesting import is_below
from overrun.analysis.words.arrays import BoolArray, IntArray
from overrun.collector.ingest.pipeline import Assembled
from overrun.collector.ingest.reading import LINK_COLUMNS
from overrun.collector.normalise import readers, samplers, stages
from overrun.collector.normalise.stages import STAGES as STAGE_NAMES
from overrun.collector.process.compiled import read_only

_K = TypeVar("_K")
_ABSENT = -1
TTFT_NONE, TTFT_ATTRIBUTE, TTFT_EVENT, TTFT_ENGINE, TTFT_CUT = range(5)
_ERROR, _INTERNAL, _SERVER, _CLIENT, _PRODUCER, _CONSUMER = 2, 1, 2, 3, 4, 5
# OTLP span flags: bit 8 says that bit 9 ("the parent is in another process") is known.
_HAS_REMOTE, _IS_REMOTE = 0x100, 0x200
_HTTP_OK, _HTTP_ERROR = 200, 400
# From one engine's last token of a prefill to the other's first look at the request: the cache is sent meanwhile.
MAX_HANDOVER_NS = 30_000_000_000
_TOOLS_WITHIN = 4  # spans from a tool up to the one that stands for it
_LOOKED_UP = (
    "cache.get llm_response"  # LiteLLM (v2) tells of no call where its cache had the answer
)
_DEEP = 32  # spans from a gateway's answer up to the call that it is for
_NESTED = 8  # spans between a chain's step and the model call in it
_MOST_AT_ONCE = 32  # calls of a trace among which one is looked for: among more nothing tells which it is, and all of them would be compared with all
# Steps that may be sent over HTTP by a task beside them, and how much of what the server does for one lies within it: it may end after the step has its answer.
_SENT, _NEARLY = (cp.TOOL, cp.RETRIEVAL, cp.PROMPT), 0.8
_POLLING = 0.1  # of the time until a job is done: what asks for its result meanwhile
# From the first chunk that a client's instrumentation saw to the event of the framework above it: 1 to 20 ms measured on two busy cores.
MAX_PASSED_ON_NS = 100_000_000
_ROOT_TEXT = ("workload", "tenant", "session", "user_hash")


def assemble(spans: pa.Table) -> Assembled:
    """Rows of `requests` and `llm_calls` for every trace in `spans` (all spans of a trace must be there)."""
    spans = _once(spans.combine_chunks())
    if not spans.num_rows:
        return _nothing(spans)
    batch = _Batch(spans)
    batch.join()
    batch.walk()
    calls = _Calls(batch)
    return Assembled(_requests(batch, calls), calls.table(), _covered(spans))


def walk_trace(spans: pa.Table) -> tuple[pa.Table, Paths]:
    """The spans of one request (repeats dropped, in the order of the paths' rows) and its critical path, for the waterfall."""
    batch = _Batch(_once(spans.combine_chunks()))
    batch.join()
    return batch.spans, batch.walk()


def _once(spans: pa.Table) -> pa.Table:
    """Each span once: of copies, which stand behind each other, the one that ended last (of equal ends the first), for others were sent before the span ended.

    Spans of one id, but of different kinds or services, are different ones (a client and the server that took over its id).
    """
    keys = [_numpy(spans, c) for c in ("trace_hi", "trace_lo", "span_id")]
    first = np.ones(spans.num_rows, dtype=bool)
    if spans.num_rows:
        first[1:] = np.logical_or.reduce([k[1:] != k[:-1] for k in keys])
    if first.all():
        return spans
    again = np.flatnonzero(~first)
    rows = np.union1d(
        again, again - 1
    )  # all copies: what is first of several stands right before a repeat
    end = _numpy(spans, "start_ns")[rows] + _numpy(spans, "duration_ns")[rows]
    kinds, services = (
        column.to_pylist()
        for column in spans.select(["kind", "service"]).take(pa.array(rows)).columns
    )
    last: dict[tuple[int, int, str], tuple[int, int]] = {}
    for row, of, until, kind, service in zip(
        rows.tolist(), np.cumsum(first)[rows].tolist(), end.tolist(), kinds, services, strict=True
    ):
        held = last.get((of, kind, service))
        if held is None or until > held[1]:
            last[of, kind, service] = row, until
    keep = np.ones(spans.num_rows, dtype=bool)
    keep[rows] = False
    keep[[row for row, _ in last.values()]] = True
    return spans.filter(pa.array(keep)).combine_chunks()


def _numpy(table: pa.Table, column: str) -> Any:
    return table.column(column).to_numpy()


def _ints(table: pa.Table, column: str) -> IntArray:
    """An integer column with _ABSENT for null."""
    values = pc.cast(table.column(column), pa.int64()).combine_chunks()
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    out: IntArray = np.frombuffer(
        values.buffers()[1], dtype=np.int64, count=len(values), offset=8 * values.offset
    )
    return (
        np.where(values.is_valid().to_numpy(zero_copy_only=False), out, _ABSENT)
        if values.null_count
        else out
    )


def _codes(*columns: pa.ChunkedArray) -> IntArray:
    """One code per distinct combination of text columns; null is a value of its own."""
    out = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        encoded = pc.fill_null(column, "").combine_chunks().dictionary_encode()
        out = out * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
    return out


def _codes_at(rows: IntArray, *columns: pa.ChunkedArray) -> IntArray:
    """As `_codes`, of a few rows; _ABSENT elsewhere."""
    out = np.full(len(columns[0]), _ABSENT, dtype=np.int64)
    out[rows] = _codes(*(column.take(pa.array(rows)) for column in columns))
    return out


def _domains(spans: pa.Table) -> IntArray:
    """A code per service and instance: which clock a span was taken with. Looked up once per source, of which there are few."""
    sources = spans.column("source_id").combine_chunks().dictionary_encode()
    of_row = sources.indices.to_numpy(zero_copy_only=False)
    first = np.empty(len(sources.dictionary), dtype=np.int64)
    first[of_row[::-1]] = np.arange(len(of_row) - 1, -1, -1)
    domains: IntArray = _codes(
        *(spans.column(name).take(pa.array(first)) for name in ("service", "instance"))
    )[of_row]
    return domains


class _Batch:
    """The spans of a batch of traces as columns, re-sorted by the trace that they count for."""

    paths: Paths

    def __init__(self, spans: pa.Table) -> None:
        self.spans = spans
        hi, lo = _numpy(spans, "trace_hi"), _numpy(spans, "trace_lo")
        new = np.ones(len(hi), dtype=bool)
        new[1:] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
        self.trace: IntArray = np.cumsum(new) - 1
        self.parent = _parent_rows(
            np.append(np.flatnonzero(new), len(hi)),
            _numpy(spans, "span_id"),
            _numpy(spans, "parent_id"),
        )
        self.role, self.start = self.ints("role"), self.ints("start_ns")
        self.end: IntArray = self.start + self.ints("duration_ns")
        self._part_shared_ids()
        self.last_began: dict[
            int, int
        ] = {}  # by the span id of a call, when the last of its attempts began that have no spans, from its start on

    def _part_shared_ids(self) -> None:
        """Put a server's span into the client's whose id it took over (Zipkin, B3), and what names that id as its parent into the one of its own service."""
        span_id = _numpy(self._spans, "span_id")
        shared = (self.trace[1:] == self.trace[:-1]) & (span_id[1:] == span_id[:-1])
        if not shared.any():
            return
        at = np.flatnonzero(shared)
        rows = np.union1d(at, at + 1)
        kind, service = self.ints("kind"), _codes(self._spans.column("service"))
        groups = _grouped(rows, zip(self.trace[rows].tolist(), span_id[rows].tolist(), strict=True))
        outer = {
            key: next((row for row in group if kind[row] in (_CLIENT, _PRODUCER)), -1)
            for key, group in groups.items()
        }
        children = np.flatnonzero(np.isin(self.parent, rows))
        for row, trace, above in zip(
            children.tolist(),
            self.trace[children].tolist(),
            span_id[self.parent[children]].tolist(),
            strict=True,
        ):
            group = groups[trace, above]
            client = outer[trace, above]
            mine = [
                one
                for one in group
                if one not in (client, row)
                and service[one] == service[row]
                and kind[row] != _SERVER
            ]
            self.parent[row] = (
                mine[0] if mine else client if client not in (_ABSENT, row) else group[0]
            )
        for key, group in groups.items():
            self.parent[[row for row in group if row != outer[key] >= 0]] = outer[key]

    @property
    def spans(self) -> pa.Table:
        """The spans, a row each."""
        return self._spans

    @spans.setter
    def spans(self, spans: pa.Table) -> None:
        self._spans = spans
        self._read: dict[str, IntArray] = {}

    def ints(self, column: str) -> IntArray:
        """An integer column of the spans with _ABSENT for null, read once."""
        if column not in self._read:
            self._read[column] = _ints(self._spans, column)
        return self._read[column]

    def prefill(self) -> IntArray:
        """Prefill times; absent where no queue was told apart, for then the number holds it (SGLang's runs from dispatch on)."""
        return np.where(self.ints("queue_ns") >= 0, self.ints("prefill_ns"), _ABSENT)

    def join_links(self) -> None:
        """Bring a worker's spans, which stand in a trace of their own, together with those of the one that sent it the message that they link to.

        Where the sender's request goes on until the work is done, it may have waited: the work becomes a part of that request (wait_for_jobs says whether it
        counts). Else the work is a request of its own, which begins when the message was sent, and waits in the queue until the worker takes it.
        """
        s = self._spans
        if LINK_COLUMNS[0] not in s.column_names:
            return
        to = list(zip(*(_numpy(s, name).tolist() for name in LINK_COLUMNS), strict=True))
        self.spans = s.drop_columns(list(LINK_COLUMNS))
        kind = self.ints("kind")
        jobs = self._by_start(
            np.flatnonzero((kind == _CONSUMER) & (_numpy(s, LINK_COLUMNS[2]) != 0))
        )
        if not len(jobs):
            return
        senders = np.flatnonzero(
            np.isin(_numpy(s, "span_id"), _numpy(s, LINK_COLUMNS[2])[jobs]) & (kind != _CONSUMER)
        )
        sent = dict(
            zip(
                zip(
                    *(
                        _numpy(s, name)[senders].tolist()
                        for name in ("trace_hi", "trace_lo", "span_id")
                    ),
                    strict=True,
                ),
                senders.tolist(),
                strict=True,
            )
        )
        queued: dict[int, int] = {}
        for job in jobs.tolist():
            row = sent.get(to[job], _ABSENT)
            if row < 0 or self.trace[row] == self.trace[job]:
                continue
            top = [row, *duplicate_spans.above(row, self.parent)][-1]
            if self.start[top] <= self.start[job] and self.end[job] <= self.end[top]:
                mine = np.flatnonzero(self.trace == self.trace[job])
                if self.parent[job] >= 0:
                    mine = mine[[is_below(one, job, self.parent) for one in mine.tolist()]]
                self.trace[mine], self.parent[job] = self.trace[row], row
            elif self.parent[job] < 0 and self.start[job] > self.end[row]:
                queued[job] = row
        self._begin_earlier(
            list(queued),
            _numpy(s, "span_id")[list(queued.values())],
            self.end[list(queued.values())],
        )
        if (np.diff(self.trace) < 0).any():
            self._sort()

    def _begin_earlier(self, rows: list[int], ids: Any, start: IntArray) -> None:
        """Put each of these rows, which have nothing above them, into a span that begins at `start`, with a span beside it that waits in a queue until then."""
        n, at = len(rows), np.array(rows, dtype=np.int64)
        if not n:
            return
        around, waits = (
            _standing_for(self._spans, at, of) for of in (ids, ids ^ np.uint64(1 << 63))
        )
        self.parent = np.concatenate(
            [
                np.full(n, _ABSENT, dtype=np.int64),
                np.arange(n),
                np.where(self.parent >= 0, self.parent + 2 * n, _ABSENT),
            ]
        )
        self.parent[at + 2 * n] = np.arange(n)
        spans = pa.concat_tables([around, waits, self._spans]).combine_chunks()
        waiting = range(n, 2 * n)
        spans = duplicate_spans.replaced(spans, "stage", dict.fromkeys(waiting, cp.QUEUE))
        self.spans = duplicate_spans.replaced(spans, "name", dict.fromkeys(waiting, "queue"))
        self.trace = np.concatenate([self.trace[at], self.trace[at], self.trace])
        self.end = np.concatenate([self.end[at], self.start[at], self.end])
        self.start = np.concatenate([start, start, self.start])
        self.role = np.concatenate(
            [
                np.full(n, cp.CONTAINER, dtype=np.int64),
                np.full(n, cp.PLAIN, dtype=np.int64),
                self.role,
            ]
        )
        self._sort()

    def join(self) -> None:
        """Bring together what tells of one call or request."""
        self.join_links()
        self.join_handed_over()
        self.lift_streams()
        self.nest_servers()
        self.end_streams()
        self.join_attempts()
        self.count_choices()
        self.join_doubles()
        self.free_servers()
        self.join_engines()
        self.nest_prefills()
        self.nest_beside()
        self.follow_streams()
        self.nest_tools()
        self.stand_in()
        self.stream_on()
        self.wait_for_jobs()

    def join_doubles(self) -> None:
        """Put the spans of one call, reported by several instrumentations, under one another."""
        s = self.spans
        clients = np.flatnonzero(self.role == cp.LLM)
        if len(clients) < 2:
            return
        failed = _numpy(s, "status")[clients] == _ERROR
        response = np.where(
            s.column("response_id").is_valid().to_numpy(),
            _codes_at(clients, s.column("response_id")),
            _ABSENT,
        )
        model = np.full(len(response), _ABSENT, dtype=np.int64)
        model[clients] = duplicate_spans.models(s.column("model").take(pa.array(clients)))
        told = duplicate_spans.Told(
            process=_codes_at(clients, s.column("service"), s.column("instance")),
            scope=self._tellers(clients),
            tokens=(self.ints("input_tokens"), self.ints("output_tokens")),
            uncached=self._uncached(),
            response=response,
            model=model,
            trace=self.trace,
            parent=self.parent,
            parent_id=_numpy(s, "parent_id"),
            start=self.start,
            end=self.end,
        )
        again = duplicate_spans.repeats(clients, told)
        if len(again):
            self.role = self.role.copy()
            self.role[again] = cp.FOLDED
            clients, failed = clients[~np.isin(clients, again)], failed[~np.isin(clients, again)]
        by_id = duplicate_spans.groups_by_id(clients[response[clients] >= 0], told)
        pairs = duplicate_spans.pairs_by_tokens(
            clients[(told.tokens[1][clients] >= 0) | failed], told
        ) + duplicate_spans.pairs_by_time(clients[~failed], told)
        if pairs:
            pairs += duplicate_spans.nested_pairs(clients, self.role, told)
        duplicate_spans.nest(duplicate_spans.groups_of(by_id, pairs, told), told)
        if (np.diff(self.trace) < 0).any():
            self._sort()
        self.spans = duplicate_spans.share(
            self.spans, self.parent, self.role, self.start, self.end, _domains(self.spans)
        )

    def _uncached(self) -> IntArray:
        """Input tokens without those that were cached (-1 untold), or as they are where they do not hold them."""
        tokens, cached = self.ints("input_tokens"), self.ints("cached_tokens")
        return np.where((cached > 0) & (cached <= tokens), tokens - cached, tokens)

    def _tellers(self, rows: IntArray) -> IntArray:
        """A code per instrumentation that tells of these rows: their scopes, and wrappers of a client that use a framework's scope (Langfuse's)."""
        scope = self.spans.column("scope_name")
        codes = _codes_at(rows, scope)
        for of, name in stages.wrappers():
            if len(
                mine := rows[
                    pc.fill_null(pc.equal(scope.take(pa.array(rows)), of), False).to_numpy(
                        zero_copy_only=False
                    )
                ]
            ):
                codes[
                    mine[
                        pc.equal(self.spans.column("name").take(pa.array(mine)), name).to_numpy(
                            zero_copy_only=False
                        )
                    ]
                ] += len(codes)
        return codes

    def free_servers(self) -> None:
        """Let a span that serves a request and was given a call's values be the request, where spans in it tell of calls: LiteLLM's callback writes on the span
        that is active. It stays the call if it alone counts tokens."""
        s = self.spans
        servers = np.flatnonzero((self.role == cp.LLM) & (self.ints("kind") == _SERVER))
        servers = servers[s.column("route").take(pa.array(servers)).is_valid().to_numpy()]
        if not len(servers):
            return
        counted = self.ints("output_tokens") >= 0
        wanted = set(servers.tolist())
        inside: dict[int, bool] = {}
        for row in np.flatnonzero(self.role == cp.LLM)[
            np.isin(self.trace[self.role == cp.LLM], self.trace[servers])
        ].tolist():
            for above in duplicate_spans.above(row, self.parent):
                if above in wanted:
                    inside[above] = inside.get(above, False) or bool(counted[row])
        self._no_calls([row for row, counts in inside.items() if counts or not counted[row]])

    def join_handed_over(self) -> None:
        """Let a model call last until its first token, where its span ended when the stream was handed over (LlamaIndex), and until the end of the call of
        another instrumentation that it read the stream from: the one that began within it and had its first token just before."""
        s = self.spans
        ttft = self.ints("ttft_ns")
        first = np.where(ttft >= 0, self.start + ttft, _ABSENT)
        calls = np.flatnonzero(self.role == cp.LLM)
        handed = calls[
            (first[calls] > self.end[calls]) & (self.ints("ttft_source")[calls] == TTFT_EVENT)
        ]
        if not len(handed):
            return
        scope = _codes_at(calls, s.column("scope_name"))
        calls = self._by_start(calls)
        in_trace = _grouped(calls, self.trace[calls].tolist())
        starts = {trace: self.start[rows].tolist() for trace, rows in in_trace.items()}
        for row in handed.tolist():
            trace, end = int(self.trace[row]), int(first[row])
            within = in_trace[trace][
                bisect.bisect_left(starts[trace], self.start[row]) : bisect.bisect_right(
                    starts[trace], end
                )
            ]
            read = [
                other
                for other in (within if len(within) <= _MOST_AT_ONCE else ())
                if scope[other] != scope[row]
                and not is_below(other, row, self.parent)
                and (
                    end - MAX_PASSED_ON_NS <= first[other] <= end
                    if first[other] >= 0
                    else self.end[other] >= end
                )
            ]
            if len(read) == 1 and not is_below(row, read[0], self.parent):
                self.parent[read[0]] = row
                end = max(end, int(self.end[read[0]]))
            above = row
            while above >= 0 and self.role[above] == cp.LLM:
                self.end[above] = max(end, int(self.end[above]))
                above = int(self.parent[above])

    def lift_streams(self) -> None:
        """Put what a server did beside the HTTP span of its client that ended when the headers came, while the answer streamed on.

        Where that HTTP span is beside the step that it was sent for, because a task of its own sends (MCP), it goes into that step.
        """
        s = self.spans
        rows = np.flatnonzero(
            (self.parent >= 0) & ((self.ints("kind") == _SERVER) | (self.role == cp.ENGINE))
        )
        sent = self.parent[rows]
        rows, sent = rows[self.parent[sent] >= 0], sent[self.parent[sent] >= 0]
        around, took = self.parent[sent], self.end - self.start
        http = (
            (self.role[sent] == cp.PLAIN)
            & (self.ints("stage")[sent] == cp.NETWORK)
            & (_numpy(s, "status")[sent] != _ERROR)
        )
        # Longer than the span that it is in: two clocks that differ do not make that. A call that is still served at its end was left by its client.
        streamed = (
            http
            & (took[rows] > took[sent])
            & ((took[rows] <= took[around]) | (self.role[around] == cp.LLM))
        )
        rows, sent, around = rows[streamed], sent[streamed], around[streamed]
        self.parent[rows] = around
        # Or into the step beside that was sent that way, if a task of its own sends (MCP): the one that began last before, and lasted for nearly all of it.
        steps = np.flatnonzero(
            (self.role == cp.PLAIN)
            & np.isin(self.ints("stage"), _SENT)
            & np.isin(self.parent, around)
        )
        if not len(steps):
            return
        steps, kind = self._by_start(steps), self.ints("kind")
        beside = _grouped(steps, self.parent[steps].tolist())
        starts = {above: self.start[of].tolist() for above, of in beside.items()}
        for row, client, above in zip(rows.tolist(), sent.tolist(), around.tolist(), strict=True):
            at = bisect.bisect_right(starts.get(above, ()), self.start[client])
            step = beside[above][at - 1] if at else row
            if (
                kind[row] == _SERVER
                and self.end[client] <= self.end[step]
                and self.end[step] - self.start[row] >= _NEARLY * took[row]
            ):
                self.parent[row] = step

    def nest_servers(self) -> None:
        """Put what a server tells of one request twice (FastAPI's own span and LiteLLM's, both from their caller on) into each other, and what a gateway did
        beside the call that it was sent for (the context was handed on by hand) into that call. An answer that it had stored makes the call none."""
        s = self.spans
        servers = np.flatnonzero(
            (self.ints("kind") == _SERVER)
            & (_numpy(s, "parent_id") != 0)
            & (self.role == cp.CONTAINER)
        )
        caller, source = _numpy(s, "parent_id"), _numpy(s, "source_id")
        by_caller = servers[np.lexsort((caller[servers], self.trace[servers]))]
        told_twice = (np.diff(self.trace[by_caller]) == 0) & (np.diff(caller[by_caller]) == 0)
        if (
            not told_twice.any()
            and not (
                (self.parent[servers] >= 0) & (source[self.parent[servers]] != source[servers])
            ).any()
        ):
            return
        process = _codes(s.column("service"), s.column("instance"))
        servers = self._one_inside_another(servers, process)
        remote = servers[
            (self.parent[servers] >= 0) & (process[self.parent[servers]] != process[servers])
        ]
        if not len(remote):
            return
        kept = (self.role == cp.PLAIN) & (self.ints("stage") == cp.GATEWAY)
        answers = np.flatnonzero(
            ((self.role == cp.LLM) | kept) & np.isin(self.trace, self.trace[remote])
        )
        answer = _codes_at(answers, s.column("response_id"))
        answer[answers[~s.column("response_id").take(pa.array(answers)).is_valid().to_numpy()]] = (
            _ABSENT
        )
        wanted, inside = set(remote.tolist()), dict[int, list[int]]()
        for row in answers.tolist():
            for above in self._around_it(row):
                if above in wanted:
                    inside.setdefault(above, []).append(row)
        self._into_calls(
            [
                row
                for row in remote.tolist()
                if row in inside and self.role[self.parent[row]] != cp.LLM
            ],
            inside,
            process,
            answer,
        )
        # Its answer, or a look into the cache and no call behind it.
        looked = pc.equal(s.column("name").take(pa.array(answers)), _LOOKED_UP).to_numpy()
        stored = answers[kept[answers] & (looked | (answer[answers] >= 0))]
        failed = _numpy(s, "status") == _ERROR
        called: set[int] = set()
        for row in stored.tolist():
            for above in self._around_it(row):
                given = (
                    self.role[above] == cp.LLM
                    and process[above] != process[row]
                    and not failed[above]
                )
                if given and (
                    answer[row] == answer[above] or _ABSENT in (answer[row], answer[above])
                ):
                    called.add(above)
        for row in answers[~kept[answers]].tolist():
            if row not in called:
                called -= set(self._around_it(row))
        self._no_calls(list(called))

    def _around_it(self, row: int) -> Iterator[int]:
        """What a gateway's answer is in: its own steps, its server's spans and the call that it is for."""
        return itertools.islice(duplicate_spans.above(row, self.parent), _DEEP)

    def _no_calls(self, rows: list[int]) -> None:
        """Make containers of spans that seemed model calls."""
        if rows:
            self.role = self.role.copy()
            self.role[rows] = cp.CONTAINER
            self.spans = duplicate_spans.replaced(
                self.spans, "stage", dict.fromkeys(rows, cp.OTHER)
            )

    def _one_inside_another(self, servers: IntArray, process: IntArray) -> IntArray:
        """Nest these spans, where two instrumentations of one process have the same caller and the later one lies in the earlier one; the outermost of them."""
        s = self.spans
        above, scope = _numpy(s, "parent_id"), _codes_at(servers, s.column("scope_name"))
        order = servers[
            np.lexsort(
                (
                    self.start[servers] - self.end[servers],
                    self.start[servers],
                    process[servers],
                    above[servers],
                    self.trace[servers],
                )
            )
        ]
        same = np.zeros(len(order), dtype=bool)
        same[1:] = np.logical_and.reduce(
            [of[order[1:]] == of[order[:-1]] for of in (self.trace, above, process)]
        )
        around: list[int] = []
        nested = np.zeros(len(order), dtype=bool)
        for at in np.flatnonzero(same).tolist():
            row = int(order[at])
            around = around if at and same[at - 1] else [int(order[at - 1])]
            until = self.end[row] - self._slack(row)
            fits = [
                o
                for o in around[-_MOST_AT_ONCE:]
                if scope[o] != scope[row]
                and until <= self.end[o]
                and not is_below(o, row, self.parent)
            ]
            if fits:
                around.remove(fits[-1])
                self.parent[row], nested[at] = fits[-1], True
            else:
                around.append(row)
        return order[~nested]

    def _slack(self, row: int) -> int:
        """By how much a span may stand out of what it is in, by another clock."""
        return int(self.end[row] - self.start[row]) // 20 + duplicate_spans.CLOCK_SLACK_NS

    def _into_calls(
        self, rows: list[int], inside: dict[int, list[int]], process: IntArray, answer: IntArray
    ) -> None:
        """Put these served requests into the call beside them that has an answer of theirs, else into the only one around them in time that none was put into,
        or that failed while they went on."""
        calls = self._by_start(
            np.flatnonzero((self.role == cp.LLM) & np.isin(self.parent, self.parent[rows]))
        )
        beside = _grouped(calls, self.parent[calls].tolist())
        starts = {above: self.start[of].tolist() for above, of in beside.items()}
        told = _grouped(
            calls, zip(self.parent[calls].tolist(), answer[calls].tolist(), strict=True)
        )
        failed, taken = _numpy(self.spans, "status") == _ERROR, set[int]()
        for by_id in (True, False):
            for row in [row for row in rows if self.role[self.parent[row]] != cp.LLM]:
                above, slack = int(self.parent[row]), self._slack(row)
                off = duplicate_spans.into(row, above, self.start, self.end)
                off = (
                    off if abs(off) > slack else 0
                )  # by another clock: where it would be in what it is in
                start, end = self.start[row] + off, self.end[row] + off
                if by_id:
                    ids = {int(answer[a]) for a in inside[row]} - {_ABSENT}
                    begun = [c for one in ids for c in told.get((above, one), [])[:_MOST_AT_ONCE]]
                else:
                    last = bisect.bisect_right(starts.get(above, ()), start + slack)
                    begun = beside.get(above, [])[max(0, last - _MOST_AT_ONCE) : last]
                begun = [
                    c
                    for c in begun
                    if process[c] != process[row]
                    and ((by_id and off) or self.start[c] - slack <= start <= self.end[c])
                ]
                free = [c for c in begun if c not in taken]
                found = (
                    begun
                    if by_id
                    else [c for c in free if end <= self.end[c] + slack]
                    or [c for c in free if failed[c]]
                )
                if len(found) == 1 and not is_below(found[0], row, self.parent):
                    self.parent[row] = found[0]
                    taken.add(found[0])

    def end_streams(self) -> None:
        """Let calls whose spans ended as their streams began go on up to the log lines beside them that tell of the streams' ends, and tell what those tell.

        Logfire's OpenAI and Anthropic wrappers: the line lasts no time, and has the tokens.
        """
        s = self.spans
        told = self.ints("output_tokens") >= 0
        lines = np.flatnonzero(
            (self.role == cp.FOLDED) & (self.start == self.end) & (self.parent >= 0)
        )
        names = s.column("name").take(pa.array(lines))
        lines = lines[
            told[lines]
            | pc.starts_with(names, "streaming response from ").to_numpy(zero_copy_only=False)
        ]
        if not len(lines):
            return
        begun = np.flatnonzero(
            (self.role == cp.LLM)
            & ~told
            & (_numpy(s, "status") != _ERROR)
            & np.isin(self.parent, self.parent[lines])
        )
        source = _numpy(s, "source_id")
        # A line is of the call that began last among those beside it, of its source, whose spans had ended.
        begun = begun[np.argsort(-self.end[begun])]
        lines = self._by_start(lines)
        ending = _grouped(
            begun, zip(self.parent[begun].tolist(), source[begun].tolist(), strict=True)
        )
        waiting: dict[tuple[int, int], list[tuple[int, int]]] = {}
        ended: dict[int, int] = {}
        for line, place in zip(
            lines.tolist(),
            zip(self.parent[lines].tolist(), source[lines].tolist(), strict=True),
            strict=True,
        ):
            left, last_first = ending.get(place, []), waiting.setdefault(place, [])
            while left and self.end[left[-1]] <= self.start[line]:
                call = left.pop()
                heapq.heappush(last_first, (-int(self.start[call]), call))
            if last_first:
                ended[heapq.heappop(last_first)[1]] = line
        self.end = self.end.copy()
        self.end[list(ended)] = self.start[list(ended.values())]
        s = duplicate_spans.handed_on(
            s,
            [(line, row) for row, line in ended.items()],
            (*duplicate_spans.SHARED, "output_tokens"),
        )
        self.spans = duplicate_spans.replaced(s, "streaming", dict.fromkeys(ended, True))

    def _asked(self) -> dict[int, list[int]]:
        """Model calls that were asked for under one id (LiteLLM's call id), by the one of them that ended last, with which the others were tried before."""
        given = self.spans.column("depends_on")
        if given.null_count == len(given):
            return {}
        rows = np.flatnonzero((self.role == cp.LLM) & given.is_valid().to_numpy())
        code = _codes_at(rows, given)
        rows = rows[np.bincount(code[rows], minlength=1)[code[rows]] > 1]
        failed = _numpy(self.spans, "status") == _ERROR
        last: dict[int, list[int]] = {}
        for calls in _grouped(rows, code[rows].tolist()).values():
            final = max(calls, key=lambda row: (not failed[row], self.end[row], row))
            tried = [row for row in calls if row != final and failed[row]]
            if tried:
                last[final] = sorted(tried, key=lambda row: (self.start[row], row))
        return last

    def join_attempts(self) -> None:
        """Put attempts that were told of in spans of their own, under the id of the call that they were made for, beside or into the one that ended last.

        LiteLLM: each in a trace of its own, or all beside each other; a stream's span lasts from the first attempt on, and a server's span may be given the
        values of a failed one.
        """
        asked = self._asked()
        status = _numpy(self.spans, "status")
        answered: list[int] = []
        numbers: dict[int, int] = {}
        for final, tried in asked.items():
            for row in tried:
                if self.trace[row] != self.trace[final]:
                    if self.parent[row] >= 0 and self.parent[final] >= 0:
                        continue  # each is a part of a request of its own
                    moved, stays = (
                        (row, final)
                        if self.parent[row] < 0 and not self._around(row, final)
                        else (final, row)
                    )
                    if self.parent[moved] >= 0:
                        continue
                    self.trace[self.trace == self.trace[moved]] = self.trace[stays]
                    self.parent[moved] = self.parent[stays]
                if self._around(row, final):
                    if not is_below(row, final, self.parent) and self.parent[final] < 0:
                        self.parent[final], numbers[final] = row, 1 + len(tried)
                        answered += [row] if status[final] != _ERROR else []
                elif self._around(final, row) and not is_below(final, row, self.parent):
                    self.parent[row] = final
        self.spans = duplicate_spans.replaced(
            duplicate_spans.replaced(self.spans, "status", dict.fromkeys(answered, 0)),
            "error_type",
            dict.fromkeys(answered),
        )
        self.spans = duplicate_spans.replaced(self.spans, "attempts", numbers)
        if asked and (np.diff(self.trace) < 0).any():
            self._sort()

    def _around(self, outer: int, inner: int) -> bool:
        return bool(self.start[outer] <= self.start[inner] and self.end[inner] <= self.end[outer])

    def count_choices(self) -> None:
        """Count how often a gateway chose where a call goes until it ended (LiteLLM's `route`), and its first token from the last choice on.

        Each call follows a choice of its own; what is chosen beyond that, within a call or between its attempts, is another attempt that has no span. A first
        token that is told from its attempt on would lie before that attempt.
        """
        s = self.spans
        choices = np.flatnonzero((self.role == cp.PLAIN) & (self.ints("stage") == cp.QUEUE))
        names = s.column("name").take(pa.array(choices))
        choices = choices[
            pc.or_(pc.equal(names, "router"), pc.starts_with(names, "route ")).to_numpy(
                zero_copy_only=False
            )
        ]
        if not len(choices):
            return
        scope, kind = _codes(s.column("scope_name")), self.ints("kind")
        sends = (
            (kind == _CLIENT)
            | (self.role == cp.LLM)
            | ((self.role == cp.PLAIN) & (self.ints("stage") == cp.RETRIEVAL))
        )
        first = self.start.copy()
        for final, tried in self._asked().items():
            here = [row for row in tried if self.trace[row] == self.trace[final]]
            sends[here] = False
            first[final] = self.start[[final, *here]].min()
        sent = np.flatnonzero(
            sends & np.isin(self.trace, self.trace[choices]) & np.isin(scope, scope[choices])
        )
        ttft, later, numbers, span_id = (
            self.ints("ttft_ns"),
            dict[int, int](),
            dict[int, int](),
            _numpy(s, "span_id"),
        )
        choices, sent = self._by_start(choices), sent[np.argsort(first[sent], kind="stable")]
        chosen = _grouped(
            choices, zip(self.trace[choices].tolist(), scope[choices].tolist(), strict=True)
        )
        for place, calls in _grouped(
            sent, zip(self.trace[sent].tolist(), scope[sent].tolist(), strict=True)
        ).items():
            ahead, left, own = chosen.get(place, [])[::-1], list[int](), set[int]()
            for call in calls:  # the choice before a call is its own
                while ahead and self.start[ahead[-1]] <= first[call]:
                    left.append(ahead.pop())
                if left:
                    left.pop()
                    own.add(call)
            left += ahead[::-1]
            starts = self.start[left].tolist()
            for call in (row for row in calls if self.role[row] == cp.LLM):
                since, until = (
                    bisect.bisect_right(starts, first[call]),
                    bisect.bisect_left(starts, self.end[call]),
                )
                if since >= until:
                    continue
                numbers[call] = (call in own) + until - since
                begun = starts[until - 1] - int(self.start[call])
                if begun <= 0 or numbers[call] < 2:
                    continue
                self.last_began[int(span_id[call])] = begun
                if (
                    0 <= ttft[call] < begun
                    and begun + ttft[call] <= self.end[call] - self.start[call]
                ):
                    later[call] = begun + int(ttft[call])
        self.spans = duplicate_spans.replaced(
            duplicate_spans.replaced(s, "attempts", numbers), "ttft_ns", later
        )

    def join_engines(self) -> None:
        """Put engine spans under their client calls, also across traces, and bring the rows of each resulting request together."""
        engines = np.flatnonzero(self.role == cp.ENGINE)
        clients = np.flatnonzero(self.role == cp.LLM)
        if len(engines) and len(clients):
            response = _codes(self.spans.column("response_id"))
            known = self.spans.column("response_id").is_valid().to_numpy()
            _join_by_id(
                engines[known[engines]],
                clients[known[clients]],
                response,
                self.parent,
                self.trace,
                self.start,
                self.end,
            )
            names = np.where(known, response, _ABSENT)
            _join_siblings(
                engines,
                clients,
                names,
                self.parent,
                self.start,
                self.end,
                self.role,
                _numpy(self.spans, "status") == _ERROR,
            )
            if (np.diff(self.trace) < 0).any():
                self._sort()
        self._join_places()
        self._join_halves()

    def _join_halves(self) -> None:
        """Make one request of an engine's that only prefills and, after it, another's that decodes, each in a trace of its own under one request id (vLLM).

        No span is around both: the decoding one begins where the prefilling one does, and its first token comes that much later.
        """
        rows = np.flatnonzero(
            (self.role == cp.ENGINE)
            & (self.parent < 0)
            & self.spans.column("response_id").is_valid().to_numpy()
        )
        name = _codes_at(rows, self.spans.column("response_id"))
        rows = rows[np.bincount(name[rows], minlength=1)[name[rows]] > 1]
        if not len(rows):
            return
        only = self._only_prefills(rows)
        start, ttft = self.start.copy(), self.ints("ttft_ns")
        later: dict[int, int] = {}
        for row in rows[only].tolist():
            others = rows[
                ~only & (name[rows] == name[row]) & (self.trace[rows] != self.trace[row])
            ].tolist()
            if (
                len(others) != 1
                or not self.start[row] <= self.start[others[0]] <= self.end[row] + MAX_HANDOVER_NS
            ):
                continue
            [decodes] = others
            if ttft[decodes] >= 0:
                later[decodes] = int(ttft[decodes] + self.start[decodes] - self.start[row])
            start[decodes] = self.start[row]
            self.trace[self.trace == self.trace[row]] = self.trace[decodes]
            self.parent[row] = decodes
        self.start, self.spans = start, duplicate_spans.replaced(self.spans, "ttft_ns", later)
        if (np.diff(self.trace) < 0).any():
            self._sort()

    def _join_places(self) -> None:
        """Put an engine that only prefills under the one that it meets and that decodes, also across traces (SGLang's bootstrap room)."""
        rows = np.flatnonzero(
            (self.role == cp.ENGINE) & self.spans.column("depends_on").is_valid().to_numpy()
        )
        if len(rows) < 2:
            return
        place = _codes_at(rows, self.spans.column("depends_on"))
        prefills = dict(zip(rows.tolist(), self._only_prefills(rows).tolist(), strict=True))
        for row in (r for r in rows.tolist() if prefills[r]):
            others = [r for r in rows[place[rows] == place[row]].tolist() if not prefills[r]]
            if len(others) != 1 or is_below(others[0], row, self.parent):
                continue
            if self.trace[row] != self.trace[others[0]]:
                if self.parent[row] >= 0:  # a part of another request
                    continue
                self.trace[self.trace == self.trace[row]] = self.trace[others[0]]
            self.parent[row] = others[0]
        if (np.diff(self.trace) < 0).any():
            self._sort()

    def _only_prefills(self, engines: IntArray) -> BoolArray:
        """Which of these engine requests only prefill: one token is all that they have to make (vLLM, Dynamo); SGLang says it in the name."""
        names = pc.starts_with(
            self.spans.column("name").take(pa.array(engines)), "prefill"
        ).to_numpy()
        only: BoolArray = names | (self.ints("output_tokens")[engines] == 1)
        return only

    def nest_prefills(self) -> None:
        """Put a request of an engine that only prefills under the one beside it that waits for its cache and decodes: what goes on there is its prefill."""
        engines = np.flatnonzero((self.role == cp.ENGINE) & (self.parent >= 0))
        engines = engines[np.bincount(self.parent[engines], minlength=1)[self.parent[engines]] > 1]
        if not len(engines):
            return
        only = self._only_prefills(engines)
        for row in engines[only].tolist():
            beside = engines[
                ~only
                & (self.parent[engines] == self.parent[row])
                & (self.start[engines] < self.end[row])
                & (self.end[engines] >= self.end[row])
            ]
            if len(beside) == 1:
                self.parent[row] = beside[0]

    def nest_beside(self) -> None:
        """Put steps that call models into the one beside them that they take most of, if nothing is in it and it does not say what it did.

        LangGraph's functions that hand on the configuration that they were called with: what they call has their caller for a parent.
        """
        source, kind = _numpy(self.spans, "source_id"), self.ints("kind")
        leaf = (
            (self.parent >= 0)
            & (kind <= _INTERNAL)
            & (
                (self.role == cp.CONTAINER)
                | ((self.role == cp.PLAIN) & (self.ints("stage") == cp.OTHER))
            )
        )
        leaf[self.parent[self.parent >= 0]] = False
        leaves = np.flatnonzero(leaf)
        if not len(leaves):
            return
        calling = self._calling()
        leaves = leaves[np.isin(self.parent[leaves], self.parent[calling])]
        calling = self._by_start(calling[np.isin(self.parent[calling], self.parent[leaves])])
        beside = _grouped(calling, self.parent[calling].tolist())
        starts = {above: self.start[rows].tolist() for above, rows in beside.items()}
        parent = self.parent.copy()
        for row in leaves[
            np.argsort(self.end[leaves] - self.start[leaves], kind="stable")
        ].tolist():
            above, start, end = int(self.parent[row]), self.start[row], self.end[row]
            begun = beside[above][
                bisect.bisect_left(starts[above], start) : bisect.bisect_right(starts[above], end)
            ]
            within = np.array(
                [
                    r
                    for r in (begun if len(begun) <= _MOST_AT_ONCE else ())
                    if self.end[r] <= end and source[r] == source[row]
                ],
                dtype=np.int64,
            )
            within = within[parent[within] == above]
            if not len(within):
                continue
            until = np.maximum.accumulate(self.end[within])
            taken = until - np.maximum(self.start[within], np.append(start, until[:-1]))
            if taken[taken > 0].sum() >= _NEARLY * (end - start):
                parent[within] = row
        self.parent = parent

    def _calling(self) -> IntArray:
        """The rows of model calls and of the steps that they are in, but for roots."""
        above = np.flatnonzero(self.role == cp.LLM)
        holds = np.zeros(len(self.role), dtype=np.bool_)
        for _ in range(_NESTED):
            holds[above] = True
            above = self.parent[above]
            above = above[above >= 0]
            above = above[~holds[above]]
        return np.flatnonzero(holds & (self.parent >= 0))

    def follow_streams(self) -> None:
        """Let what works on an answer while it streams (LangChain's parsers) begin where the model call beside it ends: it waits for tokens until then."""
        posts = np.flatnonzero(
            (self.role == cp.PLAIN) & (self.ints("stage") == cp.POST) & (self.parent >= 0)
        )
        if not len(posts):
            return
        calls = self._calling()
        last = np.full(len(self.role), _ABSENT, dtype=np.int64)
        np.maximum.at(last, self.parent[calls], self.end[calls])
        posts = posts[self.start[posts] < last[self.parent[posts]]]
        calls = self._by_start(calls[np.isin(self.parent[calls], self.parent[posts])])
        beside = {
            above: (self.start[rows].tolist(), np.maximum.accumulate(self.end[rows]).tolist())
            for above, rows in _grouped(calls, self.parent[calls].tolist()).items()
        }
        start = self.start.copy()
        for row in posts.tolist():
            starts, ends = beside[int(self.parent[row])]
            begun = bisect.bisect_left(starts, self.start[row])
            if begun and ends[begun - 1] > self.start[row]:
                start[row] = min(ends[begun - 1], int(self.end[row]))
        self.start = start

    def nest_tools(self) -> None:
        """Put a tool into the call beside it that asked for it and lasts on: it began after the call's first token and ended before the call (Mastra)."""
        s = self.spans
        tools = np.flatnonzero(
            (self.role == cp.PLAIN) & (self.ints("stage") == cp.TOOL) & (self.parent >= 0)
        )
        if not len(tools):
            return
        around = np.zeros(len(self.role), dtype=np.bool_)
        around[self.parent[tools]] = True
        calls = np.flatnonzero((self.role == cp.LLM) & (self.parent >= 0))
        calls = calls[around[self.parent[calls]]]
        calls = calls[
            pc.fill_null(
                pc.equal(s.column("finish_reason").take(pa.array(calls)), "tool_calls"), False
            ).to_numpy(zero_copy_only=False)
        ]
        until = np.full(len(self.role), _ABSENT, dtype=np.int64)
        np.maximum.at(until, self.parent[calls], self.end[calls])
        tools = tools[self.end[tools] <= until[self.parent[tools]]]
        if not len(tools):
            return
        ttft = self.ints("ttft_ns")
        first = self.start + ttft
        calls = calls[ttft[calls] >= 0]
        calls = calls[np.argsort(first[calls])]
        beside = _grouped(calls, self.parent[calls].tolist())
        starts = {above: first[rows].tolist() for above, rows in beside.items()}
        parent = self.parent.copy()
        for tool, above, start, end in zip(
            tools.tolist(),
            *(of[tools].tolist() for of in (self.parent, self.start, self.end)),
            strict=True,
        ):
            last = bisect.bisect_right(starts.get(above, ()), start)
            asked = [
                call
                for call in beside.get(above, [])[max(0, last - _MOST_AT_ONCE) : last]
                if end <= self.end[call]
            ]
            if asked:
                parent[tool] = asked[-1]
        self.parent = parent

    def stand_in(self) -> None:
        """Put spans that share a parent which is not here (it is sent elsewhere, or nowhere) under one that stands for it, as long as its trace's spans take.

        Else the first of them would be the request, and the others its parts: of two calls one after the other, one would count.
        """
        tops = np.flatnonzero((self.parent < 0) & (self.role <= cp.LLM))
        tops = self._by_start(
            tops[np.bincount(self.trace[tops], minlength=1)[self.trace[tops]] > 1]
        )
        if not len(tops):
            return
        asked, kind = _numpy(self.spans, "parent_id"), self.ints("kind")
        above: dict[
            int, list[int]
        ] = {}  # what comes under the one that stands for the parent, by the first span of its trace
        until: list[int] = []
        for rows in _grouped(tops, self.trace[tops].tolist()).values():
            end = int(self.end[rows].max())
            around = (self.start[rows] == self.start[rows[0]]) & (self.end[rows] == end)
            request = np.isin(kind[rows], (_SERVER, _CONSUMER)) | (
                (self.role[rows] < cp.LLM) & ((asked[rows] == 0) | around)
            )
            alike = max(_grouped(np.array(rows), asked[rows].tolist()).values(), key=len)
            if len(alike) > 1 and not request.any():
                above[rows[0]] = alike
                until.append(end)
        if not above:
            return
        n, made = len(above), np.array(list(above))
        parent = np.where(self.parent >= 0, self.parent + n, _ABSENT)
        for at, rows in enumerate(above.values()):
            parent[rows] = at
        self.parent = np.concatenate([np.full(n, _ABSENT, dtype=np.int64), parent])
        self.spans = pa.concat_tables(
            [
                _standing_for(self.spans, made, asked[[rows[0] for rows in above.values()]]),
                self.spans,
            ]
        ).combine_chunks()
        self.trace, self.start = (np.concatenate([of[made], of]) for of in (self.trace, self.start))
        self.end = np.concatenate([np.array(until, dtype=np.int64), self.end])
        self.role = np.concatenate([np.full(n, cp.CONTAINER, dtype=np.int64), self.role])
        self._sort()

    def stream_on(self) -> None:
        """Let a server's span last as long as the answer that it streams: Flask's and Django's end when the view has handed the stream over.

        Such an answer began in the server's own process, had no token yet when the span ended, and no other streamed call had told any by then. A job that was
        accepted for later (202) is no answer.
        """
        s = self.spans
        status = self.ints("http_status")
        servers = np.flatnonzero(
            (self.parent < 0)
            & (self.ints("kind") == _SERVER)
            & (self.role < cp.LLM)
            & ((status < 0) | (status == _HTTP_OK))
        )
        ttft = self.ints("ttft_ns")
        streams = np.flatnonzero((self.role == cp.LLM) & (ttft >= 0))
        server = np.full(int(self.trace.max()) + 1, _ABSENT, dtype=np.int64)
        server[self.trace[servers]] = servers
        streams = streams[server[self.trace[streams]] >= 0]
        of = server[self.trace[streams]]
        begun_late = self.start[streams] + ttft[streams] > self.end[of]
        told = np.zeros(len(self.role), dtype=np.bool_)
        told[of[~begun_late]] = True
        late = begun_late & ~told[of] & (self.start[streams] <= self.end[of])
        if not late.any():
            return
        domain = _domains(s)
        self.end = self.end.copy()
        for row, root in zip(streams[late].tolist(), of[late].tolist(), strict=True):
            if domain[row] != domain[root] or not is_below(row, root, self.parent):
                continue
            above = int(self.parent[row])
            while above >= 0:
                self.end[above] = max(self.end[above], self.end[row])
                above = int(self.parent[above])

    def wait_for_jobs(self) -> None:
        """Let what sent a job last until it is done, where the span above did nothing else meanwhile and went on: until the job begins it waits in a queue.

        Else nobody waited: a job that is only handed over makes its request no longer.
        """
        kind, self.stage = self.ints("kind"), self.ints("stage")
        jobs = np.flatnonzero((kind == _CONSUMER) & (self.parent >= 0))
        sent = self.parent[jobs]
        waited = (
            (kind[sent] == _PRODUCER)
            & (self.role[sent] == cp.PLAIN)
            & (self.parent[sent] >= 0)
            & (self.start[jobs] >= self.start[sent])
        )
        jobs, sent = jobs[waited], sent[waited]
        within = (self.end[jobs] > self.end[sent]) & (self.end[jobs] <= self.end[self.parent[sent]])
        jobs, sent = jobs[within], sent[within]
        if not len(jobs):
            return
        other = np.flatnonzero(
            np.isin(self.parent, self.parent[sent]) & (kind != _PRODUCER) & (self.role != cp.FOLDED)
        )
        beside = _grouped(other, self.parent[other].tolist())
        end, self.stage = self.end.copy(), self.stage.copy()
        for job, row in zip(jobs.tolist(), sent.tolist(), strict=True):
            rows = beside.get(int(self.parent[row]), [])
            begun, done = self.end[row], self.end[job]
            busy = (
                np.minimum(self.end[rows], done) - np.maximum(self.start[rows], begun)
                if len(rows) <= _MOST_AT_ONCE
                else np.array([done])
            )
            if busy[busy > 0].sum() <= _POLLING * (done - begun):
                end[row], self.stage[row] = max(end[row], done), cp.QUEUE
        self.end = end

    def _by_start(self, rows: IntArray) -> IntArray:
        out: IntArray = rows[np.argsort(self.start[rows], kind="stable")]
        return out

    def _sort(self) -> None:
        order = np.argsort(self.trace, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        parent = self.parent[order]
        self.parent = np.where(parent >= 0, place[parent], -1)
        self.spans = self.spans.take(pa.array(order))
        self.trace, self.role, self.start, self.end = (
            self.trace[order],
            self.role[order],
            self.start[order],
            self.end[order],
        )

    def walk(self) -> Paths:
        """Compute the critical paths."""
        self.trace = np.cumsum(
            np.diff(self.trace, prepend=self.trace[:1]) != 0
        )  # sorted; traces that moved into others leave gaps
        bounds = np.searchsorted(self.trace, np.arange(int(self.trace[-1]) + 2))
        s = self.spans
        self.bounds: IntArray = bounds.astype(np.int64)
        self.paths = cp.critical_paths(
            Forest(
                bounds=self.bounds,
                parent=self.parent,
                true_root=_numpy(s, "parent_id") == 0,
                start=self.start,
                end=self.end,
                role=self.role,
                stage=self.stage,
                kind=self.ints("kind"),
                domain=_domains(s),
                has_tokens=self.ints("output_tokens") >= 0,
                left=self._left(),
                cancelled=self._cancelled(),
                ttft=self._first_tokens(),
                queue=self.ints("queue_ns"),
                prefill=self.prefill(),
                decode=self.ints("decode_ns"),
            )
        )
        self._find_retries()
        # Requests that only engines tell of: their roots (or what stands around them, which is no request's name) are engines' own.
        root = self.paths.root
        engines = np.bincount(self.trace[self.role == cp.ENGINE], minlength=len(root)) > 0
        self.alone: BoolArray = (self.paths.role[root] == cp.ENGINE) | (
            (self.role[root] == cp.FOLDED) & engines
        )
        return self.paths

    def _left(self) -> BoolArray:
        """Engine requests that went on after their client's call had failed: it gave up, and its clock need not be wrong."""
        above = np.maximum(self.parent, 0)
        given_up = (self.role[above] == cp.LLM) & (_numpy(self.spans, "status")[above] == _ERROR)
        left: BoolArray = (
            (self.role == cp.ENGINE) & (self.parent >= 0) & given_up & (self.end > self.end[above])
        )
        return left

    def _cancelled(self) -> BoolArray:
        """Client calls that their own program gave up before an answer came, and not because of a time limit."""
        cancelled = np.zeros(len(self.role), dtype=np.bool_)
        rows = np.flatnonzero((self.role == cp.LLM) & (_numpy(self.spans, "status") == _ERROR))
        types = self.spans.column("error_type").take(pa.array(rows))
        cancelled[rows] = pc.fill_null(
            pc.match_substring_regex(types, "(?i)cancel|abort|disconnect"), False
        ).to_numpy()
        return cancelled

    def _first_tokens(self) -> IntArray:
        """Time to the first token per span; of an engine that does not tell it (TGI), when its client saw it."""
        ttft = self.ints("ttft_ns")
        rows = np.flatnonzero((self.role == cp.ENGINE) & (ttft < 0) & (self.parent >= 0))
        above = self.parent[rows]
        seen = self.start[above] + ttft[above] - self.start[rows]
        known = (
            (self.role[above] == cp.LLM)
            & (ttft[above] >= 0)
            & (seen >= 0)
            & (seen <= (self.end - self.start)[rows])
        )
        if known.any():
            ttft = ttft.copy()
            ttft[rows[known]] = seen[known]
        return ttft

    def _find_retries(self) -> None:
        """Find attempts in spans of their own; the pause before the next one is waiting for a turn, not the framework's own time."""
        paths = self.paths
        calls = np.flatnonzero((paths.call == np.arange(len(paths.call))) & (paths.role == cp.LLM))
        failed = _numpy(self.spans, "status") == _ERROR
        asked = np.full(len(self.role), _ABSENT, dtype=np.int64)
        for final, tried in self._asked().items():
            asked[[final, *tried]] = final
        self.retried = attempts.follow(
            self.spans.column("operation").combine_chunks(),
            asked,
            self.role,
            self.ints("attempts"),
            paths.parent,
            calls,
            failed,
            paths.start,
            paths.end,
        )
        for row, begin, end in attempts.waits(self.retried, paths.parent, paths.start, paths.end):
            paused = (
                (paths.piece_row == row) & (paths.piece_from >= begin) & (paths.piece_to <= end)
            )
            paths.piece_stage[paused] = cp.QUEUE


# What a span says of its request and its sender, or what stands for it goes by as well; of everything else that knows nothing.
_KEPT = (
    "trace_hi",
    "trace_lo",
    "seq",
    "start_ns",
    "name",
    "route",
    "parent_id",
    "flags",
    "trace_state",
    "source_id",
    "service",
    "instance",
    "version",
    "scope_name",
    "session",
    "tenant",
    "user_hash",
    "workload",
)
_ZERO = ("duration_ns", "kind", "status", "stage", "role", "ttft_source")


def _standing_for(spans: pa.Table, rows: IntArray, ids: Any) -> pa.Table:
    """Spans for the parents of these rows, by their ids: what a row says of its request and sender, and nothing else."""
    out = spans.take(pa.array(rows))
    for at, column in enumerate(out.schema):
        if column.name == "span_id":
            out = out.set_column(at, column, pa.array(ids, column.type))
        elif column.name in _ZERO:
            out = out.set_column(
                at,
                column,
                pa.array(np.zeros(len(rows), dtype=np.int64), pa.int64()).cast(column.type),
            )
        elif column.name not in _KEPT:
            out = out.set_column(at, column, pa.nulls(len(rows), column.type))
    return out


def _grouped(rows: IntArray, keys: Iterable[_K]) -> dict[_K, list[int]]:
    """The rows by their keys, in their order."""
    out: dict[_K, list[int]] = {}
    for row, key in zip(rows.tolist(), keys, strict=True):
        out.setdefault(key, []).append(row)
    return out


def _parent_rows(bounds: IntArray, span_id: Any, parent_id: Any) -> IntArray:
    """Row of each span's parent within its trace, -1 if it has none or it is not there. Rows of a trace are sorted by span id."""
    return cp.find_parents(*map(read_only, (bounds, span_id, parent_id)))  # type: ignore[no-any-return]


def _join_by_id(
    engines: IntArray,
    clients: IntArray,
    response: IntArray,
    parent: IntArray,
    trace: IntArray,
    start: IntArray,
    end: IntArray,
) -> None:
    """Engine spans whose request id is a client call's response id go under that call; their own trace moves along. In place.

    Of several calls with that id, each in the other's, the shortest is the one that asked the engine.
    """
    order = clients[np.lexsort(((end - start)[clients], response[clients]))]
    at = np.searchsorted(response[order], response[engines])
    at_safe = np.minimum(at, len(order) - 1) if len(order) else at
    found = (
        (response[order[at_safe]] == response[engines])
        if len(order)
        else np.zeros(len(engines), dtype=bool)
    )
    for engine, client in zip(engines[found].tolist(), order[at_safe[found]].tolist(), strict=True):
        if is_below(engine, client, parent):
            continue
        if trace[engine] != trace[client]:
            # Only a trace that this engine span roots is the engine's own; the rest of it comes along.
            if parent[engine] >= 0:
                continue
            trace[trace == trace[engine]] = trace[client]
        if not is_below(client, engine, parent):
            parent[engine] = client


def _join_siblings(
    engines: IntArray,
    clients: IntArray,
    names: IntArray,
    parent: IntArray,
    start: IntArray,
    end: IntArray,
    role: IntArray,
    failed: BoolArray,
) -> None:
    """An engine span beside its client call (context injected by hand) goes under it, if exactly one sibling call encloses it in time.

    If none does, exactly one that failed meanwhile, without an engine's span of its own, gave it up: engines write on for clients that left. Clocks
    are a little off: first come those that a call encloses as told, and of what is left a call that has none yet and nearly encloses it. One whose answer has
    another name (`names`, absent where none is told) was rather asked by a call that failed, and never by one whose own engine's span is there by its name.
    """
    loose = engines[parent[engines] >= 0]
    loose = loose[role[parent[loose]] != cp.LLM]
    if not len(loose):
        return
    by_parent: dict[int, list[int]] = {}
    for client in clients.tolist():
        if parent[client] >= 0:
            by_parent.setdefault(int(parent[client]), []).append(client)
    served = set(parent[engines].tolist())
    by_name = set(
        parent[
            engines[
                (parent[engines] >= 0)
                & (names[engines] != _ABSENT)
                & (names[engines] == names[parent[engines]])
            ]
        ].tolist()
    )
    for nearly in (False, True):
        for engine in loose[role[parent[loose]] != cp.LLM].tolist():
            beside = by_parent.get(int(parent[engine]), [])
            slack = duplicate_spans.CLOCK_SLACK_NS + nearly * (end[engine] - start[engine]) // 20
            around = [
                c
                for c in beside
                if start[c] - slack <= start[engine] and end[engine] <= end[c] + slack
            ]
            others = [
                c
                for c in around
                if _ABSENT not in (names[engine], names[c]) and names[engine] != names[c]
            ]
            if nearly and (not around or (len(around) == 1 and (around[0] in served or others))):
                left = [
                    c
                    for c in beside
                    if failed[c]
                    and start[c] - slack <= start[engine] < end[c] < end[engine]
                    and c not in served
                ]
                around = (
                    left
                    if len(left) == 1
                    else [c for c in around if c not in others or c not in by_name]
                )
            if len(around) == 1:
                parent[engine] = around[0]
                served.add(around[0])


class _Calls:
    """The model calls of a batch: one per kept LLM span, and one per engine span that no client call explains."""

    def __init__(self, batch: _Batch) -> None:
        self.batch = batch
        paths, s = batch.paths, batch.spans
        is_call = (
            (paths.call == np.arange(len(paths.call)))
            & ((paths.role == cp.LLM) | (paths.role == cp.ENGINE))
            & (batch.retried.later < 0)
        )
        self.row: IntArray = np.flatnonzero(is_call)
        rows = self.row
        self.trace: IntArray = batch.trace[rows]
        self.alone: BoolArray = paths.role[rows] == cp.ENGINE
        self.engine: IntArray = np.where(self.alone, rows, paths.engine[rows])
        self.start: IntArray = paths.start[rows]
        self.duration: IntArray = (paths.end - paths.start)[rows]
        self.failed: BoolArray = _numpy(s, "status")[rows] == _ERROR
        on_path = np.zeros(len(paths.call), dtype=bool)
        on_path[paths.call[paths.piece_row[paths.call[paths.piece_row] >= 0]]] = True
        self.on_path: BoolArray = on_path[rows]
        self.output = self._either("output_tokens")
        self._times()

    def _engine_value(self, values: IntArray) -> IntArray:
        return np.where(self.engine >= 0, values[np.maximum(self.engine, 0)], _ABSENT)

    def _either(self, column: str) -> IntArray:
        """The client's number, else the engine's."""
        values = self.batch.ints(column)
        own = values[self.row]
        return np.where(own >= 0, own, self._engine_value(values))

    def _times(self) -> None:
        s, rows = self.batch.spans, self.row
        ttft = self.batch.ints("ttft_ns")
        self.ttft_client: IntArray = np.where(self.alone, _ABSENT, ttft[rows])
        self.ttft_engine = self._engine_value(ttft)
        shift = np.where(
            self.engine >= 0, self.batch.paths.start[np.maximum(self.engine, 0)] - self.start, 0
        )
        # The engine's first token seen from the call's start.
        engine_first = np.where(
            self.ttft_engine >= 0,
            self.ttft_engine + np.where(self.alone, 0, np.maximum(shift, 0)),
            _ABSENT,
        )
        self.first: IntArray = np.where(self.ttft_client >= 0, self.ttft_client, engine_first)
        self.ttft: IntArray = np.where(self.ttft_client >= 0, self.ttft_client, self.ttft_engine)
        own_source = self.batch.ints("ttft_source")[rows]
        none = np.where(own_source == TTFT_CUT, TTFT_CUT, TTFT_NONE)
        self.ttft_source: IntArray = np.where(
            self.ttft_client >= 0, own_source, np.where(self.ttft_engine >= 0, TTFT_ENGINE, none)
        )
        phases = self._phase_times()
        self.queue, self.prefill, self.decode = (
            np.where(phases[stage] >= 0, phases[stage], self._engine_value(values))
            for stage, values in (
                (cp.QUEUE, self.batch.ints("queue_ns")),
                (cp.PREFILL, self.batch.prefill()),
                (cp.DECODE, self.batch.ints("decode_ns")),
            )
        )
        self.engine_e2e = np.where(
            self._engine_value(self.batch.ints("engine_e2e_ns")) >= 0,
            self._engine_value(self.batch.ints("engine_e2e_ns")),
            self._engine_value(self.batch.ints("duration_ns")),
        )
        self._token_times()
        engine = np.where(self.alone, -1, self.engine)
        self.attempts = attempts.count(
            s,
            self.batch.paths,
            self.batch.retried,
            rows,
            engine,
            (self.ttft_client, self.ttft_engine),
            self.batch.last_began,
        )

    def _phase_times(self) -> dict[int, IntArray]:
        """Per call, the summed time of an engine's own phase spans per stage (SGLang); absent where there are none."""
        paths = self.batch.paths
        phase = np.flatnonzero(
            (paths.role == cp.PHASE)
            & (paths.stage != cp.NETWORK)
            & ~paths.skipped
            & (paths.call >= 0)
        )
        phase = phase[paths.role[np.maximum(paths.parent[phase], 0)] != cp.PHASE]
        n = len(paths.call)
        any_phase = np.zeros(n, dtype=bool)
        any_phase[paths.call[phase]] = True
        out = {}
        for stage in (cp.QUEUE, cp.PREFILL, cp.DECODE):
            mine = phase[paths.stage[phase] == stage]
            total = np.bincount(
                paths.call[mine], weights=self.batch.ints("duration_ns")[mine], minlength=n
            ).astype(np.int64)
            out[stage] = np.where(any_phase, total, _ABSENT)[self.row]
        return out

    def _token_times(self) -> None:
        """TPOT = (E2E - TTFT)/(output tokens - 1), on the client's clock if it saw a first token, else on the engine's; ITL from chunk events. Tools that run
        within a call (Mastra's) are none of its E2E there."""
        rows, out = self.row, self.output
        client = self.ttft_client >= 0
        after_first = np.where(
            client,
            self.duration - self.ttft_client - self._tools(),
            self.engine_e2e - self.ttft_engine,
        )
        hidden = client & (self.engine < 0) & (self.batch.ints("reasoning_tokens")[rows] > 0)
        known = (self.ttft >= 0) & (out >= 2) & ~hidden & (after_first >= 0) & ~self.failed
        self.tpot = np.where(known, after_first / np.maximum(out - 1, 1), np.nan)
        reasons = np.select(
            [known, self.failed, self.ttft_source == TTFT_CUT, self.ttft < 0, hidden, out < 0],
            [
                "",
                "failed",
                "events_dropped",
                "no_first_token",
                "hidden_reasoning",
                "no_token_count",
            ],
            default="fewer_than_2_tokens",
        )
        self.tpot_reason = pa.array(reasons.tolist(), mask=known)
        chunks, span, worst = (
            self.batch.ints(c)[rows] for c in ("chunks", "chunk_span_ns", "chunk_gap_max_ns")
        )
        chunked = (chunks >= 2) & (out >= 2) & ~self.failed
        self.itl = np.where(chunked, span / np.maximum(out - 1, 1), np.nan)
        self.itl_max = np.where(chunked, worst, np.nan)
        self.chunked: BoolArray = chunked

    def _tools(self) -> IntArray:
        """Time of the critical path that tools took within each call."""
        paths = self.batch.paths
        call = paths.call[paths.piece_row]
        inside = np.flatnonzero((paths.piece_stage == cp.TOOL) & (call >= 0))
        taken = np.bincount(
            call[inside],
            weights=(paths.piece_to - paths.piece_from)[inside],
            minlength=len(paths.call),
        )
        tools: IntArray = taken[self.row].astype(np.int64)
        return tools

    def text(self, column: str) -> pa.Array:
        """A text column: the client's, else the engine's."""
        values = self.batch.spans.column(column).combine_chunks()
        own = values.take(pa.array(self.row))
        return pc.coalesce(own, values.take(pa.array(self.engine, mask=self.engine < 0)))

    def table(self) -> pa.Table:
        """Rows of `llm_calls`."""
        s, rows = self.batch.spans, pa.array(self.row)
        trace_row = pa.array(self.batch.paths.root[self.trace])
        plain = {
            c: s.column(c).combine_chunks().take(rows)
            for c in (
                "service",
                "instance",
                "turn",
                "prefix_hash",
                "streaming",
                "temperature",
                "http_status",
            )
        }
        engine_row = pa.array(self.engine, mask=self.engine < 0)
        of_root = {
            c: pc.coalesce(
                s.column(c).combine_chunks().take(rows),
                s.column(c).combine_chunks().take(trace_row),
            )
            for c in _ROOT_TEXT
        }
        # The request's, so that a filter finds both; a workflow's or an agent's name on the call itself says less.
        of_root["route"] = _routes(self.batch).take(pa.array(self.trace))
        return pa.table(
            {
                "trace_hi": s.column("trace_hi").combine_chunks().take(trace_row),
                "trace_lo": s.column("trace_lo").combine_chunks().take(trace_row),
                "span_id": s.column("span_id").combine_chunks().take(rows),
                "engine_span_id": s.column("span_id").combine_chunks().take(engine_row),
                "on_path": pa.array(self.on_path),
                "response_id": self.text("response_id"),
                "start_ns": self.start,
                "duration_ns": self.duration,
                **plain,
                "engine_instance": s.column("instance").combine_chunks().take(engine_row),
                **of_root,
                "model": self.text("model"),
                "provider": self.text("provider"),
                **{
                    c: _nullable(self._either(c))
                    for c in (
                        "input_tokens",
                        "output_tokens",
                        "cached_tokens",
                        "reasoning_tokens",
                        "max_tokens",
                    )
                },
                "ttft_ns": _nullable(self.ttft),
                "ttft_source": self.ttft_source.astype(np.uint8),
                "ttft_client_ns": _nullable(self.ttft_client),
                "ttft_engine_ns": _nullable(self.ttft_engine),
                "engine_e2e_ns": pa.array(self.engine_e2e, mask=self.engine < 0),
                "tpot_ns": _floats(self.tpot),
                "itl_ns": _floats(self.itl),
                "itl_max_ns": _floats(self.itl_max),
                "itl_source": pa.array(
                    np.where(self.chunked, "chunk", "").tolist(), mask=~self.chunked
                ),
                "tpot_reason": self.tpot_reason,
                "queue_ns": _nullable(self.queue),
                "prefill_ns": _nullable(self.prefill),
                "decode_ns": _nullable(self.decode),
                "finish_reason": self.text("finish_reason"),
                "error": self.failed,
                "error_type": pc.if_else(
                    pa.array(self.failed), self.text("error_type"), pa.scalar(None, pa.string())
                ),
                **self._attempts(),
            }
        )

    def _attempts(self) -> dict[str, pa.Array]:
        made = self.attempts
        return {
            "attempts": pa.array(made.number, pa.int32(), mask=made.number < 0),
            "attempts_source": _named(attempts.SOURCES, made.source),
            "wasted_ns": _nullable(made.wasted_ns),
            "wasted_tokens": _nullable(made.wasted_tokens),
            "retry_cause": _named(attempts.CAUSES, made.cause),
        }


def _nullable(values: IntArray) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values < 0)


def _named(names: tuple[str, ...], codes: IntArray) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(codes, mask=codes == 0))


def _floats(values: Any) -> pa.Array:
    return pa.array(values, pa.float64(), mask=np.isnan(values))


def _requests(batch: _Batch, calls: _Calls) -> pa.Table:
    """Rows of `requests`: traces with a model call, or with a SERVER root."""
    paths, s = batch.paths, batch.spans
    traces = len(paths.root)
    root = paths.root
    count = np.bincount(calls.trace, minlength=traces)
    server = _numpy(s, "kind")[root] == _SERVER
    stage_ns, wait_ns = _stage_sums(batch, None)
    answer = _answering_call(batch, calls)
    columns = {
        **_identity(batch, calls, answer, server),
        **_first_tokens(batch, calls, answer),
        **_token_sums(calls, traces),
        "start_ns": paths.start[root],
        "e2e_ns": stage_ns.sum(axis=1),
        "llm_calls": count.astype(np.int32),
        "tool_calls": _tool_calls(batch, calls).astype(np.int32),
        "attempts": _attempts_of(calls, count),
        "truncated": _truncated(calls, traces),
        "spans": np.diff(batch.bounds).astype(np.int32),
        "inferred_ns": _inferred(batch),
        "wait_user_ns": wait_ns,
        "clipped_spans": np.bincount(
            batch.trace[paths.clipped & ~paths.skipped], minlength=traces
        ).astype(np.int32),
        "skewed_spans": np.bincount(batch.trace[paths.shifted], minlength=traces).astype(np.int32),
        **{
            f"{name}_ns": stage_ns[:, code]
            for code, name in enumerate(STAGE_NAMES)
            if name != "wait_user"
        },
    }
    return pa.table(columns).filter(pa.array((count > 0) | server))


def _attempts_of(calls: _Calls, count: IntArray) -> pa.Array:
    """Attempts of all calls of a request; null if one of them hides its own."""
    number = calls.attempts.number
    unknown = np.bincount(calls.trace[number < 0], minlength=len(count)) > 0
    total = np.bincount(calls.trace, weights=np.maximum(number, 0), minlength=len(count)).astype(
        np.int32
    )
    return pa.array(total, pa.int32(), mask=unknown | (count == 0))


def _stage_sums(batch: _Batch, until: IntArray | None) -> tuple[Any, IntArray]:
    """Time per trace and stage on the path, shape (traces, stages), up to a moment per trace if given; and the user's time, kept apart."""
    paths = batch.paths
    trace = batch.trace[paths.piece_row]
    stop = paths.piece_to if until is None else np.minimum(paths.piece_to, until[trace])
    length = np.maximum(stop - paths.piece_from, 0)
    traces = len(paths.root)
    # Sums of integers below 2**53: exact in float64.
    flat = np.bincount(
        trace * cp.STAGES + paths.piece_stage, weights=length, minlength=traces * cp.STAGES
    )
    sums = flat.astype(np.int64).reshape(traces, cp.STAGES)
    wait = sums[:, cp.WAIT_USER].copy()
    sums[:, cp.WAIT_USER] = 0
    return sums, wait


def _answering_call(batch: _Batch, calls: _Calls) -> IntArray:
    """Per trace, the index (into calls) of the last call on the critical path: its first token is the answer's. -1 if there is none."""
    paths = batch.paths
    own = calls.on_path & (paths.stage[calls.row] != cp.GUARDRAIL)
    order = np.flatnonzero(own)
    order = order[np.lexsort((calls.start[order], calls.trace[order]))]
    out = np.full(len(paths.root), -1, dtype=np.int64)
    out[calls.trace[order]] = order  # the last one of a trace wins
    return out


def _first_tokens(batch: _Batch, calls: _Calls, answer: IntArray) -> dict[str, Any]:
    """ttft_ns and its parts per stage, first_model_token_ns, first_answer_ns, usable_ns."""
    paths = batch.paths
    start, end = paths.start[paths.root], paths.end[paths.root]
    call = np.maximum(answer, 0)
    has = (
        (answer >= 0) & (calls.first[call] >= 0)
        if len(calls.row)
        else np.zeros(len(answer), dtype=bool)
    )
    moment = (
        np.where(has, np.clip(calls.start[call] + calls.first[call], start, end), start)
        if len(calls.row)
        else start
    )
    parts, waited = _stage_sums(batch, moment)
    ttft = parts.sum(axis=1)
    first_model = np.full(len(start), np.iinfo(np.int64).max)
    known = np.flatnonzero(calls.first >= 0)
    np.minimum.at(first_model, calls.trace[known], calls.start[known] + calls.first[known])
    no_model = first_model == np.iinfo(np.int64).max
    first_model = np.clip(first_model, start, end) - start
    hidden = _hidden_reasoning(calls)[call] if len(calls.row) else np.zeros(len(answer), dtype=bool)
    usable = _usable(batch)
    out: dict[str, Any] = {
        "ttft_ns": pa.array(ttft, mask=~has),
        "first_model_token_ns": pa.array(first_model, mask=no_model),
        "ttft_source": (
            np.where(
                (answer >= 0) & (has | (calls.ttft_source[call] == TTFT_CUT)),
                calls.ttft_source[call],
                TTFT_NONE,
            )
            if len(calls.row)
            else np.zeros(len(answer))
        ).astype(np.uint8),
        "first_answer_ns": pa.array(ttft, mask=~has | hidden),
        "usable_ns": usable,
    }
    for code, name in enumerate(STAGE_NAMES):
        values = waited if name == "wait_user" else parts[:, code]
        out[f"ttft_{name}_ns"] = pa.array(values, mask=~has)
    return out


def _hidden_reasoning(calls: _Calls) -> BoolArray:
    reasons = calls.tpot_reason
    return pc.fill_null(pc.equal(reasons, "hidden_reasoning"), False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _usable(batch: _Batch) -> pa.Array:
    """Time from the request's start to the earliest `overrun.usable_answer` event."""
    paths = batch.paths
    offset = batch.ints("usable_ns")
    marked = np.flatnonzero(offset >= 0)
    first = np.full(len(paths.root), np.iinfo(np.int64).max)
    np.minimum.at(first, batch.trace[marked], paths.start[marked] + offset[marked])
    none = first == np.iinfo(np.int64).max
    return pa.array(np.where(none, 0, first - paths.start[paths.root]), mask=none)


def _token_sums(calls: _Calls, traces: int) -> dict[str, pa.Array]:
    """Tokens summed over the calls of a request, null where no call says; TPOT and ITL weighted by tokens; the worst gap."""
    out: dict[str, pa.Array] = {}
    for column in (
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "reasoning_tokens",
        "max_tokens",
    ):
        values = calls._either(column)
        known = values >= 0
        seen = np.bincount(calls.trace[known], minlength=traces) > 0
        total = np.bincount(calls.trace[known], weights=values[known], minlength=traces).astype(
            np.int64
        )
        out[column] = pa.array(total, mask=~seen)
    gaps = np.maximum(calls.output - 1, 0)
    for name, per_call in (("tpot_ns", calls.tpot), ("itl_ns", calls.itl)):
        known = ~np.isnan(per_call)
        weight = np.bincount(calls.trace[known], weights=gaps[known], minlength=traces)
        total = np.bincount(
            calls.trace[known], weights=per_call[known] * gaps[known], minlength=traces
        )
        out[name] = pa.array(total / np.maximum(weight, 1), mask=weight == 0)
    known = ~np.isnan(calls.itl_max)
    worst = np.full(traces, -1.0)
    np.maximum.at(worst, calls.trace[known], calls.itl_max[known])
    out["itl_max_ns"] = pa.array(worst, mask=worst < 0)
    return out


def _tool_calls(batch: _Batch, calls: _Calls) -> IntArray:
    """Tool spans per trace, without those around others: the step of a graph that runs several, the client's side of a call over MCP. One that makes model
    calls of its own beside the tools in it is a call too: an agent that is another's tool."""
    paths = batch.paths
    tool = (batch.role == cp.PLAIN) & (_ints(batch.spans, "stage") == cp.TOOL)
    around = np.zeros(len(tool), dtype=bool)
    above = paths.parent[tool]
    for _ in range(_TOOLS_WITHIN):
        above = above[above >= 0]
        around[above] = True
        above = paths.parent[above]
    around &= tool
    if around.any():
        above = paths.parent[calls.row]
        while (on := (above >= 0) & ~tool[above]).any():
            above = np.where(on, paths.parent[above], above)
        around[above[above >= 0]] = False
    return np.bincount(batch.trace[tool & ~around], minlength=len(paths.root))


def _truncated(calls: _Calls, traces: int) -> pa.Array:
    reason = calls.text("finish_reason")
    known = reason.is_valid().to_numpy(zero_copy_only=False)
    cut = pc.fill_null(
        pc.is_in(reason, value_set=pa.array(["length", "max_tokens", "MAX_TOKENS"])), False
    ).to_numpy(zero_copy_only=False)
    seen = np.bincount(calls.trace[known], minlength=traces) > 0
    return pa.array(np.bincount(calls.trace[cut], minlength=traces) > 0, mask=~seen)


def _inferred(batch: _Batch) -> IntArray:
    """Root time that rests on spans whose parent had to be inferred."""
    paths = batch.paths
    mine = paths.inferred[paths.piece_row]
    length = (paths.piece_to - paths.piece_from)[mine]
    return np.bincount(
        batch.trace[paths.piece_row[mine]], weights=length, minlength=len(paths.root)
    ).astype(np.int64)


def _identity(batch: _Batch, calls: _Calls, answer: IntArray, server: BoolArray) -> dict[str, Any]:
    """Who the request was and how it ended."""
    s, root = batch.spans, batch.paths.root
    rows = pa.array(root)
    last = np.maximum(answer, 0)
    last_row = pa.array(
        np.where(answer >= 0, calls.row[last], 0)
        if len(calls.row)
        else np.zeros(len(root), dtype=np.int64),
        mask=answer < 0,
    )

    def of(column: str, index: pa.Array) -> pa.Array:
        return s.column(column).combine_chunks().take(index)

    alone = batch.alone
    status = batch.ints("http_status")[root]
    failed = (_numpy(s, "status")[root] == _ERROR) | (status >= _HTTP_ERROR)
    if len(calls.row):
        failed |= (answer >= 0) & calls.failed[last]
    flags, kind = batch.ints("flags")[root], _numpy(s, "kind")[root]
    remote = (
        np.where(
            (flags & _HAS_REMOTE) != 0,
            (flags & _IS_REMOTE) != 0,
            (kind == _SERVER) | (kind == _CONSUMER),
        )
        | alone
    )
    model, provider = (
        _of_calls(calls, "model", answer, len(root)),
        _of_calls(calls, "provider", answer, len(root)),
    )
    name = of("name", rows)
    nothing = pa.scalar(None, pa.string())
    texts = {c: _any_of_trace(batch, c) for c in _ROOT_TEXT}
    sampling, weight = _sampling(of("trace_state", rows))
    return {
        "trace_hi": of("trace_hi", rows),
        "trace_lo": of("trace_lo", rows),
        "root_span_id": of("span_id", rows),
        "service": pc.fill_null(of("service", rows), "unknown_service"),
        "instance": of("instance", rows),
        "version": of("version", rows),
        "route": _routes(batch),
        "name": name,
        "model": model,
        "provider": provider,
        **texts,
        # What the failed call says (RateLimitError) tells more than what the root makes of it (500).
        "error": failed,
        "error_type": pc.if_else(
            pa.array(failed),
            pc.coalesce(of("error_type", last_row), of("error_type", rows)),
            nothing,
        ),
        "http_status": of("http_status", rows),
        "complete": (_numpy(s, "parent_id")[root] == 0) | remote,
        "server_root": server,
        "engine_only": alone,
        "sampling": sampling,
        "sample_weight": weight,
    }


def _routes(batch: _Batch) -> pa.Array:
    """The route of each trace: its root's, else its root's name; an engine alone has none of these.

    UUIDs become a star: they tell one run from another (CrewAI puts them into its spans' names), not what ran.
    """
    rows = pa.array(batch.paths.root)
    told, name = (batch.spans.column(c).combine_chunks().take(rows) for c in ("route", "name"))
    routes = pc.coalesce(
        told, pc.if_else(pa.array(batch.alone), pa.scalar(None, pa.string()), name)
    ).dictionary_encode()
    return pc.replace_substring_regex(
        routes.dictionary, "(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", "*"
    ).take(routes.indices)


def _of_calls(calls: _Calls, column: str, answer: IntArray, traces: int) -> pa.Array:
    """A text of the answering call, else of any call of the trace."""
    values = calls.text(column)
    known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))[::-1]
    pick = np.full(traces, -1, dtype=np.int64)
    pick[calls.trace[known]] = known
    has = (answer >= 0) & np.isin(answer, known)
    pick = np.where(has, answer, pick)
    return values.take(pa.array(pick, mask=pick < 0))


def _any_of_trace(batch: _Batch, column: str) -> pa.Array:
    """The root's text, else the first one that any span of the trace has."""
    values = batch.spans.column(column).combine_chunks()
    known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    if not len(known):
        return pa.nulls(len(batch.paths.root), pa.string())
    pick = np.full(len(batch.paths.root), -1, dtype=np.int64)
    pick[batch.trace[known[::-1]]] = known[::-1]
    root = batch.paths.root
    pick = np.where(np.isin(root, known), root, pick)
    return values.take(pa.array(pick, mask=pick < 0))


def _sampling(states: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The sampler's threshold from tracestate (`ot=th:HEX`) and the weight that it implies: 2**56 / (2**56 - threshold). Source: OTEP 235.

    Also the older `ot=p:N` (probability 2**-N), Elastic's `es=s:PROBABILITY`, and what samplers' attributes said (collector/normalise/samplers.py).
    """
    if states.null_count == len(states):
        return pa.nulls(len(states), pa.string()), pa.nulls(len(states), pa.float64())
    found = [_threshold(state) for state in states.to_pylist()]
    return pa.array([text for text, _ in found], pa.string()), pa.array(
        [weight for _, weight in found], pa.float64()
    )


def _threshold(state: str | None) -> tuple[str | None, float | None]:
    # What we read from attributes stands last and outranks the rest: a tail sampler's choice is not undone by a known first one.
    for member in reversed((state or "").split(",")):
        vendor, _, content = member.strip().partition("=")
        for part in content.split(";") if vendor in ("ot", "es", "overrun") else ():
            key, _, value = part.partition(":")
            if vendor == "overrun" and key == "tail":
                return part, None
            if (vendor, key) == ("ot", "p") and value.isdecimal() and int(value) < 63:
                value = samplers.threshold(0.5 ** int(value)).removeprefix("th:")
            elif (vendor, key) == ("es", "s"):
                value = samplers.threshold(readers.number(value) or 0.0).removeprefix("th:")
            elif key != "th":
                continue
            if 0 < len(value) <= 14 and all(c in "0123456789abcdef" for c in value):
                return f"th:{value}", 2**56 / (2**56 - int(value.ljust(14, "0"), 16))
    return None, None


def _covered(spans: pa.Table) -> pa.Table:
    hi, lo = _numpy(spans, "trace_hi"), _numpy(spans, "trace_lo")
    new = np.ones(len(hi), dtype=bool)
    new[1:] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
    return pa.table({"trace_hi": hi[new], "trace_lo": lo[new]})


def _nothing(spans: pa.Table) -> Assembled:
    empty = pa.table({"trace_hi": pa.array([], pa.uint64()), "trace_lo": pa.array([], pa.uint64())})
    return Assembled(empty, empty, empty)
