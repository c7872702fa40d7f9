"""What did a load generator measure? Result files of the usual ones, and plain tables of requests, become OTLP as an instrumented client would send it.

Read are vLLM `bench serve` and SGLang `bench_serving` with their details, AIPerf's and GenAI-Perf's profile exports, GuideLLM's report, the moments that
vLLM's engine keeps of each request, and CSV or Parquet with one request a row. A file is known by what it holds, not by its name. Each request becomes one
client span of a model call; of the engine's moments, the span that vLLM itself would send.

Sources, read in 2026: vllm-project/vllm vllm/benchmarks/serve.py and vllm/v1/metrics/stats.py (RequestStateStats), sgl-project/sglang
python/sglang/bench_serving.py, ai-dynamo/aiperf docs/tutorials/working-with-profile-exports.md, vllm-project/guidellm src/guidellm/schemas,
triton-inference-server/perf_analyzer genai-perf's parser, casys-kaist/LLMServingSim bench (a line a request of RequestStateStats and token counts).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from overrun.collector.errors import BadPayload

EXPECTED: Final = (
    "vLLM `bench serve --save-result --save-detailed`, SGLang `bench_serving --output-file --output-details`, AIPerf's profile_export.jsonl, "
    "GenAI-Perf's profile_export.json, GuideLLM's benchmarks.json, vLLM's RequestStateStats with a request a line, or .csv or .parquet with one request a row "
    "(time, e2e_ms or end; ttft_ms, input_tokens, output_tokens, error, model, route, tenant)"
)
_NS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "sec": 1_000_000_000}
_S, _MS = _NS["s"], _NS["ms"]
# No request takes a week: a longer one is a number in another unit.
_LONGEST_NS: Final = 7 * 86_400 * _S
# Seconds since 1970 beyond this are the year 5138: milliseconds, rather.
_LATEST_S: Final = 1e11
_SPANS_A_BODY: Final = 2_000
_EXCEPTION: Final = re.compile(
    r"([A-Za-z_][\w.]{0,60}(?:Error|Exception|Timeout|Disconnected|Refused))\b"
)

_ENGINE_MOMENTS: Final = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")

Document = Mapping[str, Any]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Request:
    """One request as its client saw it, from the time it was sent, or was meant to be sent where the file tells; None: not measured.

    With `queue_ns` (from the request's arrival to its first step) it is told by the engine, not by a client."""

    start_ns: int
    e2e_ns: int
    ttft_ns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    error: str | None = None
    status_code: int | None = None
    model: str | None = None
    route: str | None = None
    tenant: str | None = None
    queue_ns: int | None = None


@dataclass(slots=True)
class LoadTest:
    """The requests of one file, by the generator `tool`; `notes` say what of them must be known to whoever judges them."""

    tool: str
    requests: list[Request] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read(documents: Sequence[Any], written_ns: int) -> LoadTest:
    """The requests in the JSON documents of one file, which was written at `written_ns` (ns since 1970; used where the file has no date).

    Raises:
        BadPayload: no known format, or one without its requests; says what was seen and what is wanted.
    """
    first = documents[0] if documents else None
    if isinstance(first, dict):
        for known, reader in _FORMATS:
            if known(first):
                return _checked(reader([d for d in documents if isinstance(d, dict)], written_ns))
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


def read_table(path: Path) -> LoadTest:
    """The requests of a CSV or Parquet file.

    Raises:
        BadPayload: it cannot be read, or lacks a column.
    """
    import pyarrow.csv  # mapped into memory only where asked for
    import pyarrow.parquet

    try:
        table = (
            pyarrow.parquet.read_table(path)
            if path.suffix == ".parquet"
            else pyarrow.csv.read_csv(path)
        )
    except (pa.ArrowException, OSError) as why:
        raise BadPayload(f"no table: {str(why).splitlines()[0][:200]}") from why
    columns = set(table.column_names)
    time = next((name for name in ("time", "start", "start_time") if name in columns), None)
    if time is None or not columns & {"e2e_ms", "end"}:
        raise BadPayload(
            f"its columns are {', '.join(table.column_names[:12]) or '(none)'}; wanted time and e2e_ms (or end), and ttft_ms, input_tokens, "
            "output_tokens, error, model, route, tenant where known"
        )
    out = LoadTest("load-test")
    unmeasured = 0
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):  # Python's moments have microseconds
            table = table.set_column(
                number,
                column.name,
                table.column(number).cast(pa.timestamp("us", column.type.tz), safe=False),
            )
    for row in table.to_pylist():
        start_ns = _moment(row[time], time)
        end_ns = _moment(row.get("end"), "end")
        e2e_ns = _ns(row.get("e2e_ms"), _MS)
        e2e_ns = (
            end_ns - start_ns
            if e2e_ns is None and end_ns is not None and start_ns is not None
            else e2e_ns
        )
        error, code = _failure(row.get("error"))
        if start_ns is None or (e2e_ns is None and error is None):
            unmeasured += 1
            continue
        out.requests.append(
            Request(
                start_ns,
                e2e_ns or 0,
                _ns(row.get("ttft_ms"), _MS),
                _count(row.get("input_tokens")),
                _count(row.get("output_tokens")),
                _count(row.get("cached_tokens")),
                error,
                code,
                model=_text(row.get("model")),
                route=_text(row.get("route")),
                tenant=_text(row.get("tenant")),
            )
        )
    _say_unmeasured(out, unmeasured)
    return _checked(out)


