"""A search over many files embeds the same question once for each of them, one after the other."""

from pathlib import Path

from tests.corpus.app_world import Trace, posted, requests, served, written


def serve(trace: Trace) -> None:
    with trace.within("POST /query", **served("/query")):
        for _ in range(24 if trace.later else 2):
            trace.step("POST", trace.about(190), **posted("https://api.openai.com/v1/embeddings"))
            trace.step(
                "SELECT rag",
                trace.about(12),
                kind=3,
                attributes={
                    "db.system.name": "postgresql",
                    "db.operation.name": "SELECT",
                    "db.collection.name": "langchain_pg_embedding",
                    "db.query.text": "SELECT id FROM langchain_pg_embedding ORDER BY embedding <=> $1 LIMIT 4",
                },
            )
        trace.chat(trace.about(300), trace.about(1_200))


def make(folder: Path) -> None:
    written(folder, requests(serve, every_ms=6_000, seed=72))
