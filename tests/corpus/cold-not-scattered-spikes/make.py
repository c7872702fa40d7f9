"""Sparse calls with pauses of up to ten minutes; one in ten is late, whatever its pause."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans, at = random.Random(47), [], 0.0
    for n in range(600):
        at += draw.choice((20_000.0, 45_000.0, 90_000.0, 400_000.0, 600_000.0))
        late = n >= 300 and draw.random() < 0.12
        first = draw.uniform(9_000, 20_000) if late else draw.uniform(400, 800)
        spans += [
            span(n, "POST /chat", at, first + 1_520, "server root"),
            chat(n, at + 10, first + 1_500, parent="root", ttft_s=first / 1e3),
        ]
    write(folder / "traces.json", resource("chat", spans))
