"""How does the application call a model? Connections, proxies, replicas, impatience and cancellation between a prompt and its answer, with their spans."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from overrun.sample_traces.simulator import spans as sp
from overrun.sample_traces.simulator import traffic
from overrun.sample_traces.simulator.clock import Bucket, Clock, Process, Signal, Slots
from overrun.sample_traces.simulator.engine import Engine, Sequence
from overrun.sample_traces.simulator.provider import Provider
from overrun.sample_traces.simulator.settings import Settings
from overrun.sample_traces.simulator.spans import Book, Span
from overrun.sample_traces.simulator.traffic import Request, call_draw, lognormal

# From the socket to the scheduler and from the last token to the socket: HTTP, tokenising, process hops, detokenising.
_FRONT_MS: Final = 6.0
_BACK_MS: Final = 2.0
# What an answer takes that a cache in front of the model has.
_CACHED_S: Final = 0.05
# A limit of tokens is one of a minute.
_QUOTA_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Shape:
    """One prompt and its answer in tokens. `prefix` and `keep` are the engine's (see Sequence); reasoning tokens come before the visible ones."""

    input_tokens: int
    output_tokens: int
    max_tokens: int
    prefix: tuple[tuple[str, int], ...]
    keep: str
    reasoning_tokens: int = 0
    stream: bool = True
    planner: bool = False
    model: str = ""
    words: str = ""
    """What tells one question from another, where prompts are hashed."""


@dataclass(slots=True)
class Asked:
    """What the application got: when its first visible chunk came, or why there is none."""

    first: float | None
    error: str
    attempts: int = 1
    sequences: tuple[Sequence, ...] = ()


