"""A gateway checks each key in its database, one check in fourteen stalls for seconds, whatever the time: no baseline, and a healthy check over its budget."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans = random.Random(12), []
    for n in range(420):
        at = n * 1_700.0
        check = draw.uniform(3_000, 3_800) if n % 14 == 3 else draw.uniform(180, 300)
        answer = draw.uniform(700, 900)
        spans += [
            span(
                n,
                "POST /v1/chat/completions",
                at,
                check + answer + 40,
                "server root",
                {"http.route": "/v1/chat/completions"},
            ),
            span(
                n,
                "SELECT",
                at + 10,
                check,
                "client key < root",
                {
                    "db.system.name": "postgresql",
                    "db.operation.name": "SELECT",
                    "db.collection.name": "LiteLLM_VerificationToken",
                    "server.address": "db",
                },
            ),
            chat(n, at + check + 20, answer, parent="root", ttft_s=0.3),
        ]
    write(folder / "traces.json", resource("gateway", spans))
