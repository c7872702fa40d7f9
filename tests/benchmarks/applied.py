"""What `overrun applied` reports of fixes that undid the laboratory's faults: predicted from the fault alone, observed on the fixed engine.

    python -m tests.benchmarks.applied [--write]

Each experiment's recording (tests/lab/recordings) is read into a database; the fix came between its phases `fault` and `fixed`.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from overrun.analysis.front.applied import applied, moment_of
from overrun.analysis.front.asked import Source
from overrun.analysis.front.file_import import import_files
from overrun.analysis.front.ledger import Applied, render_ledger
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.config import CollectorSettings, Settings
from tests.benchmarks.results import add_write_flag, measured, record
from tests.lab.drawn import named
from tests.lab.recordings import FOLDER

SLO = "ttft:1500 e2e:12000"
SCRIPT = "python -m tests.benchmarks.applied"


def answers() -> Iterator[tuple[str, Applied]]:
    """(experiment, answer) of every recording that a what-if predicts."""
    for folder in sorted(FOLDER.iterdir()):
        experiment = named(folder.name)
        command = experiment.whatif if experiment else ()
        if not command:
            continue
        for seed in sorted(folder.iterdir()):
            try:
                yield folder.name, _answer(seed, command)
            except AnalysisError as error:
                print(f"{folder.name}: {error}")


def _answer(seed: Path, command: tuple[str, ...]) -> Applied:
    with tempfile.TemporaryDirectory() as held:
        db = Path(held) / "x.db"
        settings = Settings(collector=CollectorSettings(db=str(db)))
        phases = [seed / "fault", seed / "fixed"]
        import_files(phases, settings, url=None, progress=lambda at, total: None)
        with duckdb.connect(str(db), read_only=True) as con:
            rows = con.execute("select start_ns from requests order by 1").fetchall()
        starts = [row[0] for row in rows]
        pause, last = max((later - one, one) for one, later in itertools.pairwise(starts))
        at = datetime.fromtimestamp((last + pause / 2) / 1e9, UTC).isoformat()
        flags = dict(zip(command[1::2], command[2::2], strict=True))
        parameters = {flag.lstrip("-").replace("-", "_"): value for flag, value in flags.items()}
        fix = command[0].replace("-", "_")
        return applied(
            Source(settings, db, None), fix, parameters, moment_of(at, "10m", "0s"), {"slo": SLO}
        )


def main() -> None:
    """Print the ledger, and record it."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_write_flag(parser)
    write = parser.parse_args().write
    found = list(answers())
    print(render_ledger([answer for _, answer in found]))
    if not write:
        return
    known = [(name, a) for name, a in found if a.outcome != "not_known"]
    figures = [
        measured(
            "Fixes that gained what was predicted (intervals meet)",
            sum(answer.outcome == "as_predicted" for _, answer in known),
            of=len(known),
            script=SCRIPT,
        )
    ]
    for name, answer in known:
        assert answer.predicted_ms is not None
        assert answer.adjusted_ms is not None
        assert answer.quantile is not None
        figures.append(
            measured(
                f"{name}: {answer.fix}, predicted {(answer.metric or '').upper()} P{answer.quantile * 100:g}",
                round(answer.predicted_ms),
                "ms",
                more={
                    "before": round(answer.before_ms or 0.0),
                    "observed": round(answer.adjusted_ms),
                    "outcome": answer.outcome.replace("_", " "),
                },
                script=SCRIPT,
            )
        )
    record("ledger", figures)


if __name__ == "__main__":
    main()