class Caller:
    """The application's way to its model."""

    def __init__(
        self,
        clock: Clock,
        book: Book,
        engines: Callable[[], list[Engine]],
        provider: Provider,
        chunk_events: bool,
    ) -> None:
        self.clock, self.book, self.engines, self.provider, self.chunk_events = (
            clock,
            book,
            engines,
            provider,
            chunk_events,
        )
        self._turn = 0
        self._slots: dict[str, Slots] = {}
        self._quotas: dict[float, Bucket] = {}
        self._answers: set[str] = set()

    def ask(self, request: Request, s: Settings, parent: Span, shape: Shape, nth: int) -> Process:
        """One answer, with as many attempts as the application makes."""
        if s.response_cache and shape.words in self._answers:
            yield _CACHED_S
            return Asked(self.clock.now, "")
        attempts = 1 + (s.retries if s.retry_after_s > 0.0 or s.provider_429 > 0.0 else 0)
        asked = Asked(None, "none")
        seen: tuple[Sequence, ...] = ()
        for attempt in range(attempts):
            patience = s.retry_after_s if attempt + 1 < attempts else 0.0
            asked = yield from self._attempt(request, s, parent, shape, nth + attempt, patience)
            seen += asked.sequences
            asked.attempts, asked.sequences = attempt + 1, seen
            if not asked.error or asked.error.endswith("CancelledError"):
                break
            if asked.error.endswith("RateLimitError"):
                yield (
                    0.5
                    * 2.0**attempt
                    * lognormal(1.0, 0.2, request.z[call_draw(nth + attempt, traffic.GATEWAY)])
                )
        if shape.words and not asked.error:
            self._answers.add(shape.words)
        return asked

    def _attempt(
        self, request: Request, s: Settings, parent: Span, shape: Shape, nth: int, patience: float
    ) -> Process:
        slots = self._pool("client", s.client_slots)
        if slots:
            yield from slots.take()  # before the call, so no span tells of it
        span = self._span(s, parent, shape)
        if not s.pooled:
            # Name lookup, TCP and TLS; Python's instrumentations have no span for them.
            yield lognormal(s.handshake_ms, s.handshake_sigma, request.z[traffic.CONNECT]) / 1000.0
        proxy = self._proxy(span) if s.gateway_slots else None
        places = self._pool("gateway", s.gateway_slots)
        if places:
            yield s.gateway_ms / 1000.0
            yield from places.take()
        yield s.rtt_ms / 2000.0
        if s.provider or shape.model:
            asked = yield from self._provider(request, s, span, shape, nth, patience)
        else:
            asked = yield from self._engine(request, s, proxy or parent, span, shape, nth, patience)
        yield s.rtt_ms / 2000.0
        if places:
            places.give()
        if proxy is not None:
            proxy.end = self.clock.now
            self.book.add(proxy)
        if slots:
            slots.give()
        if asked.error:
            asked.first = None
            span.error = asked.error
        elif shape.stream and request.uniform(traffic.BUFFERED) < s.buffered_share:
            asked.first = self.clock.now
        if asked.first is not None and shape.stream:
            asked.first = min(self.clock.now, asked.first + s.rtt_ms / 2000.0)
            span.attributes["gen_ai.response.time_to_first_chunk"] = asked.first - span.start
        span.end = self.clock.now
        self.book.add(span)
        return asked

    def begin_suggestions(
        self, request: Request, s: Settings, parent: Span, shape: Shape
    ) -> Signal:
        """Start a second answer beside the first, which nobody waits for; it is dropped when the returned signal fires."""
        enough = Signal()
        out = round(lognormal(s.suggestion_tokens, 0.2, request.z[traffic.SUGGEST]))
        self.clock.start(
            self._suggest(
                request,
                s,
                parent,
                Shape(shape.input_tokens, out, 2048, shape.prefix, "", stream=False),
                enough,
            )
        )
        return enough

    def _suggest(
        self, request: Request, s: Settings, parent: Span, shape: Shape, enough: Signal
    ) -> Process:
        span = self._span(s, parent, shape)
        yield (_FRONT_MS + s.rtt_ms / 2.0) / 1000.0
        engine = self._route(request, s)
        sequence = self._sequence(shape, span, self.clock.now)
        engine.submit(sequence)
        self.clock.start(self._engine_span(engine, sequence, parent, shape))
        if not enough.fired:
            yield enough
        if sequence.done.fired:
            self._answered(span, s, shape, sequence.request_id, sequence.cached)
        else:
            span.error = "asyncio.CancelledError"
            if s.cancels:
                engine.cancel(sequence)
        span.end = self.clock.now
        self.book.add(span)

    def _sequence(self, shape: Shape, span: Span, arrived: float) -> Sequence:
        return Sequence(
            shape.input_tokens,
            shape.output_tokens,
            shape.max_tokens,
            shape.prefix,
            shape.keep,
            Signal(),
            Signal(),
            arrived,
            request_id=f"chatcmpl-{span.id:016x}",
        )

    # --- an engine of one's own ---

    def _engine(
        self,
        request: Request,
        s: Settings,
        parent: Span,
        span: Span,
        shape: Shape,
        nth: int,
        patience: float,
    ) -> Process:
        quota = self._quota(request, s)
        if quota is not None and not quota.take(shape.input_tokens):
            return Asked(None, "openai.RateLimitError")
        engine = self._route(request, s)
        sequence = self._sequence(shape, span, self.clock.now)
        yield lognormal(_FRONT_MS, 0.5, request.z[call_draw(nth, traffic.OVERHEAD)]) / 1000.0
        engine.submit(sequence)
        self.clock.start(self._engine_span(engine, sequence, parent, shape))
        came: bool = True
        leaves = s.give_up_s > 0.0 and request.uniform(traffic.GIVE_UP) < s.give_up_share
        if patience > 0.0:
            came = yield (sequence.first, patience)
            if not came:
                if s.retry_cancels:
                    engine.cancel(sequence)
                return Asked(None, "openai.APITimeoutError", sequences=(sequence,))
        if leaves:
            came = yield (sequence.done, lognormal(s.give_up_s, 0.2, request.z[traffic.GIVE_UP_AT]))
            if not came:
                if s.cancels:
                    engine.cancel(sequence)
                return Asked(None, "asyncio.CancelledError", sequences=(sequence,))
        if not sequence.done.fired:
            yield sequence.done
        yield _BACK_MS / 1000.0
        first = engine.token_time(sequence, 1 + shape.reasoning_tokens) + _BACK_MS / 1000.0
        if quota is not None:
            quota.owe(shape.output_tokens)  # nobody knew them before
        self._answered(span, s, shape, sequence.request_id, sequence.cached)
        if self.chunk_events and shape.stream:
            visible = range(1 + shape.reasoning_tokens, shape.output_tokens + 1)
            span.events += [
                (
                    min(self.clock.now, engine.token_time(sequence, k) + _BACK_MS / 1000.0),
                    "gen_ai.content.completion.chunk",
                )
                for k in visible
            ]
        return Asked(first, "", sequences=(sequence,))

    def _engine_span(
        self, engine: Engine, sequence: Sequence, parent: Span, shape: Shape
    ) -> Process:
        """The engine's own span, written when the request ends there, whatever became of the client."""
        yield sequence.done
        end = self.clock.now + _BACK_MS / 1000.0
        attributes: dict[str, sp.Value] = {
            "gen_ai.latency.time_to_first_token": sequence.first_token - sequence.arrived,
            "gen_ai.latency.e2e": sequence.finished - sequence.arrived,
            "gen_ai.latency.time_in_queue": sequence.scheduled - sequence.queued,
            "gen_ai.usage.prompt_tokens": sequence.input_tokens,
            "gen_ai.usage.completion_tokens": sequence.output_tokens,
            "gen_ai.latency.time_in_model_prefill": sequence.first_token - sequence.scheduled,
            "gen_ai.latency.time_in_model_decode": sequence.finished - sequence.first_token,
            "gen_ai.latency.time_in_model_inference": sequence.finished - sequence.scheduled,
            "gen_ai.request.id": sequence.request_id,
            "gen_ai.request.top_p": 1.0,
            "gen_ai.request.max_tokens": shape.max_tokens,
            "gen_ai.request.temperature": 0.2,
            "gen_ai.request.n": 1,
        }
        resource = f"engine/{engine.index}"
        self.book.add(
            Span(
                parent.trace,
                self.book.span_id(),
                parent.id,
                "llm_request",
                sp.SERVER,
                sequence.arrived,
                end,
                resource,
                sp.VLLM,
                attributes,
            )
        )

    def _quota(self, request: Request, s: Settings) -> Bucket | None:
        if not s.noisy_quota or request.tenant != traffic.NOISY:
            return None
        return self._quotas.setdefault(
            s.noisy_quota, Bucket(self.clock, s.noisy_quota, _QUOTA_S * s.noisy_quota)
        )

    def _route(self, request: Request, s: Settings) -> Engine:
        engines = self.engines()
        if s.router in ("tenant", "lanes") and request.uniform(traffic.AFFINITY) < s.affinity_share:
            if s.router == "tenant":
                return engines[zlib.crc32(request.tenant.encode()) % len(engines)]
            short = len(engines) - s.lane_replicas
            engines = engines[short:] if request.kind == "batch" else engines[:short]
        self._turn += 1
        if s.router == "round_robin":
            return engines[self._turn % len(engines)]
        return min(engines, key=lambda e: (e.load, (e.index + self._turn) % len(engines)))

    # --- somebody else's ---

    def _provider(
        self, request: Request, s: Settings, span: Span, shape: Shape, nth: int, patience: float
    ) -> Process:
        answer = self.provider.call(s, request, self.clock.now, nth, shape.input_tokens)
        if answer.refused:
            yield 0.06
            return Asked(None, "openai.RateLimitError")
        if 0.0 < patience < answer.first_s:
            yield patience
            return Asked(None, "openai.APITimeoutError")
        start = self.clock.now
        half = shape.output_tokens // 2
        hidden = (
            min(shape.reasoning_tokens, half) * answer.token_s
            + max(0, shape.reasoning_tokens - half) * answer.late_token_s
        )
        total = (
            answer.first_s
            + half * answer.token_s
            + (shape.output_tokens - half) * answer.late_token_s
        )
        yield total
        self._answered(
            span,
            s,
            shape,
            f"chatcmpl-{span.id:016x}",
            sum(tokens for _, tokens in shape.prefix) // 128 * 128,
        )
        if self.chunk_events and shape.stream:
            visible = range(shape.reasoning_tokens, shape.output_tokens)
            times = [
                start
                + answer.first_s
                + min(k, half) * answer.token_s
                + max(0, k - half) * answer.late_token_s
                for k in visible
            ]
            span.events += [
                (min(self.clock.now, t), "gen_ai.content.completion.chunk") for t in times
            ]
        return Asked(start + answer.first_s + hidden, "")

    # --- spans ---

    def _span(self, s: Settings, parent: Span, shape: Shape) -> Span:
        model = shape.model or (s.provider_model.rsplit("-2", 1)[0] if s.provider else s.model)
        hosted = s.provider or bool(shape.model)
        attributes: dict[str, sp.Value] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": model,
            "server.address": "api.openai.com" if hosted else "vllm.inference.svc",
            "server.port": 443 if hosted else 8000,
            "gen_ai.request.temperature": 0.2,
            "gen_ai.request.max_tokens": shape.max_tokens,
        }
        if shape.stream:
            attributes["gen_ai.request.stream"] = True
        if shape.words:
            attributes["overrun.prompt_hash"] = hashlib.sha256(shape.words.encode()).hexdigest()[
                :16
            ]
        now = self.clock.now
        return Span(
            parent.trace,
            self.book.span_id(),
            parent.id,
            f"chat {model}",
            sp.CLIENT,
            now,
            now,
            parent.resource,
            sp.OPENAI,
            attributes,
        )

    def _answered(self, span: Span, s: Settings, shape: Shape, name: str, cached: int) -> None:
        cut = shape.output_tokens >= shape.max_tokens
        span.attributes |= {
            "gen_ai.response.finish_reasons": [
                "length" if cut else "tool_calls" if shape.planner else "stop"
            ],
            "gen_ai.response.model": shape.model or (s.provider_model if s.provider else s.model),
            "gen_ai.response.id": name,
            "gen_ai.usage.input_tokens": shape.input_tokens,
            "gen_ai.usage.output_tokens": shape.output_tokens,
        }
        if cached:
            span.attributes["gen_ai.usage.cache_read.input_tokens"] = cached
        if shape.reasoning_tokens:
            span.attributes["gen_ai.usage.reasoning.output_tokens"] = shape.reasoning_tokens

    def _proxy(self, span: Span) -> Span:
        now = self.clock.now
        return Span(
            span.trace,
            self.book.span_id(),
            span.id,
            "POST /v1/chat/completions",
            sp.SERVER,
            now,
            now,
            "llm-gateway/1.106.2/0",
            sp.PROXY,
            {
                "http.request.method": "POST",
                "url.path": "/v1/chat/completions",
                "http.route": "/v1/chat/completions",
                "url.scheme": "http",
            },
        )

    def _pool(self, name: str, size: int) -> Any:
        if size <= 0:
            return None
        return self._slots.setdefault(f"{name}/{size}", Slots(self.clock, size))
