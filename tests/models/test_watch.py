"""A predictor beside a store: predictions stand beside what was generated, count once, and tell when it is time to train again."""

import math
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import polars as pl
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from overrun.analysis.assembly.assemble import assemble
from overrun.analysis.front.predictor_watch import as_metrics, metric_lines
from overrun.analysis.whatif.fixes.routing import expected_tokens
from overrun.collector.config import CollectorSettings, PrivacySettings
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import METRICS, TRACES
from overrun.collector.store.database import open_store
from overrun.models.errors import ArtifactError
from overrun.models.train import TrainReport, TrainSettings, train_to_folder
from overrun.models.watch import Watch
from tests import programs
from tests.collector.conftest import T0_NS, body, one, rows, span
from tests.conftest import ServerProcess
from tests.models import synthetic
from tests.waiting import LIMIT_S, until


def calls(count: int, *, factor: float = 0.25, first: int = 1) -> list[Span]:
    """Calls of the route `chat`, one a second, that generate `factor` of their prompt (within 10 %, as in training); every tenth fails."""
    dice, made = random.Random(first), []
    for number in range(first, first + count):
        prompt = int(math.exp(dice.uniform(4, 8)))
        own = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m-1", "gen_ai.usage.input_tokens": prompt, "overrun.route": "chat",
               "gen_ai.usage.output_tokens": math.ceil(factor * prompt * dice.uniform(0.9, 1.1)), "gen_ai.request.max_tokens": 4_096}  # fmt: skip
        status = {"code": 2} if number % 10 == 0 else {}
        made.append(
            span(
                number,
                1,
                name="chat",
                kind=3,
                start_ms=1_000 * number,
                ms=300,
                attributes=own,
                status=status,
            )
        )
    return made


@contextmanager
def watching(path: Path, watch: Watch) -> Iterator[Pipeline]:
    pipeline = Pipeline(
        open_store(path, create=True),
        CollectorSettings(db=str(path), quiet_s=3600.0),
        PrivacySettings(),
        watch.assemble,
    )
    try:
        yield pipeline
    finally:
        pipeline.close()


def take_in(pipeline: Pipeline, spans: list[Span]) -> None:
    pipeline.writer.submit(TRACES, body(spans)).result(LIMIT_S)
    pipeline.drain()


def test_predictions_stand_beside_what_was_generated_and_count_once(
    small_report: TrainReport, tmp_path: Path
) -> None:
    watch = Watch(small_report.folder, assemble)
    with watching(tmp_path / "t.db", watch) as pipeline:
        take_in(pipeline, calls(300))
        alike = "corr(predicted_p50, output_tokens), bool_and(predicted_p90 >= predicted_p50), any_value(predictor)"
        (seen,) = rows(pipeline, f"select count(*), count(predicted_p50), {alike} from v_llm_calls")
        assert seen[:2] == (300, 270)
        assert seen[2] > 0.8
        assert seen[3:] == (True, small_report.version)
        state = watch.state()
        # The newest call has ended, but no later one has started that could know of it.
        assert (state["predicted"], state["rows"], state["retrain"], state["watching"]) == (
            270,
            269,
            None,
            True,
        )
        assert state["p90_coverage"] is not None
        assert state["error_reduction"] is not None
        assert state["error_reduction"] > 0.2
        # A late span has five calls assembled anew.
        take_in(
            pipeline,
            [
                span(number, 2, 1, name="late", start_ms=1_000 * number + 5, ms=1)
                for number in range(1, 6)
            ],
        )
        assert watch.state()["predicted"] == 270
        assert one(pipeline, "select count(predicted_p50) from v_llm_calls") == 270
        # What it tells reaches the store as indicators, by the road of all metrics.
        told = as_metrics(state, T0_NS)
        assert told is not None
        pipeline.writer.submit(METRICS, told).result(LIMIT_S)
        assert rows(
            pipeline, "select indicator, value, unit from v_metric_points order by indicator"
        ) == [
            ("predictor_error_reduction", pytest.approx(state["error_reduction"]), "ratio"),
            ("predictor_p90_coverage", state["p90_coverage"], "ratio"),
        ]


