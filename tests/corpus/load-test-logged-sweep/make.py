"""Two runs in the log of a load generator written in Go."""

from pathlib import Path

RUN = """Running load test with concurrency {at_once}...
============ Serving Benchmark Result ============
Benchmark Duration (sec): {took}
Number of total requests: {n}
Success Rate (Percent): 100.00
Concurrency: {at_once}
Request throughput (req/sec): {rps}
Prompt throughput (tokens/second) avg: 2224.493
Generation throughput (tokens/second) avg: 12.057
End to End Latency (ms) avg: {avg}
End to End Latency (ms) p50: {p50}
End to End Latency (ms) p90: {p90}
End to End Latency (ms) p99: {p99}
"""


def make(folder: Path) -> None:
    text = RUN.format(
        at_once=1, took=120.10, n=362, rps=3.014, avg=328.207, p50=328.0, p90=329.0, p99=331.0
    ) + RUN.format(
        at_once=5, took=121.45, n=375, rps=3.088, avg=1607.147, p50=1616.0, p90=1617.0, p99=1620.0
    )
    (folder / "bench.log").write_text(
        "".join(f"2024/07/11 23:37:56 {line}\n" for line in text.splitlines())
    )
