"""Calls that ask for the priority tier are served by the standard one while traffic ramps up: those are late, the others are not."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written


def serve(trace: Trace) -> None:
    down = trace.later and trace.draw.random() < 0.4
    with trace.within("POST /ask", **served("/ask")):
        trace.now += trace.about(10)
        first, pace = (trace.about(2_900, 0.4), 26.0) if down else (trace.about(520, 0.25), 11.0)
        output = int(trace.about(170, 0.4))
        trace.chat(
            first,
            first + output * trace.about(pace, 0.08),
            read=int(trace.about(1_500)),
            output=output,
            model="gpt-5.2",
            openai__request__service_tier="priority",
            openai__response__service_tier="default" if down else "priority",
            openai__api__type="chat_completions",
        )


def make(folder: Path) -> None:
    written(folder, requests(serve, n=900, every_ms=1_100, seed=81))
