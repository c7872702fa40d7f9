"""Which spans report the same call? Those of several instrumentations, put under one another (duplicate_spans.py)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import ABSENT, ERROR, clock_domains, codes_at, numpy_column
from overrun.analysis.words.arrays import IntArray
from overrun.collector.normalise import stages


def nest_duplicates(batch: Batch) -> None:
    """Put the spans of one call, reported by several instrumentations, under one another."""
    s = batch.spans
    clients = np.flatnonzero(batch.role == cp.LLM)
    if len(clients) < 2:
        return
    failed = numpy_column(s, "status")[clients] == ERROR
    response = np.where(
        s.column("response_id").is_valid().to_numpy(),
        codes_at(clients, s.column("response_id")),
        ABSENT,
    )
    model = np.full(len(response), ABSENT, dtype=np.int64)
    model[clients] = duplicate_spans.models(s.column("model").take(pa.array(clients)))
    told = duplicate_spans.Told(
        process=codes_at(clients, s.column("service"), s.column("instance")),
        scope=_instrumentations(batch, clients),
        tokens=(batch.ints("input_tokens"), batch.ints("output_tokens")),
        uncached=_uncached(batch),
        response=response,
        model=model,
        trace=batch.trace,
        parent=batch.parent,
        parent_id=numpy_column(s, "parent_id"),
        start=batch.start,
        end=batch.end,
    )
    again = duplicate_spans.repeats(clients, told)
    if len(again):
        batch.role = batch.role.copy()
        batch.role[again] = cp.FOLDED
        clients, failed = clients[~np.isin(clients, again)], failed[~np.isin(clients, again)]
    by_id = duplicate_spans.groups_by_id(clients[response[clients] >= 0], told)
    pairs = duplicate_spans.pairs_by_tokens(
        clients[(told.tokens[1][clients] >= 0) | failed], told
    ) + duplicate_spans.pairs_by_time(clients[~failed], told)
    if pairs:
        pairs += duplicate_spans.nested_pairs(clients, batch.role, told)
    duplicate_spans.nest(duplicate_spans.groups_of(by_id, pairs, told), told)
    if (np.diff(batch.trace) < 0).any():
        batch.sort_by_trace()
    batch.spans = duplicate_spans.share(
        batch.spans, batch.parent, batch.role, batch.start, batch.end, clock_domains(batch.spans)
    )


def _uncached(batch: Batch) -> IntArray:
    """Input tokens without those that were cached (-1 untold), or as they are where they do not hold them."""
    tokens, cached = batch.ints("input_tokens"), batch.ints("cached_tokens")
    return np.where((cached > 0) & (cached <= tokens), tokens - cached, tokens)


def _instrumentations(batch: Batch, rows: IntArray) -> IntArray:
    """A code per instrumentation that reports these rows: their scopes, and wrappers of a client that use a framework's scope (Langfuse's)."""
    scope = batch.spans.column("scope_name")
    codes = codes_at(rows, scope)
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
                    pc.equal(batch.spans.column("name").take(pa.array(mine)), name).to_numpy(
                        zero_copy_only=False
                    )
                ]
            ] += len(codes)
    return codes
