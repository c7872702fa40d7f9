"""How right is `overrun routing`? Its answers against an engine of another make that really runs each policy.

The truth is `whatif_truth`: other step costs, noise and stalls, written apart from the product. It serves public traces under least requests, which is what a
recording would hold, and then under each policy with the same knowledge of the lengths. The command's answer for the same calls is compared, once for engines
of a stated size with assumed costs (all that a trace alone allows), once for engines that were calibrated on the recording.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from overrun.analysis.simulator import placement
from overrun.analysis.simulator.engine import Costs, Setup
from overrun.models.routing import (
    BASELINE,
    LENGTHLESS,
    POLICIES,
    Fleet,
    calls_of,
    evaluate,
    needed_s,
)
from overrun.models.sources import load_traces
from tests.analysis.whatif.builders import calls as calls_with
from tests.analysis.whatif.builders import facts_of
from tests.benchmarks import results
from tests.benchmarks.whatif_truth import Placement, Server, Traffic, record

DATA: Final = Path(__file__).parents[1] / "models" / "data"
# Name, file, and KV tokens of a replica.
TRACES: Final = (
    ("Azure chat", "trace_azure2023_conv.parquet", 48_000),
    ("Azure code", "trace_azure2023_code.parquet", 48_000),
    ("Mooncake", "trace_mooncake_conversation_two_blocks.parquet", 400_000),
)
CALLS: Final = 3_000
REPLICAS, SEATS = 4, 32
# Log units by which a router's expectation of a length is off.
SPREAD: Final = 0.4
METRICS: Final = ("ttft_p50", "ttft_p95", "ttft_p99", "e2e_p50", "e2e_p95", "e2e_p99")
# A change of less than that is no direction.
CLEAR: Final = 0.10


def percentiles(seconds: np.ndarray) -> dict[str, float]:
    """TTFT and E2E percentiles of a record of the truth."""
    return {
        f"{name}_p{level}": float(np.quantile(seconds[:, column], level / 100))
        for name, column in (("ttft", 1), ("e2e", 2))
        for level in (50, 95, 99)
    }


def served(traffic: Traffic, server: Server, policy: str, expected: np.ndarray) -> np.ndarray:
    """What the truth makes of the calls under a policy."""
    calls = calls_of(traffic.arrival, traffic.prompt.astype(float), traffic.output.astype(float))
    law = Costs(server.prompt_cost, 0.0, server.step, server.kv_cost, server.seat_cost)
    setup = Setup(replicas=server.replicas, max_sequences=server.seats)
    made, chosen = placement.placed(
        POLICIES[policy], calls, setup, law, expected, calls.arrival_s, server.seats
    )
    known = Placement(
        made.weight,
        made.rank,
        np.minimum(made.pool_from, server.replicas - 1),
        np.minimum(made.pool_to, server.replicas),
    )
    least = policy != "round_robin"
    assert chosen.replicas == server.replicas
    return record(traffic, Server(**{**vars(server), "least_loaded": least}), placed=known)


def recorded(traffic: Traffic, seconds: np.ndarray) -> Fleet:
    """Engines calibrated on what the truth's spans would tell."""
    queue, ttft, e2e = (1000.0 * seconds).T[:3]
    told = calls_with(
        len(seconds),
        start_s=traffic.arrival,
        e2e_ms=e2e,
        ttft_ms=ttft,
        ttft_engine_ms=ttft,
        engine_e2e_ms=e2e,
        queue_ms=queue,
        prefill_ms=ttft - queue,
        decode_ms=e2e - ttft,
        input_tokens=traffic.prompt,
        output_tokens=traffic.output,
        cached_tokens=traffic.cached,
        instance=[f"gpu-{int(r)}" for r in seconds[:, 3]],
    )
    facts = facts_of(told, percentile=95.0)
    engines, why = facts.engines
    if why is not None:
        raise RuntimeError(f"the recording cannot be calibrated on: {why}")
    return Fleet.calibrated(engines[0])


