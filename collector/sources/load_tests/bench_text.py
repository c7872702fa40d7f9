"""What `vllm bench serve` and SGLang's `bench_serving` print at the end, as people paste it: figures of one run, or of several below one another.

Source: the print statements of vllm-project/vllm vllm/benchmarks/serve.py and sgl-project/sglang python/sglang/bench_serving.py, read in 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from overrun.collector.sources.load_tests.result import LoadTest
from overrun.collector.sources.load_tests.vllm_bench import bench_serve

_TITLE: Final = "Serving Benchmark Result"
_LINE: Final = re.compile(r"\s*([^:=]+?):\s+(\S+)\s*")
_LATENCY: Final = re.compile(
    r"(Mean|Median|P\d+(?:\.\d+)?) (TTFT|TPOT|ITL|E2EL|E2E Latency) \(ms\)"
)
# As printed -> as in the files that they write.
_NAMES: Final = {
    "Backend": "backend",
    "Successful requests": "completed",
    "Failed requests": "failed",
    "Request rate configured (RPS)": "request_rate",
    "Traffic request rate": "request_rate",
    "Maximum request concurrency": "max_concurrency",
    "Max request concurrency": "max_concurrency",
    "Benchmark duration (s)": "duration",
    "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens",
    "Request throughput (req/s)": "request_throughput",
}


def is_text(text: str) -> bool:
    """Whether a text has such a table."""
    return _TITLE in text


def bench_text(text: str, written_ns: int) -> LoadTest:
    """The runs whose tables stand in a text, by their summaries."""
    return bench_serve([dict(_figures(table)) for table in text.split(_TITLE)[1:]], written_ns)


def _figures(table: str) -> Iterator[tuple[str, Any]]:
    for line in table.splitlines():
        read = _LINE.fullmatch(line)
        if read is None:
            continue
        latency = _LATENCY.fullmatch(read[1])
        name = (
            f"{latency[1]}_{latency[2].replace(' ', '_')}_ms".lower()
            if latency
            else _NAMES.get(read[1], "")
        )
        if name:
            yield name, _value(read[2])


def _value(printed: str) -> Any:
    try:
        return float(printed)
    except ValueError:
        return printed
