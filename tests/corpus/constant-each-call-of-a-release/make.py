"""Streams from Vertex AI seen by the client alone; from a release on each first token has 10.6 s more, within a few ms."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written


def serve(trace: Trace) -> None:
    with trace.within("POST /chat", **served("/chat")):
        output = int(trace.about(150, 0.6))
        first = trace.about(620, 0.25) + (10_600 + trace.draw.uniform(-8, 8) if trace.later else 0)
        trace.chat(first, first + 7 * output, output=output, model="gemini-2.5-flash")


def make(folder: Path) -> None:
    written(folder, requests(serve, n=400, every_ms=5_000, seed=84))
