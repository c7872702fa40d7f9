"""What a router gets: bounded, ordered, honest answers, and no training stack."""

import heapq
import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from overrun.models.conformal import Calibration
from overrun.models.errors import ArtifactError, RequestError
from overrun.models.history import History
from overrun.models.predict import Predictor, predict_lines
from overrun.models.train import TrainReport, TrainSettings, train_to_folder
from tests.models import synthetic

ANSWER = {"p10", "p50", "p90", "p99", "bucket", "skill", "source", "version"}


def test_a_long_id_finds_its_prediction_but_is_not_kept(predictor: Predictor) -> None:
    row = {"id": "x" * 100_000, "route": "chat", "input_tokens": 800}
    predictor.predict(row)
    assert [len(key) for key in predictor._pending] == [64]
    predictor.predict(row | {"id": "x" * 100_001})
    predictor.observe(row, 200)
    assert len(predictor._pending) == 1


def test_importing_the_predictor_imports_no_training_stack() -> None:
    script = (
        "import sys, overrun.models.predict\n"
        "heavy = {'duckdb', 'polars', 'pyarrow', 'pandas', 'streamlit'}\n"
        "heavy |= {'xgboost', 'sklearn', 'scipy', 'onnx', 'onnxmltools'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_a_skilled_route_is_answered_by_the_model(
    predictor: Predictor, small_report: TrainReport
) -> None:
    answer = predictor.predict({"route": "chat", "input_tokens": 800})
    assert set(answer) == ANSWER
    assert (answer["skill"], answer["source"], answer["bucket"]) == ("good", "model", "M")
    assert answer["version"] == small_report.version
    # The truth is 200 within 10 %.
    assert answer["p50"] == pytest.approx(200, rel=0.1)
    assert 80 < answer["p10"] <= answer["p50"] <= answer["p90"] < 260
    assert answer["p90"] <= answer["p99"]


def test_coverage_follows_a_drift_that_is_reported(predictor: Predictor) -> None:
    """All at once chat answers grow by half: P90 covers 90 % again once the drift has filled the calibration window."""
    dice = random.Random(1)
    covered = []
    for number in range(1_600):
        tokens = int(math.exp(dice.uniform(4, 8)))
        truth = int(tokens / 4 * 1.5 * dice.uniform(0.9, 1.1))
        row = {"id": f"r{number}", "route": "chat", "input_tokens": tokens}
        covered.append(truth <= predictor.predict(row)["p90"])
        predictor.observe(row, truth)
    assert np.mean(covered[:50]) < 0.6
    assert np.mean(covered[1_100:]) == pytest.approx(0.9, abs=0.035)


def test_an_observed_id_is_measured_against_the_prediction_made_under_it(
    predictor: Predictor,
) -> None:
    row = {"id": 7, "route": "chat", "input_tokens": 800}
    predictor.predict(row)
    made = predictor._pending["7"]
    for _ in range(30):
        predictor.observe({"route": "chat", "input_tokens": 800}, 4_000)
    predictor.observe(row, 200)
    newest = list(predictor._calibration._routes["chat"]["p90"])[-1]
    assert newest == pytest.approx(math.log1p(200) - made[2], abs=0.001)
    assert not predictor._pending


