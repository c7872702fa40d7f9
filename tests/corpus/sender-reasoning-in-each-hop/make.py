"""An agent's two or three calls move to a model that reasons before each answer: OpenInference's words, no first tokens."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written

LANGGRAPH = {"scope": "openinference.instrumentation.langchain"}


def serve(trace: Trace) -> None:
    with (
        trace.within("POST /answers", **served("/answers")),
        trace.within("LangGraph", **LANGGRAPH, attributes={"openinference.span.kind": "CHAIN"}),
    ):
        hops = trace.draw.choice((2, 2, 3))
        for hop in range(hops):
            text = int(trace.about(60 if hop < hops - 1 else 220))
            thought = int(trace.about(420)) if trace.later else 0
            trace.step(
                "ChatOpenAI",
                400 + 11.0 * (text + thought),
                **LANGGRAPH,
                attributes={
                    "openinference.span.kind": "LLM",
                    "llm.model_name": "gpt-5.1" if trace.later else "gpt-4.1",
                    "llm.provider": "openai",
                    "llm.token_count.prompt": 3_000,
                    "llm.token_count.completion": text + thought,
                    "llm.token_count.completion_details.reasoning": thought,
                },
            )
            if hop < hops - 1:
                trace.step(
                    "download",
                    trace.about(300),
                    **LANGGRAPH,
                    attributes={"openinference.span.kind": "TOOL", "tool.name": "download"},
                )


def make(folder: Path) -> None:
    written(folder, requests(serve, every_ms=5_000, seed=56))
