"""A stand-in for a GPU inference server: OpenAI-style streaming over HTTP, and the `llm_request` span that vLLM sends.

Every delay follows from tokens (prefill from the uncached prompt, decode from the output), and every time on the span
is measured while it passes, so a busy machine shows up in the span instead of making it wrong.
"""

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from overrun.sample_traces.app.incident import Incident, dice, lognormal

QUEUE_S = (0.004, 0.40)  # median and sigma: one scheduler step of a server that is not saturated
PREFILL_TOKENS_PER_S = 6_000.0  # the order of an 8B model on one GPU of the A100 class
TPOT_S = 0.005
OUTPUT_TOKENS = (
    70,
    0.45,
)  # median and sigma: P95 about 150, so a healthy decode stays under a second
RUNAWAY_SHARE, RUNAWAY_FACTOR = 0.30, 12
# Tokens per streamed chunk after the first. One event per token would be thousands a second through two hops: more
# than one Python event loop carries. The first chunk always holds one token, so TTFT is exact.
CHUNK_TOKENS = 16
WORDS = ("the", "parcel", "left", "on", "time", "and", "arrives", "by", "noon", "tomorrow")


def resource_attributes() -> dict[str, str]:
    """What vLLM puts on its resource, beside the service name."""
    return {"vllm.instrumenting_module_name": "vllm.engine", "vllm.process_id": str(os.getpid())}


