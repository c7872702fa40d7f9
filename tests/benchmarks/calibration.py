"""Do confidences mean what they say? Of causes that were named with so much confidence, how many were right, over windows with known causes.

`python -m tests.benchmarks.referee_set --lacking "" no_tokens ... --out FILE` writes what was said of each; this script fits the curve of
`analysis/diagnosis/confidence.py` on them, holds it against the one world that it was not fitted on (each in turn), prints the reliability table with the Brier
score, and with `--write` records both. Outcome is that of the cause that the verdict names first; a window without a named cause has none.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.numbers.statistics.proportion import wilson
from tests.benchmarks import results
from tests.benchmarks.results import Figure, measured

# Edges of the groups of confidence: below one half nothing is advised, above it most rules say between 0.6 and 0.95.
EDGES: Final = (0.0, 0.5, 0.7, 0.8, 0.9, 1.0)


# Shares of the excess between which the curve is fitted.
KNOTS: Final = (0.0, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)
# What is assumed of every group before it is looked at: so many causes, half of them right (Laplace's rule).
PRIOR: Final = 2.0

Curve = tuple[tuple[float, float], ...]


class Case(NamedTuple):
    """A named cause: whose world, the share of the excess (0..1) that it explains, and whether it was right."""

    world: str
    share: float
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
        Case(row["world"], row["share"], row["right"])
        for row in rows
        if row["cause"] is not None and row["share"] is not None
    ]


def fitted(cases: Sequence[Case]) -> Curve:
    """Return the curve of these causes: the part that was right of each group of shares, pooled until it rises (pool adjacent violators), at mean shares."""
    pools: list[list[float]] = []
    for low, high in itertools.pairwise(KNOTS):
        some = [one for one in cases if low <= one.share < high or high == one.share == 1.0]
        if not some:
            continue
        n = float(len(some))
        pools.append([n, sum(one.right for one in some), sum(one.share for one in some)])
        while len(pools) > 1 and _right(pools[-2]) >= _right(pools[-1]):
            last = pools.pop()
            pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
    return tuple(
        (round(share / n, 2), round(_right([n, right, share]), 2)) for n, right, share in pools
    )


def _right(pool: Sequence[float]) -> float:
    return (pool[1] + 0.5 * PRIOR) / (pool[0] + PRIOR)


def on(curve: Curve, share: float) -> float:
    """Return the curve at a share, straight between its points and level beyond them."""
    return float(np.interp(share, [one for one, _ in curve], [right for _, right in curve]))


def held_out(cases: Sequence[Case]) -> list[Said]:
    """Return what a curve fitted on the other worlds says of each cause."""
    out = []
    for world in sorted({one.world for one in cases}):
        curve = fitted([one for one in cases if one.world != world])
        out += [Said(on(curve, one.share), one.right) for one in cases if one.world == world]
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
    print("curve:", fitted(cases))
    told = held_out(cases)
    if not told:
        raise SystemExit("no case of these files names a cause: nothing can be compared")
    print(table(told))
    if given.write:
        script = "python -m tests.benchmarks.calibration FILES"
        results.record("confidence", figures(told, script=script, conditions=given.conditions))


if __name__ == "__main__":
    main()
