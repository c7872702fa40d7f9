"""Four hundred answers in one piece, of which one in forty fails."""

from pathlib import Path

from tests.corpus.otlp import resource, span, write


def make(folder: Path) -> None:
    spans = []
    for i in range(400):
        failed = {"status": {"code": 2}} if i % 40 == 0 else {}
        told = {} if failed else {"gen_ai.usage.output_tokens": 50}
        spans += [
            span(
                i,
                "POST /chat",
                2_000 * i,
                1_500 + 10 * (i % 7),
                "server root",
                {"http.request.method": "POST", "http.route": "/chat"},
                more=failed,
            ),
            span(
                i,
                "chat m",
                2_000 * i + 100,
                1_300,
                "client chat < root",
                {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"} | told,
                more=failed,
            ),
        ]
    write(folder / "traces.json", resource("assistant", spans))
