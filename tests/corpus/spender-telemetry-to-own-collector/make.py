"""A chat service exports its spans by HTTP in each request (SimpleSpanProcessor), and the collector becomes slow; a service asks it over old HTTP names."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, web, service = random.Random(11), [], []
    for n in range(480):
        at = n * 2_500.0
        export = draw.uniform(5, 15) if n < 240 else draw.uniform(1_500, 2_500)
        answer = draw.uniform(900, 1_300)
        web += [
            span(n, "POST /chat", at, answer + export + 60, "server root"),
            span(
                n,
                "POST",
                at + 10,
                answer + export + 40,
                "client ask < root",
                {
                    "http.method": "POST",
                    "http.url": f"http://answers:8080/sessions/{n + 1000}/messages",
                },
            ),
        ]
        service += [
            span(
                n,
                "POST /sessions/{id}/messages",
                at + 15,
                answer + export + 30,
                "server served < ask",
            ),
            chat(n, at + 20, answer, parent="served", ttft_s=0.3),
            span(
                n,
                "HTTP POST",
                at + answer + 25,
                export,
                "client export < served",
                {
                    "http.method": "POST",
                    "http.url": "http://gateway.observe.svc:4318/v1/traces",
                    "net.peer.name": "gateway.observe.svc",
                    "http.status_code": 200,
                },
            ),
        ]
    write(folder / "traces.json", resource("web", web), resource("answers", service))
