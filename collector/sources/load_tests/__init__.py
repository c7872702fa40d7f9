"""What did a load generator measure? Result files of the usual ones, and plain tables of requests, become runs with their requests or summaries.

A file is known by what it holds, not by its name. A generator is a form (`sources/forms/`), whose rows `from_rows` reads; tables of requests, which any program
writes, are `tables`. Requests become OTLP as an instrumented client would send it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from overrun.collector.errors import BadPayload
from overrun.collector.sources.load_tests.result import LoadTest, Request, Run, Summary, checked
from overrun.collector.sources.load_tests.spans import bodies
from overrun.collector.sources.load_tests.tables import read_table
from overrun.collector.sources.load_tests.tables import rows as table_rows

__all__ = [
    "EXPECTED",
    "LoadTest",
    "Request",
    "Run",
    "Summary",
    "bodies",
    "documents_of",
    "read_table",
    "table_rows",
    "unknown",
    "with_requests",
]

EXPECTED: Final = (
    "vLLM `bench serve --save-result --save-detailed`, SGLang `bench_serving --output-file --output-details`, AIPerf's profile_export.jsonl, "
    "GenAI-Perf's profile_export.json, GuideLLM's benchmarks.json, inference-perf's per_request_lifecycle_metrics.json, k6's --out json or csv, "
    "LLMPerf's individual_responses.json, JMeter's, hey's and oha's CSV, vLLM's RequestStateStats with one request per line, or .csv or .parquet with one request a row "
    "(time, e2e_ms or end; ttft_ms, input_tokens, output_tokens, error, model, route, tenant)"
)

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


def unknown(documents: list[Any]) -> BadPayload:
    """Why the JSON documents of one file are not read: neither OTLP nor of a form; says what was seen."""
    first = documents[0] if documents else None
    seen = (
        f"a document with {', '.join(sorted(map(str, first))[:8]) or 'no key'}"
        if isinstance(first, dict)
        else f"a {type(first).__name__}"
    )
    return BadPayload(f"neither OTLP nor a load test's result, but {seen}")


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
