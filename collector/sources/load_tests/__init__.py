"""What did a load generator measure? Result files of the usual ones, and plain tables of requests, become runs with their requests or summaries.

A file is known by what it holds, not by its name. There is a file here for each format. Requests become OTLP as an instrumented client would send it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from overrun.collector.errors import BadPayload
from overrun.collector.sources.load_tests import (
    bench_text,
    guidellm_old,
    hey,
    inference_perf,
    jmeter,
    k6,
    llmperf,
    locust,
    perf_analyzer,
    perf_summary,
)
from overrun.collector.sources.load_tests.aiperf import aiperf
from overrun.collector.sources.load_tests.genai_perf import genai_perf
from overrun.collector.sources.load_tests.guidellm import guidellm
from overrun.collector.sources.load_tests.result import LoadTest, Request, Run, Summary, checked
from overrun.collector.sources.load_tests.spans import bodies
from overrun.collector.sources.load_tests.tables import read_table
from overrun.collector.sources.load_tests.tables import rows as table_rows
from overrun.collector.sources.load_tests.values import Document, dict_of
from overrun.collector.sources.load_tests.vllm_bench import bench_serve
from overrun.collector.sources.load_tests.vllm_engine import ENGINE_MOMENTS, vllm_engine

__all__ = [
    "EXPECTED",
    "LoadTest",
    "Request",
    "Run",
    "Summary",
    "bodies",
    "documents_of",
    "read",
    "read_csv",
    "read_table",
    "read_text",
    "recognised",
    "table_rows",
    "with_requests",
]

EXPECTED: Final = (
    "vLLM `bench serve --save-result --save-detailed`, SGLang `bench_serving --output-file --output-details`, AIPerf's profile_export.jsonl, "
    "GenAI-Perf's profile_export.json, GuideLLM's benchmarks.json, inference-perf's per_request_lifecycle_metrics.json, k6's --out json or csv, "
    "LLMPerf's individual_responses.json, JMeter's, hey's and oha's CSV, vLLM's RequestStateStats with one request per line, or .csv or .parquet with one request a row "
    "(time, e2e_ms or end; ttft_ms, input_tokens, output_tokens, error, model, route, tenant)"
)

Reader = Callable[[Sequence[Document], int], LoadTest]
# In order of recognition: what a document of the format holds, and its reader.
_FORMATS: Final[tuple[tuple[Callable[[Document], bool], Reader], ...]] = (
    (
        lambda d: (
            isinstance(d.get("ttfts"), list)
            or ("request_throughput" in d and isinstance(d["request_throughput"], int | float))
        ),
        bench_serve,
    ),
    (lambda d: "request_start_ns" in dict_of(d, "metadata") and "metrics" in d, aiperf),
    (lambda d: isinstance(d.get("experiments"), list), genai_perf),
    (guidellm_old.is_old, guidellm_old.guidellm_old),
    (
        lambda d: (
            isinstance(d.get("benchmarks"), list)
            and any(
                isinstance(b, dict) and not b.keys().isdisjoint({"requests", "metrics"})
                for b in d["benchmarks"]
            )
        ),
        guidellm,
    ),
    (lambda d: d.keys() >= {"arrival_time", *ENGINE_MOMENTS}, vllm_engine),
    (inference_perf.is_request, inference_perf.inference_perf),
    (inference_perf.is_report, inference_perf.inference_perf_report),
    (k6.is_line, k6.k6),
    (k6.is_summary, k6.k6_summary),
    (perf_summary.is_summary, perf_summary.perf_summary),
    (llmperf.is_request, llmperf.llmperf),
    (llmperf.is_summary, llmperf.llmperf_summary),
)
_CSV: Final[tuple[tuple[Callable[[str], bool], Callable[[str], LoadTest]], ...]] = (
    (k6.is_csv, k6.k6_csv),
    (locust.is_csv, locust.locust_csv),
    (jmeter.is_csv, jmeter.jmeter_csv),
    (hey.is_csv, hey.hey_csv),
    (perf_summary.is_csv, perf_summary.perf_csv),
)
_UNDATED: Final = (
    10**8 * 10**9
)  # ns since 1970, in 1973: below stand times since the start of a run
# How to have the requests of a run of which there is a summary alone.
_DETAILS: Final = {
    "vllm-bench": "run `vllm bench serve` with --save-result --save-detailed",
    "sglang-bench": "run SGLang's bench_serving with --output-details",
    "aiperf": "give profile_export.jsonl, which AIPerf writes beside it",
    "guidellm": "write all requests into benchmarks.json",
    "inference-perf": "give per_request_lifecycle_metrics.json",
    "llmperf": "give NAME_individual_responses.json, which LLMPerf writes beside it",
    "k6": "run k6 with --out json=FILE",
    "perf-analyzer": "run it with --profile-export-file",
    "locust": "`overrun report FILE` reads it as it is",
}


def read(documents: Sequence[Any], written_ns: int) -> LoadTest:
    """The requests in the JSON documents of one file, which was written at `written_ns` (ns since 1970; used where the file has no date).

    Raises:
        BadPayload: no known format, or one without its requests; says what was seen and what is wanted.
    """
    test = recognised(documents, written_ns)
    if test is not None:
        return with_requests(test)
    first = documents[0] if documents else None
    seen = (
        f"a document with {', '.join(sorted(map(str, first))[:8]) or 'no key'}"
        if isinstance(first, dict)
        else f"a {type(first).__name__}"
    )
    raise BadPayload(f"neither OTLP nor a load test's result, but {seen}")


def recognised(documents: Sequence[Any], written_ns: int) -> LoadTest | None:
    """The runs in the JSON documents of one file, with their requests or summaries; None where it is no load test's.

    Raises:
        BadPayload: a known format that cannot be read.
    """
    first = documents[0] if documents else None
    if isinstance(first, dict):
        for known, reader in _FORMATS:
            if known(first):
                return reader([d for d in documents if isinstance(d, dict)], written_ns)
    return None


def read_csv(text: str, written_ns: int) -> LoadTest | None:
    """The runs in a CSV file of a generator; None where it is no generator's. Times that count from the start of a run end when the file was written (ns since
    1970).

    Raises:
        BadPayload: a known format that cannot be read.
    """
    head = text[: text.find("\n")] if "\n" in text else text
    try:
        found = next((reader(text) for known, reader in _CSV if known(head.lstrip("\ufeff"))), None)
    except csv.Error as error:
        raise BadPayload(f"it is no CSV that can be read: {error}") from error
    return None if found is None else _dated(found, written_ns)


def _dated(test: LoadTest, written_ns: int) -> LoadTest:
    """The test, whose requests have a date."""
    end = max((one.start_ns + one.e2e_ns for one in test.requests), default=_UNDATED)
    if end >= _UNDATED:
        return test
    since = written_ns - end

    def moved(requests: list[Request]) -> list[Request]:
        return [replace(one, start_ns=one.start_ns + since) for one in requests]

    runs = [replace(run, requests=moved(run.requests)) for run in test.runs]
    return replace(test, requests=moved(test.requests), runs=runs)


def read_text(text: str, written_ns: int) -> LoadTest | None:
    """The runs whose figures a generator printed for people to read; None of any other text."""
    if bench_text.is_text(text):
        return bench_text.bench_text(text, written_ns)
    return perf_analyzer.perf_analyzer(text) if perf_analyzer.is_text(text) else None


def with_requests(test: LoadTest) -> LoadTest:
    """The test, all of whose requests are known.

    Raises:
        BadPayload: there is a summary in their place; says how to have them.
    """
    partial = next((run.why for run in test.runs if run.why), "")
    if partial:
        raise BadPayload(partial)
    if not test.requests and any(run.summary is not None for run in test.runs):
        raise BadPayload(f"a summary without its requests: {_DETAILS.get(test.tool, EXPECTED)}")
    return checked(test)


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
        raise BadPayload(f"not JSON ({error})") from error
    return value if isinstance(value, list) else [value]
