"""One customer's application moves in with 204,000 rows: its searches sort all of them, those of the others use few rows."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, written
from tests.corpus.otlp import CLIENT, SERVER

SQL = "SELECT id FROM vector_table WHERE app_id = %s AND version = %s ORDER BY embedding <#> %s LIMIT 30"


def serve(trace: Trace) -> None:
    large = trace.later and trace.draw.random() < 0.3
    app = (
        "app-7f" if large else trace.draw.choice(("app-01", "app-02", "app-03", "app-04", "app-05"))
    )
    with trace.within(
        "POST /rag",
        kind=SERVER,
        attributes={
            "http.request.method": "POST",
            "http.route": "/rag",
            "http.response.status_code": 200,
            "app_id": app,
            "tenant.id": app,
        },
    ):
        trace.now += trace.about(8)
        trace.step(
            "embeddings text-embedding-3-small",
            trace.about(90),
            kind=CLIENT,
            attributes={
                "gen_ai.operation.name": "embeddings",
                "gen_ai.request.model": "text-embedding-3-small",
                "gen_ai.system": "openai",
                "gen_ai.usage.input_tokens": 20,
            },
        )
        trace.step(
            "SELECT",
            trace.about(3_600, 0.15) if large else trace.about(28, 0.5),
            kind=CLIENT,
            attributes={
                "db.system": "postgresql",
                "db.statement": SQL,
                "db.name": "rag",
                "net.peer.name": "aurora",
            },
        )
        first, output = trace.about(650), int(trace.about(160, 0.4))
        trace.chat(first, first + 11.0 * output, read=int(trace.about(2_400)), output=output)


def make(folder: Path) -> None:
    written(folder, requests(serve, n=900, every_ms=1_400, seed=79))
