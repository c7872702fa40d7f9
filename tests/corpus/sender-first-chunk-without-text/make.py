"""A chat whose model was exchanged for one that reasons: the first chunk comes as early as ever, the text 6.3 s later."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written

SCOPE = {"scope": "ai"}


def serve(trace: Trace) -> None:
    thought = int(trace.about(460, 0.3)) if trace.later else 0
    text = int(trace.about(150, 0.3))
    took = trace.about(556, 0.15) + 13.6 * thought + 13.6 * text
    model = "gpt-5" if trace.later else "gpt-4.1"
    told = {
        "ai.model.id": model,
        "ai.model.provider": "openai.responses",
        "ai.response.model": model,
        "ai.response.finishReason": "stop",
        "ai.response.msToFirstChunk": 556.0,
        "ai.response.msToFinish": took,
        "ai.usage.inputTokens": 900,
        "ai.usage.outputTokens": text + thought,
        "ai.usage.totalTokens": 900 + text + thought,
    } | ({"ai.usage.reasoningTokens": thought} if thought else {})
    with (
        trace.within("POST /api/chat", **served("/api/chat")),
        trace.within(
            "ai.streamText", **SCOPE, attributes=told | {"ai.operationId": "ai.streamText"}
        ),
    ):
        start = trace.now
        with trace.within(
            "ai.streamText.doStream",
            **SCOPE,
            attributes=told | {"ai.operationId": "ai.streamText.doStream"},
        ):
            trace.now = start + took


def make(folder: Path) -> None:
    written(folder, requests(serve, n=400, every_ms=5_000, seed=85))