def bodies(test: LoadTest, digest: bytes) -> Iterator[bytes]:
    """The requests as OTLP trace requests; ids follow from `digest`, that of the file, so that a file read twice counts once."""
    for at in range(0, len(test.requests), _SPANS_A_BODY):
        made = ExportTraceServiceRequest()
        resource = made.resource_spans.add()
        resource.resource.attributes.append(
            KeyValue(key="service.name", value=AnyValue(string_value=test.tool))
        )
        spans = resource.scope_spans.add().spans
        for number, request in enumerate(test.requests[at : at + _SPANS_A_BODY], start=at):
            spans.append(
                _span(request, hashlib.sha256(digest + number.to_bytes(8, "big")).digest())
            )
        yield made.SerializeToString()


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


def _span(request: Request, seed: bytes) -> Span:
    """A call of a chat model by its client, in the words of the GenAI conventions; what an engine tells, in those of vLLM."""
    if request.queue_ns is not None and request.ttft_ns is not None:
        return _engine_span(request, request.queue_ns, request.ttft_ns, seed)
    span = Span(
        trace_id=seed[:16],
        span_id=seed[16:24],
        name=f"chat {request.model or ''}".strip(),
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=request.start_ns,
        end_time_unix_nano=request.start_ns + request.e2e_ns,
    )
    values: dict[str, str | int | float | None] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": request.model,
        "gen_ai.usage.input_tokens": request.input_tokens,
        "gen_ai.usage.output_tokens": request.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": request.cached_tokens,
        "gen_ai.response.time_to_first_chunk": None
        if request.ttft_ns is None
        else request.ttft_ns / _S,
        "error.type": request.error,
        "http.response.status_code": request.status_code,
        "overrun.route": request.route,
        "tenant.id": request.tenant,
    }
    _put(span, values)
    if request.error is not None:
        span.status.code = Status.STATUS_CODE_ERROR
    return span


def _engine_span(request: Request, queue_ns: int, ttft_ns: int, seed: bytes) -> Span:
    span = Span(
        trace_id=seed[:16],
        span_id=seed[16:24],
        name="llm_request",
        kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=request.start_ns,
        end_time_unix_nano=request.start_ns + request.e2e_ns,
    )
    _put(
        span,
        {
            "gen_ai.response.model": request.model,
            "gen_ai.usage.prompt_tokens": request.input_tokens,
            "gen_ai.usage.completion_tokens": request.output_tokens,
            "gen_ai.latency.time_in_queue": queue_ns / _S,
            "gen_ai.latency.time_to_first_token": ttft_ns / _S,
            "gen_ai.latency.e2e": request.e2e_ns / _S,
            "gen_ai.latency.time_in_model_prefill": (ttft_ns - queue_ns) / _S,
            "gen_ai.latency.time_in_model_decode": (request.e2e_ns - ttft_ns) / _S,
        },
    )
    return span


