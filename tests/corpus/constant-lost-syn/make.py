"""One call in ten loses its first SYN, one in three of these the next one as well, and so on; from the beginning to the end."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans = random.Random(61), []
    for n in range(800):
        at, first, wait = n * 1_500.0, draw.uniform(240, 330), 1_000.0
        lost = draw.random() < 0.1
        while lost:
            first, wait = first + wait + draw.uniform(0, 12), 2 * wait
            lost = wait < 5_000 and draw.random() < 0.33
        told = {
            "traceloop.span.kind": "llm",
            "llm.request.type": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.usage.input_tokens": 200,
            "gen_ai.usage.output_tokens": 60,
            "gen_ai.response.time_to_first_chunk": first / 1e3,
        }
        spans += [
            span(n, "POST /chat", at, first + 1_240, "server root"),
            chat(n, at + 10, first + 1_200, parent="root", attributes=told),
        ]
    write(folder / "traces.json", resource("chat", spans))
