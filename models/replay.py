"""What did the router know when each recorded request arrived?

Walks a recorded trace in time order through the same `History` and `feature_values` that serve live requests. A request
enters the history when it finishes, not when it arrives: a request that starts in between must not see it.
"""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from overrun.models.artifact import QUANTILES
from overrun.models.features import FEATURES, feature_values
from overrun.models.history import History, past_quantiles
from overrun.models.request import Request

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

    `features` is (records, len(FEATURES)) float32, `past` (records, len(QUANTILES)) float64 the quantiles in tokens of
    what the route generated recently, or all traffic while the route is new. `order` are the record numbers in order of
    finish, and `known[i]` of them had finished when record i arrived. `history` is as after the last finish;
    `stored_at_split` is what an artifact written at the moment of the split would have held.
    """

    features: NDArray[np.float32]
    past: NDArray[np.float64]
    order: NDArray[np.int64]
    known: NDArray[np.int64]
    history: History
    stored_at_split: dict[str, Any]


def replay(
    records: Sequence[Record],
    split: int,
    progress: Callable[[float], None] | None = None,
    salt: bytes = b"",
) -> Replay:
    """Return the features of each record as of its arrival.

    `records` are in order of arrival; `split` is the index of the first test record.
    `progress` gets the finished share, 0..1. `salt` hides tenants (`overrun.models.history.keys_of`).
    """
    history = History(salt)
    features = np.empty((len(records), len(FEATURES)), dtype=np.float32)
    past = np.empty((len(records), len(QUANTILES)))
    known = np.empty(len(records), dtype=np.int64)
    order: list[int] = []
    running: list[tuple[float, int]] = []
    stored_at_split = history.to_payload()

    def finish() -> None:
        index = heapq.heappop(running)[1]
        order.append(index)
        history.observe(records[index].request, records[index].output_tokens)

    for index, record in enumerate(records):
        while running and running[0][0] <= record.request.time_s:
            finish()
        if index == split:
            stored_at_split = history.to_payload()
        windows = history.windows_of(record.request)
        features[index] = feature_values(
            record.request, windows, history.arrivals_of(record.request)
        )
        history.arrive(record.request)
        past[index] = past_quantiles(windows, QUANTILES.values())
        known[index] = len(order)
        heapq.heappush(running, (record.finished_s, index))
        if progress is not None and index % _REPORT_EVERY == 0:
            progress(index / len(records))
    while running:
        finish()
    return Replay(features, past, np.array(order, dtype=np.int64), known, history, stored_at_split)


def frozen(
    records: Sequence[Record], stored: Mapping[str, Any]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return features and past of `records` for a router that reports no finished requests: history stays `stored`.

    When the same caller came last is known without reports.
    """
    history = History.from_payload(stored)
    windows = [history.windows_of(record.request) for record in records]
    rows = []
    for record, own in zip(records, windows, strict=True):
        rows.append(feature_values(record.request, own, history.arrivals_of(record.request)))
        history.arrive(record.request)
    features = np.array(rows, dtype=np.float32).reshape(len(records), len(FEATURES))
    return features, np.array([past_quantiles(own, QUANTILES.values()) for own in windows]).reshape(
        len(records), len(QUANTILES)
    )


def span_s(records: Sequence[Record]) -> float:
    """Return the seconds between the first and the last arrival, 0 for none."""
    times = [record.request.time_s for record in records if not math.isnan(record.request.time_s)]
    return max(times) - min(times) if times else 0.0
