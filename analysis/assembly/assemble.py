"""Which requests and model calls do these spans report? Spans of quiet traces in, rows of `requests` and `llm_calls` out.

Pure: an Arrow table of spans (columns of collector/store/sql/quiet_spans.sql, sorted by trace and span id) becomes Arrow tables. Engine spans are
put under the client call that they served: by parent link, else by response id, also across traces; a trace that only held such an engine
span is then no request of its own. A call that two instrumentations report is one call (duplicate_spans.py), and so are its attempts (attempts.py).
Times are integer nanoseconds; the stage times of a request sum to its E2E exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.calls import Calls
from overrun.analysis.assembly.columns import numpy_column
from overrun.analysis.assembly.critical_path import Paths
from overrun.analysis.assembly.request_rows import request_rows
from overrun.analysis.assembly.steps.add_missing_parents import add_missing_parents
from overrun.analysis.assembly.steps.count_model_requests import count_model_requests
from overrun.analysis.assembly.steps.count_router_choices import count_router_choices
from overrun.analysis.assembly.steps.drop_copies import drop_copies
from overrun.analysis.assembly.steps.end_logged_streams import end_logged_streams
from overrun.analysis.assembly.steps.extend_streaming_servers import extend_streaming_servers
from overrun.analysis.assembly.steps.free_servers import free_servers
from overrun.analysis.assembly.steps.join_attempts import join_attempts
from overrun.analysis.assembly.steps.join_engines import join_engines
from overrun.analysis.assembly.steps.join_handed_over_streams import join_handed_over_streams
from overrun.analysis.assembly.steps.join_queued_jobs import join_queued_jobs
from overrun.analysis.assembly.steps.join_split_engines import join_split_engines
from overrun.analysis.assembly.steps.lift_streamed_answers import lift_streamed_answers
from overrun.analysis.assembly.steps.nest_calling_steps import nest_calling_steps
from overrun.analysis.assembly.steps.nest_duplicates import nest_duplicates
from overrun.analysis.assembly.steps.nest_servers import nest_servers
from overrun.analysis.assembly.steps.nest_tools import nest_tools
from overrun.analysis.assembly.steps.part_shared_ids import part_shared_ids
from overrun.analysis.assembly.steps.part_turns import part_turns
from overrun.analysis.assembly.steps.start_parsers_late import start_parsers_late
from overrun.analysis.assembly.steps.wait_for_jobs import wait_for_jobs
from overrun.analysis.assembly.walk import walk
from overrun.collector.ingest.rounds import Assembled

# What brings together the spans of one call or one request, in this order: each step sees what those before it joined.
STEPS: Final[tuple[Callable[[Batch], None], ...]] = (
    part_shared_ids,
    join_queued_jobs,
    join_handed_over_streams,
    lift_streamed_answers,
    nest_servers,
    end_logged_streams,
    join_attempts,
    count_router_choices,
    nest_duplicates,
    free_servers,
    join_engines,
    join_split_engines,
    count_model_requests,
    nest_calling_steps,
    start_parsers_late,
    nest_tools,
    add_missing_parents,
    extend_streaming_servers,
    part_turns,
    wait_for_jobs,
)


def assemble(spans: pa.Table) -> Assembled:
    """Rows of `requests` and `llm_calls` for every trace in `spans` (all spans of a trace must be there)."""
    spans = drop_copies(spans.combine_chunks())
    if not spans.num_rows:
        return _nothing()
    batch = _joined(spans)
    walked = walk(batch)
    calls = Calls(batch, walked)
    return Assembled(request_rows(batch, walked, calls), calls.table(), _covered(spans))


def walk_trace(spans: pa.Table) -> tuple[pa.Table, Paths]:
    """The spans of one request (repeats dropped, in the order of the paths' rows) and its critical path, for the waterfall."""
    batch = _joined(drop_copies(spans.combine_chunks()))
    return batch.spans, walk(batch).paths


def _joined(spans: pa.Table) -> Batch:
    batch = Batch(spans)
    for step in STEPS:
        step(batch)
    return batch


def _covered(spans: pa.Table) -> pa.Table:
    """The traces of these spans."""
    hi, lo = numpy_column(spans, "trace_hi"), numpy_column(spans, "trace_lo")
    new = np.ones(len(hi), dtype=bool)
    new[1:] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
    return pa.table({"trace_hi": hi[new], "trace_lo": lo[new]})


def _nothing() -> Assembled:
    empty = pa.table({"trace_hi": pa.array([], pa.uint64()), "trace_lo": pa.array([], pa.uint64())})
    return Assembled(empty, empty, empty)
