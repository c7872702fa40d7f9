"""How to instrument a RAG service: this is the file to copy from. Each stage is one span, and the spans form one tree.

    POST /rag/ask                 SERVER    the request: its start and end are what the user waits for
      guardrail                   INTERNAL
      retrieval                   INTERNAL
        embeddings MODEL          CLIENT
        SELECT passages           CLIENT    db.*
        rerank passages           INTERNAL
      execute_tool order_status   INTERNAL  only when the question names an order
      build prompt                INTERNAL
      chat MODEL                  CLIENT    gen_ai.*; the engine's own span becomes its child through `traceparent`
      post process                INTERNAL

Names are those of the OpenTelemetry semantic conventions wherever they have one. `overrun.stage` is for the stages that
they have no word for: guardrail, prompt and post. Spans leave over OTLP as the OTEL_* variables say.

No prompt or answer text is recorded. Token counts, lengths and hashes are enough to explain latency, and they are not
personal data. If you need the text and may keep it, opt in yourself, on the chat span:

    span.set_attribute("gen_ai.input.messages", json.dumps(messages))

Two more things that only the application knows, both optional:

    span.set_attribute("overrun.route", "refunds")  # on the SERVER span, when one URL serves several kinds of request
    span.add_event("overrun.usable_answer")         # when the user can first act, if that is not the first token
"""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from overrun.sample_traces.app.backends import Backends, handbook

ROUTE = "/rag/ask"
CHAT_MODEL = "demo-8b-instruct"
EMBEDDING_MODEL = "demo-embed"
MAX_TOKENS = 768
TEMPERATURE = 0.2
ORDER = re.compile(r"\border (\d+)\b")


def span_exporter() -> SpanExporter:
    """The exporter that OTEL_EXPORTER_OTLP_PROTOCOL names; it reads endpoint, headers and certificates by itself."""
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if protocol == "grpc":
        return GrpcExporter()
    if protocol == "http/protobuf":
        return HttpExporter()
    raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}: use 'grpc' or 'http/protobuf'")


