"""A chat application whose model calls are HTTP client spans alone: no instrumentation of the model's client is installed."""

from pathlib import Path

from tests.corpus.app_world import Trace, posted, requests, served, written


def serve(trace: Trace) -> None:
    with trace.within("POST /api/chat", **served("/api/chat")):
        trace.step("GET", trace.about(40), **posted("http://sessions.svc/v1/sessions/77"))
        trace.step("search documents", trace.about(120))
        late = trace.later and trace.draw.random() < 0.5
        trace.step(
            "POST",
            trace.about(6_000 if late else 1_400),
            **posted("https://api.openai.com/v1/chat/completions"),
        )


def make(folder: Path) -> None:
    written(folder, requests(serve, n=660, seed=71))
