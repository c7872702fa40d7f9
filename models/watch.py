"""Does the predictor still hold on the traffic that the store sees? Predicts each finished call as a router would have had it, beside what was generated.

Every call is predicted from what had finished before it started, and reported to the predictor when it ended; `overrun.models.drift` says whether P90 holds
and whether the model still gains. A newer artifact in the folder is taken over, and its count starts again.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from overrun.analysis.front.predictor_watch import State
from overrun.collector.ingest.rounds import Assembled
from overrun.models.artifact import MANIFEST
from overrun.models.errors import ModelsError, RequestError
from overrun.models.predict import Predictor
from overrun.models.request import parse_output_tokens

log = logging.getLogger("overrun.predictor")
# Calls looked at in one round of a server's assembly: about 0.3 ms each, and rounds are half a second apart.
MOST_CALLS: Final = 500
# Calls whose prediction is remembered: a late span has a call assembled again, and it must not count twice.
_REMEMBERED: Final = 20_000
_FIELDS: Final = {"route": "route", "model": "model", "input_tokens": "input_tokens", "max_tokens": "max_tokens", "temperature": "temperature",
                  "streaming": "stream", "turn": "turn", "session": "session", "tenant": "tenant", "prefix_hash": "prefix_hash"}  # fmt: skip
_PROMPTED: Final = "it was trained with prompts, which the store does not keep: see /healthz of `overrun length serve` for its accuracy"

Key = tuple[int, int, int]


class Watch:
    """The predictor of a folder, held against assembled calls. `assemble` is for one thread, `state` for any."""

    def __init__(
        self,
        folder: Path,
        assemble: Callable[[pa.Table], Assembled],
        most_calls: int | None = MOST_CALLS,
    ) -> None:
        """Load the artifact; `assemble` makes the calls, of which the newest `most_calls` of a round count (None: all).

        Raises:
            ArtifactError: it does not load.
        """
        self._folder, self._assemble, self._most_calls = folder, assemble, most_calls
        self._lock = threading.Lock()
        self._stamp = _stamp(folder)
        self._start(Predictor.load(folder))

    def _start(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._known: OrderedDict[Key, tuple[float, float] | None] = OrderedDict()
        # Ended calls that a call which started earlier must not know of: end in seconds, a number that breaks ties, row, tokens.
        self._ended: list[tuple[float, int, dict[str, Any], int]] = []
        self._predicted = 0

    def assemble(self, spans: pa.Table) -> Assembled:
        """The rows of these spans, with `predicted_p50`, `predicted_p90` and `predictor` for the calls that count."""
        made = self._assemble(spans)
        with self._lock:
            self._reload()
            if self._predictor.wants_prompts or not made.llm_calls.num_rows:
                return made
            return Assembled(made.requests, self._beside(made.llm_calls), made.covered)

    def state(self) -> State:
        """How the predictor does on the newest calls."""
        with self._lock:
            drift, prompted = self._predictor.drift.state(), self._predictor.wants_prompts
            return {
                "artifact": self._predictor.version, "watching": not prompted, "reason": _PROMPTED if prompted else None, "predicted": self._predicted,
                "rows": drift["rows"], "p90_coverage": drift["p90_coverage"], "error_reduction": drift["error_reduction"], "retrain": drift["retrain"],
            }  # fmt: skip

    def _reload(self) -> None:
        stamp = _stamp(self._folder)
        if stamp is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._start(Predictor.load(self._folder))
        except (ModelsError, OSError) as error:
            log.error("the newer artifact is not loaded: %s", error)

    def _beside(self, calls: pa.Table) -> pa.Table:
        """`calls` with the columns of the predictions, null for calls that failed, say no length, or are too many."""
        rows = calls.select(
            [
                *_FIELDS,
                "trace_hi",
                "trace_lo",
                "span_id",
                "start_ns",
                "duration_ns",
                "output_tokens",
                "error",
            ]
        ).to_pylist()
        counting = [
            number for number, row in enumerate(rows) if row["output_tokens"] and not row["error"]
        ]
        counting = sorted(counting, key=lambda number: int(rows[number]["start_ns"]))
        counting = counting if self._most_calls is None else counting[-self._most_calls :]
        made: dict[int, tuple[float, float] | None] = {}
        for number in counting:
            row = rows[number]
            key = (row["trace_hi"], row["trace_lo"], row["span_id"])
            if key not in self._known:
                self._known[key] = self._predict(row)
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
            made[number] = self._known[key]
        own = [made.get(number) or (None, None) for number in range(len(rows))]
        versions = [None if p50 is None else self._predictor.version for p50, _ in own]
        columns = {"predicted_p50": ([one[0] for one in own], pa.float64()), "predicted_p90": ([one[1] for one in own], pa.float64()),
                   "predictor": (versions, pa.string())}  # fmt: skip
        for name, (values, kind) in columns.items():
            calls = calls.append_column(name, pa.array(values, kind))
        return calls

    def _predict(self, call: dict[str, Any]) -> tuple[float, float] | None:
        """P50 and P90 of a call, asked when it started; its end is reported before the next call that starts after it.

        None for one whose telemetry says what no request can have, such as a temperature below zero: it must not keep its trace out of the store.
        """
        start_s = call["start_ns"] / 1e9
        while self._ended and self._ended[0][0] <= start_s:
            _, _, row, tokens = heapq.heappop(self._ended)
            self._predictor.observe(row, tokens)
        row = {ours: call[theirs] for theirs, ours in _FIELDS.items()} | {
            "time": start_s,
            "id": str(self._predicted + 1),
        }
        if (row["max_tokens"] or 0) < 1:
            row["max_tokens"] = None
        try:
            parse_output_tokens(call["output_tokens"])
            answer = self._predictor.predict(row)
        except RequestError:
            return None
        self._predicted += 1
        heapq.heappush(
            self._ended,
            (
                (call["start_ns"] + call["duration_ns"]) / 1e9,
                self._predicted,
                row,
                int(call["output_tokens"]),
            ),
        )
        return answer["p50"], answer["p90"]


def _stamp(folder: Path) -> tuple[int, int, int] | None:
    try:
        found = (folder / MANIFEST).stat()
    except OSError:  # between the two renames of a swap
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
