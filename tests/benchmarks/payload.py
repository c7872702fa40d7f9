"""Makes the reference payload of the ingest benchmark: trace bodies as the exporter of a RAG service sends them.

400 bodies of 512 spans, about 10 spans a trace (server, guardrail, retrieve, embeddings, vector search, rerank, prompt
build, chat, 0-2 tools, sometimes a second chat, postprocess), 8 to 10 attributes a span with the current GenAI semantic
conventions on model calls, 0.15 events a span, 1.5 % error spans with a stack trace, about 400 bytes a span, no prompt
text (content capture is opt-in in the conventions). Ids are unique, values seeded. As from a batch processor, children
come before their parents and a body ends after 512 spans, so a trace lies in one body or in two neighbouring ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

SPANS_PER_BODY = 512
MEAN_SPANS_PER_TRACE = 10
ARRIVALS_PER_S = 100
NS_PER_MS = 1_000_000

INTERNAL, SERVER, CLIENT = Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT
MODELS = ("llama-3.3-70b-instruct", "qwen3-32b", "gpt-5-mini")
ROUTES = ("/v1/chat", "/v1/search", "/v1/assist")
TOOLS = ("weather_lookup", "order_status", "calculator")
RESOURCE = {
    "service.name": "rag-api",
    "service.version": "2026.11.3",
    "service.instance.id": "rag-api-7d9c5b6f4-x2x8p",
    "deployment.environment.name": "production",
    "telemetry.sdk.name": "opentelemetry",
    "telemetry.sdk.language": "python",
    "telemetry.sdk.version": "1.45.1",
}
STACKTRACE = "Traceback (most recent call last):\n" + "".join(
    f'  File "/srv/rag/{name}.py", line {line}, in {name}\n    return await {name}_once(request, deadline)\n'
    for name, line in (
        ("handle", 88),
        ("answer", 141),
        ("retrieve", 57),
        ("call", 203),
        ("send", 319),
    )
)

Value = str | int | float | bool | list[str]


@dataclass(frozen=True)
class Body:
    """One serialized export request and how many spans it holds."""

    data: bytes
    spans: int


@dataclass(frozen=True)
class Payload:
    """All bodies of a run in sending order, and how many traces they hold (each a request with a model call)."""

    bodies: list[Body]
    traces: int

    @property
    def spans(self) -> int:
        """Spans in all bodies."""
        return sum(body.spans for body in self.bodies)

    @property
    def bytes_per_span(self) -> float:
        """Uncompressed protobuf bytes a span."""
        return sum(len(body.data) for body in self.bodies) / self.spans


def make(
    spans: int, *, end_ns: int, seed: int = 1, spans_per_body: int = SPANS_PER_BODY
) -> Payload:
    """At least `spans` spans, as whole traces, the last of which starts near `end_ns`; the last body may be smaller.

    The same arguments give the same bytes.
    """
    rng = random.Random(seed)
    gap_ns = 1_000 * NS_PER_MS // ARRIVALS_PER_S
    start_ns = end_ns - spans // MEAN_SPANS_PER_TRACE * gap_ns
    bodies: list[Body] = []
    waiting: list[Span] = []
    made = traces = 0
    while made < spans:
        start_ns += int(rng.expovariate(1.0) * gap_ns)
        trace = Trace(rng, start_ns).spans
        traces += 1
        made += len(trace)
        waiting += trace
        while len(waiting) >= spans_per_body:
            bodies.append(_body(waiting[:spans_per_body]))
            del waiting[:spans_per_body]
    if waiting:
        bodies.append(_body(waiting))
    return Payload(bodies, traces)


def _body(spans: list[Span]) -> Body:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.extend(_attributes(RESOURCE))
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name, scope_spans.scope.version = "opentelemetry.instrumentation.rag", "1.3b0"
    scope_spans.spans.extend(spans)
    return Body(request.SerializeToString(), len(spans))


def _attributes(values: Mapping[str, Value]) -> Iterator[KeyValue]:
    for key, value in values.items():
        yield KeyValue(key=key, value=_any_value(value))


def _any_value(value: Value) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):  # before int, of which it is a kind
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=item) for item in value]))


class Trace:
    """One request of the service; `spans` in the order in which they end, so the root is last."""

    def __init__(self, rng: random.Random, start_ns: int) -> None:
        self.rng = rng
        self.trace_id = rng.randbytes(16)
        self.root_id = rng.randbytes(8)
        self.session = f"sess-{rng.getrandbits(32):08x}"
        self.model = rng.choice(MODELS)
        self.now_ns = start_ns
        self.spans: list[Span] = []
        self._run(start_ns)

    def _run(self, start_ns: int) -> None:
        route = self.rng.choice(ROUTES)
        self._guardrail()
        self._retrieve()
        self._step(
            "prompt.build",
            4,
            {"rag.template": "answer-v7", "rag.template.tokens": 412, "rag.documents": 5},
        )
        self._chat()
        for _ in range(self.rng.choice((0, 0, 1, 1, 2))):
            self._tool()
        if self.rng.random() < 0.3:
            self._chat()
        self._step(
            "postprocess", 6, {"rag.citations": self.rng.randrange(6), "rag.truncated": False}
        )
        root = self._span(f"POST {route}", SERVER, start_ns, self._http(route), parent_id=b"")
        root.span_id = self.root_id

    def _http(self, route: str) -> dict[str, Value]:
        return {
            "http.request.method": "POST",
            "http.route": route,
            "http.response.status_code": 200,
            "url.scheme": "https",
            "url.path": route,
            "server.address": "rag.example.com",
            "server.port": 443,
            "network.protocol.version": "1.1",
            "user_agent.original": "python-httpx/0.28.1",
            "client.address": f"10.4.{self.rng.randrange(256)}.{self.rng.randrange(256)}",
            "session.id": self.session,
            "user.id": f"user-{self.rng.randrange(5000):04d}",
            "tenant.id": f"tenant-{self.rng.randrange(40):02d}",
        }

    def _guardrail(self) -> None:
        score = self.rng.random()
        facts: dict[str, Value] = {"guardrail.name": "prompt-injection", "guardrail.version": "3"}
        facts |= {
            "guardrail.score": score,
            "guardrail.action": "pass",
            "guardrail.checks": 4,
            "session.id": self.session,
        }
        self._step("guardrail.check", 12, facts)

    def _retrieve(self) -> None:
        start_ns, span_id = self.now_ns, self.rng.randbytes(8)
        self._embeddings(span_id)
        self._search(span_id)
        documents = self.rng.randrange(3, 20)
        facts: dict[str, Value] = {
            "rerank.model": "bge-reranker-v2-m3",
            "rerank.documents": documents,
            "rerank.top_k": 5,
        }
        facts |= {
            "rerank.batch": 1,
            "rerank.device": "cuda:0",
            "rerank.score.max": self.rng.random(),
        }
        self._step("rerank", 18, facts, parent_id=span_id)
        retrieve: dict[str, Value] = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": "kb-main",
            "retrieval.top_k": 5,
        }
        span = self._span(
            "retrieve",
            INTERNAL,
            start_ns,
            {**retrieve, "retrieval.documents": documents, "cache.hit": False},
        )
        span.span_id = span_id

    def _embeddings(self, parent_id: bytes) -> None:
        start_ns = self.now_ns
        self._pass(9)
        facts: dict[str, Value] = {
            "gen_ai.operation.name": "embeddings",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "bge-m3",
            "gen_ai.response.model": "bge-m3",
            "gen_ai.usage.input_tokens": self.rng.randrange(8, 200),
            "gen_ai.embeddings.dimension.count": 1024,
            "server.address": "embed.internal",
            "server.port": 8000,
        }
        self._span("embeddings bge-m3", CLIENT, start_ns, facts, parent_id)

    def _search(self, parent_id: bytes) -> None:
        start_ns = self.now_ns
        self._pass(15)
        facts: dict[str, Value] = {
            "db.system.name": "qdrant",
            "db.operation.name": "query_points",
            "db.collection.name": "kb-main",
            "db.response.returned_rows": self.rng.randrange(3, 20),
            "db.vector.query.top_k": 20,
            "server.address": "qdrant.internal",
            "server.port": 6334,
            "network.transport": "tcp",
        }
        self._span("query_points kb-main", CLIENT, start_ns, facts, parent_id)

    def _chat(self) -> None:
        start_ns = self.now_ns
        ttft_ms = self.rng.lognormvariate(5.5, 0.6)
        output_tokens = int(self.rng.lognormvariate(5.0, 0.9)) + 2
        self._pass(ttft_ms, exactly=True)
        first_ns = self.now_ns
        self._pass(output_tokens * self.rng.uniform(9, 16), exactly=True)
        span = self._span(
            f"chat {self.model}", CLIENT, start_ns, self._chat_facts(ttft_ms / 1000, output_tokens)
        )
        event = span.events.add(name="gen_ai.first_token", time_unix_nano=first_ns)
        event.attributes.extend(_attributes({"gen_ai.token.index": 0}))

    def _chat_facts(self, ttft_s: float, output_tokens: int) -> dict[str, Value]:
        input_tokens = int(self.rng.lognormvariate(7.2, 0.5))
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": self.model,
            "gen_ai.response.model": self.model,
            "gen_ai.response.id": f"chatcmpl-{self.rng.getrandbits(96):024x}",
            "gen_ai.response.finish_reasons": [
                self.rng.choice(("stop", "stop", "stop", "length", "tool_calls"))
            ],
            "gen_ai.response.time_to_first_chunk": ttft_s,
            "gen_ai.conversation.id": self.session,
            "gen_ai.output.type": "text",
            "gen_ai.request.stream": True,
            "gen_ai.request.max_tokens": self.rng.choice((256, 512, 1024, 2048)),
            "gen_ai.request.temperature": 0.7,
            "gen_ai.request.top_p": 0.95,
            "gen_ai.request.seed": 7,
            "gen_ai.request.choice.count": 1,
            "gen_ai.usage.input_tokens": input_tokens,
            "gen_ai.usage.output_tokens": output_tokens,
            "gen_ai.usage.cache_read.input_tokens": input_tokens // 2 // 16 * 16,
            "openai.response.system_fingerprint": f"fp_{self.model}",
            "openai.api.type": "chat_completions",
            "server.address": "llm.internal",
            "server.port": 8000,
        }

    def _tool(self) -> None:
        name = self.rng.choice(TOOLS)
        facts: dict[str, Value] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": f"call_{self.rng.getrandbits(64):016x}",
            "gen_ai.conversation.id": self.session,
            "tool.cache.hit": self.rng.random() < 0.2,
        }
        self._step(f"execute_tool {name}", 80, facts)

    def _step(
        self, name: str, mean_ms: float, facts: dict[str, Value], parent_id: bytes | None = None
    ) -> None:
        start_ns = self.now_ns
        self._pass(mean_ms)
        code: dict[str, Value] = {
            "code.function.name": f"rag.{name}",
            "thread.id": self.rng.randrange(1, 9),
        }
        self._span(name, INTERNAL, start_ns, facts | code, parent_id)

    def _pass(self, ms: float, *, exactly: bool = False) -> None:
        """Lets time go by: `ms`, or a random while with that mean."""
        factor = 1.0 if exactly else self.rng.lognormvariate(-0.125, 0.5)
        self.now_ns += int(ms * factor * NS_PER_MS) + self.rng.randrange(1_000, 400_000)

    def _span(
        self,
        name: str,
        kind: Span.SpanKind.ValueType,
        start_ns: int,
        facts: Mapping[str, Value],
        parent_id: bytes | None = None,
    ) -> Span:
        """A span of this trace that ends now, under the root unless told otherwise (no bytes: it is the root)."""
        span = Span(
            trace_id=self.trace_id, span_id=self.rng.randbytes(8), name=name, kind=kind, flags=0x101
        )
        span.parent_span_id = self.root_id if parent_id is None else parent_id
        span.start_time_unix_nano, span.end_time_unix_nano = start_ns, self.now_ns
        span.attributes.extend(_attributes(facts))
        if self.rng.random() < 0.015:
            self._fail(span)
        self.spans.append(span)
        return span

    def _fail(self, span: Span) -> None:
        message = f"upstream did not answer within {self.rng.randrange(1, 30)} s"
        span.status.code, span.status.message = Status.STATUS_CODE_ERROR, message
        span.attributes.extend(_attributes({"error.type": "TimeoutError"}))
        event = span.events.add(name="exception", time_unix_nano=self.now_ns)
        stack = {
            "exception.stacktrace": f"{STACKTRACE}TimeoutError: {message}\n",
            "exception.escaped": "False",
        }
        event.attributes.extend(
            _attributes({"exception.type": "TimeoutError", "exception.message": message, **stack})
        )
