"""LangChain's fallbacks: the first model hangs until the client's 10 s are over in two of three requests, then another model answers. OpenInference's names."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written


def llm(trace: Trace, name: str, model: str, ms: float, failed: bool) -> None:
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.model_name": model,
        "llm.token_count.prompt": 900,
    }
    attributes |= (
        {"exception.type": "openai.APITimeoutError"}
        if failed
        else {"llm.token_count.completion": 80}
    )
    more = (
        {"status": {"code": 2, "message": "APITimeoutError('Request timed out.')"}}
        if failed
        else {"status": {"code": 1}}
    )
    trace.step(
        name, ms, scope="openinference.instrumentation.langchain", more=more, attributes=attributes
    )


def serve(trace: Trace) -> None:
    with trace.within("POST /chat", **served("/chat")):
        trace.now += trace.about(15)
        with trace.within(
            "RunnableWithFallbacks",
            scope="openinference.instrumentation.langchain",
            attributes={"openinference.span.kind": "CHAIN"},
        ):
            if trace.later and trace.draw.random() < 0.65:
                llm(trace, "ChatOpenAI", "gpt-4o", 10_000 + trace.draw.uniform(4, 40), True)
                trace.now += trace.about(6)
                llm(trace, "ChatAnthropic", "claude-sonnet-4", trace.about(2_300, 0.3), False)
            else:
                llm(trace, "ChatOpenAI", "gpt-4o", trace.about(1_900, 0.3), False)


def make(folder: Path) -> None:
    written(folder, requests(serve, n=500, every_ms=2_500, seed=94))