@pytest.mark.parametrize(
    "said",
    [
        {"gen_ai.request.temperature": -1.0},
        {"gen_ai.usage.input_tokens": 10**12},
        {"gen_ai.usage.output_tokens": 10**12},
    ],
    ids=str,
)
def test_a_call_that_says_what_cannot_be_is_stored_without_a_prediction(
    small_report: TrainReport, tmp_path: Path, said: dict[str, float]
) -> None:
    spans = calls(8)
    odd = {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 30,
    } | said
    watch = Watch(small_report.folder, assemble)
    with watching(tmp_path / "t.db", watch) as pipeline:
        take_in(
            pipeline,
            [
                *spans[:4],
                span(50, 1, name="chat", kind=3, start_ms=4_400, ms=100, attributes=odd),
                *spans[4:],
            ],
        )
        assert rows(
            pipeline, "select count(*), count(predicted_p50), count(predictor) from v_llm_calls"
        ) == [(9, 8, 8)]
    assert watch.state()["predicted"] == 8


def test_traffic_that_moved_away_asks_for_training(
    small_report: TrainReport, tmp_path: Path
) -> None:
    watch = Watch(small_report.folder, assemble)
    with watching(tmp_path / "t.db", watch) as pipeline:
        take_in(pipeline, calls(260, factor=3.0))
    state = watch.state()
    assert state["retrain"] is not None
    assert "overrun_predictor_retrain 1" in metric_lines(state)


def test_a_newer_artifact_is_taken_over_and_counts_anew(
    small_report: TrainReport, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(small_report.folder, tmp_path / "a"))
    newer = train_to_folder(
        synthetic.trace(), tmp_path / "b", settings=TrainSettings(max_rounds=10)
    )
    assert newer.version != small_report.version
    watch = Watch(folder, assemble)
    with watching(tmp_path / "t.db", watch) as pipeline:
        take_in(pipeline, calls(20))
        shutil.rmtree(folder)
        shutil.copytree(newer.folder, folder)
        take_in(pipeline, calls(5, first=30))
    assert (watch.state()["artifact"], watch.state()["predicted"]) == (newer.version, 4)


def test_too_few_calls_say_nothing_and_a_missing_artifact_is_refused(
    small_report: TrainReport, tmp_path: Path
) -> None:
    state = Watch(small_report.folder, assemble).state()
    assert (state["p90_coverage"], state["retrain"]) == (None, None)
    assert as_metrics(state, T0_NS) is None
    assert not [line for line in metric_lines(state) if "coverage" in line]
    with pytest.raises(ArtifactError, match="is not a folder"):
        Watch(tmp_path / "none", assemble)


def test_the_routing_what_if_takes_stored_predictions_first() -> None:
    frame = pl.DataFrame(
        {
            "route": ["a", "a", "a"],
            "input_tokens": [8, 8, 8],
            "output_tokens": [10, 20, 90],
            "predicted_p50": [None, 33.0, None],
        }
    )
    assert expected_tokens(frame).tolist() == [20.0, 33.0, 20.0]


def test_a_server_beside_an_artifact_tells_how_it_does(
    small_report: TrainReport, tmp_path: Path
) -> None:
    server = ServerProcess(
        tmp_path / "t.db",
        "--grpc-port",
        "0",
        "--http-port",
        "0",
        "--artifact",
        str(small_report.folder),
        forked=True,
    )
    try:
        with httpx.Client(base_url=server.http, trust_env=False, timeout=LIMIT_S) as client:
            sent = client.post(
                "/v1/traces",
                content=body(calls(250)),
                headers={"content-type": "application/x-protobuf"},
            )
            assert sent.status_code == 200, sent.text
            until(lambda: client.get("/api/v1/predictor").json()["rows"] == 224)
            state = client.get("/api/v1/predictor").json()
            assert (state["artifact"], state["watching"], state["predicted"]) == (
                small_report.version,
                True,
                225,
            )
            assert 0 <= state["p90_coverage"] <= 1
            assert (
                f"overrun_predictor_p90_coverage_ratio {state['p90_coverage']:.6g}"
                in client.get("/metrics").text
            )
    finally:
        code = server.stop()
        assert code == 0, "".join(server.said[-40:])


def test_a_server_beside_no_artifact_says_what_to_give(tmp_path: Path) -> None:
    ports = ["--grpc-port", "0", "--http-port", "0"]
    command = ["serve", "--db", "t.db", *ports, "--artifact", "no/such"]
    done = programs.run(command, tmp_path, os.environ)
    assert (done.returncode, "is not a folder" in done.stderr) == (2, True), done.stderr
