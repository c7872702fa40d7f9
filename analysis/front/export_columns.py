"""What does each column of an export mean? One text per kind and column, for the page that the site makes of them and for whoever reads the files.

Names and types come from the views; a test holds these texts to the columns that an export really has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import duckdb
import msgspec

from overrun.analysis.front.export import KINDS
from overrun.analysis.numbers.window import query
from overrun.collector.store.answers import fetch_batches


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of an export: its name, its Arrow type and its meaning."""

    name: str
    type: str
    meaning: str


ROW: Final[Mapping[str, str]] = {
    "requests": "One row per request that a user or program made of the application. Times are in milliseconds.",
    "llm-calls": "One row per call of a language model, failed calls included. A call that client and engine both report is one row. Times are in milliseconds.",
    "spans": "One row per span. A span that arrived twice is one row. Times are in milliseconds.",
    "metrics": "One row per sample of one indicator of one instance. Counters are rates per second.",
    "prompts": "One row per measured prompt of a model call, where the operator has opted in.",
}

_TRACE: Final = {
    "trace_id": "Trace id, 32 hexadecimal digits.",
    "trace_key": "Hash of the trace id, for joins: quicker than the text. It is the same in all kinds of one export.",
}
_TIMES: Final = {"start": "When it started, UTC.", "end": "When it ended, UTC."}
_SENDER: Final = {
    "service": "Name of the service that sent it (`service.name`).",
    "instance": "Running copy of that service (`service.instance.id`, else the host or pod).",
    "version": "Version of that service (`service.version`).",
}
_WHOSE: Final = {
    "workload": "`chat`, `batch` or `eval`; `chat` where the sender names none.",
    "tenant": "Customer of a shared service, as the sender names it. Personal data.",
    "session": "Conversation, as the sender names it. Personal data.",
    "user_hash": "Salted hash of the user id; one store uses one salt. Personal data.",
}
_MODEL: Final = {
    "model": "Name of the model that answered, else of the one that was asked for.",
    "provider": "Who runs the model, such as `openai` or `vllm`.",
}
_TOKENS: Final = {
    "input_tokens": "Tokens of the prompt, those from a cache included.",
    "output_tokens": "Tokens of the answer.",
    "cached_tokens": "Tokens of the prompt that came from a prefix cache. Null: not reported, which is not 0.",
    "reasoning_tokens": "Tokens of the answer that were spent on reasoning.",
    "max_tokens": "Longest answer that the caller allowed.",
}
_FAILED: Final = {
    "error_type": "Kind of the failure, such as `RateLimitError`; null where it succeeded.",
    "http_status": "HTTP status of the answer.",
}
_TTFT_SOURCE: Final = "Where the first token was seen: `attribute` or `event` of the client's span, `engine`, `events_dropped` (the sender cut it off), `none`."
_STAGES: Final = {
    "network": "network time between client, gateway and engine",
    "gateway": "time in a proxy or gateway",
    "retrieval": "time of searches and database reads",
    "prompt": "time of building the prompt",
    "guardrail": "time of checks of prompt or answer",
    "queue": "time waiting in the engine before it started",
    "kv_transfer": "time of moving the KV cache between engines",
    "prefill": "time in which the engine reads the prompt",
    "decode": "time in which the engine writes the answer",
    "tool": "time of tools and functions",
    "post": "time after the answer, such as formatting and writing to a database",
    "wait_user": "time in which the request waited for its user",
    "other": "time that no span explains",
    "first_token": "time of a call up to its first token where the engine sends no spans",
    "generation": "time of a call without a recorded first token",
}


def _stages() -> dict[str, str]:
    """The time of each stage, of the whole request and up to the first token."""
    whole = {
        f"{stage}_ms": f"{text[0].upper()}{text[1:]}, on the critical path."
        for stage, text in _STAGES.items()
    }
    whole["wait_user_ms"] += " It is no part of `e2e_ms`; the other stages sum to `e2e_ms` exactly."
    first = {
        f"ttft_{stage}_ms": f"Part of `{stage}_ms` before the first token of the answer."
        for stage in _STAGES
    }
    first["ttft_wait_user_ms"] += " It is no part of `ttft_ms`; the others sum to `ttft_ms`."
    return whole | first


MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "requests": {
        **_TRACE,
        **_TIMES,
        **_SENDER,
        **_WHOSE,
        **_FAILED,
        **_stages(),
        "route": "Kind of the request, such as `/chat`.",
        "name": "Name of the request's first span.",
        "model": "Model of the call that gave the answer.",
        "provider": "Provider of the call that gave the answer.",
        "status": "`ok` or `error`.",
        "error_type": "Kind of the failure, such as `RateLimitError`; `client closed request` where the client left (status 499); null where it succeeded.",
        "complete": "Whether the first span has been received. Percentiles leave incomplete requests out.",
        "engine_only": "Whether only the engine reported it, so that time outside the engine is unknown.",
        "e2e_ms": "From the request to the end of its answer, without waiting for the user.",
        "ttft_ms": "From the request to the first token of its answer. Tokens of earlier model calls, such as a planner's, do not count.",
        "ttft_source": _TTFT_SOURCE,
        "first_model_token_ms": "From the request to the first token of any of its model calls.",
        "first_answer_ms": "As `ttft_ms`, and null where the first token may be hidden reasoning.",
        "usable_ms": "From the request to the event `overrun.usable_answer`.",
        "itl_ms": "Mean time between two output tokens, from the chunks of a stream, weighted by tokens; null without chunks.",
        "itl_max_ms": "Longest gap between two chunks.",
        "tpot_ms": "Time per output token after the first, weighted by tokens over the calls.",
        **{
            name: f"{text[:-1] if text.endswith('.') else text}; sum over the calls of the request."
            for name, text in _TOKENS.items()
        },
        "llm_calls": "Number of model calls; 0 for a request that was answered without one, from a cache for example.",
        "tool_calls": "Number of tool calls.",
        "attempts": "Number of tries of all model calls, retries included; null where a client hides them.",
        "truncated": "Whether a model call ended because its longest answer was reached; null where no call gives a reason.",
        "unattributed_ratio": "`other_ms` as a share of `e2e_ms`, 0 to 1.",
        "sampling": "Mark of the sampler of the trace: `th:` and its threshold, or `tail:` and its policy; null without a mark.",
        "sample_weight": "For how many requests this one stands, from the sampler's probability; 1 without a mark.",
        "spans": "Number of spans of the request.",
        "inferred_ms": "Time that rests on spans whose parent was inferred, because it was not received.",
        "clipped_spans": "Number of spans that reach beyond their parent and were cut to it.",
        "skewed_spans": "Number of spans that were moved because the clock of their machine differs.",
    },
    "llm-calls": {
        **_TRACE,
        **_TIMES,
        **_WHOSE,
        **_MODEL,
        **_TOKENS,
        **_FAILED,
        "span_id": "Id of the span that reports the call, 16 hexadecimal digits: the client's, else the engine's.",
        "engine_span_id": "Id of the engine's span of this call; null where the engine sends none.",
        "engine_alone": "Whether only the engine reported the call.",
        "response_id": "Id of the answer, as provider or engine gives it.",
        "service": "Name of the service that made the call; the engine's where it alone reported it.",
        "instance": "Running copy of that service.",
        "engine_instance": "Running copy of the engine that answered.",
        "route": "Route of the request that the call is of.",
        "turn": "Number of the question within its session.",
        "prefix_hash": "Hash of the beginning of the prompt, as the sender gives it: equal hashes can share a prefix cache.",
        "streaming": "Whether the answer was streamed.",
        "temperature": "Sampling temperature that was asked for.",
        "ttft_ms": "From the call to its first token: the client's value, else the engine's.",
        "ttft_source": _TTFT_SOURCE,
        "ttft_client_ms": "First token as the client saw it.",
        "ttft_engine_ms": "First token as the engine saw it, from the arrival at the engine.",
        "e2e_ms": "Duration of the call.",
        "engine_e2e_ms": "Duration of the call in the engine.",
        "tpot_ms": "Time per output token after the first: (E2E - TTFT) / (output tokens - 1).",
        "tpot_reason": "Why `tpot_ms` is null: `failed`, `no_first_token`, `no_token_count`, `fewer_than_2_tokens`, `hidden_reasoning` or `events_dropped`.",
        "itl_ms": "Mean time between two output tokens, from the chunks of a stream; null without chunks.",
        "itl_max_ms": "Longest gap between two chunks.",
        "itl_source": "`chunk` where `itl_ms` is given.",
        "queue_ms": "Time waiting in the engine before it started.",
        "prefill_ms": "Time in which the engine read the prompt.",
        "decode_ms": "Time in which the engine wrote the answer.",
        "finish_reason": "Why the answer ended, as the provider or engine reports it, such as `stop` or `length`.",
        "error": "Whether the call failed.",
        "attempts": "Number of tries, retries included; null where the client hides them.",
        "attempts_source": "How the tries are known: `span`, `http`, `event` or `engine`. `hidden`: the number is unknown, the client waited far longer than the engine worked.",
        "wasted_ms": "Time from the first try's start to the last one's.",
        "wasted_tokens": "Output tokens of tries that were thrown away; null where they are not counted.",
        "retry_cause": "Why it was tried again: `error` or `slow`.",
        "on_path": "Whether the call lies on the critical path of its request.",
        "predicted_p50": "Length of the answer that the watched predictor expected as the median, in tokens; null where none is watched.",
        "predicted_p90": "Length that 90 % of such answers were expected not to exceed, in tokens.",
        "predictor": "Version of that predictor.",
    },
    "spans": {
        **_TRACE,
        **_SENDER,
        **_WHOSE,
        **_MODEL,
        **_TOKENS,
        **_FAILED,
        "span_id": "Span id, 16 hexadecimal digits.",
        "parent_span_id": "Id of the span above; null for the first span of a trace.",
        "name": "Name of the span. Names that hold a text are replaced.",
        "kind": "`internal`, `server`, `client`, `producer`, `consumer` or `unspecified`.",
        "start": _TIMES["start"],
        "duration_ms": "Duration of the span.",
        "status": "`ok`, `error` or `unset`.",
        "stage": "Stage that the span belongs to.",
        "role": "What the span is in its request: `llm` (a client's model call), `engine`, `phase` (a part of an engine's work), `container`, `folded` (reports a call "
        "that another span reports), `write`, `model_request` (a client's request to a model over HTTP or RPC) or `plain`.",
        "dialect": "Vocabulary in which the span names its attributes.",
        "scope_name": "Instrumentation that made the span.",
        "operation": "Operation of a model call, such as `chat` or `embeddings`.",
        "response_id": "Id of the answer, as provider or engine gives it.",
        "workload": "`chat`, `batch` or `eval`, as the span names it.",
        "cache_write_tokens": "Tokens of the prompt that were written to a prefix cache.",
        "temperature": "Sampling temperature that was asked for.",
        "streaming": "Whether the answer was streamed.",
        "ttft_ms": "From the span's start to the first token.",
        "ttft_source": _TTFT_SOURCE,
        "queue_ms": "Time waiting in the engine before it started.",
        "prefill_ms": "Time in which the engine read the prompt.",
        "decode_ms": "Time in which the engine wrote the answer.",
        "engine_e2e_ms": "Duration of the call in the engine, as an attribute gives it.",
        "chunks": "Number of chunks of a streamed answer.",
        "chunk_gap_max_ms": "Longest gap between two chunks.",
        "finish_reason": "Why the answer ended, as the sender reports it.",
        "route": "Kind of the request, as the span names it.",
        "turn": "Number of the question within its session.",
        "prefix_hash": "Hash of the beginning of the prompt, as the sender gives it.",
        "depends_on": "Where the engines of one request meet, or `overrun.depends_on`, as the sender gives it.",
        "trace_state": "W3C tracestate of the span, and what samplers noted in attributes.",
        "attributes": "All other attributes of the span. Texts of prompts and answers are not among them.",
        "resource_attributes": "Attributes of the sender.",
    },
    "metrics": {
        "time": "When the sample was taken, UTC.",
        "instance": "Engine or service that the sample is of.",
        "model": "Model that the sample is of, where the sender names one.",
        "indicator": "What was measured, in the same words for all engines.",
        "value": "Value in SI units; ratios are 0 to 1.",
        "unit": "Unit of the value, such as `s`, `ratio`, `requests` or `tokens/s`.",
        "raw_name": "Name under which the sender counts it.",
    },
    "prompts": {
        "trace_id": _TRACE["trace_id"],
        "span_id": "Span id, 16 hexadecimal digits.",
        "key": "Attribute that held the prompt.",
        "line": "Counts of the prompt and its verbosity score, in place of its text.",
    },
}  # fmt: skip


def columns(con: duckdb.DuckDBPyConnection, kind: str) -> list[Column]:
    """Return the columns of one kind in the order of its files. A column without a meaning here has an empty one."""
    nothing = {"start": None, "end": None}
    schema = fetch_batches(con, query(KINDS[kind]), nothing, 1).schema
    meanings = MEANINGS[kind]
    return [
        Column(name=field.name, type=str(field.type), meaning=meanings.get(field.name, ""))
        for field in schema
    ]