def _put(span: Span, values: Mapping[str, str | int | float | None]) -> None:
    for key, value in values.items():
        if isinstance(value, str):
            span.attributes.append(KeyValue(key=key, value=AnyValue(string_value=value)))
        elif isinstance(value, float):
            span.attributes.append(KeyValue(key=key, value=AnyValue(double_value=value)))
        elif value is not None:
            span.attributes.append(KeyValue(key=key, value=AnyValue(int_value=value)))


def _bench_serve(runs: Sequence[Document], written_ns: int) -> LoadTest:
    """vLLM's and SGLang's: a list per quantity with one entry a request, times in seconds; `start_times` are of a clock without a date.

    The end of a request is its first token and the gaps after it (`itls`); newer files of vLLM tell the whole time as well (`latencies`).
    """
    sglang = any(
        "total_output_tokens_retokenized" in run or "sglang" in str(run.get("backend"))
        for run in runs
    )
    out = LoadTest("sglang-bench" if sglang else "vllm-bench")
    unmeasured = 0
    for number, run in enumerate(runs, start=1):
        ttfts = _list(run, "ttfts", None)
        n = len(ttfts)
        gaps, inputs, outputs, errors, whole, starts, waits = (
            _list(run, name, n)
            for name in (
                "itls",
                "input_lens",
                "output_lens",
                "errors",
                "latencies",
                "start_times",
                "queue_times",
            )
        )
        first_s = min((at for at in map(_number, starts) if at is not None), default=0.0)
        begin_ns = _began(run, written_ns)
        if not starts:
            out.notes.append(
                "the file does not tell when its requests were sent: they are taken as sent at once, so nothing is said of arrivals"
            )
        rate = _number(run.get("request_rate"))
        meant = bool(waits) and rate is not None
        late_s = 0.0
        for at in range(n):
            error, code = _failure(errors[at] if errors else None)
            ttft_s, sum_s = _number(ttfts[at]), _number(whole[at]) if whole else None
            if sum_s is None:
                sum_s = (ttft_s or 0.0) + sum(
                    gap for gap in map(_number, gaps[at] or () if gaps else ()) if gap is not None
                )
            if sum_s <= 0.0 and error is None:
                unmeasured += 1
                continue
            wait_s = max(0.0, _number(waits[at]) or 0.0) if meant else 0.0
            late_s = max(late_s, wait_s)
            sent_s = (_number(starts[at]) or 0.0) - first_s if starts else 0.0
            request = Request(
                begin_ns + round((sent_s - wait_s) * _S),
                _ns(sum_s + wait_s, _S) or 0,
                _ns(ttft_s + wait_s, _S) if ttft_s else None,
                _count(inputs[at]) if inputs else None,
                _count(outputs[at]) if outputs else None,
                None,
                error,
                code,
                model=_text(run.get("model_id")),
                route=f"run {number}" if len(runs) > 1 else None,
            )
            out.requests.append(request)
        _say_bounded(out, run.get("max_concurrency"), "--max-concurrency", corrected=meant)
        _say_late(out, late_s)
    _say_unmeasured(out, unmeasured)
    return out


