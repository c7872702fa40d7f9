"""Does the length predictor still hold on live traffic? What the server asks of the process that watches one (`overrun.models.watch`), and what it tells of it.

Predictions stand beside what was generated, in `v_llm_calls`; coverage and gain go out at /metrics, in the API and, once a minute, as indicators.
"""

from __future__ import annotations

from typing import Final, Protocol, TypedDict

import pyarrow as pa

from overrun.collector.ingest.rounds import Assembled
from overrun.collector.process import gauges

EVERY_S: Final = 60.0


class State(TypedDict):
    """How the predictor does: `rows` newest finished calls that count; a share is None while there are too few, `retrain` if there is no reason to.

    `watching` is false where it cannot be watched here, and `reason` gives the reason. `artifact` is its version.
    """

    artifact: str
    watching: bool
    reason: str | None
    predicted: int
    rows: int
    p90_coverage: float | None
    error_reduction: float | None
    retrain: str | None


class Lengths(Protocol):
    """Predicts the calls of a store as they are assembled."""

    def assemble(self, spans: pa.Table) -> Assembled:
        """As `overrun.analysis.assembly.assemble.assemble`, with the predictions among the columns of the calls."""

    def state(self) -> State:
        """How it does now; from any thread."""


def state_of(watched: Lengths | None) -> State | None:
    """How the watched predictor does now; None where none is watched."""
    return None if watched is None else watched.state()


def metric_lines(state: State) -> list[str]:
    """The state in the Prometheus text format; what is not known yet is not there."""
    lines = ["# TYPE overrun_predictor_calls gauge", f"overrun_predictor_calls {state['rows']}"]
    for name, value in (
        ("p90_coverage", state["p90_coverage"]),
        ("error_reduction", state["error_reduction"]),
    ):
        if value is not None:
            lines += [
                f"# TYPE overrun_predictor_{name}_ratio gauge",
                f"overrun_predictor_{name}_ratio {value:.6g}",
            ]
    return [
        *lines,
        "# TYPE overrun_predictor_retrain gauge",
        f"overrun_predictor_retrain {int(state['retrain'] is not None)}",
    ]


def as_metrics(state: State, time_ns: int) -> bytes | None:
    """The state as a body for the collector's own metrics road; None while nothing is known."""
    known = {"p90_coverage": state["p90_coverage"], "error_reduction": state["error_reduction"]}
    values = {
        f"overrun.predictor.{name}": value for name, value in known.items() if value is not None
    }
    return gauges.body(f"predictor {state['artifact']}", values, time_ns) if values else None
