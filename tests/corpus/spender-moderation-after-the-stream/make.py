"""LiteLLM's proxy asks OpenAI's moderation for the whole answer, and again for pieces of it, before the answer ends."""

from pathlib import Path

from tests.corpus.app_world import Trace, posted, requests, served, written
from tests.corpus.otlp import CLIENT

PROXY = {"service": "litellm-proxy", "scope": "litellm"}


def serve(trace: Trace) -> None:
    with (
        trace.within("POST /chat", **served("/chat")),
        trace.within("POST", **posted("http://llm.example.net/v1/chat/completions")),
        trace.within("Received Proxy Server Request", **served("/v1/chat/completions"), **PROXY),
    ):
        trace.step("auth", trace.about(6), **PROXY)
        trace.step(
            "litellm_request",
            trace.about(3_000),
            **PROXY,
            kind=CLIENT,
            attributes={
                "gen_ai.operation.name": "acompletion",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.response.model": "gpt-4o-2024-08-06",
                "gen_ai.system": "openai",
                "llm.is_streaming": "True",
                "gen_ai.usage.input_tokens": 1_200,
                "gen_ai.usage.output_tokens": 260,
            },
        )
        for _ in range(5 if trace.later else 1):
            trace.step(
                "guardrail",
                trace.about(850),
                **PROXY,
                attributes={
                    "guardrail_name": "openai-moderation",
                    "guardrail_mode": "post_call",
                    "openinference.span.kind": "guardrail",
                },
            )


def make(folder: Path) -> None:
    written(folder, requests(serve, seed=53))
