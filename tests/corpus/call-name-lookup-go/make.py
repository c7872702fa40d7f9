"""One lookup in nine takes 5 s or 10 s, at any time."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans = random.Random(16), []
    for n in range(500):
        at = n * 2_000.0
        lookup = draw.choice((5_004.0, 5_006.0, 10_010.0)) if n % 9 == 4 else draw.uniform(1, 4)
        answer = draw.uniform(600, 900)
        spans += [
            span(n, "POST /chat", at, lookup + answer + 40, "server root"),
            chat(n, at + 10, lookup + answer + 20, parent="root", ttft_s=(lookup + 320) / 1_000),
            span(
                n,
                "HTTP POST",
                at + 12,
                lookup + answer + 15,
                "client http < chat",
                {
                    "http.request.method": "POST",
                    "url.full": "https://api.openai.com/v1/chat/completions",
                },
            ),
            span(n, "http.dns", at + 13, lookup, "client dns < http"),
        ]
    write(folder / "traces.json", resource("chat", spans))
