"""What does one prediction cost, and what is it worth?

Run `python -m tests.benchmarks.predictor` in the project's root. Trains on both Azure 2023 traces (tests/models/data),
then prints one Markdown table row. Times are the best and the median of many single calls on one thread: the best is
what the code costs, the median what the machine made of it. Loading is the best of 20, from files in the page cache.
"""

import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime

from models.artifact import load_artifact, model_file
from models.predict import Predictor
from models.sources import load_traces
from models.train import train_to_folder

DATA = Path(__file__).parents[1] / "models" / "data"
CALLS = 20_000
COLUMNS = (
    "machine",
    "model call, µs (best / median)",
    "predict with features, µs (best / median)",
    "batch of 1,000, µs a row",
    "load, ms",
    "artifact, kB",
    "MAE, route median -> predictor",
    "P90 coverage",
)


def microseconds(call: Callable[[], object], calls: int) -> tuple[float, float]:
    """Return the best and the median time of one `call`, in µs."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6, statistics.median(times) * 1e6


def main() -> None:
    """Print the header and one row."""
    traces: list[tuple[str | Path, str | None]] = [
        (DATA / f"trace_azure2023_{route}.parquet", route) for route in ("conv", "code")
    ]
    with tempfile.TemporaryDirectory() as scratch:
        report = train_to_folder(load_traces(traces), Path(scratch) / "artifact")
        predictor = Predictor.load(report.folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        data = load_artifact(report.folder).files[model_file("p50", "onnx")]
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        inputs = {"features": np.array([[6.0, 4.8, 6.1, 4.5]], dtype=np.float32)[:, : len(report.features)]}
        row = {"time": "2023-11-16T19:00:00Z", "route": "conv", "model": "m", "input_tokens": 374, "max_tokens": 1_000}
        model = microseconds(lambda: session.run(names, inputs), CALLS)
        single = microseconds(lambda: predictor.predict(row), CALLS // 4)
        batch = microseconds(lambda: predictor.predict_batch([row] * 1_000), 10)[0] / 1_000
        load = microseconds(lambda: Predictor.load(report.folder), 20)[0] / 1_000
    overall = report.test.overall
    cells = (
        f"{platform.machine()}, {os.cpu_count()} CPUs, onnxruntime {onnxruntime.__version__}",
        f"{model[0]:.1f} / {model[1]:.1f}",
        f"{single[0]:.0f} / {single[1]:.0f}",
        f"{batch:.1f}",
        f"{load:.1f}",
        f"{report.size_bytes / 1024:.0f}",
        f"{overall.route_median_mae:.1f} -> {overall.answered.mae:.1f}",
        f"{overall.answered.p90_coverage:.3f}",
    )
    for line in (COLUMNS, ["---"] * len(COLUMNS), cells):
        sys.stdout.write(f"| {' | '.join(line)} |\n")


if __name__ == "__main__":
    main()
