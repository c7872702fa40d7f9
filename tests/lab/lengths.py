"""What is the length predictor worth on a real engine? Its training for a set-up, and `overrun routing` against the measured phases.

The predictor learns from a schedule of the same kind with another seed, as from the traffic of an earlier day. Seven of ten of its requests train it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tests.lab.application import MODEL, MOST_TOKENS
from tests.lab.client import Seen
from tests.lab.load import Load, Request, schedule

EARLIER_S, EARLIER_SEED = 300.0, 10_000  # the schedule that is learned from


class Promised(msgspec.Struct, kw_only=True):
    """A change that `overrun routing` promised of a policy, beside the measured one: ratios, -0.3 is 30 % less."""

    figure: str
    promised: float
    measured: float


def trained(load: Load, seed: int, folder: Path) -> Path:
    """The artifact below `folder`, made if it is not there yet."""
    artifact, trace = folder / "predictor", folder / "earlier.jsonl"
    if artifact.exists():
        return artifact
    earlier = schedule(replace(load, seconds=EARLIER_S), EARLIER_SEED + seed)
    trace.write_bytes(b"\n".join(msgspec.json.encode(_row(request)) for request in earlier))
    command = [sys.executable, "-m", "overrun", "train", "--trace", str(trace)]
    subprocess.run([*command, "--out", str(artifact)], check=True, capture_output=True)
    return artifact


def _row(request: Request) -> dict[str, Any]:
    return {
        "time": request.at_s,
        "route": request.route,
        "tenant": request.tenant,
        "model": MODEL,
        "input_tokens": request.shared_tokens + request.own_tokens,
        "output_tokens": request.output_tokens,
        "max_tokens": MOST_TOKENS,
        "stream": True,
    }


def longest_short(load: Load, seed: int, artifact: Path, replicas: int) -> float:
    """Up to which expected length an answer is short, by the requests that the predictor learned from."""
    from overrun.analysis.simulator.placement import longest_short as parted
    from overrun.models.predict import Predictor

    predictor = Predictor.load(artifact)
    earlier = schedule(replace(load, seconds=EARLIER_S), EARLIER_SEED + seed)
    rows = [{k: v for k, v in _row(r).items() if k != "output_tokens"} for r in earlier]
    medians = [answer["p50"] for answer in predictor.predict_batch(rows)]
    return float(parted(np.array(medians, dtype=np.float64), replicas))


def figures(seen: Sequence[Seen]) -> dict[str, float]:
    """The figures of `overrun routing` as the client saw them, in ms."""
    done = [one for one in seen if one.error is None and one.ttft_ms and one.e2e_ms]
    length = np.array([one.output_tokens for one in done], dtype=np.float64)
    third, tenth = np.quantile(length, (1 / 3, 0.9))
    times = {
        "ttft": np.array([one.ttft_ms for one in done]),
        "e2e": np.array([one.e2e_ms for one in done]),
    }
    found = {
        f"{name}_p{level}": float(np.percentile(values, level))
        for name, values in times.items()
        for level in (50, 95)
    }
    found["short_p50"] = float(np.median(times["e2e"][length <= third]))
    found["long_p99"] = float(np.percentile(times["e2e"][length >= tenth], 99))
    return found


def promised(
    answer: dict[str, Any],
    policy: str,
    usual: str,
    before: dict[str, float],
    after: dict[str, float],
) -> list[Promised]:
    """Each figure's change from the usual policy to `policy`, by the answer of `overrun routing` and by the client."""
    rows = {
        row["policy"]: row["seconds"] for row in answer["outcomes"] if row["known"] == "predicted"
    }
    return [
        Promised(
            figure=name,
            promised=rows[policy][name] / rows[usual][name] - 1.0,
            measured=after[name] / before[name] - 1.0,
        )
        for name in before
    ]
