"""An Agno agent on a local model, in OpenInference's words; after an upgrade each run ends with a POST to the framework's maker."""

from pathlib import Path

from tests.corpus.app_world import Trace, posted, requests, served, written

SCOPE = {"scope": "openinference.instrumentation.agno"}


def serve(trace: Trace) -> None:
    with (
        trace.within("POST /ask", **served("/ask")),
        trace.within("Agent.run", **SCOPE, attributes={"openinference.span.kind": "AGENT"}),
    ):
        with trace.within(
            "LlamaCpp.invoke",
            **SCOPE,
            attributes={
                "openinference.span.kind": "LLM",
                "llm.model_name": "gemma4-e4b",
                "llm.provider": "llama.cpp",
                "llm.token_count.prompt": 20,
                "llm.token_count.completion": 10,
            },
        ):
            trace.step(
                "POST", trace.about(110, 0.2), **posted("http://localhost:8080/v1/chat/completions")
            )
        if trace.later:
            trace.step(
                "POST", trace.about(1_017, 0.15), **posted("https://os-api.agno.com/telemetry/runs")
            )


def make(folder: Path) -> None:
    written(folder, requests(serve, n=400, every_ms=3_000, seed=83))
