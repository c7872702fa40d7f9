"""What does one prediction cost, and what is it worth?

`python -m tests.benchmarks.predictor [--alpacaeval DIR] [--folds N] [--only NAME ...]`, in the project's root. Quality: trains on the older 70 % of each
public trace (tests/models/data) and scores the newer 30 %, as `overrun train` does. AlpacaEval (CC BY-NC, not shipped) is read from DIR, split by prompt:
all models answer a prompt at the same time, the test prompts come last and were never seen. Cost: times are the best and the median of many single calls on
one thread; best is what the code costs, median what the machine made of it. Prints Markdown.
"""

import argparse
import gc
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import polars as pl

from overrun.models.artifact import load_artifact, model_file
from overrun.models.predict import Predictor
from overrun.models.service import Service
from overrun.models.sources import load_traces
from overrun.models.train import TrainReport, TrainSettings, train_to_folder
from tests.benchmarks.results import Figure, add_write_flag, measured, record

DATA = Path(__file__).parents[1] / "models" / "data"
CALLS = 20_000
TRACES: dict[str, list[tuple[str, str | None]]] = {
    "Azure conv": [("trace_azure2023_conv", None)],
    "Azure code": [("trace_azure2023_code", None)],
    "Azure mixed, route unknown": [("trace_azure2023_conv", None), ("trace_azure2023_code", None)],
    "Azure mixed, route known": [
        ("trace_azure2023_conv", "conv"),
        ("trace_azure2023_code", "code"),
    ],
    "Mooncake": [("trace_mooncake_conversation_two_blocks", None)],
}
QUALITY = ("data", "test rows", "constant", "route median", "log2 bucket", "previous output", "predictor MAE", "without observe", "median APE", "tau", "thirds",
           "P90 coverage (without observe)", "P99", "skill")  # fmt: skip
COST = ("model call, µs (best / median)", "predict with features, µs", "with a prompt, µs", "batch of 1,000, µs a row", "load, ms", "artifact, kB",
        "service, predictions per server-CPU-second", "service P50 / P99, ms, one connection",
        "of /healthz, which does nothing", "CPU of an answer P50 / P99, ms")  # fmt: skip
ALPACA_ROWS = 75_000
BODY = b'{"time":"2023-11-16T19:00:00Z","route":"conv","model":"m","input_tokens":374,"max_tokens":1000}'
PROMPT = "Write a short story about a lighthouse keeper who finds a letter, in about 200 words, and explain its end."


def row(cells: object) -> None:
    """Print one line of a Markdown table."""
    sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n")  # type: ignore[call-overload]
    sys.stdout.flush()


def quality(name: str, report: TrainReport) -> None:
    """Print what one training measured."""
    all_, own, frozen = (
        report.test.overall,
        report.test.overall.answered,
        report.test.overall.without_history,
    )
    tau = "-" if own.kendall_tau is None else f"{own.kendall_tau:.3f}"
    row((name, f"{own.rows:,}", f"{all_.constant_mae:.1f}", f"{all_.route_median_mae:.1f}", f"{all_.bucket_median_mae:.1f}", f"{all_.previous_mae:.1f}",
         f"**{own.mae:.1f}**", f"{frozen.mae:.1f}", f"{own.median_ape:.1%}", tau, f"{own.tertile_accuracy:.0%}",
         f"{own.p90_coverage:.3f} ({frozen.p90_coverage:.3f})", f"{own.p99_coverage:.3f}",
         ", ".join(f"{one.route or 'all'} {one.verdict.skill}" for one in report.test.routes)))  # fmt: skip


def quality_figure(name: str, report: TrainReport) -> Figure:
    """The headline of one training, for docs/results."""
    own, frozen = report.test.overall.answered, report.test.overall.without_history
    more = {
        "route median": round(report.test.overall.route_median_mae, 1), "without observe": round(frozen.mae, 1),
        "P90 coverage": round(own.p90_coverage, 3)}  # fmt: skip
    if own.kendall_tau is not None:
        more["tau"] = round(own.kendall_tau, 3)
    what = f"Mean absolute error: {name}"
    return measured(
        what,
        round(own.mae, 1),
        "tokens",
        more=more,
        script="make bench-predictor",
        conditions=f"{own.rows:,} test requests",
    )


