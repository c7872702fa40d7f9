"""A small RAG service under the OpenTelemetry SDK: server span, retrieval, prompt, streaming call, tool, post.

`python -m tests.lab.application SETTINGS.json` serves POST /ask on 127.0.0.1 and streams the model's text on. The
settings are `Settings` as JSON; what a request asks for is the body that `tests.lab.client` sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import httpx
import msgspec
import uvicorn
from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from overrun.models.predict import Predictor

MODEL = "tiny-llama"
FIRST_WORD, WORDS = 6, 8186  # words are tokens with these numbers
MOST_TOKENS = 2048  # of a call's answer, where no cap is set
STOPPING_S = 60.0  # how long answers that nobody waits for may take when the service ends


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of the service. Times in milliseconds, shares 0..1."""

    port: int = 0
    engines: tuple[str, ...] = ()  # base URLs, in turn
    provider: str = "vllm"
    telemetry: str = ""  # base URL for OTLP/HTTP
    version: str = "1"
    salt: str = ""  # parts the users' texts of one phase from those of another, which the prefix cache still holds
    stamp_head: bool = False  # a time stamp before the shared system prompt
    runaway_share: float = 0.0  # part of the answers that go on to `runaway_tokens`
    runaway_tokens: int = 0
    vocabulary: int = (
        0  # answers use so many words alone, and so does the end of each prompt; 0: all
    )
    cap_tokens: int = 0  # max_tokens of every call; 0: as asked
    retrieval_ms: float = 40.0
    slow_share: float = 0.0  # part of the retrievals that take `slow_ms` longer
    slow_ms: float = 0.0
    tool_ms: float = 0.0
    post_ms: float = 2.0
    rounds: int = 1  # model calls of a request; a tool runs after each but the last, whose answer the user gets
    plan_tokens: int = 14  # what each call but the last writes
    loop_share: float = 0.0  # part of the requests whose agent makes `loop_rounds` calls, with one tool call again and again
    loop_rounds: int = 0
    joins_at_s: float = 0.0  # so long after the first call all go to the first engine
    artifact: str = ""  # a folder of `overrun train`
    order: str = ""  # what the predicted length is for: priority, or lanes (engine by engine)
    lane_tokens: float = 0.0  # longer answers than this go to the second engine
    pool: int = 0  # most connections to the engines; 0: no limit
    keep_alive: bool = True
    certificate: str = ""  # the engines speak TLS; the file that they are trusted by
    timeout_s: float = 120.0  # for the whole call
    retries: int = 0  # how often a call that timed out is sent again
    cancel_on_disconnect: bool = True


def words(seed: str, count: int, vocabulary: int = WORDS) -> str:
    """`count` of the first words of the tiny model's vocabulary, the same for the same seed."""
    rng = random.Random(seed)
    return " ".join(f"w{rng.randrange(FIRST_WORD, FIRST_WORD + vocabulary)}" for _ in range(count))


def loaded(artifact: str) -> Predictor | None:
    """The predictor of a folder; None without a folder."""
    if not artifact:
        return None
    from overrun.models.predict import Predictor

    return Predictor.load(artifact)


