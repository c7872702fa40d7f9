"""FastAPI, LangChain and httpx as they come: a vector search over REST (one in thirteen slow), a model call, and ASGI's spans for each message sent and received."""

import random
from pathlib import Path

from tests.corpus.otlp import INTERNAL, chat, resource, span, write

URL = "http://vectors:6333/collections/docs/points/search"


def make(folder: Path) -> None:
    draw, spans = random.Random(13), []
    for n in range(400):
        at = n * 1_500.0
        search = draw.uniform(3_200, 3_800) if n % 13 == 5 else draw.uniform(150, 330)
        answer = draw.uniform(700, 900)
        whole = search + answer + 60
        spans += [
            span(
                n,
                "POST /rag/ask",
                at,
                whole,
                "server root",
                {"http.method": "POST", "http.route": "/rag/ask"},
            ),
            span(
                n,
                "POST /rag/ask http receive",
                at + 1,
                0.2,
                "internal receive < root",
                {"asgi.event.type": "http.request"},
            ),
            span(
                n,
                "POST",
                at + 10,
                search,
                "client search < root",
                {"http.method": "POST", "http.url": URL, "http.status_code": 200},
            ),
            chat(n, at + search + 20, answer, parent="root", ttft_s=0.3),
            *(
                span(
                    n,
                    "POST /rag/ask http send",
                    at + search + 320 + 20 * k,
                    15,
                    key=("send", k),
                    parent="root",
                    kind=INTERNAL,
                    attributes={"asgi.event.type": "http.response.body"},
                )
                for k in range(6)
            ),
        ]
    write(folder / "traces.json", resource("rag", spans))
