"""Which files of a folder are results of load tests, and which of them tell of the same run?

Generators write several files a run: its requests, its figures as JSON and as CSV, the figures of each stage and of all. Each run is to be told once, from
the file that says most of it; what only another file of it says (the rate that was asked for, the stages) is taken over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from overrun.collector.errors import ImportFailed
from overrun.collector.sources.importer import find_files, load_test_of
from overrun.collector.sources.load_tests import LoadTest, Run

# Of a folder these are looked at beside what an import takes.
_TABLES: Final = (".csv", ".csv.gz", ".csv.zst", ".jtl", ".parquet", ".json.gz", ".gz")
# What was printed may be kept in these; any other text of a folder is none of ours, and a long one is a log.
_PRINTED: Final = (".txt", ".log", ".out")
_MOST_PRINTED: Final = 8 << 20
# Tables of requests and an engine's own records are of any traffic, and no load test's runs.
_TELEMETRY: Final = ("load-test", "vllm")
# Figures of one run in two files differ by rounding alone: CSV files have two digits after the point, Locust's times two in all.
_SAME: Final = 0.02


@dataclass(slots=True)
class Found:
    """The runs of load tests, each with its tool and file, the `notes` on them, and the files that are something else."""

    runs: list[tuple[str, Path, Run]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)


def find_load_tests(paths: Sequence[Path]) -> Found:
    """Read the load tests among files and folders.

    Raises:
        ImportFailed: nothing is at a path, or a named file is a load test's result that cannot be read.
    """
    found = Found()
    tests: list[tuple[Path, LoadTest]] = []
    for path in _candidates(paths):
        try:
            test = load_test_of(path)
        except ImportFailed as error:
            if path in paths:
                raise
            found.notes.append(f"left out: {error}")
            continue
        if test is None or test.tool in _TELEMETRY:
            if path in paths or path.suffix not in _PRINTED:
                found.others.append(path)
        else:
            tests.append((path, test))
    found.runs = _told_once(tests)
    kept = {path for _, path, _ in found.runs}
    for path, test in tests:
        if path in kept:
            found.notes += [f"{path.name}: {note}" for note in dict.fromkeys(test.notes)]
    return found


def _candidates(paths: Sequence[Path]) -> Iterator[Path]:
    """The files to look at; what a folder holds of tables is looked at too."""
    for path in paths:
        if not path.is_dir():
            yield from find_files([path])
            continue
        inside = {
            one
            for one in path.rglob("*")
            if one.is_file()
            and (
                one.name.endswith(_TABLES)
                or (one.name.endswith(_PRINTED) and one.stat().st_size <= _MOST_PRINTED)
            )
        }
        try:
            inside |= set(find_files([path]))
        except ImportFailed:
            if not inside:
                raise
        yield from sorted(inside)


def _told_once(tests: Sequence[tuple[Path, LoadTest]]) -> list[tuple[str, Path, Run]]:
    """The runs, those with requests first, without those that another one tells of already."""
    listed = [(test.tool, path, run) for path, test in tests for run in test.runs]
    listed = _staged(listed)
    ranked = sorted(range(len(listed)), key=lambda at: (_rank(listed[at]), at))
    kept: list[int] = []
    for at in ranked:
        tool, path, run = listed[at]
        twin = next(
            (
                other
                for other in kept
                if _family(listed[other][0]) == _family(tool)
                and listed[other][1] != path
                and listed[other][1].parent == path.parent
                and (
                    listed[other][1].suffix != path.suffix
                    or bool(listed[other][2].requests) != bool(run.requests)
                )
                and _same(listed[other][2], run)
            ),
            None,
        )
        if twin is None:
            kept.append(at)
        else:
            _complete(listed[twin][2], run)
    kept = _without_totals(listed, kept)
    return [listed[at] for at in sorted(kept)]


def _staged(listed: Iterable[tuple[str, Path, Run]]) -> list[tuple[str, Path, Run]]:
    """inference-perf keeps the requests of all stages in one file: they are parted as many as its stages count, in order of time."""
    out = list(listed)
    for tool, path, run in list(out):
        if tool != "inference-perf" or not run.requests:
            continue
        stages = sorted(
            (
                item
                for item in out
                if item[0] == tool
                and item[1].parent == path.parent
                and item[2].summary is not None
                and (item[2].rate_rps is not None or item[2].in_flight is not None)
            ),
            key=lambda item: item[1].name,
        )
        sizes = [_attempts(stage[2]) for stage in stages]
        if not sizes or sum(sizes) != len(run.requests):
            continue
        edges = np.cumsum([0, *sizes])
        for (_, _, stage), low, high in zip(stages, edges, edges[1:], strict=False):
            part = replace(stage, requests=run.requests[low:high], summary=None)
            out.append((tool, path, part))
        out = [
            item for item in out if item[2] is not run and all(item is not one for one in stages)
        ]
    return out


def _without_totals(listed: Sequence[tuple[str, Path, Run]], kept: list[int]) -> list[int]:
    """Without the summary of all stages or users where these are told one by one: as many requests as all others of its folder together."""
    out = []
    for at in kept:
        tool, path, run = listed[at]
        rest = [
            listed[other][2]
            for other in kept
            if other != at and listed[other][0] == tool and listed[other][1].parent == path.parent
        ]
        total = sum(map(_attempts, rest))
        whole = run.summary is not None and run.rate_rps is None and run.in_flight is None
        staged = len(rest) > 1 and total > 0 and total <= _attempts(run)
        if not (whole and staged):
            out.append(at)
    return out


def _rank(item: tuple[str, Path, Run]) -> int:
    """Requests say more than figures, and figures with their load more than those without."""
    _, path, run = item
    return 0 if run.requests else 1 if ".csv" not in path.suffixes else 2


def _family(tool: str) -> str:
    return "aiperf" if tool == "genai-perf" else tool


def _attempts(run: Run) -> int:
    if run.requests or run.summary is None:
        return len(run.requests)
    return (run.summary.succeeded or 0) + run.summary.failed


def _same(one: Run, other: Run) -> bool:
    """Whether two descriptions are of one run: not of different loads, as many successful requests, with the same E2E and rate of answers."""
    if one.requests and other.requests:
        return False
    for name in ("rate_rps", "in_flight"):
        if None not in (loads := [getattr(run, name) for run in (one, other)]) and (
            loads[0] != loads[1]
        ):
            return False
    done = [_successes(run) for run in (one, other)]
    if None in done or done[0] != done[1]:
        return False
    alike = [
        _near(values[0], values[1])
        for values in (
            [_e2e_ms(run, "mean") for run in (one, other)],
            [_e2e_ms(run, "median") for run in (one, other)],
            [_answered_rps(run) for run in (one, other)],
        )
        if values[0] is not None and values[1] is not None
    ]
    return bool(alike) and all(alike)


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME * max(one, other)


def _answered_rps(run: Run) -> float | None:
    if run.summary is not None:
        return run.summary.answered_rps
    if not run.timed or not run.requests:
        return None
    start = min(one.start_ns + one.late_ns for one in run.requests)
    end = max(one.start_ns + one.e2e_ns for one in run.requests)
    return (_successes(run) or 0) / max((end - start) / 1e9, 1e-9)


def _successes(run: Run) -> int | None:
    if run.requests:
        return sum(request.error is None for request in run.requests)
    return run.summary.succeeded if run.summary is not None else None


def _e2e_ms(run: Run, figure: str) -> float | None:
    if run.requests:
        times = [(one.e2e_ns - one.late_ns) / 1e6 for one in run.requests if one.error is None]
        if not times:
            return None
        return float(np.mean(times) if figure == "mean" else np.median(times))
    if run.summary is None:
        return None
    return (
        run.summary.means.get("e2e")
        if figure == "mean"
        else run.summary.percentiles.get("e2e", {}).get(50.0)
    )


def _complete(run: Run, other: Run) -> None:
    """Take over what only the other description of a run says."""
    if run.rate_rps is None and run.in_flight is None:
        run.rate_rps, run.in_flight = other.rate_rps, other.in_flight
        if other.rate_rps is not None or other.in_flight is not None:
            run.name = other.name
    run.model = run.model or other.model
    run.duration_s = run.duration_s or other.duration_s
