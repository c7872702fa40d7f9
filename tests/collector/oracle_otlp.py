"""Hypothesis strategies for OTLP trace requests, hostile ones included, and plain readings of decoded columns to compare."""

from __future__ import annotations

import base64
import functools
import json
import math
from typing import Any

from google.protobuf.json_format import MessageToDict
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from overrun.collector.decode import wire
from overrun.collector.decode.columns import Attributes, RawSpans
from overrun.collector.normalise import stages
from overrun.sample_traces import replay

RECORDINGS = tuple(replay.manifest())
_MAX_NS = 2**63 - 1


@functools.cache
def bodies(name: str) -> tuple[bytes, ...]:
    """The trace bodies of a recording."""
    return tuple(
        p.request.SerializeToString() for p in replay.load(name).payloads if p.signal == "traces"
    )


# --- strategies ---

# Words that the rules look for, in and out of place, and text that nobody planned for.
WORDS = (
    "",
    "chat gpt",
    "POST /chat",
    "post",
    "postgres",
    "postprocess answer",
    "policy_check",
    "insurance policy",
    "guardrail",
    "Retriever.invoke",
    "re-rank",
    "rerank docs",
    "embeddings",
    "llm_request",
    "raw_gen_ai_request",
    "GET /rag http send",
    "http.connect",
    "tokenize",
    "prefill_waiting",
    "decode_loop",
    "queue",
    "enqueued",
    "tool_call",
    "human_approval",
    "Load model",
    "INSERT INTO t",
    "größe",
    "模型",
    "\x1b[31mred",
    "a\x00b",
    "x" * 300,
)
texts = st.one_of(
    st.sampled_from(WORDS),
    st.text(max_size=12),
    st.sampled_from(
        (
            "True",
            "false",
            "1",
            " 7 ",
            '"42"',
            "12.5",
            "1e400",
            "nan",
            "-3",
            "None",
            '["stop"]',
            '["length", "stop"]',
            "[]",
            "[1]",
            "[broken",
            '"stop"',
            '"TOOL"',
            '"a \\"b\\""',
            '"\\ud800"',
            "tool-calls",
            "FinishReason.MAX_TOKENS",
            "openai.chat",
            "12.3ms",
            "1.5s",
            "80ns",
            "1.5",
            "2026-09-21T12:26:41.250Z",
            '"2026-09-21T12:26:40Z"',
            "2026-13-01T00:00:00Z",
            '{"input_tokens": 5, "output_tokens": 7}',
            '{"prompt_tokens": 6, "prompt_tokens_details": {"cached_tokens": 3}}',
            '{"input": 10, "input_cached_tokens": 90, "output": "4"}',
            "{'completion_tokens_details': {'reasoning_tokens': 3}, 'x': None}",
            '{"max_tokens": "Infinity", "temperature": Infinity, "stream": true}',
            '{"id": "chatcmpl-1", "choices": [{"finish_reason": "length"}]}',
            '{"id": "\\udc00", "tenant": 7, "user_id": "ann"}',
            "{broken",
            "tool_calls",
            "chat",
            "execute_tool",
            "embeddings",
            "guardrail",
            "invoke_agent",
            "select",
            "delete from x",
            "tools/call",
            "https://user:secret@host/path?q=words#part",
            "/search?q=words",
            "y" * 129,
            "y" * 128,
        )
    ),
)
_numbers = st.one_of(st.integers(-5, 600), st.integers(-(2**63), 2**63 - 1))
_scalars = st.one_of(
    texts.map(lambda t: AnyValue(string_value=t)),
    _numbers.map(lambda n: AnyValue(int_value=n)),
    st.booleans().map(lambda b: AnyValue(bool_value=b)),
    st.floats().map(lambda x: AnyValue(double_value=x)),
    st.floats(0, 100).map(lambda x: AnyValue(double_value=x)),
    st.binary(max_size=6).map(lambda b: AnyValue(bytes_value=b)),
    st.just(AnyValue()),
)


def _array(items: list[AnyValue]) -> AnyValue:
    out = AnyValue()
    out.array_value.SetInParent()
    out.array_value.values.extend(items)
    return out


def _map(items: list[tuple[str, AnyValue | None]]) -> AnyValue:
    out = AnyValue()
    out.kvlist_value.SetInParent()
    out.kvlist_value.values.extend(_pair(*item) for item in items)
    return out


def _pair(key: str, value: AnyValue | None) -> KeyValue:
    return KeyValue(key=key, value=value)


values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(_array),
        st.lists(st.tuples(texts, st.none() | inner), max_size=3).map(_map),
    ),
    max_leaves=6,
)


