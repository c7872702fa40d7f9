"""A process that starts, does some work of its own and is asked whether it lives: nobody waits for any of it."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, written
from tests.corpus.otlp import SERVER


def serve(trace: Trace) -> None:
    if trace.draw.random() < 0.5:
        trace.step("load index", trace.about(4_000))
    else:
        trace.step("GET /metrics", 2.0, kind=SERVER, attributes={"http.route": "/metrics"})


def make(folder: Path) -> None:
    written(folder, requests(serve, n=100, seed=75))
