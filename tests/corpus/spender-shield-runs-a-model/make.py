"""A chat whose input is checked first, by a server that answers in 0.3 s, then in about 45 s; then a streamed answer."""

from pathlib import Path

from tests.corpus.app_world import Trace, posted, requests, served, written


def serve(trace: Trace) -> None:
    with trace.within("POST /api/chat", **served("/api/chat")):
        with trace.within("input_shield"):
            trace.step(
                "POST",
                trace.about(45_000 if trace.later else 300, 0.2),
                **posted("http://nemo-guardrails.guardrails.svc:8000/v1/chat/completions"),
            )
        trace.chat(trace.about(1_600), trace.about(9_000), model="llama-4-scout-17b", output=300)


def make(folder: Path) -> None:
    written(folder, requests(serve, n=400, every_ms=20_000, seed=81))