class Service:
    """Answers /ask and /report; one instance a process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        resource = Resource.create(
            {
                "service.name": "rag-app",
                "service.version": settings.version,
                "service.instance.id": f"127.0.0.1:{settings.port}",
            }
        )
        self.provider = TracerProvider(resource=resource)
        exporter = OTLPSpanExporter(endpoint=settings.telemetry + "/v1/traces")
        self.provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1000))
        self.tracer = self.provider.get_tracer("rag-app", settings.version)
        limits = httpx.Limits(
            max_connections=settings.pool or None,
            max_keepalive_connections=(settings.pool or 200) if settings.keep_alive else 0,
            keepalive_expiry=60.0,
        )
        self.client = httpx.AsyncClient(
            limits=limits,
            timeout=httpx.Timeout(None, connect=30.0),
            verify=ssl.create_default_context(cafile=settings.certificate or None),
        )
        self.calls = 0
        self.detached: set[asyncio.Task[None]] = set()
        self.heads: dict[int, str] = {}
        self.began: float | None = None
        self.predictor = loaded(settings.artifact)

    async def close(self) -> None:
        """Let answers that nobody waits for end, flush the spans and close the connections."""
        if self.detached:
            await asyncio.wait(self.detached, timeout=STOPPING_S)
        await self.client.aclose()
        await asyncio.to_thread(self.provider.shutdown)

    def messages(self, ask: dict[str, Any]) -> list[dict[str, str]]:
        """The shared system prompt and the user's own text, in words of one token each."""
        count = ask["shared_tokens"]
        head = self.heads.setdefault(count, words("system", count))
        if self.settings.stamp_head:
            head = words(f"{time.time_ns()}", 2) + " " + head
        own = words(
            f"{self.settings.salt}-{ask['number']}",
            ask["own_tokens"],
            self.settings.vocabulary or WORDS,
        )
        return [{"role": "system", "content": head}, {"role": "user", "content": own}]

    def wanted_tokens(self, ask: dict[str, Any]) -> int:
        """How long the answer is: as asked, a runaway, or cut by the cap."""
        settings, count = self.settings, int(ask["output_tokens"])
        if ask["draw"] < settings.runaway_share:
            count = settings.runaway_tokens
        return min(count, settings.cap_tokens) if settings.cap_tokens else count

    async def answer(self, request: Request) -> StreamingResponse:
        """POST /ask or /report: everything below one server span."""
        ask = await request.json()
        route = request.url.path
        parent = propagate.extract(dict(request.headers))
        attributes = {
            "http.request.method": "POST",
            "http.route": route,
            "url.path": route,
            "url.scheme": "http",
            "tenant.id": ask["tenant"],
        }
        span = self.tracer.start_span(f"POST {route}", parent, SpanKind.SERVER, attributes)
        stream = self._run(ask, span)
        if not self.settings.cancel_on_disconnect:
            stream = self._detached(stream, span)
        return StreamingResponse(stream, media_type="text/plain")

    async def _detached(self, stream: AsyncIterator[bytes], span: Span) -> AsyncIterator[bytes]:
        """The stream, worked on to its end though the client may have left; the server span ends when it leaves."""
        parts: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def work() -> None:
            async for text in stream:
                parts.put_nowait(text)
            parts.put_nowait(None)

        task = asyncio.create_task(work())
        self.detached.add(task)
        task.add_done_callback(self.detached.discard)
        try:
            while (text := await parts.get()) is not None:
                yield text
        except (asyncio.CancelledError, GeneratorExit):
            span.set_attribute("http.response.status_code", 499)
            span.end()
            raise

    async def _run(self, ask: dict[str, Any], span: Span) -> AsyncIterator[bytes]:
        within = trace.set_span_in_context(span, otel_context.Context())
        status = 200
        try:
            messages = await self._prepare(ask, within)
            for number in range(self.rounds(ask) - 1):
                messages = await self._round(ask, number, messages, within)
            async for text in self._model(ask, messages, within, self.wanted_tokens(ask)):
                yield text
            await self._finish(within)
        except (httpx.HTTPError, TimeoutError) as error:
            status = 502
            span.set_status(Status(StatusCode.ERROR, type(error).__qualname__))
            yield b"\n!error " + type(error).__qualname__.encode()
        except (asyncio.CancelledError, GeneratorExit):
            status = 499
            raise
        finally:
            if span.is_recording():
                span.set_attribute("http.response.status_code", status)
                span.end()

    async def _prepare(
        self, ask: dict[str, Any], within: otel_context.Context
    ) -> list[dict[str, str]]:
        settings = self.settings
        slow = settings.slow_ms if ask["draw"] < settings.slow_share else 0.0
        retrieval = {"gen_ai.operation.name": "retrieval", "db.system.name": "qdrant"}
        with self.tracer.start_as_current_span("retrieval", within, attributes=retrieval):
            await asyncio.sleep((settings.retrieval_ms + slow) / 1e3)
        with self.tracer.start_as_current_span("build_prompt", within):
            return self.messages(ask)

    def rounds(self, ask: dict[str, Any]) -> int:
        """How many model calls this request makes."""
        loops = ask["draw"] < self.settings.loop_share
        return self.settings.loop_rounds if loops else self.settings.rounds

    async def _round(
        self,
        ask: dict[str, Any],
        number: int,
        messages: list[dict[str, str]],
        within: otel_context.Context,
    ) -> list[dict[str, str]]:
        """A call that plans, the tool that it asks for, and the messages with both."""
        plan = b"".join(
            [text async for text in self._model(ask, messages, within, self.settings.plan_tokens)]
        )
        repeated = ask["draw"] < self.settings.loop_share
        query = words(f"{ask['number']}-{0 if repeated else number}", 3)
        tool = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search_orders",
            "gen_ai.tool.call.arguments": json.dumps({"query": query}),
        }
        name = "execute_tool search_orders"
        with self.tracer.start_as_current_span(name, within, attributes=tool):
            await asyncio.sleep(0.12)
        found = words(f"{self.settings.salt}-{ask['number']}-{number}", 120)
        return [
            *messages,
            {"role": "assistant", "content": plan.decode()},
            {"role": "user", "content": found},
        ]

    async def _finish(self, within: otel_context.Context) -> None:
        if self.settings.tool_ms:
            tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "format"}
            with self.tracer.start_as_current_span("execute_tool format", within, attributes=tool):
                await asyncio.sleep(self.settings.tool_ms / 1e3)
        with self.tracer.start_as_current_span("postprocess", within):
            await asyncio.sleep(self.settings.post_ms / 1e3)

    async def _model(
        self,
        ask: dict[str, Any],
        messages: list[dict[str, str]],
        within: otel_context.Context,
        tokens: int,
    ) -> AsyncIterator[bytes]:
        """One streaming call for so many tokens, sent again after a time-out as often as the settings allow."""
        for attempt in range(self.settings.retries + 1):
            sent = False
            try:
                async with asyncio.timeout(self.settings.timeout_s):
                    async for text in self._attempt(ask, messages, within, attempt, tokens):
                        sent = True
                        yield text
                return
            except TimeoutError:
                if sent or attempt == self.settings.retries:
                    raise

    async def _attempt(
        self,
        ask: dict[str, Any],
        messages: list[dict[str, str]],
        within: otel_context.Context,
        attempt: int,
        tokens: int,
    ) -> AsyncIterator[bytes]:
        known = self._known(ask)
        expected = self.predictor.predict(known)["p50"] if self.predictor else 0.0
        base = self._engine(expected)
        span = self.tracer.start_span(
            f"chat {MODEL}", within, SpanKind.CLIENT, self._call_attributes(base, messages, attempt)
        )
        body = {
            "model": MODEL,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": tokens,
            "min_tokens": tokens,
            "ignore_eos": True,
            "temperature": 1.0,
        }
        if self.settings.vocabulary:
            some = range(FIRST_WORD, FIRST_WORD + self.settings.vocabulary)
            body["allowed_token_ids"] = list(some)
        if self.settings.order == "priority":
            body["priority"] = int(expected)
        headers: dict[str, str] = {}
        propagate.inject(headers, trace.set_span_in_context(span, within))
        if not self.settings.keep_alive:
            headers["connection"] = "close"
        try:
            url = base + "/v1/chat/completions"
            record = recorder(span)
            opening = Opening(self.tracer, trace.set_span_in_context(span, within))
            async with self.client.stream(
                "POST", url, json=body, headers=headers, extensions={"trace": opening}
            ) as response:
                if response.status_code != 200:
                    span.set_attribute("http.response.status_code", response.status_code)
                    response.raise_for_status()
                async for text in chunks(response.aiter_lines(), record):
                    yield text
            if self.predictor:
                self.predictor.observe(known, tokens)
        except BaseException as error:
            span.set_status(Status(StatusCode.ERROR))
            span.set_attribute("error.type", type(error).__qualname__)
            raise
        finally:
            span.end()

    def _engine(self, expected: float) -> str:
        """The base URL for the next call: in turn, or by the expected tokens of the answer."""
        settings, now = self.settings, time.monotonic()
        if self.began is None:
            self.began = now
        engines = settings.engines
        if now - self.began < settings.joins_at_s:
            engines = engines[:1]
        if settings.order == "lanes":
            return engines[int(expected > settings.lane_tokens)]
        self.calls += 1
        return engines[(self.calls - 1) % len(engines)]

    def _known(self, ask: dict[str, Any]) -> dict[str, Any]:
        """What a router knows of a call before its answer."""
        return {
            "id": str(ask["number"]),
            "time": time.time(),
            **{name: ask[name] for name in ("route", "tenant")},
            "model": MODEL,
            "input_tokens": ask["shared_tokens"] + ask["own_tokens"],
            "max_tokens": MOST_TOKENS,
            "stream": True,
        }

    def _call_attributes(
        self, base: str, messages: list[dict[str, str]], attempt: int
    ) -> dict[str, Any]:
        head = hashlib.blake2b(messages[0]["content"].encode(), digest_size=8).hexdigest()
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self.settings.provider,
            "gen_ai.request.model": MODEL,
            "gen_ai.request.max_tokens": self.settings.cap_tokens or MOST_TOKENS,
            "gen_ai.request.stream": True,
            "server.address": "127.0.0.1",
            "server.port": int(base.rsplit(":", 1)[1]),
            "overrun.prefix_hash": head,
        }
        return attributes | ({"http.request.resend_count": attempt} if attempt else {})


