"""An agent compacts its history within a turn: one turn in twelve has a summariser's call over a huge prompt after a tool's result, before the answer goes on."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written


def call(trace: Trace, read: int, output: int, model: str = "claude-sonnet-4") -> None:
    first = trace.about(700, 0.25) + 0.018 * read
    trace.chat(first, first + output * 13.0, read=read, output=output, model=model)


def serve(trace: Trace) -> None:
    compacts = trace.later and trace.draw.random() < 0.12
    with trace.within("POST /gateway/message", **served("/gateway/message")):
        trace.now += trace.about(20)
        with trace.within(
            "invoke_agent hermes",
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "hermes"},
        ):
            steps = trace.draw.choice((1, 2, 2, 3))
            for step in range(steps):
                call(trace, int(trace.about(24_000, 0.3)), int(trace.about(90, 0.4)))
                trace.step(
                    "execute_tool terminal",
                    trace.about(600, 0.5),
                    attributes={
                        "gen_ai.operation.name": "execute_tool",
                        "gen_ai.tool.name": "terminal",
                    },
                )
                if compacts and step == 0:
                    with trace.within(
                        "context_compression", attributes={"compression.reason": "threshold"}
                    ):
                        call(trace, int(trace.about(255_000, 0.06)), int(trace.about(6_500, 0.25)))
            call(trace, int(trace.about(26_000, 0.3)), int(trace.about(220, 0.4)))


def make(folder: Path) -> None:
    written(folder, requests(serve, n=350, every_ms=7_000, seed=101))
