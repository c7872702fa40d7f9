"""Policies in the simulator: a queue with a known answer, laws that hold under every policy, and the directions known from public traces."""

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from overrun.models.routing import POLICIES, Engines, Policy, evaluate, predicted_medians, replay
from overrun.models.sources import load_traces
from overrun.models.train import TrainReport
from tests.models.conftest import DATA

ONE = Engines(
    instances=1, slots=1, kv_tokens=10**9, step_s=0.1, sequence_s=0.0, context_s=0.0, prefill_s=0.01
)


def test_one_seat_is_the_queue_of_lindley() -> None:
    dice = np.random.default_rng(0)
    arrival = np.cumsum(dice.exponential(3.0, 200))
    inputs, outputs = (
        dice.integers(1, 50, 200).astype(float),
        dice.integers(1, 40, 200).astype(float),
    )
    served = replay(arrival, inputs, outputs, outputs, "least_requests", ONE)
    free = 0.0
    for index in range(200):
        begin = max(free, arrival[index])
        free = begin + 0.01 * inputs[index] + 0.1 * outputs[index]
        assert served.e2e_s[index] == pytest.approx(free - arrival[index])
        assert served.ttft_s[index] == pytest.approx(
            begin + 0.01 * inputs[index] + 0.1 - arrival[index]
        )


def test_a_burst_is_served_shortest_first() -> None:
    outputs = np.array([9.0, 30.0, 20.0, 10.0])
    served = replay(np.zeros(4), np.ones(4), outputs, outputs, "shortest_first", ONE)
    # The first is running when the others come; of these the shortest goes first.
    assert np.argsort(served.e2e_s).tolist() == [0, 3, 2, 1]


@pytest.mark.parametrize("policy", POLICIES)
def test_everyone_is_served_once_and_nobody_before_its_work_is_done(policy: Policy) -> None:
    dice = np.random.default_rng(1)
    arrival = np.sort(dice.uniform(0, 60, 400))
    inputs, outputs = (
        dice.integers(1, 3_000, 400).astype(float),
        dice.integers(1, 400, 400).astype(float),
    )
    engines = Engines(instances=3, slots=4, kv_tokens=5_000)
    served = replay(arrival, inputs, outputs, outputs[::-1].copy(), policy, engines)
    alone = engines.prefill_s * inputs + engines.step_s * outputs
    assert (served.e2e_s >= alone - 1e-9).all()
    assert (served.ttft_s <= served.e2e_s + 1e-9).all()
    assert (served.ttft_s >= engines.prefill_s * inputs).all()


def columns(frame: pl.DataFrame, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    frame = frame.head(rows)
    arrival = frame["time"].dt.epoch("us").to_numpy() / 1e6
    return (
        arrival,
        frame["input_tokens"].to_numpy().astype(float),
        frame["output_tokens"].to_numpy().astype(float),
    )


def test_azure_ordering_by_length_helps_the_median_and_hurts_the_tail(
    azure_mixed: pl.DataFrame,
) -> None:
    arrival, inputs, outputs = columns(azure_mixed, 5_000)
    dice = np.random.default_rng(0)
    made = evaluate(
        arrival, inputs, outputs, outputs * np.exp(dice.normal(0, 0.4, len(outputs))), load=0.95
    )
    change = {(one.policy, one.known): one.change for one in made.outcomes}
    aged = change["aged_shortest_first", "predicted"]
    assert aged["e2e_p50"] < -0.15
    assert aged["short_p50"] < -0.25
    assert aged["e2e_p99"] > 0.1
    assert change["shortest_first", "predicted"]["e2e_p99"] > aged["e2e_p99"]
    assert change["lanes", "oracle"]["ttft_p95"] > 0.5
    assert "the median gains at the expense of the tail" in made.sentence


def test_mooncake_known_input_is_what_pays() -> None:
    trace = load_traces([(DATA / "trace_mooncake_conversation_two_blocks.parquet", None)])
    arrival, inputs, outputs = columns(trace, 5_000)
    made = evaluate(arrival, inputs, outputs, outputs, Engines(kv_tokens=400_000), load=0.9)
    change = {(one.policy, one.known): one.change for one in made.outcomes}
    assert change["least_input", "predicted"]["ttft_p99"] < -0.15
    assert (
        abs(
            change["least_predicted", "oracle"]["ttft_p99"]
            - change["least_input", "predicted"]["ttft_p99"]
        )
        < 0.1
    )
    assert change["round_robin", "predicted"]["ttft_p99"] > 0.3


def test_idle_engines_gain_nothing_and_are_told_so() -> None:
    dice = np.random.default_rng(2)
    arrival, outputs = np.arange(400.0), dice.integers(1, 300, 400).astype(float)
    made = evaluate(arrival, np.full(400, 100.0), outputs, outputs, load=0.1)
    assert made.best is None
    assert "routing by length would not pay here" in made.sentence


@pytest.mark.parametrize(
    ("rows", "load", "words"),
    [
        (299, 0.9, "299 requests, wanted at least 300"),
        (300, 0.0, "load is 0.0"),
        (300, 9.0, "load is 9.0"),
    ],
)
def test_too_little_or_impossible_is_refused(rows: int, load: float, words: str) -> None:
    ones = np.ones(rows)
    with pytest.raises(ValueError, match=words):
        evaluate(np.arange(float(rows)), ones, ones, ones, load=load)


def test_the_command_replays_a_trace_with_the_artifacts_own_predictions(
    small_report: TrainReport, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from tests.models import synthetic

    path = tmp_path_factory.mktemp("routing") / "trace.parquet"
    synthetic.trace(600).write_parquet(path)
    command = [
        sys.executable,
        "-m",
        "overrun",
        "routing",
        "--artifact",
        str(small_report.folder),
        "--trace",
        str(path),
        "--output",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert {row["policy"] for row in made["outcomes"]} == set(POLICIES)
    assert made["sentence"]
    bad = subprocess.run([*command, "--load", "7"], capture_output=True, text=True, timeout=120)
    assert (bad.returncode, "load is 7.0, wanted 0.05 to 1.5" in bad.stderr) == (2, True)


def test_predictions_of_a_replay_know_nothing_of_the_future(small_report: TrainReport) -> None:
    from overrun.models.dataset import prepare
    from overrun.models.predict import Predictor
    from tests.models import synthetic

    def medians(changed: int) -> np.ndarray:
        frame = synthetic.trace(300).with_columns(
            output_tokens=pl.when(pl.int_range(pl.len()) >= 200).then(pl.col("output_tokens") * changed).otherwise("output_tokens"))  # fmt: skip
        data = prepare(frame, min_rows=100, max_rows=1_000, test_share=0.3)
        return predicted_medians(data.records, Predictor.load(small_report.folder))

    one, other = medians(1), medians(9)
    np.testing.assert_array_equal(one[:201], other[:201])
    assert not np.array_equal(one, other)