class Opening:
    """Spans for what opening a connection takes, by the names of Go's httptrace: `http.connect` and `http.tls`."""

    NAMES: ClassVar = {"connection.connect_tcp": "http.connect", "connection.start_tls": "http.tls"}

    def __init__(self, tracer: trace.Tracer, within: otel_context.Context) -> None:
        self.tracer, self.within = tracer, within
        self.spans: dict[str, Span] = {}

    async def __call__(self, event: str, info: dict[str, Any]) -> None:
        """One event of httpx: `connection.start_tls.started`, `.complete` or `.failed`."""
        step, _, state = event.rpartition(".")
        if (name := self.NAMES.get(step)) is None:
            return
        if state == "started":
            self.spans[step] = self.tracer.start_span(name, self.within)
        elif span := self.spans.pop(step, None):
            span.end()


Record = Callable[[dict[str, Any], bool], None]


def recorder(span: Span) -> Record:
    """What a chunk of the stream adds to the call's span. The call is sent now."""
    begin = time.monotonic()
    seen = False

    def record(chunk: dict[str, Any], has_text: bool) -> None:
        nonlocal seen
        if has_text and not seen:
            seen = True
            span.set_attribute("gen_ai.response.time_to_first_chunk", time.monotonic() - begin)
        for choice in chunk["choices"]:
            if choice.get("finish_reason"):
                span.set_attribute("gen_ai.response.id", chunk["id"])
                span.set_attribute("gen_ai.response.finish_reasons", [choice["finish_reason"]])
        if usage := chunk.get("usage"):
            span.set_attribute("gen_ai.usage.input_tokens", usage["prompt_tokens"])
            span.set_attribute("gen_ai.usage.output_tokens", usage["completion_tokens"])
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
            if cached is not None:
                span.set_attribute("gen_ai.usage.cache_read.input_tokens", cached)

    return record


async def chunks(lines: AsyncIterator[str], record: Record) -> AsyncIterator[bytes]:
    """The texts of a stream of server-sent events; each event goes to `record`."""
    async for line in lines:
        if not line.startswith("data: {"):
            continue
        chunk = json.loads(line[6:])
        text = "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
        record(chunk, bool(text))
        if text:
            yield text.encode()


def application(service: Service) -> Starlette:
    """The web application of one service."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await service.close()

    routes = [Route(path, service.answer, methods=["POST"]) for path in ("/ask", "/report")]
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    """Serve until SIGTERM."""
    settings = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Settings)
    uvicorn.run(
        application(Service(settings)), host="127.0.0.1", port=settings.port, log_level="warning"
    )


if __name__ == "__main__":
    main()
