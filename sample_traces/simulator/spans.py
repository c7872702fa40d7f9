"""What did the applications and engines see? Spans as they are observed during a run, before anything of them is lost, sampled or sent."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

INTERNAL, SERVER, CLIENT = 1, 2, 3
Value = str | int | float | bool | list[str]

FASTAPI: Final = ("opentelemetry.instrumentation.fastapi", "0.66b1")
HTTPX: Final = ("opentelemetry.instrumentation.httpx", "0.66b1")
OPENAI: Final = ("opentelemetry.instrumentation.genai.openai", "1.3b0")
QDRANT: Final = ("opentelemetry.instrumentation.qdrant", "0.62.4")
PSYCOPG: Final = ("opentelemetry.instrumentation.psycopg", "0.66b1")
REDIS: Final = ("opentelemetry.instrumentation.redis", "0.66b1")
VLLM: Final = ("vllm.tracing.otel", "")
HAND: Final = ("app", "")
PROXY: Final = ("litellm", "1.106.2")


@dataclass(slots=True)
class Span:
    """One span: times in simulated seconds, `resource` names who sent it."""

    trace: int
    id: int
    parent: int
    name: str
    kind: int
    start: float
    end: float
    resource: str
    scope: tuple[str, str]
    attributes: dict[str, Value] = field(default_factory=dict)
    error: str = ""
    events: list[tuple[float, str]] = field(default_factory=list)


class Book:
    """Collects the spans of one run; ids depend on its name, so that windows of different names can lie in one store."""

    def __init__(self, name: str) -> None:
        self.spans: list[Span] = []
        self._dice = random.Random(f"ids/{name}")

    def trace_id(self) -> int:
        """128 random bits."""
        return self._dice.getrandbits(128) | 1

    def span_id(self) -> int:
        """64 random bits."""
        return self._dice.getrandbits(64) | 1

    def add(self, span: Span) -> Span:
        """Note a span that has ended, or will be ended by its owner."""
        self.spans.append(span)
        return span