def tracer_provider(
    service: str, version: str, exporter: SpanExporter, **extra: str
) -> TracerProvider:
    """Spans of one service instance, sent in batches from a background thread; call `shutdown()` to send the rest.

    The instance id tells replicas apart, and the version a good deploy from a bad one: without them neither a slow
    replica nor a slow release can be named.
    """
    attributes = {
        "service.name": service,
        "service.version": version,
        "service.instance.id": str(uuid.uuid4()),
    }
    provider = TracerProvider(resource=Resource.create({**attributes, **extra}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


class ServerSpan:
    """ASGI middleware: one SERVER span per request, open until the last byte of a streamed answer is sent.

    `opentelemetry-instrumentation-asgi` or `-fastapi` does the same; it is spelled out here to show what matters.
    """

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self.app = app
        self.tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        # Only known routes get a name of their own: a name per URL would be a new time series for every typing error.
        if scope["type"] != "http" or scope["path"] != ROUTE:
            await self.app(scope, receive, send)
            return
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        with self.tracer.start_as_current_span(
            f"{scope['method']} {ROUTE}",
            context=propagate.extract(headers),  # continue the caller's trace, if there is one
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": scope["method"],
                "http.route": ROUTE,
                "url.path": scope["path"],
                "url.scheme": scope["scheme"],
            },
        ) as span:

            async def send_and_note_status(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(Status(StatusCode.ERROR))
                await send(message)

            await self.app(scope, receive, send_and_note_status)


class RagService:
    """Answers questions about products from their handbooks: guard, retrieve, look up, prompt, generate, finish."""

    def __init__(self, backends: Backends, model: httpx.AsyncClient, tracer: Tracer) -> None:
        self.backends = backends
        self.model = model  # its base URL is the `/v1` of an OpenAI-compatible server
        self.tracer = tracer

    async def ask(self, request: Request) -> Response:
        """POST {"product", "question"}: a stream of server-sent events with the answer, or 422 when refused."""
        body = await request.json()
        question, product = str(body["question"]), str(body["product"])
        if not await self.guardrail(question):
            return JSONResponse({"error": "refused"}, status_code=422)
        passages = await self.retrieve(question)
        facts = await self.look_up_order(question)
        messages = self.build_prompt(product, question, passages, facts)
        return StreamingResponse(self.answer(messages), media_type="text/event-stream")

    async def guardrail(self, question: str) -> bool:
        """True when the question may be answered."""
        with self.tracer.start_as_current_span(
            "guardrail", attributes={"overrun.stage": "guardrail"}
        ) as span:
            allowed = await self.backends.is_allowed(question)
            span.set_attribute("guardrail.allowed", allowed)
            return allowed

    async def retrieve(self, question: str) -> list[str]:
        """The four best passages; each step is a child span, so that a slow one can be told from the others."""
        with self.tracer.start_as_current_span(
            "retrieval", attributes={"gen_ai.operation.name": "retrieval"}
        ):
            with self.tracer.start_as_current_span(
                f"embeddings {EMBEDDING_MODEL}",
                kind=SpanKind.CLIENT,
                attributes={
                    "gen_ai.operation.name": "embeddings",
                    "gen_ai.request.model": EMBEDDING_MODEL,
                },
            ):
                vector = await self.backends.embed(question)
            with self.tracer.start_as_current_span(
                "SELECT passages",
                kind=SpanKind.CLIENT,
                attributes={
                    "db.system.name": "postgresql",
                    "db.namespace": "handbooks",
                    "db.collection.name": "passages",
                    "db.operation.name": "SELECT",
                },
            ) as span:
                found = await self.backends.search(vector, limit=12)
                span.set_attribute("db.response.returned_rows", len(found))
            with self.tracer.start_as_current_span(
                "rerank passages", attributes={"overrun.stage": "retrieval"}
            ):
                return await self.backends.rerank(question, found, limit=4)

    async def look_up_order(self, question: str) -> str:
        """The state of the order that the question names, or an empty text."""
        order = ORDER.search(question)
        if order is None:
            return ""
        with self.tracer.start_as_current_span(
            "execute_tool order_status",
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "order_status",
                "gen_ai.tool.type": "function",
            },
        ):
            return await self.backends.order_status(order[1])

    def build_prompt(
        self, product: str, question: str, passages: list[str], facts: str
    ) -> list[dict[str, str]]:
        """The chat messages: what never changes first, so that the engine's prefix cache can hold it."""
        with self.tracer.start_as_current_span(
            "build prompt", attributes={"overrun.stage": "prompt"}
        ):
            user = "\n".join([*passages, facts, question])
            return [
                {"role": "system", "content": system_prompt(product)},
                {"role": "user", "content": user},
            ]

    async def answer(self, messages: list[dict[str, str]]) -> AsyncIterator[bytes]:
        """The events for the browser: pieces of text as they come, then the finished answer's length."""
        pieces = []
        async with contextlib.aclosing(self.stream_chat(messages)) as stream:
            async for text in stream:
                pieces.append(text)
                yield b"data: " + json.dumps({"text": text}).encode() + b"\n\n"
        with self.tracer.start_as_current_span(
            "post process", attributes={"overrun.stage": "post"}
        ):
            final = await self.backends.format("".join(pieces))
        yield b"data: " + json.dumps({"done": True, "characters": len(final)}).encode() + b"\n\n"

    async def stream_chat(self, messages: list[dict[str, str]]) -> AsyncGenerator[str, None]:
        """The pieces of text that the model generates, under one span that ends with the last of them."""
        # Not made the current span: a generator is left and entered again, and "current" would leak out in between.
        span = self.tracer.start_span(
            f"chat {CHAT_MODEL}", kind=SpanKind.CLIENT, attributes=self.chat_attributes()
        )
        # Requests that share this text can share the cache: the hash shows who does, without showing the text.
        head = hashlib.blake2b(messages[0]["content"].encode(), digest_size=8).hexdigest()
        span.set_attribute("overrun.prefix_hash", head)
        headers: dict[str, str] = {}
        propagate.inject(
            headers, trace.set_span_in_context(span)
        )  # the engine's span becomes a child of this one
        started_s, first = time.monotonic(), True
        try:
            async with self.model.stream(
                "POST", "chat/completions", json=chat_request(messages), headers=headers
            ) as response:
                response.raise_for_status()
                async for line in response.aiter_lines():
                    text = note_chunk(span, line)
                    # Only text counts as the first chunk: many servers send an empty role chunk long before it.
                    if text and first:
                        span.set_attribute(
                            "gen_ai.response.time_to_first_chunk", time.monotonic() - started_s
                        )
                        first = False
                    if text:
                        yield text
        except (httpx.HTTPError, asyncio.CancelledError, GeneratorExit) as error:
            span.set_status(Status(StatusCode.ERROR))
            span.set_attribute("error.type", type(error).__qualname__)
            raise
        finally:
            span.end()

    def chat_attributes(self) -> dict[str, str | int | float | bool]:
        """What is known about a model call before it is made."""
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "vllm",
            "gen_ai.request.model": CHAT_MODEL,
            "gen_ai.request.max_tokens": MAX_TOKENS,
            "gen_ai.request.temperature": TEMPERATURE,
            "gen_ai.request.stream": True,
            "server.address": self.model.base_url.host,
            "server.port": self.model.base_url.port or 80,
        }


def system_prompt(product: str) -> str:
    """The head of every prompt about a product. A date or a request id in it would make the prefix cache useless."""
    return f"Answer from the handbook and the passages only.\n{handbook(product)}"


def chat_request(messages: list[dict[str, str]]) -> dict[str, Any]:
    """The body of the model call. Without `include_usage` a stream ends without token counts."""
    settings = {"model": CHAT_MODEL, "max_tokens": MAX_TOKENS, "temperature": TEMPERATURE}
    return {
        **settings,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def note_chunk(span: Span, line: str) -> str:
    """Put what one line of the stream tells (id, model, finish reason, usage) on the span; returns its text, if any."""
    if not line.startswith("data: {"):
        return ""
    chunk = json.loads(line.removeprefix("data: "))
    usage = chunk.get("usage")
    if usage:
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        span.set_attribute(
            "gen_ai.usage.input_tokens", usage["prompt_tokens"]
        )  # cached tokens are part of these
        span.set_attribute("gen_ai.usage.output_tokens", usage["completion_tokens"])
        if cached is not None:  # a server that does not say is not a server with a cold cache
            span.set_attribute("gen_ai.usage.cache_read.input_tokens", cached)
    for choice in chunk["choices"]:
        if choice["finish_reason"]:
            span.set_attribute("gen_ai.response.id", chunk["id"])
            span.set_attribute("gen_ai.response.model", chunk["model"])
            span.set_attribute("gen_ai.response.finish_reasons", [choice["finish_reason"]])
        return str(choice["delta"].get("content") or "")
    return ""


def create_app(backends: Backends, model: httpx.AsyncClient, tracer: Tracer) -> ASGIApp:
    """The service as an ASGI application."""
    service = RagService(backends, model, tracer)
    return ServerSpan(Starlette(routes=[Route(ROUTE, service.ask, methods=["POST"])]), tracer)