@functools.cache
def known_keys() -> tuple[str, ...]:
    """Every attribute key that some rule knows."""
    found = {f.key for d in stages.dialects() for f in d.fields} | {
        m.key for d in stages.dialects() for m in d.marks
    }
    found |= {key for d in stages.dialects() for key in d.text_keys} | {
        "overrun.stage",
        "db.statement",
        "db.operation",
        "url.full",
        "url.path",
        "http.url",
    }
    found |= {f.key for d in stages.dialects() for f in d.event_fields} | {
        key for d in stages.dialects() for key, _ in d.failures
    }
    # Other spellings of some of them.
    found |= {key.replace(".", "_") for key in sorted(found)[::7]} | {
        key.replace(".", ":") for key in sorted(found)[::11]
    }
    return tuple(
        sorted(
            found
            | {
                "http.request.method",
                "rpc.system",
                "user_agent.original",
                "app.question",
                "app.prompt_tokens",
                "gen_ai.prompt.0.content",
            }
        )
    )


def _operations(key: str) -> st.SearchStrategy[KeyValue]:
    """The key with a value that some mark wants, so that rules meet each other."""
    wanted = sorted(
        {v for d in stages.dialects() for m in d.marks if m.key == key for v in m.values}
    ) or ["x"]
    return st.sampled_from(wanted).map(lambda v: KeyValue(key=key, value=AnyValue(string_value=v)))


attributes = st.lists(
    st.one_of(
        st.builds(_pair, st.sampled_from(known_keys()), st.none() | values),
        st.builds(_pair, st.sampled_from(known_keys()), _scalars),
        st.sampled_from(
            (
                "gen_ai.operation.name",
                "llm.request.type",
                "mcp.method.name",
                "module",
                "openinference.span.kind",
                "mlflow.spanType",
                "ai.operationId",
                "langfuse.observation.type",
                "langsmith.span.kind",
            )
        ).flatmap(_operations),
        st.sampled_from(stages.STAGES).map(
            lambda s: KeyValue(key="overrun.stage", value=AnyValue(string_value=s))
        ),
        st.builds(_pair, texts, values),
    ),
    max_size=9,
)
_times = st.one_of(
    st.integers(1_790_000_000 * 10**9, 1_790_000_100 * 10**9), st.integers(0, 2**64 - 1), st.just(0)
)
_dropped = st.sampled_from((0, 0, 0, 0, 0, 0, 1, 300, 2**32 - 1))
_trace_ids = st.one_of(
    st.sampled_from((b"\1" * 16, b"\2" * 16)),
    st.binary(min_size=16, max_size=16),
    st.just(b"\0" * 16),
    st.binary(max_size=20),
)
_span_ids = st.one_of(
    st.integers(1, 9).map(lambda n: n.to_bytes(8, "big")), st.binary(max_size=9), st.just(b"\0" * 8)
)


@functools.cache
def event_names() -> tuple[str, ...]:
    """Names of events that a rule knows, and others."""
    known = {
        n
        for d in stages.dialects()
        for n in (*d.first_token_events, *d.chunk_events, *d.attempt_events)
    }
    known |= {f.event for d in stages.dialects() for f in d.event_fields} | {
        "mlflow.chunk.item.0",
        "mlflow.chunk.item.7",
        "mlflow.chunk.items",
    }
    return (*sorted(known), "overrun.usable_answer", "exception", "ß" * 300)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """One span; nothing about it need make sense."""
    out = Span(
        trace_id=draw(_trace_ids),
        span_id=draw(_span_ids),
        parent_span_id=draw(_span_ids),
        name=draw(texts),
        trace_state=draw(st.sampled_from(("", "ot=th:8", "a" * 600))),
        kind=draw(st.integers(0, 7)),
        start_time_unix_nano=draw(_times),
        end_time_unix_nano=draw(_times),
        attributes=draw(attributes),
        flags=draw(st.integers(0, 2**32 - 1)),
        dropped_attributes_count=draw(_dropped),
        dropped_events_count=draw(_dropped),
        dropped_links_count=draw(_dropped),
    )
    if draw(st.booleans()):
        out.status.CopyFrom(Status(code=draw(st.integers(0, 4)), message=draw(texts)))
    for _ in range(draw(st.integers(0, 3))):
        out.events.add(
            time_unix_nano=draw(_times),
            name=draw(st.sampled_from(event_names())),
            attributes=draw(attributes) if draw(st.booleans()) else [],
            dropped_attributes_count=draw(_dropped),
        )
    for _ in range(draw(st.integers(0, 1))):
        out.links.add(
            trace_id=draw(_trace_ids),
            span_id=draw(_span_ids),
            attributes=draw(attributes),
            dropped_attributes_count=draw(_dropped),
        )
    return out