def _aiperf(records: Sequence[Document], _: int) -> LoadTest:
    """AIPerf's: one request a line, moments in ns since 1970, each metric with its unit. Its warm-up is left out; a cancelled request is a failed one.

    A request is judged from when its turn had come (`credit_issued_ns`).
    """
    out = LoadTest("aiperf")
    unmeasured = late_ns = 0
    for record in records:
        about, metrics = _dict(record, "metadata"), _dict(record, "metrics")
        if about.get("benchmark_phase") == "warmup":
            continue
        start_ns, end_ns = (
            _count(about.get("request_start_ns")),
            _count(about.get("request_end_ns")),
        )
        e2e_ns = _metric_ns(metrics, "request_latency")
        failed = record.get("error")
        error, code = _failure(
            failed.get("type") or failed.get("code") or True if isinstance(failed, dict) else failed
        )
        if about.get("was_cancelled"):
            error = error or "cancelled"
        if e2e_ns is None and start_ns is not None and end_ns is not None:
            e2e_ns = max(0, end_ns - start_ns)
        if start_ns is None or e2e_ns is None:
            unmeasured += 1
            continue
        wait_ns = max(0, start_ns - (_count(about.get("credit_issued_ns")) or start_ns))
        late_ns = max(late_ns, wait_ns)
        ttft_ns = _metric_ns(metrics, "time_to_first_token")
        tokens = [
            _count(_dict(metrics, name).get("value"))
            for name in ("output_sequence_length", "output_token_count")
        ]
        prompt = [
            _count(_dict(metrics, name).get("value"))
            for name in ("input_sequence_length", "error_isl")
        ]
        out.requests.append(
            Request(
                start_ns - wait_ns,
                e2e_ns + wait_ns,
                None if ttft_ns is None else ttft_ns + wait_ns,
                _first(prompt),
                _first(tokens),
                _count(_dict(metrics, "usage_prompt_cache_read_tokens").get("value")),
                error,
                _status(failed.get("code")) if isinstance(failed, dict) else code,
            )
        )
    _say_late(out, late_ns / _S)
    _say_unmeasured(out, unmeasured)
    return out


def _genai_perf(documents: Sequence[Document], _: int) -> LoadTest:
    """GenAI-Perf's (perf_analyzer): moments in ns, one per response; the first and the last response with content begin and end the answer."""
    out = LoadTest("genai-perf")
    experiments = [
        e for document in documents for e in document["experiments"] if isinstance(e, dict)
    ]
    unmeasured = 0
    for experiment in experiments:
        about = _dict(experiment, "experiment")
        load = f"{_text(about.get('mode')) or 'load'} {about.get('value', '')}".strip()
        for request in (r for r in experiment.get("requests") or () if isinstance(r, dict)):
            start_ns = _count(request.get("timestamp"))
            moments = [_count(at) for at in request.get("response_timestamps") or ()]
            said = [_said(response) for response in request.get("response_outputs") or ()]
            if start_ns is None or any(at is None for at in moments):
                unmeasured += 1
                continue
            times = [at for at in moments if at is not None]
            spoken = (
                [at for at, (text, _) in zip(times, said, strict=False) if text] if said else times
            )
            failed = request.get("success") is False or not spoken
            tokens = _first([count for _, count in reversed(said)])
            end_ns = spoken[-1] if spoken else times[-1] if times else start_ns
            out.requests.append(
                Request(
                    start_ns,
                    max(0, end_ns - start_ns),
                    max(0, spoken[0] - start_ns) if len(spoken) > 1 else None,
                    None,
                    tokens,
                    None,
                    "no answer" if failed else None,
                    route=load if len(experiments) > 1 else None,
                )
            )
        if about.get("mode") == "concurrency":
            _say_bounded(out, about.get("value"), "--concurrency")
    if out.requests and all(request.output_tokens is None for request in out.requests):
        out.notes.append(
            "the file does not count the tokens of its answers: no time per output token"
        )
    _say_unmeasured(out, unmeasured)
    return out


