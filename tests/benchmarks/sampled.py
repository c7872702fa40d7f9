"""Does a report that reads a sample name what a report that reads all names? Simulated incidents of ten minutes, each read whole and as one trace in two.

python -m tests.benchmarks.sampled [--scenarios NAME ...] [--seed N]

And how often is a share right within the error that the report states? In 200 draws of one window, 190 are wanted.

A window of a million requests is read as 40,000 at least; here a sample is some hundreds or thousands, so that chance has much more to say.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from itertools import chain
from math import isclose
from pathlib import Path
from typing import Final
from unittest.mock import patch

import msgspec

from overrun.analysis.front.file_import import import_files
from overrun.analysis.front.report import Report, build
from overrun.analysis.numbers.statistics import request_sample
from overrun.analysis.numbers.window import Window, count
from overrun.analysis.words.slo import parse_slo
from overrun.collector.config import load
from overrun.collector.store.database import open_store
from overrun.sample_traces.simulate import Job, make, write
from overrun.sample_traces.simulator.faults import SCENARIOS
from tests.analysis.numbers.statistics.test_request_sample import within_error
from tests.benchmarks.results import Figure, add_write_flag, measured, record
from tests.benchmarks.spark import leaves

SCRIPT: Final = "python -m tests.benchmarks.sampled"
DRAWS: Final = 200


def main() -> None:
    """Compare the two reports of each incident."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS))
    parser.add_argument("--seed", type=int, default=3)
    add_write_flag(parser)
    asked = parser.parse_args()
    pairs = {}
    for name in asked.scenarios:
        pairs[name] = both(name, asked.seed)
        whole, some = pairs[name]
        print(
            name,
            whole.window.requests,
            answer(whole),
            "" if same(whole, some) else f"sampled: {answer(some)}",
            flush=True,
        )
    with patch.object(request_sample, "LEAST_OF_KIND", 60):
        within = within_error(DRAWS)
    print(f"of {DRAWS} draws within the stated error:", within)
    if asked.write:
        record("diagnosis", figures(list(pairs.values()), asked.seed, within))


def both(scenario: str, seed: int) -> tuple[Report, Report]:
    """The report over all requests of an incident, and the one over a sample of one trace in two."""
    with tempfile.TemporaryDirectory(prefix="overrun-sampled-") as name:
        traces, db = Path(name) / "otlp", Path(name) / "case.db"
        write(make(Job(scenario=scenario, seed=seed, fixes=False)), traces)
        settings = load(flags={"collector.db": str(db)})
        import_files(sorted(traces.glob("*.pb")), settings, url=None, progress=lambda *_: None)
        slo = parse_slo(json.loads((traces / "truth.json").read_bytes())["slo"])
        store = open_store(db, create=False)
        try:
            with store.reading() as con:
                n = count(con, Window())
                whole = build(con, Window(), slo)
                # One trace in two of these; failed, slow and rare requests are read more often, as ever.
                with patch.object(request_sample, "LEAST_EVEN", n // 3):
                    some = build(con, Window(most=n - 1), slo)
        finally:
            store.close()
    assert some.sample is not None
    return whole, some


def answer(report: Report) -> tuple[str, str | None, str | None]:
    """What a report says is wrong."""
    verdict = report.verdict
    return verdict.status, verdict.stage, verdict.cause


def same(whole: Report, some: Report) -> bool:
    """Whether both say the same is wrong."""
    return answer(whole) == answer(some)


def numbers_equal(whole: Report, some: Report) -> bool:
    """Whether counts are equal, and percentiles to 12 digits: between two values they are weighed in two ways."""
    parts = (
        [leaves(msgspec.to_builtins(part)) for part in (one.latency, one.goodput, one.errors)]
        for one in (whole, some)
    )
    pairs = zip(*(chain.from_iterable(each) for each in parts), strict=True)
    return all(
        a == b or (isinstance(a, float) and isinstance(b, float) and isclose(a, b, rel_tol=1e-12))
        for (_, a), (_, b) in pairs
    )


def figures(
    pairs: Sequence[tuple[Report, Report]], seed: int, within: Mapping[str, int]
) -> list[Figure]:
    """The figures of docs/results."""
    conditions = (
        f"ten minutes each, seed {seed}, one trace in two beside what is failed, slow or rare"
    )
    exact = sum(numbers_equal(*pair) for pair in pairs)
    return [
        measured(
            "Incidents read as a sample: the verdict of all requests",
            sum(same(*pair) for pair in pairs),
            of=len(pairs),
            more={
                "same stage": sum(one.verdict.stage == other.verdict.stage for one, other in pairs),
                "percentiles, goodput and failures equal to 12 digits": exact,
            },
            script=SCRIPT,
            conditions=conditions,
        ),
        measured(
            "Draws in which a share is right within the error that the report states, the worst of six shares",
            min(within.values()),
            of=DRAWS,
            more=within,
            script=SCRIPT,
            conditions="8,000 requests, one trace in sixteen and more of what is failed, slow or rare",
        ),
    ]


if __name__ == "__main__":
    main()
