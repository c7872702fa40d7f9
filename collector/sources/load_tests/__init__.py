"""What did a load generator measure? Result files of the usual ones, and plain tables of requests, become OTLP as an instrumented client would send it.

A file is known by what it holds, not by its name. There is a file here for each format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from overrun.collector.errors import BadPayload
from overrun.collector.sources.load_tests.aiperf import aiperf
from overrun.collector.sources.load_tests.genai_perf import genai_perf
from overrun.collector.sources.load_tests.guidellm import guidellm
from overrun.collector.sources.load_tests.result import LoadTest, Request, checked
from overrun.collector.sources.load_tests.spans import bodies
from overrun.collector.sources.load_tests.tables import read_table
from overrun.collector.sources.load_tests.values import Document, dict_of
from overrun.collector.sources.load_tests.vllm_bench import bench_serve
from overrun.collector.sources.load_tests.vllm_engine import ENGINE_MOMENTS, vllm_engine

__all__ = ["EXPECTED", "LoadTest", "Request", "bodies", "documents_of", "read", "read_table"]

EXPECTED: Final = (
    "vLLM `bench serve --save-result --save-detailed`, SGLang `bench_serving --output-file --output-details`, AIPerf's profile_export.jsonl, "
    "GenAI-Perf's profile_export.json, GuideLLM's benchmarks.json, vLLM's RequestStateStats with a request a line, or .csv or .parquet with one request a row "
    "(time, e2e_ms or end; ttft_ms, input_tokens, output_tokens, error, model, route, tenant)"
)


# In order of recognition: what a document of the format holds, and its reader.
_FORMATS: Final[
    tuple[tuple[Callable[[Document], bool], Callable[[Sequence[Document], int], LoadTest]], ...]
] = (
    (lambda d: isinstance(d.get("ttfts"), list), bench_serve),
    (lambda d: "request_start_ns" in dict_of(d, "metadata") and "metrics" in d, aiperf),
    (lambda d: isinstance(d.get("experiments"), list), genai_perf),
    (
        lambda d: (
            isinstance(d.get("benchmarks"), list)
            and any("requests" in b for b in d["benchmarks"] if isinstance(b, dict))
        ),
        guidellm,
    ),
    (lambda d: d.keys() >= {"arrival_time", *ENGINE_MOMENTS}, vllm_engine),
)


def read(documents: Sequence[Any], written_ns: int) -> LoadTest:
    """The requests in the JSON documents of one file, which was written at `written_ns` (ns since 1970; used where the file has no date).

    Raises:
        BadPayload: no known format, or one without its requests; says what was seen and what is wanted.
    """
    first = documents[0] if documents else None
    if isinstance(first, dict):
        for known, reader in _FORMATS:
            if known(first):
                return checked(reader([d for d in documents if isinstance(d, dict)], written_ns))
        if isinstance(first.get("request_latency"), dict):
            raise BadPayload(
                "a summary without its requests: give profile_export.jsonl, which AIPerf writes beside it"
            )
        if "request_throughput" in first or ("completed" in first and "duration" in first):
            raise BadPayload(
                "a summary without its requests: run `vllm bench serve` with --save-result --save-detailed, or SGLang's with --output-details"
            )
    seen = (
        f"a document with {', '.join(sorted(map(str, first))[:8]) or 'no key'}"
        if isinstance(first, dict)
        else f"a {type(first).__name__}"
    )
    raise BadPayload(f"neither OTLP nor a load test's result, but {seen}; wanted: {EXPECTED}")


def documents_of(data: bytes) -> list[Any]:
    """The JSON documents of a file: one, a list of them, or one a line. Infinity is a number here: Python's json writes it for an unlimited rate.

    Raises:
        BadPayload: it is not JSON.
    """
    try:
        text = data.decode("utf-8-sig")
        try:
            value = json.loads(text)
        except ValueError:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise BadPayload(f"no JSON ({error})") from error
    return value if isinstance(value, list) else [value]
