"""An agent that calls the same tool again and again until its limit, in a fifth of the requests."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written


def serve(trace: Trace) -> None:
    steps = 2 if not trace.later or trace.draw.random() > 0.3 else 12
    with (
        trace.within("POST /invoke", **served("/invoke")),
        trace.within(
            "LangGraph.workflow",
            scope="opentelemetry.instrumentation.langchain",
            attributes={"traceloop.span.kind": "workflow"},
        ),
    ):
        for step in range(steps):
            trace.chat(trace.about(300), trace.about(800), read=1_000 + 250 * step)
            if step < steps - 1:
                trace.step(
                    "save_memory.tool",
                    trace.about(60),
                    scope="opentelemetry.instrumentation.langchain",
                    attributes={
                        "traceloop.span.kind": "tool",
                        "traceloop.entity.name": "save_memory",
                    },
                )


def make(folder: Path) -> None:
    written(folder, requests(serve, every_ms=4_000, seed=57))
