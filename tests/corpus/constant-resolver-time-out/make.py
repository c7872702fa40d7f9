"""First tokens of 300 to 500 ms; from the second half on one call in twelve waits for a resolver first, twice for one in forty."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans = random.Random(60), []
    for n in range(900):
        at, first = n * 1_300.0, draw.uniform(300, 500)
        if n >= 450 and draw.random() < 1 / 12:
            first += draw.choice((5_004.0,) * 9 + (10_009.0,))
        spans += [
            span(n, "POST /chat", at, first + 1_540, "server root"),
            chat(n, at + 10, first + 1_500, parent="root", ttft_s=first / 1e3),
        ]
    write(folder / "traces.json", resource("chat", spans))
