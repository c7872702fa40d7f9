"""What `vllm bench serve` and SGLang's `bench_serving` print at the end, as people paste it: figures of one run, or of several below one another.

Others print the same table with words of their own and through a logger, whose date stands before each line. Source: the print statements of
vllm-project/vllm vllm/benchmarks/serve.py and sgl-project/sglang python/sglang/bench_serving.py, read in 2026; NVIDIA/TensorRT-LLM#1938 (a load generator in Go).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from overrun.collector.sources.load_tests.result import LoadTest
from overrun.collector.sources.load_tests.vllm_bench import bench_serve

_TITLE: Final = "Serving Benchmark Result"
_LINE: Final = re.compile(r"\s*([^:=]+?):\s+(\S+)\s*")
# What a logger puts before a line.
_LOGGED: Final = re.compile(r".*?\d\d:\d\d:\d\d(?:[.,]\d+)?Z?\s*(?:\|?\s*\[?[A-Z]{4,8}\]?\s+)?")
_METRICS: Final = {
    "ttft": "ttft",
    "time to first token": "ttft",
    "tpot": "tpot",
    "time per output token": "tpot",
    "itl": "itl",
    "inter-token latency": "itl",
    "inter token latency": "itl",
    "e2el": "e2el",
    "e2e latency": "e2el",
    "end to end latency": "e2el",
    "end-to-end latency": "e2el",
    "request latency": "e2el",
}
_STATISTIC: Final = r"(?P<figure{}>mean|avg|average|median|p\d+(?:\.\d+)?)"
_METRIC: Final = rf"(?P<metric{{}}>{'|'.join(_METRICS)})"
_LATENCY: Final = re.compile(
    rf"{_STATISTIC.format(0)} {_METRIC.format(0)} \(ms\)|{_METRIC.format(1)} \(ms\) {_STATISTIC.format(1)}"
)
# As printed -> as in the files that they write.
_NAMES: Final = {
    "backend": "backend",
    "successful requests": "completed",
    "number of total requests": "completed",
    "failed requests": "failed",
    "request rate configured (rps)": "request_rate",
    "traffic request rate": "request_rate",
    "maximum request concurrency": "max_concurrency",
    "max request concurrency": "max_concurrency",
    "benchmark duration (s)": "duration",
    "benchmark duration (sec)": "duration",
    "total input tokens": "total_input_tokens",
    "total generated tokens": "total_output_tokens",
    "request throughput (req/s)": "request_throughput",
    "request throughput (req/sec)": "request_throughput",
}


def is_text(text: str) -> bool:
    """Whether a text has such a table."""
    return _TITLE in text


def bench_text(text: str, written_ns: int) -> LoadTest:
    """The runs whose tables stand in a text, by their summaries."""
    return bench_serve([dict(_figures(table)) for table in text.split(_TITLE)[1:]], written_ns)


def _figures(table: str) -> Iterator[tuple[str, Any]]:
    for line in table.splitlines():
        read = _LINE.fullmatch(_LOGGED.sub("", line, count=1))
        if read is None:
            continue
        printed, value = read[1].lower(), _value(read[2])
        if latency := _LATENCY.fullmatch(printed):
            figure = latency["figure0"] or latency["figure1"]
            metric = _METRICS[latency["metric0"] or latency["metric1"]]
            yield f"{'mean' if figure in ('avg', 'average') else figure}_{metric}_ms", value
        elif printed in _NAMES:
            yield _NAMES[printed], value
        elif printed == "concurrency" and read[2].isdigit():
            yield "max_concurrency", value  # SGLang's, with a fraction, is what it measured


def _value(printed: str) -> Any:
    try:
        return float(printed)
    except ValueError:
        return printed