def alpacaeval(folder: Path, fold: int) -> pl.DataFrame:
    """Return the answers of 227 models as requests: one prompt a week (an hour or day of its own would name it), those of the test fold last."""
    prompts = pl.read_parquet(folder / "lengthpred_alpacaeval_prompts.parquet")
    lengths = pl.read_parquet(folder / "lengthpred_alpacaeval_lengths.parquet").sample(
        ALPACA_ROWS, seed=fold
    )
    order = np.random.default_rng(0).permutation(prompts.height)
    week = pl.DataFrame(
        {
            "pid": prompts["pid"].to_numpy()[np.roll(order, fold * prompts.height // 5)],
            "week": np.arange(prompts.height),
        }
    )
    joined = lengths.join(prompts, on="pid").join(week, on="pid").sort("week", "model")
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return joined.select(
        time=pl.lit(start) + pl.col("week") * pl.lit(timedelta(days=7)), model="model", input_tokens="in_tok", output_tokens="out_tok", prompt="prompt",
        e2e_ms=pl.lit(1_000.0))  # fmt: skip


def microseconds(call: Callable[[], object], calls: int) -> tuple[float, float]:
    """Return the best and the median time of one `call`, in µs."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6, statistics.median(times) * 1e6


def service(folder: Path, calls: int = 5_000) -> tuple[float, list[float], list[float]]:
    """Return predictions per CPU-second of the server, and P50 and P99 in ms of one connection in a closed loop: of /predict and of /healthz.

    The two are asked in turn: what /healthz takes is what the machine, the network and the HTTP server take of a prediction.
    """
    command = [sys.executable, "-m", "overrun", "length", "serve", "--artifact", str(folder)]
    command += ["--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    host, _, port = process.stderr.readline().strip().rpartition("http=")[2].rpartition(":")
    predict = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
    health = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    times: dict[bytes, list[float]] = {predict: [], health: []}
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = _cpu_s(process.pid)
        for _ in range(calls):
            _ask(connection, predict, times[predict])
        spent = _cpu_s(process.pid) - begin
        times[predict].clear()
        for _ in range(calls):
            for request, taken in times.items():
                _ask(connection, request, taken)
    process.terminate()
    process.wait(20)
    process.stderr.close()
    return calls / spent, *(
        [float(value) * 1e3 for value in np.quantile(taken, (0.5, 0.99))]
        for taken in times.values()
    )  # type: ignore[return-value]


def _ask(connection: socket.socket, request: bytes, times: list[float]) -> None:
    start = time.perf_counter()
    connection.sendall(request)
    answer = connection.recv(65_536)
    while b'"version"' not in answer:
        answer += connection.recv(65_536)
    times.append(time.perf_counter() - start)


def cpu_of_answers(folder: Path, calls: int = 20_000) -> list[float]:
    """Return P50 and P99 of the CPU time in ms that one answer takes, JSON in and out: what is left when nobody else wants the core."""
    served = Service(folder)
    gc.freeze()
    times = []
    for _ in range(calls):
        start = time.thread_time_ns()
        served.predict(BODY)
        times.append(time.thread_time_ns() - start)
    gc.unfreeze()
    return [float(value) / 1e6 for value in np.quantile(times, (0.5, 0.99))]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost(report: TrainReport, prompted: Predictor | None) -> list[Figure]:
    """Print what a prediction of the mixed Azure artifact costs, and return its headlines."""
    predictor = Predictor.load(report.folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        load_artifact(report.folder).files[model_file("p50", "onnx")],
        options,
        providers=["CPUExecutionProvider"],
    )
    names = [output.name for output in session.get_outputs()]
    inputs = {"features": np.full((1, len(report.features)), 5.0, dtype=np.float32)}
    asked = {
        "time": "2023-11-16T19:00:00Z",
        "route": "conv",
        "model": "m",
        "input_tokens": 374,
        "max_tokens": 1_000,
    }
    model = microseconds(lambda: session.run(names, inputs), CALLS)
    single = microseconds(lambda: predictor.predict(asked), CALLS // 4)
    text = {"model": "gpt4", "input_tokens": 30, "prompt": PROMPT}
    worded = None if prompted is None else microseconds(lambda: prompted.predict(text), CALLS // 4)
    batch = microseconds(lambda: predictor.predict_batch([asked] * 1_000), 10)[0] / 1_000
    load = microseconds(lambda: Predictor.load(report.folder), 20)[0] / 1_000
    rate, asked_ms, idle_ms = service(report.folder)
    spent_ms = cpu_of_answers(report.folder)
    row(COST)
    row(["---"] * len(COST))
    row((f"{model[0]:.1f} / {model[1]:.1f}", f"{single[0]:.0f} / {single[1]:.0f}", "-" if worded is None else f"{worded[0]:.0f} / {worded[1]:.0f}",
         f"{batch:.1f}", f"{load:.1f}", f"{report.size_bytes / 1024:.0f}", f"{rate:,.0f}",
         *(f"{p50:.2f} / {p99:.2f}" for p50, p99 in (asked_ms, idle_ms, spent_ms))))  # fmt: skip
    figure = partial(
        measured, script="make bench-predictor", conditions=f"onnxruntime {onnxruntime.__version__}"
    )
    return [
        figure("Model call, best", round(model[0], 1), "us", more={"median": round(model[1], 1)}),
        figure(
            "Prediction with features, best",
            round(single[0]),
            "us",
            more={"median": round(single[1])},
        ),
        figure("Batch of 1,000, a row", round(batch, 1), "us"),
        figure("Loading an artifact", round(load, 1), "ms"),
        figure("Size of an artifact", round(report.size_bytes / 1024), "kB"),
        figure("Service, predictions per CPU-second", round(rate)),
        figure(
            "Service, P99 of one connection",
            round(asked_ms[1], 2),
            "ms",
            more={"P50": round(asked_ms[0], 2)},
        ),
    ]


def trained(scratch: Path, wanted: argparse.Namespace) -> Iterator[tuple[str, TrainReport]]:
    """Yield the report of each data set that is asked for."""
    for name, files in TRACES.items():
        if not wanted.only or name in wanted.only:
            frame = load_traces([(DATA / f"{stem}.parquet", route) for stem, route in files])
            yield name, train_to_folder(frame, scratch / name.replace(" ", "_"))
    for fold in range(wanted.folds if wanted.alpacaeval else 0):
        frame = alpacaeval(wanted.alpacaeval, fold)
        yield (
            f"AlpacaEval, unseen prompts, fold {fold + 1}",
            train_to_folder(
                frame, scratch / f"alpaca{fold}", settings=TrainSettings(test_share=0.2)
            ),
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--alpacaeval", type=Path, help="the folder with lengthpred_alpacaeval_*.parquet"
    )
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    add_write_flag(parser)
    wanted = parser.parse_args()
    sys.stdout.write(
        f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, onnxruntime {onnxruntime.__version__}\n\n"
    )
    row(QUALITY)
    row(["---"] * len(QUALITY))
    with tempfile.TemporaryDirectory() as scratch:
        reports = {}
        for name, report in trained(Path(scratch), wanted):
            quality(name, report)
            reports[name] = report
        sys.stdout.write("\n")
        worded = next(
            (
                Predictor.load(report.folder)
                for name, report in reports.items()
                if name.startswith("AlpacaEval")
            ),
            None,
        )
        if "Azure mixed, route known" in reports:
            costs = cost(reports["Azure mixed, route known"], worded)
            if wanted.write:
                record("predictor", costs)
        if wanted.write:
            record("predictor", [quality_figure(name, report) for name, report in reports.items()])


if __name__ == "__main__":
    main()
