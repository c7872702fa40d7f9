"""Did a request wait for the job that it queued? Then the time until the job began is queueing."""

from __future__ import annotations

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.batch import MOST_AT_ONCE, Batch
from overrun.analysis.assembly.columns import CONSUMER, PRODUCER, grouped

_POLLING = 0.1  # of the time until a job is done: what asks for its result meanwhile


def wait_for_jobs(batch: Batch) -> None:
    """Let what sent a job last until it is done, where the span above did nothing else meanwhile and went on: until the job begins it waits in a queue.

    Else nobody waited: a job that is only handed over makes its request no longer.
    """
    kind, batch.stage = batch.ints("kind"), batch.ints("stage")
    jobs = np.flatnonzero((kind == CONSUMER) & (batch.parent >= 0))
    sent = batch.parent[jobs]
    waited = (
        (kind[sent] == PRODUCER)
        & (batch.role[sent] == cp.PLAIN)
        & (batch.parent[sent] >= 0)
        & (batch.start[jobs] >= batch.start[sent])
    )
    jobs, sent = jobs[waited], sent[waited]
    within = (batch.end[jobs] > batch.end[sent]) & (
        batch.end[jobs] <= batch.end[batch.parent[sent]]
    )
    jobs, sent = jobs[within], sent[within]
    if not len(jobs):
        return
    other = np.flatnonzero(
        np.isin(batch.parent, batch.parent[sent]) & (kind != PRODUCER) & (batch.role != cp.FOLDED)
    )
    beside = grouped(other, batch.parent[other].tolist())
    end, batch.stage = batch.end.copy(), batch.stage.copy()
    for job, row in zip(jobs.tolist(), sent.tolist(), strict=True):
        rows = beside.get(int(batch.parent[row]), [])
        begun, done = batch.end[row], batch.end[job]
        busy = (
            np.minimum(batch.end[rows], done) - np.maximum(batch.start[rows], begun)
            if len(rows) <= MOST_AT_ONCE
            else np.array([done])
        )
        if busy[busy > 0].sum() <= _POLLING * (done - begun):
            end[row], batch.stage[row] = max(end[row], done), cp.QUEUE
    batch.end = end