def test_predictions_that_are_never_observed_are_forgotten(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overrun.models.predict._MAX_PENDING", 3)
    for number in range(9):
        predictor.predict({"id": number, "route": "chat", "input_tokens": 80})
    assert list(predictor._pending) == ["6", "7", "8"]


def test_a_route_without_skill_is_answered_by_its_recent_past(predictor: Predictor) -> None:
    answer = predictor.predict({"route": "noise", "input_tokens": 800})
    assert (answer["skill"], answer["source"]) == ("none", "route")
    # Uniform from 10 to 199.
    assert answer["p50"] == pytest.approx(105, abs=12)
    assert answer["p90"] == pytest.approx(180, abs=12)


def test_an_unknown_route_is_answered_by_all_traffic_until_it_has_a_past(
    predictor: Predictor,
) -> None:
    assert predictor.predict({"route": "new"})["source"] == "global"
    for _ in range(10):
        predictor.observe({"route": "new"}, 333)
    answer = predictor.predict({"route": "new"})
    assert (answer["source"], answer["skill"], answer["p50"], answer["bucket"]) == (
        "route",
        "none",
        333.0,
        "L",
    )


def test_skill_that_rests_on_live_history_is_claimed_only_once_history_is_live(
    predictor: Predictor, small_report: TrainReport
) -> None:
    measured = {report.route: report for report in small_report.test.routes}["session"]
    assert (measured.verdict.skill, measured.verdict_without_history.skill) == ("good", "none")
    row = {"route": "session", "session": "s5", "input_tokens": 100}
    assert predictor.predict(row)["skill"] == "none"
    predictor.observe(row, 325)
    answer = predictor.predict(row)
    assert (answer["skill"], answer["source"]) == ("good", "model")
    assert answer["p50"] == pytest.approx(325, rel=0.1)


def test_answers_respect_the_requests_limit_and_at_least_one_token(predictor: Predictor) -> None:
    answer = predictor.predict({"route": "chat", "input_tokens": 2_000, "max_tokens": 40})
    assert (answer["p50"], answer["p90"], answer["bucket"]) == (40.0, 40.0, "S")
    for _ in range(600):
        predictor.observe({"route": "silent"}, 0)
    assert predictor.predict({"route": "silent"})["p50"] == 1.0


def test_missing_features_are_answered_and_nan_is_refused(predictor: Predictor) -> None:
    assert predictor.predict({"route": "chat"}) == predictor.predict(
        {"route": "chat", "input_tokens": None}
    )
    assert predictor.predict({})["source"] == "global"
    with pytest.raises(RequestError, match="input_tokens is NaN"):
        predictor.predict({"route": "chat", "input_tokens": math.nan})


def test_a_batch_gives_the_single_answers_in_order(predictor: Predictor) -> None:
    rows = [
        {"route": route, "input_tokens": tokens}
        for tokens in (60, 800, 3_000)
        for route in ("chat", "noise", "x")
    ]
    assert predictor.predict_batch(rows) == [predictor.predict(row) for row in rows]
    assert predictor.predict_batch([]) == []


def test_a_bad_row_refuses_its_batch_and_a_bad_observation_is_not_recorded(
    predictor: Predictor,
) -> None:
    with pytest.raises(RequestError, match="input_tokens"):
        predictor.predict_batch([{}, {"input_tokens": "many"}])
    with pytest.raises(RequestError, match="output_tokens"):
        predictor.observe({"route": "chat"}, -1)
    assert predictor.predict({"route": "session"})["skill"] == "none"


def test_the_router_sees_what_training_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay the trace through a fresh router: its errors on the test slice are those that training reported.

    Bounds that cross the median change it, and the router calibrates them by other answers than training did: neither does here.
    """
    monkeypatch.setattr(
        Calibration, "offsets", lambda *_: dict.fromkeys(("p10", "p90", "p99"), 0.0)
    )
    report = train_to_folder(
        synthetic.trace(), tmp_path / "a", settings=TrainSettings(max_rounds=30, learn_all=False)
    )
    predictor = Predictor.load(report.folder)
    rows = [
        {name: value for name, value in row.items() if name != "output_tokens"}
        | {"truth": row["output_tokens"]}
        for row in synthetic.trace().rows(named=True)
    ]
    predictor._history = History()
    predictor._calibration = Calibration()
    predictor._observed = True
    running: list[tuple[float, int]] = []
    errors: dict[str, list[float]] = {}
    for number, row in enumerate(rows):
        now = row["time"].timestamp()
        while running and running[0][0] <= now:
            finished = rows[heapq.heappop(running)[1]]
            predictor.observe(finished, finished["truth"])
        if number >= len(rows) - report.rows["test"]:
            # Where a limit cut the answer, that limit is known to have applied.
            limit = row["truth"] if row["finish_reason"] == "length" else row["max_tokens"]
            answer = predictor.predict(row)
            errors.setdefault(row["route"], []).append(
                abs(min(answer["p50"], limit) - row["truth"])
            )
        heapq.heappush(running, (now + row["e2e_ms"] / 1000, number))
    reported = {report.route: report.answered.mae for report in report.test.routes}
    # Answers are rounded to a tenth of a token.
    assert {route: float(np.mean(own)) for route, own in errors.items()} == pytest.approx(
        reported, abs=0.06
    )


def answers(artifact: Predictor, lines: list[str | bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in predict_lines(artifact, lines)]


def test_lines_are_answered_one_by_one_and_a_bad_one_does_not_end_the_stream(
    predictor: Predictor,
) -> None:
    private = "the patient is called"
    lines: list[str | bytes] = [
        '{"route": "chat", "input_tokens": 800, "prompt": "' + private + '"}\n',
        "\n",
        f'{{"prompt": "{private}", \n',
        "[1]",
        b"\xff\xfe",
        '{"input_tokens": "' + private + '"}',
        "[" * 100_000,
        b'{"route": "noise"}',
    ]
    seen = answers(predictor, lines)
    assert [answer.get("source") for answer in seen] == [
        "model",
        None,
        None,
        None,
        None,
        None,
        "route",
    ]
    assert [answer["line"] for answer in seen if "error" in answer] == [3, 4, 5, 6, 7]
    assert "expected a number" in seen[4]["error"]
    assert private not in json.dumps(seen)


def test_lines_are_answered_as_they_come(predictor: Predictor) -> None:
    asked: list[int] = []

    def lines() -> Iterator[str]:
        for number in range(3):
            asked.append(number)
            yield "{}"

    stream = predict_lines(predictor, lines())
    assert asked == []
    next(stream)
    assert asked == [0]


def test_a_missing_artifact_is_refused_before_any_line_is_read() -> None:
    with pytest.raises(ArtifactError, match="is not a folder"):
        predict_lines("no/such/folder", ["{}"])


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 10**12)
    | st.floats()
    | st.text("ab1\x00é", max_size=3)
)
FIELDS = [
    "time",
    "route",
    "model",
    "input_tokens",
    "max_tokens",
    "temperature",
    "stream",
    "turn",
    "session",
    "prompt",
]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(FIELDS), VALUES),
    st.sampled_from(["chat", "noise", "session", None]),
)
def test_any_line_gets_an_ordered_answer_or_an_error(
    predictor: Predictor, row: dict[str, object], route: str | None
) -> None:
    answer = answers(predictor, [json.dumps(row | {"route": route})])[0]
    if "error" in answer:
        assert answer["line"] == 1
        return
    most = row.get("max_tokens") or math.inf
    assert isinstance(most, int | float)
    assert (
        1
        <= answer["p10"]
        <= answer["p50"]
        <= answer["p90"]
        <= answer["p99"]
        <= (math.inf if math.isnan(most) else most)
    )
