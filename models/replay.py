"""What did the router know when each recorded request arrived?

Walks a recorded trace in time order through the same `History` and `feature_values` that serve live requests. A request
enters the history when it finishes, not when it arrives: a request that starts in between must not see it.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from models.features import FEATURES, feature_values
from models.history import History
from models.request import Request

# Traces without durations get a slow server, so that history is never seen earlier than it could have been: 5 s to the
# first token, then 20 tokens/s. With 1 s and 100 tokens/s the error on the Azure traces changes by less than 1 %.
ASSUMED_FIRST_TOKEN_S: Final = 5.0
ASSUMED_TOKEN_S: Final = 0.05
_REPORT_EVERY: Final = 2_000


@dataclass(frozen=True, slots=True)
class Record:
    """One finished request of a trace: what was asked, the tokens generated, and its seconds (None: not recorded)."""

    request: Request
    output_tokens: int
    e2e_s: float | None = None

    @property
    def finished_s(self) -> float:
        """The second in which the request left the system, assumed where the trace does not say."""
        if self.e2e_s is not None:
            return self.request.time_s + self.e2e_s
        return self.request.time_s + ASSUMED_FIRST_TOKEN_S + ASSUMED_TOKEN_S * self.output_tokens


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome of walking a trace.

    `features` is (records, len(FEATURES)) float32; `history` is as after the last request finished; `stored_at_split`
    is what an artifact written at the moment of the split would have held.
    """

    features: NDArray[np.float32]
    history: History
    stored_at_split: list[dict[str, Any]]


def replay(records: Sequence[Record], split: int, progress: Callable[[float], None] | None = None) -> Replay:
    """Return the features of each record as of its arrival.

    `records` are in order of arrival; `split` is the index of the first test record.
    `progress` gets the finished share, 0..1.
    """
    history = History()
    features = np.empty((len(records), len(FEATURES)), dtype=np.float32)
    running: list[tuple[float, int]] = []
    stored_at_split: list[dict[str, Any]] = []
    for index, record in enumerate(records):
        while running and running[0][0] <= record.request.time_s:
            finished = records[heapq.heappop(running)[1]]
            history.observe(finished.request, finished.output_tokens)
        if index == split:
            stored_at_split = history.to_payload()
        features[index] = feature_values(record.request, history.windows_of(record.request))
        heapq.heappush(running, (record.finished_s, index))
        if progress is not None and index % _REPORT_EVERY == 0:
            progress(index / len(records))
    while running:
        finished = records[heapq.heappop(running)[1]]
        history.observe(finished.request, finished.output_tokens)
    return Replay(features, history, stored_at_split)


def frozen_features(records: Sequence[Record], stored: Sequence[dict[str, Any]]) -> NDArray[np.float32]:
    """Return the features of `records` for a router that reports no finished requests: history stays as `stored`."""
    history = History.from_payload(stored)
    rows = [feature_values(record.request, history.windows_of(record.request)) for record in records]
    return np.array(rows, dtype=np.float32).reshape(len(records), len(FEATURES))


def span_s(records: Sequence[Record]) -> float:
    """Return the seconds between the first and the last arrival, 0 for none."""
    times = [record.request.time_s for record in records if not math.isnan(record.request.time_s)]
    return max(times) - min(times) if times else 0.0
