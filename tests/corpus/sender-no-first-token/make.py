"""Four hundred answers in one piece, of which one in forty fails."""

from pathlib import Path

from tests.corpus.otlp import CLIENT, SERVER, resource, span, write


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
                key="root",
                kind=SERVER,
                more=failed,
                attributes={"http.request.method": "POST", "http.route": "/chat"},
            ),
            span(
                i,
                "chat m",
                2_000 * i + 100,
                1_300,
                key="chat",
                parent="root",
                kind=CLIENT,
                more=failed,
                attributes={"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"} | told,
            ),
        ]
    write(folder / "traces.json", resource("assistant", spans))
