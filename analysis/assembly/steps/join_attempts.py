"""Which spans are attempts of one call, by the id that it was made under (LiteLLM)?"""

from __future__ import annotations

import numpy as np

from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import ERROR, numpy_column
from overrun.analysis.assembly.nesting import is_below


def join_attempts(batch: Batch) -> None:
    """Put attempts that were told of in spans of their own, under the id of the call that they were made for, beside or into the one that ended last.

    LiteLLM: each in a trace of its own, or all beside each other; a stream's span lasts from the first attempt on, and a server's span may be given the
    values of a failed one.
    """
    asked = batch.tried_before()
    status = numpy_column(batch.spans, "status")
    answered: list[int] = []
    numbers: dict[int, int] = {}
    for final, tried in asked.items():
        for row in tried:
            if batch.trace[row] != batch.trace[final]:
                if batch.parent[row] >= 0 and batch.parent[final] >= 0:
                    continue  # each is a part of a request of its own
                moved, stays = (
                    (row, final)
                    if batch.parent[row] < 0 and not _around(batch, row, final)
                    else (final, row)
                )
                if batch.parent[moved] >= 0:
                    continue
                batch.trace[batch.trace == batch.trace[moved]] = batch.trace[stays]
                batch.parent[moved] = batch.parent[stays]
            if _around(batch, row, final):
                if not is_below(row, final, batch.parent) and batch.parent[final] < 0:
                    batch.parent[final], numbers[final] = row, 1 + len(tried)
                    answered += [row] if status[final] != ERROR else []
            elif _around(batch, final, row) and not is_below(final, row, batch.parent):
                batch.parent[row] = final
    batch.spans = duplicate_spans.replaced(
        duplicate_spans.replaced(batch.spans, "status", dict.fromkeys(answered, 0)),
        "error_type",
        dict.fromkeys(answered),
    )
    batch.spans = duplicate_spans.replaced(batch.spans, "attempts", numbers)
    if asked and (np.diff(batch.trace) < 0).any():
        batch.sort_by_trace()


def _around(batch: Batch, outer: int, inner: int) -> bool:
    return bool(batch.start[outer] <= batch.start[inner] and batch.end[inner] <= batch.end[outer])
