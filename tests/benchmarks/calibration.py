"""Do confidences mean what they say? Of causes that were named with so much confidence, how many were right, over results of the fault benchmark.

`python -m tests.benchmarks.faults --held-out --seed SEED --results FILE` writes the cases; this script reads such files, prints the reliability table with the
Brier score, and with `--write` records both. Confidence and outcome are those of the cause that the verdict names first; a fault without a named cause has none.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from overrun.analysis.numbers.statistics.proportion import wilson
from tests.benchmarks import results
from tests.benchmarks.fault_case import Result
from tests.benchmarks.fault_tables import counted
from tests.benchmarks.results import Figure, measured

# Edges of the groups of confidence: below one half nothing is advised, above it most rules say between 0.6 and 0.95.
EDGES: Final = (0.0, 0.5, 0.7, 0.8, 0.9, 1.0)


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


def said(cases: Sequence[Result]) -> list[Said]:
    """Return confidence and outcome of the cause that each faulty case names first."""
    out = []
    for case in counted(cases):
        sure = {rule: confidence for rule, _, confidence in case.findings}
        if not case.healthy and case.cause in sure:
            out.append(Said(sure[case.cause], case.cause in {*case.causes, *case.accepted}))
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
        "files", nargs="+", type=Path, help="JSON lines that faults --results wrote"
    )
    parser.add_argument("--conditions", default="", help="which seeds these are, for docs/results")
    results.add_write_flag(parser)
    given = parser.parse_args()
    decoder = msgspec.json.Decoder(Result)
    told = said(
        [decoder.decode(line) for path in given.files for line in path.read_bytes().splitlines()]
    )
    if not told:
        raise SystemExit("no case of these files names a cause: nothing can be compared")
    print(table(told))
    if given.write:
        script = "python -m tests.benchmarks.calibration RESULTS"
        results.record("confidence", figures(told, script=script, conditions=given.conditions))


if __name__ == "__main__":
    main()
