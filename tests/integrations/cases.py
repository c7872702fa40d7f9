"""What does a run of a page need beside the page: which pins its packages have, and what asks its application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Case:
    """One page that is run: `pins` names a file in `locks`, `ask` is the path that is asked sixty times while the application runs."""

    service: str
    pins: str = "python"
    ask: str | None = None


CASES: Final[dict[str, Case]] = {
    "fastapi": Case("shop", ask="/ask?question=where"),
    "django": Case("shop", ask="/ask/acme?question=where"),
    "flask": Case("shop", ask="/ask/acme?question=where"),
    "langchain": Case("forecast"),
    "llamaindex": Case("parcels", pins="llamaindex"),
    "openai-agents": Case("forecast"),
    "pydantic-ai": Case("forecast"),
    "litellm": Case("parcels", pins="litellm"),
    "litellm-proxy": Case("litellm", pins="litellm", ask="/v1/chat/completions"),
    "ollama": Case("parcels"),
    "vercel-ai-sdk": Case("forecast", pins="node"),
}
