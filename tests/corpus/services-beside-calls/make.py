"""A chat application that is fast, with an assets service beside it that is slow: of these, one asks a model."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written


def serve(trace: Trace) -> None:
    if trace.draw.random() < 0.5:
        with trace.within("POST /chat", **served("/chat")):
            trace.chat(trace.about(300), trace.about(900))
    elif trace.draw.random() < 0.5:
        with trace.within("POST /upload", **served("/upload")):
            trace.now += trace.about(6_000)
    else:
        with trace.within("GET /picture", service="assets", **served("/picture")):
            trace.now += trace.about(9_000)


def make(folder: Path) -> None:
    written(folder, requests(serve, n=800, seed=74))
