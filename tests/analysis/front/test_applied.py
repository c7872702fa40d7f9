"""Fixes that were applied to a real vLLM, predicted from what came before them and held against what came after; and the ledger of such answers."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import msgspec
import pytest
from typer.testing import CliRunner

from overrun import cli
from overrun.analysis.front.applied import outcome
from overrun.analysis.front.file_import import import_files
from overrun.analysis.front.ledger import Applied, append, entries, rates, render_ledger
from overrun.analysis.front.report import build
from overrun.analysis.front.report_brief import gain_words, sure_words
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.finding import Record
from overrun.analysis.words.slo import parse_slo
from overrun.collector.config import CollectorSettings, Settings
from tests.analysis.builders import insert, store, vllm_gauges, vllm_spans
from tests.conftest import ROOT

RECORDINGS = ROOT / "tests" / "lab" / "recordings"


def applied(folder: Path, experiment: str, *given: str) -> tuple[Applied, str]:
    """The answer on one experiment's fault and fix, and the text of it. The fix came in the longest pause between requests."""
    db = folder / f"{experiment}.db"
    phases = [RECORDINGS / experiment / "11" / phase for phase in ("fault", "fixed")]
    settings = Settings(collector=CollectorSettings(db=str(db)))
    import_files(phases, settings, url=None, progress=lambda at, total: None)
    with duckdb.connect(str(db), read_only=True) as con:
        starts = [
            row[0] for row in con.execute("select start_ns from requests order by 1").fetchall()
        ]
    pauses = [(later - before, before) for before, later in itertools.pairwise(starts)]
    pause, before = max(pauses)
    at = datetime.fromtimestamp((before + pause / 2) / 1e9, UTC).isoformat()
    ledger = folder / "ledger.jsonl"
    asked = ["--at", at, "--db", str(db), "--ledger", str(ledger), "--span", "5m", "--settle", "0s"]
    done = CliRunner().invoke(
        cli.app, ["fix", "apply", *given, *asked, "--slo", "ttft:1500 e2e:12000"]
    )
    assert done.exit_code == 0, done.output
    return entries(ledger)[-1], done.stdout


def test_a_step_of_the_report_is_recorded_by_its_number(tmp_path: Path) -> None:
    source = str(ROOT / "sample_traces" / "recordings" / "sim-slow-vector-store")
    ledger = tmp_path / "ledger.jsonl"
    asked = [source, "--slo", "ttft:1500 e2e:3000", "--ledger", str(ledger)]
    done = CliRunner().invoke(cli.app, ["fix", "apply", "1", *asked])
    assert done.exit_code == 0, done.output
    [made] = entries(ledger)
    assert (made.rule, made.metric, made.outcome) == ("slow_dependency", "ttft", "not_known")
    assert f"observed is not known: ask again with --at {made.at}" in done.stdout
    refused = CliRunner().invoke(cli.app, ["fix", "apply", "9", *asked])
    assert (refused.exit_code, "there is no number 9" in refused.stderr) == (2, True)


def test_a_cap_on_a_real_engine_gains_what_was_predicted(tmp_path: Path) -> None:
    """E2E P95 fell from 9.8 to 2.2 s; that answers became shorter is the fix's own doing, and is not taken for other traffic."""
    made, text = applied(tmp_path, "runaway", "cap", "--set", "max_tokens=96")
    assert made.outcome == "as_predicted", text
    assert (made.metric, made.quantile) == ("e2e", 0.95)
    assert made.predicted_ms == pytest.approx(made.observed_ms, rel=0.1)
    assert made.before_ms is not None
    assert made.observed_ms is not None
    assert made.observed_ms < made.before_ms / 3
    assert made.reasons["adjustment"] == "the fix itself changes output tokens"
    assert made.requests_before == made.requests_after == 210


def test_a_limit_on_a_slow_search_is_credited_to_the_rule_that_advised_it(tmp_path: Path) -> None:
    given = ("clip", "--set", "stage=retrieval", "--set", "limit-ms=60")
    made, text = applied(tmp_path, "retrieval", *given)
    assert made.rule == "slow_dependency"
    assert made.adjusted_for
    assert "for equal traffic" in text
    [rate] = rates([made], "rule")
    assert (rate.name, rate.answers) == ("slow_dependency", 1)


def answer(**more: object) -> Applied:
    given = {
        "fix": "cap",
        "at": "2026-11-26T08:00:00Z",
        "metric": "e2e",
        "quantile": 0.95,
        "before_ms": 1_000.0,
        "predicted_ms": 500.0,
        "predicted_interval": (450.0, 550.0),
        "observed_ms": 520.0,
        "adjusted_ms": 520.0,
        "adjusted_interval": (470.0, 570.0),
        **more,
    }
    made = msgspec.convert(given, Applied)
    made.outcome = outcome(made)
    return made


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        ((470.0, 570.0), "as_predicted"),
        ((600.0, 700.0), "gained_less"),
        ((300.0, 400.0), "gained_more"),
        (None, "not_known"),
    ],
)
def test_an_outcome_is_whether_the_intervals_meet(observed: object, expected: str) -> None:
    assert answer(adjusted_interval=observed).outcome == expected


def test_a_ledger_keeps_one_line_for_each_fix_and_moment(tmp_path: Path) -> None:
    ledger = tmp_path / "l.jsonl"
    append(ledger, answer())
    append(ledger, answer(adjusted_interval=(600.0, 700.0)))
    append(ledger, answer(at="2026-11-27T08:00:00Z", rule="long_outputs", confidence=0.8))
    found = entries(ledger)
    assert [one.outcome for one in found] == ["gained_less", "as_predicted"]
    assert ledger.stat().st_mode & 0o777 == 0o600
    [cap] = rates(found, "fix")
    # |500 - 520| / 520 in both.
    assert (cap.hits, cap.answers, cap.error_ratio) == (1, 2, pytest.approx(20 / 520))
    [rule] = rates(found, "rule")
    assert (rule.name, rule.hits, rule.answers, rule.confidence) == ("long_outputs", 1, 1, 0.8)
    text = render_ledger(found)
    assert "1 of 2" in text
    assert "%)" not in text  # of two answers no rate is given
    ledger.write_text("{}\n")
    with pytest.raises(AnalysisError, match="is not a ledger"):
        entries(ledger)


def test_a_report_has_the_hit_rates_beside_confidence_and_gain(tmp_path: Path) -> None:
    con = store()
    insert(con, vllm_spans())
    vllm_gauges(con)
    ledger = tmp_path / "l.jsonl"
    slo = parse_slo("ttft:1000 e2el:5000")
    [first, *_] = build(con, Window(), slo, ledger=ledger).findings
    assert first.record is None
    assert first.fix is not None
    assert first.fix.whatif is not None
    append(ledger, answer(fix=first.fix.whatif, rule=first.rule, confidence=0.9))
    report = build(con, Window(), slo, ledger=ledger)
    [told, *_] = report.findings
    assert told.record == Record(answers=1, hits=1, error_ratio=pytest.approx(20 / 520))
    assert told.fix is not None
    assert told.fix.record == told.record
    words = "gained what was predicted 1 of 1 time here."
    assert words in sure_words(report, told)
    assert told.fix.predicted is None or words in gain_words(report, told)
    # A ledger that cannot be read keeps nobody from a report.
    ledger.write_text("{}\n")
    assert build(con, Window(), slo, ledger=ledger).findings[0].record is None