def _guidellm(documents: Sequence[Document], _: int) -> LoadTest:
    """GuideLLM's: per benchmark its successful and errored requests, seconds since 1970, latency in seconds, TTFT in ms. Cut-off ones are left out and told of.

    A rate that could not be kept is judged from when each request was meant to be sent (`targeted_start`).
    """
    out = LoadTest("guidellm")
    benchmarks = [
        b for document in documents for b in document["benchmarks"] if isinstance(b, dict)
    ]
    unmeasured = cut = 0
    for number, benchmark in enumerate(benchmarks, start=1):
        requests, strategy = _dict(benchmark, "requests"), _strategy(benchmark)
        kind = _text(strategy.get("type_") or strategy.get("kind")) or f"benchmark {number}"
        listed = {
            name: [r for r in requests.get(name) or () if isinstance(r, dict)]
            for name in ("successful", "errored", "incomplete")
        }
        held = sum(map(len, listed.values()))
        model = next((_asked_model(request) for request in listed["successful"]), None)
        made = _count(_dict(_dict(benchmark, "metrics"), "request_totals").get("total"))
        if made is not None and held < made:
            raise BadPayload(
                f"it holds {held:,} of the {made:,} requests of a benchmark: write all of them, a sample of each outcome cannot be judged"
            )
        cut += len(listed["incomplete"])
        late_s = 0.0
        for request, failed in [
            *((r, False) for r in listed["successful"]),
            *((r, True) for r in listed["errored"]),
        ]:
            info = _dict(request, "info")
            timings = _dict(info, "timings")
            start_s = _first(
                [
                    _number(request.get("request_start_time")),
                    _number(request.get("start_time")),
                    _number(timings.get("request_start")),
                ]
            )
            end_s = _first(
                [
                    _number(request.get("request_end_time")),
                    _number(request.get("end_time")),
                    _number(timings.get("request_end")),
                ]
            )
            e2e_s = _first(
                [
                    _number(request.get("request_latency")),
                    end_s - start_s if end_s is not None and start_s is not None else None,
                ]
            )
            if start_s is None or (e2e_s is None and not failed):
                unmeasured += 1
                continue
            meant_s = (
                _number(timings.get("targeted_start"))
                if kind in ("constant", "poisson", "async", "trace")
                else None
            )
            wait_s = max(0.0, start_s - meant_s) if meant_s is not None else 0.0
            late_s = max(late_s, wait_s)
            ttft_ns = _ns(request.get("time_to_first_token_ms"), _MS)
            error, code = (
                _failure(info.get("error") or request.get("error") or True)
                if failed
                else (None, None)
            )
            out.requests.append(
                Request(
                    round((start_s - wait_s) * _S),
                    _ns((e2e_s or 0.0) + wait_s, _S) or 0,
                    None if ttft_ns is None else ttft_ns + round(wait_s * _S),
                    _count(request.get("prompt_tokens")),
                    _count(request.get("output_tokens")),
                    _count(request.get("cached_tokens")),
                    error,
                    code,
                    model=model,
                    route=f"{kind} {strategy.get('rate') or strategy.get('streams') or number}"
                    if len(benchmarks) > 1
                    else None,
                )
            )
        if kind in ("concurrent", "synchronous", "throughput"):
            _say_bounded(
                out,
                1
                if kind == "synchronous"
                else strategy.get("streams") or strategy.get("max_concurrency"),
                f"strategy {kind}",
            )
        _say_late(out, late_s)
    if cut:
        out.notes.append(f"{_requests(cut)} cut off at the end of the run and left out")
    _say_unmeasured(out, unmeasured)
    return out


def _vllm_engine(records: Sequence[Document], _: int) -> LoadTest:
    """vLLM's own moments, a line a request: `arrival_time` in seconds since 1970, `*_ts` of a monotonic clock, which the quickest way from the one to the other
    sets beside it. Times count from the arrival, as in vLLM's spans."""
    out = LoadTest("vllm")
    times = [
        [_number(record.get(name)) for name in ("arrival_time", *_ENGINE_MOMENTS)]
        for record in records
    ]
    offset_s = min(
        (
            queued - arrival
            for arrival, queued, *_ in times
            if arrival is not None and queued is not None
        ),
        default=0.0,
    )
    unmeasured = 0
    for record, moments in zip(records, times, strict=True):
        at = [moment for moment in moments if moment is not None]
        if len(at) < len(moments) or at[1:] != sorted(at[1:]):
            unmeasured += 1
            continue
        arrived_s = at[0] + offset_s
        queue_ns, ttft_ns, e2e_ns = (round((moment - arrived_s) * _S) for moment in at[2:])
        out.requests.append(
            Request(
                round(at[0] * _S),
                e2e_ns,
                ttft_ns,
                _count(record.get("input_toks")),
                _count(record.get("output_toks")),
                model=_text(record.get("model")),
                queue_ns=queue_ns,
            )
        )
    _say_unmeasured(out, unmeasured)
    return out