def token_count(text: str) -> int:
    """Tokens of a text at the usual four characters each; a tokenizer would add nothing that the demo shows."""
    return max(1, len(text) // 4)


@dataclass(frozen=True)
class Plan:
    """What one request costs: fixed before it starts, in tokens and in the seconds that follow from them."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    finish_reason: str
    queue_s: float

    @property
    def prefill_s(self) -> float:
        """Prefill is proportional to the prompt tokens that no cache holds."""
        return (self.prompt_tokens - self.cached_tokens) / PREFILL_TOKENS_PER_S


@dataclass(frozen=True)
class Times:
    """Monotonic seconds at which one request passed each point of the engine."""

    arrival_s: float
    queued_s: float
    scheduled_s: float
    first_token_s: float
    last_token_s: float


class Engine:
    """The scheduler and the model: plans a request, streams it at its pace, reports it as a span."""

    def __init__(self, provider: TracerProvider, seed: int, incident: Incident) -> None:
        self.tracer = provider.get_tracer("vllm.tracing.otel")
        self.seed = seed
        self.incident = incident
        self._cached_heads: set[str] = set()

    def warm(self, head: str) -> None:
        """Put a prompt head (the system message) into the prefix cache, as earlier traffic would have done."""
        self._cached_heads.add(head)

    def plan(self, body: dict[str, Any]) -> Plan:
        """The cost of a chat request, drawn from its text: equal text, seed and incident give an equal plan."""
        head, *rest = (str(message["content"]) for message in body["messages"])
        generator = dice(self.seed, "generation", "".join(rest))
        queue_s = lognormal(generator, *QUEUE_S)
        wanted = max(2, round(lognormal(generator, *OUTPUT_TOKENS)))
        if self.incident.active("runaway-outputs") and generator.random() < RUNAWAY_SHARE:
            wanted *= RUNAWAY_FACTOR
        limit = int(body.get("max_tokens") or 4_096)
        kept = head in self._cached_heads and not self.incident.active("lost-prefix-cache")
        self.warm(head)
        return Plan(
            prompt_tokens=token_count(head) + token_count("".join(rest)),
            cached_tokens=token_count(head) if kept else 0,
            output_tokens=min(wanted, limit),
            finish_reason="length" if wanted > limit else "stop",
            queue_s=queue_s,
        )

    async def chat(self, body: dict[str, Any], parent: Context) -> AsyncIterator[bytes]:
        """Server-sent events of one answer; the engine span is sent when the last token exists, as vLLM does."""
        request_id = f"chatcmpl-{uuid.uuid4().hex}"
        arrival_ns, arrival_s = time.time_ns(), time.monotonic()
        plan = self.plan(body)
        queued_s = time.monotonic()
        scheduled_s = await sleep_until(queued_s + plan.queue_s)
        first_s = await sleep_until(scheduled_s + plan.prefill_s)
        yield event(request_id, body, {"role": "assistant", "content": words(0, 1)})
        done, last_s = 1, first_s
        while done < plan.output_tokens:
            step = min(CHUNK_TOKENS, plan.output_tokens - done)
            done += step
            # Deadlines count from the first token: a late wake-up is caught up and does not stretch the time per token.
            last_s = await sleep_until(first_s + (done - 1) * TPOT_S)
            yield event(request_id, body, {"content": words(done - step, done)})
        times = Times(arrival_s, queued_s, scheduled_s, first_s, last_s)
        self._send_span(request_id, body, plan, times, arrival_ns, parent)
        closing = event(request_id, body, {}, plan.finish_reason) + event(
            request_id, body, None, usage=usage(plan)
        )
        yield closing + b"data: [DONE]\n\n"

    def _send_span(
        self,
        request_id: str,
        body: dict[str, Any],
        plan: Plan,
        times: Times,
        arrival_ns: int,
        parent: Context,
    ) -> None:
        attributes: dict[str, str | int | float] = {
            "gen_ai.latency.time_to_first_token": times.first_token_s - times.arrival_s,
            "gen_ai.latency.e2e": times.last_token_s - times.arrival_s,
            "gen_ai.latency.time_in_queue": times.scheduled_s - times.queued_s,
            "gen_ai.latency.time_in_model_prefill": times.first_token_s - times.scheduled_s,
            "gen_ai.latency.time_in_model_decode": times.last_token_s - times.first_token_s,
            "gen_ai.latency.time_in_model_inference": times.last_token_s - times.scheduled_s,
            "gen_ai.usage.prompt_tokens": plan.prompt_tokens,  # vLLM still sends these two deprecated names
            "gen_ai.usage.completion_tokens": plan.output_tokens,
            "gen_ai.request.id": request_id,
        }
        # vLLM leaves out parameters that are zero, and so does this.
        attributes |= {
            f"gen_ai.request.{name}": body[name]
            for name in ("max_tokens", "temperature")
            if body.get(name)
        }
        span = self.tracer.start_span(
            "llm_request",
            context=parent,
            kind=SpanKind.SERVER,
            start_time=arrival_ns,
            attributes=attributes,
        )
        span.end(arrival_ns + int((time.monotonic() - times.arrival_s) * 1e9))


async def sleep_until(deadline_s: float) -> float:
    """Sleep to a monotonic deadline; returns the moment it really became."""
    await asyncio.sleep(max(0.0, deadline_s - time.monotonic()))
    return time.monotonic()


def words(start: int, end: int) -> str:
    """The text of output tokens `start` to `end`: one word is one token here."""
    return "".join(f"{WORDS[position % len(WORDS)]} " for position in range(start, end))


def usage(plan: Plan) -> dict[str, Any]:
    """The OpenAI usage object of a finished request."""
    return {
        "prompt_tokens": plan.prompt_tokens,
        "completion_tokens": plan.output_tokens,
        "total_tokens": plan.prompt_tokens + plan.output_tokens,
        "prompt_tokens_details": {"cached_tokens": plan.cached_tokens},
    }


def event(
    request_id: str,
    body: dict[str, Any],
    delta: dict[str, str] | None,
    finish_reason: str | None = None,
    usage: dict[str, Any] | None = None,
) -> bytes:
    """One server-sent event of the chat stream; without a delta it is the closing one that carries only usage."""
    choices = (
        [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    )
    chunk: dict[str, Any] = {
        "id": request_id,
        "object": "chat.completion.chunk",
        "model": body["model"],
    }
    chunk |= {"choices": choices} | ({"usage": usage} if usage else {})
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def create_app(engine: Engine) -> Starlette:
    """The HTTP face of the engine: POST /v1/chat/completions, streaming only."""

    async def chat_completions(request: Request) -> StreamingResponse:
        parent = propagate.extract(
            dict(request.headers)
        )  # the caller's traceparent makes the engine span its child
        return StreamingResponse(
            engine.chat(await request.json(), parent), media_type="text/event-stream"
        )

    return Starlette(routes=[Route("/v1/chat/completions", chat_completions, methods=["POST"])])
