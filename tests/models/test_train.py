"""From a table to an artifact: the figures on public traces, the same bytes every time, and clear refusals."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from overrun.models.errors import ArtifactError, SourceError, TooFewRowsError
from overrun.models.predict import Predictor
from overrun.models.sources import load_traces
from overrun.models.train import TrainReport, TrainSettings, rows_for_skill, train_to_folder
from tests.models import synthetic
from tests.models.conftest import DATA

SETTINGS = TrainSettings(max_rounds=20)


def test_azure_with_routes_known_beats_the_route_median_by_far(azure_report: TrainReport) -> None:
    overall = azure_report.test.overall
    assert azure_report.rows == {
        "training": 15_783,
        "calibration": 3_946,
        "test": 8_456,
        "left out": 0,
    }
    assert overall.route_median_mae == pytest.approx(110.9, abs=0.1)
    assert overall.answered.mae <= 40
    assert overall.without_history.mae <= 44
    assert overall.answered.p90_coverage == pytest.approx(0.9, abs=0.015)
    assert overall.answered.p99_coverage == pytest.approx(0.99, abs=0.005)
    assert overall.answered.p10_coverage == pytest.approx(0.1, abs=0.02)
    assert overall.without_history.p90_coverage == pytest.approx(0.895, abs=0.025)
    assert {report.route: report.verdict.skill for report in azure_report.test.routes} == {
        "conv": "good",
        "code": "none",
    }


def test_where_there_is_no_skill_the_answer_is_never_one_percent_worse_than_the_median(
    azure_report: TrainReport,
) -> None:
    code = next(report for report in azure_report.test.routes if report.route == "code")
    assert code.answered.mae <= 1.01 * code.route_median_mae
    assert code.without_history.mae <= 1.01 * code.route_median_mae


def test_the_azure_artifact_is_small(azure_report: TrainReport) -> None:
    assert azure_report.size_bytes == sum(
        path.stat().st_size for path in azure_report.folder.iterdir()
    )
    assert azure_report.size_bytes <= 2 * 1024 * 1024


def test_azure_code_alone_is_reported_without_skill(tmp_path: Path) -> None:
    report = train_to_folder(
        load_traces([(DATA / "trace_azure2023_code.parquet", None)]), tmp_path / "a"
    )
    (code,) = report.test.routes
    assert (code.route, code.verdict.skill, code.verdict_without_history.skill) == (
        None,
        "none",
        "none",
    )
    assert code.answered.mae <= 1.01 * code.route_median_mae
    assert code.answered.p90_coverage == pytest.approx(0.9, abs=0.015)
    assert any(line.startswith("(no route): skill none: error") for line in report.lines())
    assert Predictor.load(report.folder).predict({"input_tokens": 500})["skill"] == "none"


def test_mooncake_needs_its_prefix_history(tmp_path: Path) -> None:
    trace = load_traces([(DATA / "trace_mooncake_conversation_two_blocks.parquet", None)])
    overall = train_to_folder(trace, tmp_path / "a").test.overall
    assert overall.answered.mae <= 145
    assert overall.previous_mae == pytest.approx(152.5, abs=0.5)
    assert overall.answered.p90_coverage == pytest.approx(0.9, abs=0.015)
    assert overall.verdict.skill == "low"
    # Without reports only the time since the same prefix came last is known.
    assert 165 <= overall.without_history.mae <= 175


def test_the_same_data_gives_the_same_bytes(tmp_path: Path) -> None:
    folders = [
        train_to_folder(synthetic.trace(), tmp_path / name, settings=SETTINGS).folder
        for name in ("first", "second")
    ]
    first, second = (
        {path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders
    )
    assert first == second


def test_requests_of_a_file_without_an_output_count_as_left_out(tmp_path: Path) -> None:
    odd = (
        synthetic.trace()
        .with_row_index("row")
        .with_columns(output_tokens=pl.when(pl.col("row") % 3 > 0).then("output_tokens"))
        .drop("row")
    )
    odd.write_parquet(tmp_path / "r.parquet")
    report = train_to_folder(
        load_traces([(tmp_path / "r.parquet", None)]), tmp_path / "a", settings=SETTINGS
    )
    assert (report.rows["left out"], sum(report.rows.values())) == (500, 1_500)


def test_the_report_prints_no_escape_sequences_of_a_route(small_report: TrainReport) -> None:
    (first, *others) = small_report.test.routes
    named = replace(
        small_report,
        test=replace(small_report.test, routes=(replace(first, route="a\n\x1b[31mb"), *others)),
    )
    assert not [line for line in named.lines() if "\x1b" in line or "\n" in line]


def test_rows_in_any_order_give_the_same_artifact(tmp_path: Path) -> None:
    trace = synthetic.trace()
    reports = [
        train_to_folder(rows, tmp_path / "a", settings=SETTINGS)
        for rows in (trace, trace.reverse())
    ]
    assert reports[0].version == reports[1].version


def test_the_learning_curve_tells_how_many_rows_skill_needs(
    small_report: TrainReport, azure_report: TrainReport
) -> None:
    assert [point.rows for point in small_report.curve] == [250, 500, 1_000, 1_050]
    assert rows_for_skill(small_report.curve) == 250
    assert azure_report.curve[-1].mae < azure_report.curve[1].mae
    never = replace(
        small_report,
        curve=tuple(
            replace(point, verdict=replace(point.verdict, skill="none"))
            for point in small_report.curve
        ),
    )
    assert rows_for_skill(never.curve) is None
    assert (
        "learning curve: no skill over all traffic with up to 1,050 training requests"
        in never.lines()
    )


def test_tenants_are_not_named_in_the_artifact(tmp_path: Path) -> None:
    trace = synthetic.trace(900).with_columns(
        tenant=pl.format("Tenant-{}", pl.int_range(pl.len()) % 5)
    )
    report = train_to_folder(trace, tmp_path / "a", settings=SETTINGS)
    assert not any(b"Tenant-" in path.read_bytes() for path in report.folder.iterdir())
    assert '"level":"tenant"' in (report.folder / "history.json").read_text()


def test_a_length_limit_hides_no_long_answers(tmp_path: Path) -> None:
    """Half of the traffic runs under a limit of 60 tokens: the median for those without must not follow the cut ones."""
    dice = np.random.default_rng(2)
    full = dice.integers(40, 160, 1_200)
    limited = np.arange(1_200) % 2 == 0
    trace = synthetic.trace(1_200).with_columns(
        route=pl.lit("one"), session=pl.lit(None, dtype=pl.String), model=pl.lit(None, dtype=pl.String), input_tokens=pl.lit(9),
        max_tokens=pl.lit(None, dtype=pl.Int64), output_tokens=pl.Series(np.where(limited, np.minimum(full, 60), full)),
        finish_reason=pl.Series(["length" if cut else "stop" for cut in limited & (full > 60)]))  # fmt: skip
    report = train_to_folder(trace, tmp_path / "a", settings=SETTINGS)
    assert (
        report.test.overall.model.mae < 40
    )  # with the cut lengths taken as full ones the median is 60, and this 33 + ...
    assert report.truncated_ratio == pytest.approx(0.42, abs=0.03)


def test_too_few_rows_are_refused_with_the_numbers(tmp_path: Path) -> None:
    trace = synthetic.trace(600).with_columns(
        output_tokens=pl.when(pl.int_range(pl.len()) < 101)
        .then(None)
        .otherwise(pl.col("output_tokens"))
    )
    with pytest.raises(
        TooFewRowsError, match=r"499 of 600 requests .* 500 are needed: record more traffic"
    ):
        train_to_folder(trace, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_missing_column_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"lacks output_tokens; it has time, .*: rename"):
        train_to_folder(synthetic.trace().drop("output_tokens"), tmp_path / "a")


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match="is not a predictor artifact"):
        train_to_folder(synthetic.trace(), tmp_path, settings=SETTINGS)


def test_three_columns_are_enough(tmp_path: Path) -> None:
    trace = (
        synthetic.trace()
        .filter(pl.col("route") == "chat")
        .select("time", "input_tokens", "output_tokens")
    )
    report = train_to_folder(
        pl.concat([trace, trace]), tmp_path / "a", settings=TrainSettings(max_rounds=60)
    )
    assert [(route.route, route.verdict.skill) for route in report.test.routes] == [(None, "good")]
    answer = Predictor.load(report.folder).predict({"input_tokens": 1_000})
    assert answer["source"] == "model"
    assert answer["p50"] == pytest.approx(250, rel=0.15)


@pytest.mark.parametrize("output_tokens", [0, 7])
def test_constant_outputs_give_that_constant_and_no_skill(
    tmp_path: Path, output_tokens: int
) -> None:
    trace = synthetic.trace(1_200).with_columns(
        output_tokens=pl.lit(output_tokens), input_tokens=pl.lit(5)
    )
    report = train_to_folder(trace, tmp_path / "a", settings=SETTINGS)
    assert {route.verdict.reason for route in report.test.routes} == {
        "the route median is never wrong"
    }
    assert Predictor.load(report.folder).predict({"route": "chat"})["p50"] == max(output_tokens, 1)


def test_a_single_moment_and_nothing_that_varies_can_be_trained_on(tmp_path: Path) -> None:
    trace = synthetic.trace(600).select(
        "output_tokens", time=pl.lit(synthetic.START), input_tokens=pl.lit(None, dtype=pl.Int64)
    )
    report = train_to_folder(trace, tmp_path / "a", settings=SETTINGS)
    assert report.features == ("log_input_tokens",)
    assert report.test.overall.verdict.skill == "none"


def test_a_route_first_seen_in_the_test_slice_earns_no_skill(tmp_path: Path) -> None:
    trace = synthetic.trace(1_200).with_columns(
        route=pl.when((pl.col("route") == "chat") & (pl.int_range(pl.len()) > 840))
        .then(pl.lit("new"))
        .otherwise("route")
    )
    report = train_to_folder(trace, tmp_path / "a", settings=SETTINGS)
    new = next(route for route in report.test.routes if route.route == "new")
    assert (new.verdict.skill, new.verdict.reason) == (
        "none",
        "0 training requests, 100 are needed",
    )


def test_a_history_that_would_overfill_the_artifact_is_thinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_to_folder(synthetic.trace(), tmp_path / "whole", settings=SETTINGS)
    monkeypatch.setattr("overrun.models.train.MAX_BYTES", whole.size_bytes - 2_000)
    thinned = train_to_folder(synthetic.trace(), tmp_path / "thinned", settings=SETTINGS)
    sizes = [(report.folder / "history.json").stat().st_size for report in (whole, thinned)]
    assert sizes[1] < sizes[0]
    assert thinned.size_bytes <= whole.size_bytes - 2_000
    assert Predictor.load(thinned.folder).predict({"route": "chat"})["p50"] >= 1


def test_only_the_busiest_routes_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overrun.models.scoring.MAX_ROUTES", 2)
    report = train_to_folder(synthetic.trace(), tmp_path / "a", settings=SETTINGS)
    assert (len(report.test.routes), report.test.unlisted_routes) == (2, 1)
    assert (
        "1 smaller routes: skill none: 1 small routes in the test requests, 10 are needed to judge the others"
        in report.lines()
    )


@pytest.mark.parametrize(
    ("by_input", "skill", "source"), [(True, "good", "model"), (False, "none", "global")]
)
def test_routes_too_small_to_be_judged_are_judged_together_and_speak_for_new_ones(
    tmp_path: Path, by_input: bool, skill: str, source: str
) -> None:
    dice = np.random.default_rng(4)
    asked = dice.integers(10, 2_000, 1_500)
    trace = pl.DataFrame({
        "time": [synthetic.START + timedelta(seconds=10 * number) for number in range(1_500)],
        "route": [f"/{number % 40}" for number in range(1_500)],
        "input_tokens": asked,
        "output_tokens": ((asked if by_input else 500) * dice.lognormal(0.0, 0.2, 1_500)).astype(int) + 1,
    })  # fmt: skip
    report = train_to_folder(trace, tmp_path / "a", settings=SETTINGS)
    assert {route.verdict.skill for route in report.test.routes} == {skill}
    assert report.test.routes[0].verdict.reason.startswith(
        "judged together with 39 other small routes: "
    )
    assert report.test.overall.answered.mae <= 1.01 * report.test.overall.route_median_mae
    answer = Predictor.load(tmp_path / "a").predict({"route": "/new", "input_tokens": 1_000})
    assert (answer["skill"], answer["source"]) == (skill, source)


def test_only_the_newest_rows_are_used_when_there_are_too_many(tmp_path: Path) -> None:
    trace = synthetic.trace(900)
    report = train_to_folder(
        trace, tmp_path / "a", settings=TrainSettings(max_rounds=20, max_rows=600)
    )
    assert (sum(report.rows.values()), report.rows["left out"]) == (900, 300)
    assert report.start == trace.get_column("time")[300]


def test_truncated_answers_are_noted(small_report: TrainReport) -> None:
    # Every tenth row of the third that is `noise`: 150 of 1,500 rows end in 1, 50 of them are noise.
    assert small_report.truncated_ratio == pytest.approx(50 / 1_500)
    assert any(
        line.startswith("3.3 % of the answers were cut by a token limit")
        for line in small_report.lines()
    )


def test_progress_runs_from_nothing_to_done(tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    train_to_folder(
        synthetic.trace(600),
        tmp_path / "a",
        settings=SETTINGS,
        progress=lambda step, share: seen.append((step, share)),
    )
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert (seen[0], seen[-1]) == (("reading", 0.0), ("done", 1.0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"test_share": 0.0},
        {"test_share": 0.99},
        {"min_rows": 5},
        {"min_rows": 10**6},
        {"bucket_edges": (9.0, 9.0)},
    ],
)
def test_settings_that_leave_a_slice_empty_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        TrainSettings(**wrong)  # type: ignore[arg-type]