# In order of recognition: what a document of the format holds, and its reader.
_FORMATS: Final[
    tuple[tuple[Callable[[Document], bool], Callable[[Sequence[Document], int], LoadTest]], ...]
] = (
    (lambda d: isinstance(d.get("ttfts"), list), _bench_serve),
    (lambda d: "request_start_ns" in _dict(d, "metadata") and "metrics" in d, _aiperf),
    (lambda d: isinstance(d.get("experiments"), list), _genai_perf),
    (
        lambda d: (
            isinstance(d.get("benchmarks"), list)
            and any("requests" in b for b in d["benchmarks"] if isinstance(b, dict))
        ),
        _guidellm,
    ),
    (lambda d: d.keys() >= {"arrival_time", *_ENGINE_MOMENTS}, _vllm_engine),
)


def _checked(test: LoadTest) -> LoadTest:
    """The test with each note once; one without requests, or with times that no request can have, is refused."""
    if not test.requests:
        raise BadPayload(f"no request in it ({'; '.join(test.notes) or 'it is empty'})")
    longest = max(test.requests, key=lambda request: request.e2e_ns)
    if longest.e2e_ns > _LONGEST_NS:
        raise BadPayload(
            f"a request of {longest.e2e_ns / _S:,.0f} s: its times are in another unit than the format's"
        )
    # A moment before 1970 has no place in OTLP: times that count from the start of a run may begin at 0.
    early = min(request.start_ns for request in test.requests)
    requests = (
        [replace(request, start_ns=request.start_ns - early) for request in test.requests]
        if early < 0
        else test.requests
    )
    return LoadTest(test.tool, requests, list(dict.fromkeys(test.notes)))


def _say_bounded(out: LoadTest, most: Any, said_by: str, corrected: bool = False) -> None:
    """Note a bound on the requests in flight: without the time when each should have been sent, what waited for others is in no figure."""
    count = _count(most)
    if count is None or corrected:
        return
    out.notes.append(
        f"closed loop: at most {count:,} in flight at once ({said_by}), so less was sent while the system was slow and waiting is left out of "
        "every figure; load at a fixed rate tells what users would see"
    )


def _say_late(out: LoadTest, late_s: float) -> None:
    if late_s >= 1e-3:
        out.notes.append(
            f"judged from when each request was meant to be sent, up to {late_s:.3g} s before it was (the generator's own figures leave that out)"
        )


def _say_unmeasured(out: LoadTest, count: int) -> None:
    if count:
        out.notes.append(f"{_requests(count)} left out for want of a measured time")


def _requests(count: int) -> str:
    return "1 request was" if count == 1 else f"{count:,} requests were"


def _began(run: Document, written_ns: int) -> int:
    """When a run began: its `date` (local time, at its end) or else the time of the file, less its duration."""
    try:
        ended_ns = (
            round(
                datetime.strptime(str(run.get("date")), "%Y%m%d-%H%M%S").astimezone(UTC).timestamp()
            )
            * _S
        )
    except ValueError:
        ended_ns = written_ns
    return max(0, ended_ns - (_ns(run.get("duration"), _S) or 0))


def _said(response: Any) -> tuple[str, int | None]:
    """What one response of an OpenAI or Triton endpoint says, and the output tokens that it counts."""
    if not isinstance(response, dict):
        return str(response or ""), None
    if "response" not in response:
        return str(response.get("text_output") or "").strip(), None
    text, tokens = "", None
    for line in str(response["response"]).splitlines():
        try:
            event = json.loads(line.removeprefix("data:").strip())
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict):
            continue
        tokens = _first([_count(_dict(event, "usage").get("completion_tokens")), tokens])
        for choice in event.get("choices") or ():
            if isinstance(choice, dict):
                part = _dict(choice, "delta") or _dict(choice, "message")
                text += str(
                    choice.get("text") or part.get("content") or part.get("reasoning_content") or ""
                )
    return text, tokens


