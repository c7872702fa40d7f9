"""Is a server's span with a call's values the request? LiteLLM's callback writes them on the span that is active."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import SERVER


def free_servers(batch: Batch) -> None:
    """Let a span that serves a request and was given a call's values be the request, where spans in it tell of calls: LiteLLM's callback writes on the span
    that is active. It stays the call if it alone counts tokens."""
    s = batch.spans
    servers = np.flatnonzero((batch.role == cp.LLM) & (batch.ints("kind") == SERVER))
    servers = servers[s.column("route").take(pa.array(servers)).is_valid().to_numpy()]
    if not len(servers):
        return
    counted = batch.ints("output_tokens") >= 0
    wanted = set(servers.tolist())
    inside: dict[int, bool] = {}
    for row in np.flatnonzero(batch.role == cp.LLM)[
        np.isin(batch.trace[batch.role == cp.LLM], batch.trace[servers])
    ].tolist():
        for above in duplicate_spans.above(row, batch.parent):
            if above in wanted:
                inside[above] = inside.get(above, False) or bool(counted[row])
    batch.make_containers([row for row, counts in inside.items() if counts or not counted[row]])
