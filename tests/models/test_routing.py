"""Policies in the simulator: a queue with a known answer, laws that hold under every policy, and the directions known from public traces."""

import json
import os
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from overrun.analysis.simulator.engine import Costs, Setup
from overrun.models.routing import (
    POLICIES,
    STATED,
    Fleet,
    calls_of,
    evaluate,
    evaluate_recorded,
    needed_s,
    predicted_medians,
    replay,
)
from overrun.models.sources import load_traces
from overrun.models.train import TrainReport
from tests import programs
from tests.analysis.whatif.recording import arrivals, recorded
from tests.models.conftest import DATA

# One seat, a step of 0.1 s, a prompt token of 0.01 s beside it: nothing hides behind anything.
ONE = Fleet(
    Setup(max_sequences=1, prefill_first=True, token_budget=1 << 20),
    Costs(prefill_token=0.01, attention=0.0, step=0.1, kv_token=0.0, sequence=0.0),
    1,
    "one",
)


def test_one_seat_serves_one_after_the_other() -> None:
    dice = np.random.default_rng(0)
    arrival = np.cumsum(dice.exponential(3.0, 200))
    inputs, outputs = (
        dice.integers(11, 50, 200).astype(float),
        dice.integers(2, 40, 200).astype(float),
    )
    run = replay(calls_of(arrival, inputs, outputs), outputs, "least_requests", ONE)
    free, came = 0.0, arrival - arrival[0]
    for index in range(200):
        begin = max(free, came[index])
        # Reading takes longer than a step here, and gives the first token.
        first = begin + 0.01 * inputs[index]
        free = first + 0.1 * (outputs[index] - 1)
        assert run.ttft_s[index] == pytest.approx(first - came[index])
        assert run.e2e_s[index] == pytest.approx(free - came[index])


def test_a_burst_is_served_shortest_first() -> None:
    outputs = np.array([9.0, 30.0, 20.0, 10.0])
    run = replay(calls_of(np.zeros(4), np.ones(4), outputs), outputs, "shortest_first", ONE)
    # The first is running when the others come; of these the shortest goes first.
    assert np.argsort(run.e2e_s).tolist() == [0, 3, 2, 1]


@pytest.mark.parametrize("policy", POLICIES)
def test_everyone_is_served_once_and_nobody_before_its_work_is_done(policy: str) -> None:
    dice = np.random.default_rng(1)
    arrival = np.sort(dice.uniform(0, 60, 400))
    inputs, outputs = (
        dice.integers(1, 3_000, 400).astype(float),
        dice.integers(1, 400, 400).astype(float),
    )
    run = replay(
        calls_of(arrival, inputs, outputs), outputs[::-1].copy(), policy, Fleet.stated(3, 4, 5_000)
    )
    assert (run.e2e_s >= STATED.step * (outputs - 1) - 1e-9).all()
    assert (run.ttft_s <= run.e2e_s + 1e-9).all()
    assert (run.ttft_s >= STATED.prefill_token * inputs).all()


@pytest.mark.parametrize("load", [0.5, 1.0])
def test_a_load_is_the_part_of_the_time_that_the_engines_need(load: float) -> None:
    dice = np.random.default_rng(3)
    outputs = dice.integers(1, 400, 2_000).astype(float)
    calls = calls_of(np.sort(dice.uniform(0, 60, 2_000)), np.full(2_000, 200.0), outputs)
    fleet = Fleet.stated(2, 8, 100_000)
    made = evaluate(calls, outputs, fleet, load)
    assert made.load == load
    lasting = replace(calls, arrival_s=calls.arrival_s * needed_s(calls, fleet) / load / 60.0)
    queued = replay(lasting, outputs, "least_requests", fleet)
    waited = float(np.median(queued.scheduled_s - queued.arrived_s))
    assert (waited < 0.1) == (load < 1.0)


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
    predicted = outputs * np.exp(dice.normal(0, 0.4, len(outputs)))
    made = evaluate(calls_of(arrival, inputs, outputs), predicted, load=0.95)
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
    made = evaluate(
        calls_of(arrival, inputs, outputs), outputs, Fleet.stated(kv_tokens=400_000), load=0.9
    )
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
    made = evaluate(calls_of(arrival, np.full(400, 100.0), outputs), outputs, load=0.1)
    assert made.best is None
    assert "routing by length does not help here" in made.sentence


@pytest.mark.parametrize(
    ("rows", "load", "words"),
    [
        (299, 0.9, "299 requests, expected at least 300"),
        (300, 0.0, "load is 0.0"),
        (300, 9.0, "load is 9.0"),
    ],
)
def test_too_little_or_impossible_is_refused(rows: int, load: float, words: str) -> None:
    ones = np.ones(rows)
    with pytest.raises(ValueError, match=words):
        evaluate(calls_of(np.arange(float(rows)), ones, ones), ones, load=load)


def test_the_command_replays_a_trace_with_the_artifacts_own_predictions(
    small_report: TrainReport, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from tests.models import synthetic

    path = tmp_path_factory.mktemp("routing") / "trace.parquet"
    synthetic.trace(600).write_parquet(path)
    command = [
        "routing",
        "--artifact",
        str(small_report.folder),
        "--trace",
        str(path),
        "--output",
        "json",
    ]
    done = programs.run(command, path.parent, os.environ)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert {row["policy"] for row in made["outcomes"]} == set(POLICIES)
    assert made["sentence"]
    bad = programs.run([*command, "--load", "7"], path.parent, os.environ)
    assert (bad.returncode, "load is 7.0, expected 0.05 to 1.5" in bad.stderr) == (2, True)


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


def test_recorded_calls_are_replayed_on_the_engines_that_served_them(
    small_report: TrainReport,
) -> None:
    full = Setup(max_sequences=6)
    facts = replace(recorded(arrivals(400, rate=6.0), full), effort=0.3)
    [engine], why = facts.engines
    assert why is None
    calls = facts.calls
    frame = calls.select(
        pl.from_epoch("start_us", time_unit="us").dt.replace_time_zone("UTC").alias("time"),
        "route",
        "model",
        "input_tokens",
        "output_tokens",
    )
    start_us = calls["start_us"].to_numpy()
    made = evaluate_recorded(frame, start_us, engine, small_report.folder, None)
    base, ordered = (
        next(one for one in made.outcomes if (one.policy, one.known) == wanted)
        for wanted in (("least_requests", "predicted"), ("shortest_first", "oracle"))
    )
    # The yardstick is the recording itself; what is in no table of requests is expected to be as long as most.
    seen = float(np.quantile(facts.call("e2e_ms"), 0.95)) / 1000.0
    assert base.seconds["e2e_p95"] == pytest.approx(seen, rel=0.1)
    assert ordered.change["e2e_p50"] < -0.1
    assert "calibrated on 400 recorded calls" in made.engine
    nothing = evaluate_recorded(
        frame.with_columns(pl.col("time") + pl.duration(hours=1)),
        start_us,
        engine,
        small_report.folder,
        0.9,
    )
    assert nothing.load == 0.9