_scopes = st.builds(
    InstrumentationScope,
    name=st.sampled_from(
        (
            "",
            "vllm",
            "vllm.tracing.otel",
            "vllmish",
            "sglang server",
            "langfuse-sdk",
            "ai",
            "litellm",
            "dynamo_runtime",
            "opentelemetry.instrumentation.httpx",
            "日本",
        )
    ),
    version=texts,
    attributes=attributes,
)
_resource_keys = st.sampled_from(
    (
        "service.name",
        "service.instance.id",
        "host.name",
        "k8s.pod.name",
        "container.id",
        "service.version",
        "prompt.text",
        "x",
    )
)
_resources = st.builds(
    Resource, attributes=st.lists(st.builds(_pair, _resource_keys, values), max_size=4)
)


@st.composite
def requests(draw: st.DrawFn) -> ExportTraceServiceRequest:
    """One export request: several resources and scopes, some of them absent or empty."""
    out = ExportTraceServiceRequest()
    for _ in range(draw(st.integers(0, 2))):
        resource_spans = ResourceSpans(schema_url=draw(st.sampled_from(("", "https://schema"))))
        if draw(st.booleans()):
            resource_spans.resource.CopyFrom(draw(_resources))
        for _ in range(draw(st.integers(0, 2))):
            scope_spans = ScopeSpans(spans=draw(st.lists(spans(), max_size=3)))
            if draw(st.booleans()):
                scope_spans.scope.CopyFrom(draw(_scopes))
            resource_spans.scope_spans.append(scope_spans)
        out.resource_spans.append(resource_spans)
    return out


# --- plain readings ---


def comparable(value: Any) -> Any:
    """A value that equals itself: NaN as text, bool apart from int, -0.0 apart from 0.0."""
    if value is None or type(value) in (int, str):
        return value
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else repr(value))
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list | tuple):
        return [comparable(v) for v in value]
    if isinstance(value, dict):
        return {k: comparable(v) for k, v in value.items()}
    return value


def attribute_list(attributes: Attributes) -> list[tuple[int, str, Any]]:
    """(owner, key, value) of flat attributes; what is nested is decoded, an absent value is ("absent",)."""
    text, out = attributes.text.to_pylist(), []
    for at, (owner, code, kind) in enumerate(
        zip(
            attributes.owner.tolist(),
            attributes.code.tolist(),
            attributes.kind.tolist(),
            strict=True,
        )
    ):
        assert (kind == wire.STRING) == (text[at] is not None)
        values = {
            wire.STRING: text[at],
            wire.INT: int(attributes.number[at]),
            wire.BOOL: bool(attributes.number[at]),
        }
        values |= {
            wire.DOUBLE: float(attributes.fraction[at]),
            wire.OTHER: attributes.other(at),
            wire.NOTHING: ("absent",),
        }
        out.append((owner, attributes.keys[code], (kind, comparable(values[kind]))))
    return out


_IDS = ("trace_hi", "trace_lo", "span_id")
_SCALARS = (*_IDS, "parent_id", "kind", "start", "end", "status", "flags")


def plain_columns(raw: RawSpans) -> dict[str, Any]:
    """Everything in decoded spans as Python lists, for one equality."""
    return {
        "body": raw.body.tolist(),
        "source": raw.source.tolist(),
        "sources": [
            comparable(
                (
                    s.resource,
                    s.scope_name,
                    s.scope_version,
                    s.scope,
                    s.resource_schema_url,
                    s.scope_schema_url,
                )
            )
            for s in raw.sources
        ],
        **{name: getattr(raw, name).tolist() for name in _SCALARS},
        "name": raw.name.to_pylist(),
        "trace_state": raw.trace_state.to_pylist(),
        "attributes": attribute_list(raw.attributes),
        "event_owner": raw.events.owner.tolist(),
        "event_time": raw.events.time_ns.tolist(),
        "event_name": raw.events.name.to_pylist(),
        "event_attributes": attribute_list(raw.events.attributes),
        "link_owner": raw.links.owner.tolist(),
        "link_whole": raw.links.whole_ids.tolist(),
        "link_ids": [getattr(raw.links, name).tolist() for name in _IDS],
        "link_attributes": attribute_list(raw.links.attributes),
        "dropped": [of.tolist() for of in (raw.dropped, raw.events.dropped, raw.links.dropped)],
    }


_ID_KEYS = {"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"}


def as_otlp_json(message: Any, *, snake: bool = False, numbers: bool = False) -> bytes:
    """A message as OTLP/JSON: protobuf's own mapping with hex ids; `numbers` writes 64-bit integers as numbers."""
    document = MessageToDict(message, preserving_proto_field_name=snake)

    def walk(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: walk(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [walk(v) for v in value]
        if key in _ID_KEYS:
            return base64.b64decode(value).hex()
        if numbers and key.lower().replace("_", "").endswith("unixnano"):
            return int(value)
        return value

    return json.dumps(walk(document)).encode()
