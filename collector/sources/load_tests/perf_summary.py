"""AIPerf's and GenAI-Perf's aggregated figures: profile_export_aiperf.json, profile_export_genai_perf.json, and their CSV.

Sources: ai-dynamo/aiperf docs/tutorials/working-with-profile-exports.md and triton-inference-server/perf_analyzer genai-perf's exporters, read in 2026.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from overrun.collector.sources.load_tests.result import LoadTest, Run, Summary, say_load
from overrun.collector.sources.load_tests.values import (
    MS,
    NS,
    Document,
    count,
    dict_of,
    first,
    list_of,
    number,
    percentile_of,
    text_of,
)

# Their inter-token latency is (E2E - TTFT) / (n - 1), which is TPOT here.
_METRICS: Final = {
    "time_to_first_token": "ttft",
    "ttft": "ttft",
    "inter_token_latency": "tpot",
    "request_latency": "e2e",
    "inter_chunk_latency": "itl",
}
_COUNTS: Final = (
    "request_count",
    "error_request_count",
    "request_throughput",
    "benchmark_duration",
)
_CSV_NAME: Final = re.compile(r"(?P<name>[^()]+?)\s*(?:\((?P<unit>[^()]*)\))?")


def is_summary(document: Document) -> bool:
    """Whether a document is one of theirs."""
    return any("avg" in dict_of(holder, "request_latency") for holder in _holders(document))


def perf_summary(documents: Sequence[Document], _: int) -> LoadTest:
    """The runs that they summarise, one a document."""
    out = LoadTest("aiperf")
    for document in documents:
        metrics = next(
            (
                holder
                for holder in _holders(document)
                if "avg" in dict_of(holder, "request_latency")
            ),
            None,
        )
        if metrics is not None:
            rate, bound, model = _load(dict_of(document, "input_config"))
            out.runs.append(_run(metrics, rate, bound, model))
    return out


def perf_csv(text: str) -> LoadTest:
    """The run of a CSV: a table of distributions, an empty line, and a table of single values."""
    metrics: dict[str, dict[str, Any]] = {}
    head: list[str] = []
    for row in csv.reader(io.StringIO(text)):
        if row[:1] == ["Metric"]:
            head = [cell.strip().lower() for cell in row]
        elif len(row) > 1 and head and (named := _CSV_NAME.fullmatch(row[0].strip())):
            values = {
                name: value
                for name, cell in zip(head[1:], row[1:], strict=False)
                if (value := _cell(cell)) is not None
            }
            key = named["name"].lower().replace(" ", "_")
            metrics[key] = {"unit": named["unit"] or "", **values}
            if "value" in values:
                metrics[key]["avg"] = values["value"]
    return LoadTest("aiperf", runs=[_run(metrics, None, None, None)])


def is_csv(head: str) -> bool:
    """Whether the first line of a file is that of their CSV."""
    return re.match(r'"?Metric"?,"?avg"?,', head, re.IGNORECASE) is not None


def _holders(document: Document) -> Iterator[Mapping[str, Any]]:
    yield document
    yield dict_of(document, "records")


def _run(
    metrics: Mapping[str, Any], rate: float | None, bound: int | None, model: str | None
) -> Run:
    percentiles: dict[str, dict[float, float]] = {}
    means: dict[str, float] = {}
    for name, metric in _METRICS.items():
        figures = dict_of(metrics, name)
        unit = NS.get(str(figures.get("unit") or "ms"))
        if not figures or unit is None:
            continue
        for figure, value in figures.items():
            amount = number(value)
            if amount is None:
                continue
            if figure == "avg":
                means[metric] = amount * unit / MS
            elif figure == "max" or re.fullmatch(r"p\d+(\.\d+)?", figure):
                at = 100.0 if figure == "max" else percentile_of(figure[1:])
                percentiles.setdefault(metric, {})[at] = amount * unit / MS
    done, failed, answered, lasted = (number(dict_of(metrics, name).get("avg")) for name in _COUNTS)
    summary = Summary(
        percentiles,
        means,
        count(done),
        count(failed) or 0,
        answered,
        number(dict_of(metrics, "input_sequence_length").get("avg")),
        number(dict_of(metrics, "output_sequence_length").get("avg")),
    )
    return Run(
        say_load(rate, bound) or "profile",
        summary=summary,
        rate_rps=rate,
        in_flight=bound,
        duration_s=lasted,
        model=model,
    )


def _load(config: Document) -> tuple[float | None, int | None, str | None]:
    """The rate, the bound on requests in flight and the model in the settings that are kept with the figures."""
    stimulus = dict_of(dict_of(config, "perf_analyzer"), "stimulus")
    holders = (dict_of(config, "loadgen"), stimulus, config)
    rate = first([number(holder.get("request_rate")) for holder in holders])
    bound = first([count(holder.get("concurrency")) for holder in holders])
    endpoint = dict_of(config, "endpoint")
    names = [
        *list_of(endpoint, "model_names", None),
        *list_of(config, "model_names", None),
        *list_of(config, "model", None),
    ]
    return rate, None if rate is not None else bound, next(map(text_of, names), None)


def _cell(cell: str) -> float | None:
    try:
        return number(float(cell.replace(",", "")))
    except ValueError:
        return None