def trace(file: str, kv_tokens: int, load: float) -> tuple[Traffic, Server]:
    """A trace whose arrivals load the truth to `load`."""
    frame = load_traces([(DATA / file, None)]).head(CALLS)
    columns = (frame[name].to_numpy().astype(float) for name in ("input_tokens", "output_tokens"))
    inputs, outputs = (np.maximum(column, 1.0) for column in columns)
    arrival = frame["time"].dt.epoch("us").to_numpy() / 1e6
    server = Server(replicas=REPLICAS, seats=SEATS, kv=kv_tokens, least_loaded=True)
    came = Traffic(
        np.zeros(len(arrival)),
        inputs.astype(np.int64),
        np.zeros(len(arrival), np.int64),
        outputs.astype(np.int64),
        np.zeros(len(arrival), np.int64),
    )
    # The truth's own capacity: how long it takes for all of them at once, of which the last tenth runs empty.
    ends = np.sort(record(came, server)[:, 2])
    needed = float(ends[int(0.9 * len(ends))]) / 0.9
    stretched = (arrival - arrival[0]) * (needed / load / float(arrival[-1] - arrival[0]))
    return Traffic(stretched, came.prompt, came.cached, came.output, came.tenant), server


def compared(
    truth: dict[str, dict[str, float]], answer: Callable[[str], dict[str, float]]
) -> tuple[list[float], int, int]:
    """Differences between the answered and the true changes, and how many clear directions are right, of how many."""
    errors, right, clear = [], 0, 0
    for policy in POLICIES:
        if policy == BASELINE:
            continue
        given = answer(policy)
        for metric in METRICS:
            real = truth[policy][metric] / truth[BASELINE][metric] - 1.0
            errors.append(abs(given[metric] - real))
            if abs(real) >= CLEAR:
                clear, right = clear + 1, right + ((given[metric] > 0) == (real > 0))
    return errors, right, clear


def main() -> int:
    """Compare, print, and record with --write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", type=float, default=0.9)
    results.add_write_flag(parser)
    options = parser.parse_args()
    totals: dict[str, Any] = {name: ([], 0, 0) for name in ("stated", "calibrated")}
    for name, file, kv_tokens in TRACES:
        traffic, server = trace(file, kv_tokens, options.load)
        expected = traffic.output * np.exp(
            np.random.default_rng(0).normal(0.0, SPREAD, len(traffic.output))
        )
        truth = {
            policy: percentiles(served(traffic, server, policy, expected)) for policy in POLICIES
        }
        calls = calls_of(
            traffic.arrival, traffic.prompt.astype(float), traffic.output.astype(float)
        )
        fleets = {
            "stated": (Fleet.stated(REPLICAS, SEATS, kv_tokens), options.load),
            "calibrated": (
                recorded(traffic, served(traffic, server, BASELINE, expected)),
                None,
            ),
        }
        for kind, (fleet, load) in fleets.items():
            made = evaluate(calls, expected, fleet, load)
            changes = {one.policy: one.change for one in made.outcomes if one.known == "predicted"}
            errors, right, clear = compared(truth, lambda policy, found=changes: found[policy])  # type: ignore[misc]
            print(
                f"{name}, {kind}: median |difference| {100 * np.median(errors):.0f} points, "
                f"P90 {100 * np.quantile(errors, 0.9):.0f}, direction {right} of {clear}, load {made.load:.2f} (needed {needed_s(calls, fleet):.0f} s)"
            )
            old = totals[kind]
            totals[kind] = (old[0] + errors, old[1] + right, old[2] + clear)
    if options.write:
        results.record("routing", [_figure(kind, *total) for kind, total in totals.items()])
    for kind, (errors, right, clear) in totals.items():
        print(f"all, {kind}: {100 * np.median(errors):.1f} points, direction {right} of {clear}")
    return 0


def _figure(kind: str, errors: list[float], right: int, clear: int) -> results.Figure:
    return results.measured(
        f"Difference of the change that `overrun routing` predicts, {kind} engines",
        round(100.0 * float(np.median(errors)), 1),
        "percentage points, median",
        script="python -m tests.benchmarks.routing",
        conditions=f"{len(TRACES)} public traces of {CALLS:,} calls, {len(POLICIES) - 1} policies, {len(METRICS)} percentiles, {len(LENGTHLESS)} without lengths",
        more={
            "P90": round(100.0 * float(np.quantile(errors, 0.9)), 1),
            "direction": f"{right} of {clear}",
        },
    )


if __name__ == "__main__":
    sys.exit(main())
