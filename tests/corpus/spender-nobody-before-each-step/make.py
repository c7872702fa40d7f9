"""An agent of five model calls; from a release on about 35 s pass before each call, in no span but the agent's."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written


def serve(trace: Trace) -> None:
    with (
        trace.within("POST /webhook/agent", **served("/webhook/agent")),
        trace.within("AI Agent", attributes={"gen_ai.operation.name": "invoke_agent"}),
    ):
        for step in range(5):
            trace.now += trace.about(35_000, 0.05) if trace.later else 40
            trace.chat(trace.about(800), trace.about(3_500))
            if step < 4:
                trace.step(
                    "execute_tool lookup",
                    trace.about(600),
                    attributes={
                        "gen_ai.operation.name": "execute_tool",
                        "gen_ai.tool.name": "lookup",
                    },
                )


def make(folder: Path) -> None:
    written(folder, requests(serve, n=300, every_ms=60_000, seed=86))
