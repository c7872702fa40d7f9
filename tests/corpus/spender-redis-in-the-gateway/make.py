"""LiteLLM's router asks Redis several times for each call, and Redis becomes slow."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written
from tests.corpus.otlp import CLIENT

PROXY = {"service": "litellm-proxy", "scope": "litellm"}
ASKED = ("async_get_cache", "async_batch_get_cache", "async_increment", "async_set_cache_pipeline")


def serve(trace: Trace) -> None:
    with trace.within("Received Proxy Server Request", **served("/v1/chat/completions"), **PROXY):
        trace.step("auth", trace.about(5), **PROXY)
        for asked in ASKED:
            trace.step(
                "redis",
                trace.about(420 if trace.later else 2),
                **PROXY,
                attributes={"call_type": asked, "service": "redis"},
            )
        trace.step(
            "litellm_request",
            trace.about(1_800),
            **PROXY,
            kind=CLIENT,
            attributes={
                "gen_ai.operation.name": "acompletion",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.system": "azure",
                "gen_ai.usage.input_tokens": 700,
                "gen_ai.usage.output_tokens": 150,
            },
        )


def make(folder: Path) -> None:
    written(folder, requests(serve, seed=55))
