"""The primary model of a LiteLLM proxy fails for ten minutes: each request tries it three times with pauses before the fallback answers."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written
from tests.corpus.otlp import CLIENT

PROXY = {"service": "litellm", "scope": "litellm"}


def attempt(trace: Trace, ms: float, model: str, provider: str, number: int, failed: bool) -> None:
    answered = (
        {"gen_ai.usage.input_tokens": 640, "gen_ai.usage.output_tokens": 48}
        if not failed
        else {"error.type": "InternalServerError", "litellm.provider.error.code": "500"}
    )
    trace.step(
        f"chat {'primary' if provider == 'openai' else 'backup'}",
        ms,
        kind=CLIENT,
        more={"status": {"code": 2}} if failed else None,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": "primary" if provider == "openai" else "backup",
            "litellm.provider.model": f"{provider}/{model}",
            "litellm.call_id": f"call-{trace.number}",
            "litellm.call_type": "acompletion",
            "litellm.deployment.attempt": number,
            "litellm.request.route": "/chat/completions",
        }
        | answered,
        **PROXY,
    )


def serve(trace: Trace) -> None:
    with trace.within("POST /ask", **served("/ask")):
        trace.now += trace.about(12)
        with trace.within(
            "chat primary",
            kind=CLIENT,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "primary",
                "gen_ai.usage.input_tokens": 640,
                "gen_ai.usage.output_tokens": 48,
            },
        ):
            trace.now += trace.about(4)
            with trace.within(
                "POST /chat/completions",
                **served("/chat/completions"),
                service="litellm",
                scope="fastapi",
            ):
                trace.step("auth /chat/completions", trace.about(5), **PROXY)
                trace.step("route primary", trace.about(1), **PROXY)
                if trace.later:
                    for number in range(1, 4):
                        attempt(trace, trace.about(180, 0.4), "gpt-4o", "openai", number, True)
                        if number < 3:
                            trace.now += trace.draw.uniform(0.75, 1.25) * 1_000 * 2**number * 0.8
                    attempt(
                        trace, trace.about(1_050, 0.3), "claude-sonnet-4", "anthropic", 4, False
                    )
                else:
                    attempt(trace, trace.about(1_000, 0.3), "gpt-4o", "openai", 1, False)
                trace.now += 3


def make(folder: Path) -> None:
    written(folder, requests(serve, n=500, every_ms=2_400, seed=71))
