"""Do confidences mean what they say? Of causes that were named with so much confidence, how many were right, over windows with known causes.

`python -m tests.benchmarks.referee_set --lacking "" no_tokens ... --out FILE` writes what was said of each; this script fits the weights of
`analysis/diagnosis/confidence.py` on them, holds them against the one world that they were not fitted on (each in turn), prints the reliability table with the
Brier score, and with `--write` records both. Outcome is that of the cause that the verdict names first; a window without a named cause has none.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.diagnosis.confidence import Sight, Weights, terms
from overrun.analysis.numbers.statistics.proportion import wilson
from tests.benchmarks import results
from tests.benchmarks.results import Figure, measured

# Edges of the groups of confidence: below one half nothing is advised, above it most rules say between 0.6 and 0.95.
EDGES: Final = (0.0, 0.5, 0.7, 0.8, 0.9, 1.0)
# Statuses of which a cause is named; within the target it is mere information.
TOLD: Final = ("over_budget", "possibly_over_budget")
# Penalty on the square of each weight (of the base a twentieth): so much evidence that a thing not seen matters is taken to be chance.
RIDGE: Final = 0.1
_STEPS: Final = 60


class Case(NamedTuple):
    """A named cause: whose world, what it was concluded from, and whether it was right."""

    world: str
    seen: Sight
    right: bool


class Said(NamedTuple):
    """How sure a named cause was (0..1), and whether it was right."""

    confidence: float
    right: bool


class Group(NamedTuple):
    """Causes of like confidence: from and to, how many, how many right, their mean confidence, and the 95 % Wilson interval of the share that was right."""

    low: float
    high: float
    n: int
    right: int
    confidence: float
    interval: tuple[float, float]


def read(paths: Sequence[Path]) -> list[Case]:
    """Return the named causes of files that `referee_set --out` wrote."""
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [
        Case(row["world"], Sight(**row["seen"]), row["right"])
        for row in rows
        if row["cause"] is not None and row.get("seen") and row["status"] in TOLD
    ]


def fitted(cases: Sequence[Case]) -> Weights:
    """Return the weights of these causes: logistic regression with a ridge, by Newton's steps; nothing that was not seen may make a cause surer (weights >= 0)."""
    x = np.array([terms(one.seen) for one in cases])
    y = np.array([one.right for one in cases], np.float64)
    ridge = np.full(x.shape[1], RIDGE)
    ridge[0] /= 20.0
    found, free = np.zeros(x.shape[1]), np.ones(x.shape[1], np.bool_)
    for _ in range(_STEPS):
        right = 1.0 / (1.0 + np.exp(-x @ found))
        slope = (x.T @ (y - right) - ridge * found)[free]
        bend = (x.T * (right * (1.0 - right))) @ x + np.diag(ridge)
        found[free] += np.linalg.solve(bend[np.ix_(free, free)], slope)
        below = (found < 0.0) & (np.arange(len(found)) > 0)
        found[below], free[below] = 0.0, False
    return Weights(*np.round(found, 2).tolist())


def on(weights: Weights, seen: Sight) -> float:
    """Return how sure these weights are of a cause."""
    odds = sum(weight * term for weight, term in zip(weights, terms(seen), strict=True))
    return seen.health / seen.fits / (1.0 + math.exp(-odds))


def held_out(cases: Sequence[Case]) -> list[Said]:
    """Return what weights fitted on the other worlds say of each cause."""
    out = []
    for world in sorted({one.world for one in cases}):
        weights = fitted([one for one in cases if one.world != world])
        out += [Said(on(weights, one.seen), one.right) for one in cases if one.world == world]
    return out


def brier(told: Sequence[Said]) -> float:
    """Return the mean squared difference of confidence and outcome (Brier, 1950): 0 is perfect, 0.25 is what "one half" always scores."""
    return sum((one.confidence - one.right) ** 2 for one in told) / len(told)


def groups(told: Sequence[Said]) -> list[Group]:
    """Return the groups of confidence that hold any case; an edge belongs to the group above it, 1.0 to the last."""
    out = []
    for low, high in itertools.pairwise(EDGES):
        some = [one for one in told if low <= one.confidence < high or high == one.confidence == 1]
        if some:
            right = sum(one.right for one in some)
            mean = sum(one.confidence for one in some) / len(some)
            out.append(Group(low, high, len(some), right, mean, wilson(right, len(some))))
    return out


def table(told: Sequence[Said]) -> str:
    """Return the reliability table and the Brier score in Markdown."""
    lines = ["| confidence | causes | mean confidence | right |", "|---|---|---|---|"]
    lines += [
        f"| {one.low:.0%} to {one.high:.0%} | {one.n} | {one.confidence:.0%} | {one.right / one.n:.0%} ({one.right}/{one.n}, "
        f"{100 * one.interval[0]:.0f}-{100 * one.interval[1]:.0f}) |"
        for one in groups(told)
    ]
    share = sum(one.right for one in told) / len(told)
    return "\n".join(
        [
            *lines,
            "",
            f"Brier score {brier(told):.3f}; of the share right alone {share * (1.0 - share):.3f}.",
        ]
    )


def figures(told: Sequence[Said], *, script: str, conditions: str) -> list[Figure]:
    """Return the Brier score and a figure per group of confidence."""
    share = sum(one.right for one in told) / len(told)
    out = [
        measured(
            "Brier score of the first cause's confidence",
            round(brier(told), 3),
            more={"of the share right alone": round(share * (1.0 - share), 3), "causes": len(told)},
            script=script,
            conditions=conditions,
        )
    ]
    out += [
        measured(
            f"Causes named with {one.low:.0%} to {one.high:.0%} confidence that were right",
            one.right,
            of=one.n,
            more={"mean confidence": round(one.confidence, 2)},
            script=script,
            conditions=conditions,
        )
        for one in groups(told)
    ]
    return out


def main() -> None:
    """Read result files, print the table, and record it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "files", nargs="+", type=Path, help="JSON lines that referee_set --out wrote"
    )
    parser.add_argument("--conditions", default="", help="which seeds these are, for docs/results")
    results.add_write_flag(parser)
    given = parser.parse_args()
    cases = read(given.files)
    if not cases:
        raise SystemExit("no case of these files names a cause: nothing can be compared")
    print("weights:", fitted(cases))
    told = held_out(cases)
    print(table(told))
    if given.write:
        script = "python -m tests.benchmarks.calibration FILES"
        results.record("confidence", figures(told, script=script, conditions=given.conditions))


if __name__ == "__main__":
    main()
