"""When does a server's span end that hands its stream over (Flask, Django)? With the answer that it streams."""

from __future__ import annotations

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import ABSENT, SERVER, clock_domains
from overrun.analysis.assembly.nesting import is_below

_HTTP_OK = 200


def extend_streaming_servers(batch: Batch) -> None:
    """Let a server's span last as long as the answer that it streams: Flask's and Django's end when the view has handed the stream over.

    Such an answer began in the server's own process, had no token yet when the span ended, and no other streamed call had told any by then. A job that was
    accepted for later (202) is no answer.
    """
    s = batch.spans
    status = batch.ints("http_status")
    servers = np.flatnonzero(
        (batch.parent < 0)
        & (batch.ints("kind") == SERVER)
        & (batch.role < cp.LLM)
        & ((status < 0) | (status == _HTTP_OK))
    )
    ttft = batch.ints("ttft_ns")
    streams = np.flatnonzero((batch.role == cp.LLM) & (ttft >= 0))
    server = np.full(int(batch.trace.max()) + 1, ABSENT, dtype=np.int64)
    server[batch.trace[servers]] = servers
    streams = streams[server[batch.trace[streams]] >= 0]
    of = server[batch.trace[streams]]
    begun_late = batch.start[streams] + ttft[streams] > batch.end[of]
    told = np.zeros(len(batch.role), dtype=np.bool_)
    told[of[~begun_late]] = True
    late = begun_late & ~told[of] & (batch.start[streams] <= batch.end[of])
    if not late.any():
        return
    domain = clock_domains(s)
    batch.end = batch.end.copy()
    for row, root in zip(streams[late].tolist(), of[late].tolist(), strict=True):
        if domain[row] != domain[root] or not is_below(row, root, batch.parent):
            continue
        above = int(batch.parent[row])
        while above >= 0:
            batch.end[above] = max(batch.end[above], batch.end[row])
            above = int(batch.parent[above])
