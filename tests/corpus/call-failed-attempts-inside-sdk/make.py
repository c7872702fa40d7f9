"""From minute ten on, a third of the calls meet one or two attempts that end in 500, each with a pause behind it; what answers is as quick as before."""

import random
from pathlib import Path

from tests.corpus.otlp import CLIENT, chat, resource, span, write

URL = "https://eu.api.example/v1/messages"


def make(folder: Path) -> None:
    draw, spans = random.Random(15), []
    for n in range(600):
        at, begin = n * 2_000.0, 20.0
        parts = []
        for k in range(draw.choice((0, 0, 1, 2)) if n >= 300 else 0):
            took = draw.uniform(200, 400)
            parts.append(
                span(
                    n,
                    "POST",
                    at + begin,
                    took,
                    key=("attempt", k),
                    parent="chat",
                    kind=CLIENT,
                    attributes={
                        "http.request.method": "POST",
                        "url.full": URL,
                        "http.response.status_code": 500,
                        "error.type": "500",
                    },
                    more={"status": {"code": 2}},
                )
            )
            begin += took + draw.uniform(1_200, 1_800) * (k + 1)
        first, answer = draw.uniform(300, 500), draw.uniform(800, 1_200)
        parts.append(
            span(
                n,
                "POST",
                at + begin,
                answer,
                "client answer < chat",
                {"http.request.method": "POST", "url.full": URL, "http.response.status_code": 200},
            )
        )
        spans += [
            span(n, "POST /ask", at, begin + answer + 20, "server root"),
            chat(
                n, at + 15, begin + answer - 10, parent="root", ttft_s=(begin + first - 15) / 1_000
            ),
            *parts,
        ]
    write(folder / "traces.json", resource("asks", spans))