def _asked_model(request: Document) -> str | None:
    """The model in the body of a request, which GuideLLM keeps as JSON in a string; a benchmark of its asks one model."""
    try:
        asked = json.loads(str(request.get("request_args")))
    except (ValueError, RecursionError):
        return None
    return _text(_dict(_dict({"asked": asked}, "asked"), "body").get("model"))


def _strategy(benchmark: Document) -> Document:
    return next(
        (
            found
            for holder in ("config", "scheduler", "args")
            if (found := _dict(_dict(benchmark, holder), "strategy"))
        ),
        {},
    )


def _list(run: Document, name: str, length: int | None) -> list[Any]:
    """The list called `name`, or none; one of another length than the first is refused: it could not be told whose value is whose."""
    values = run.get(name)
    if not isinstance(values, list):
        return []
    if length is not None and values and len(values) != length:
        raise BadPayload(
            f"{name} has {len(values):,} entries and ttfts {length:,}: which request is whose?"
        )
    return values


def _dict(holder: Document, name: str) -> dict[str, Any]:
    found = holder.get(name)
    return found if isinstance(found, dict) else {}


def _metric_ns(metrics: Document, name: str) -> int | None:
    """A time of AIPerf's in the unit that it says."""
    metric = _dict(metrics, name)
    unit = str(metric.get("unit", "ms"))
    if metric and unit not in _NS:
        raise BadPayload(f"{name} is in {unit[:20]!r}, wanted one of {', '.join(_NS)}")
    return _ns(metric.get("value"), _NS[unit]) if metric else None


def _number(value: Any) -> float | None:
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        else None
    )


def _ns(value: Any, unit: int) -> int | None:
    number = _number(value)
    return None if number is None or number < 0.0 else round(number * unit)


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(value) if number is not None and 0 <= number < 2**63 else None


def _text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def _failure(value: Any) -> tuple[str | None, int | None]:
    """The failure that a value of an error column means, as a short name, and its HTTP status; None, None: none.

    Long texts may quote the prompt and are not kept. Generators write a status, its phrase with the answer behind it, an exception's `repr`, or a
    traceback, whose last line names the exception.
    """
    if (
        value is None
        or value is False
        or value == ""
        or str(value).lower() in ("false", "0", "nan", "none")
    ):
        return None, None
    text = str(value)
    last = text.strip().rsplit("\n", 1)[-1]
    named = _EXCEPTION.match(last)
    phrase = next(
        (
            status
            for status in HTTPStatus
            if status >= 400
            and (text.startswith(status.phrase) or f"{status.value} {status.phrase}" in last)
        ),
        None,
    )
    code = phrase.value if phrase else _status(text)
    if text.isidentifier() and text != "True" and len(text) <= 60:
        return text, code
    return named[1].rpartition(".")[2] if named else str(code or "failed"), code


def _status(value: Any) -> int | None:
    """An HTTP status of a failure, from a number or its digits."""
    text = str(value)
    return int(text) if re.fullmatch(r"[45]\d\d", text) else None


def _first(values: Sequence[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)


def _moment(value: Any, name: str) -> int | None:
    """A column's moment in ns since 1970: a date (UTC unless it says otherwise) or seconds."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise BadPayload(
                f"{name} holds {value[:40]!r}, wanted RFC 3339 or seconds since 1970"
            ) from error
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1e6) * 1_000
    number = _number(value)
    if number is None or number > _LATEST_S:
        raise BadPayload(
            f"{name} holds {str(value)[:40]}, wanted RFC 3339 or seconds since 1970 (divide milliseconds by 1,000)"
        )
    return round(number * _S)
